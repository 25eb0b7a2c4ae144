"""The files that start many nodes say what there is: they parse, their parts fit, and their commands are ours."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from memory import cli

NODES = Path(__file__).resolve().parent.parent.parent / "deploy" / "nodes"
REFERENCE = re.compile(r"\$\{([A-Z_]+)(?::[-?][^}]*)?\}")


def objects() -> dict[str, dict[str, Any]]:
    """The manifests by kind; of each kind there is one."""
    found = list(yaml.safe_load_all((NODES / "kubernetes.yaml").read_text("utf-8")))
    by_kind = {one["kind"]: one for one in found}
    assert len(by_kind) == len(found)
    return by_kind


def compose() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load((NODES / "compose.yaml").read_text("utf-8"))
    return parsed


def commands() -> Iterator[list[str]]:
    for service in compose()["services"].values():
        if service["image"] == "muniment":
            yield [REFERENCE.sub("https://memory.example.com", word) for word in service["command"]]
    pod = objects()["Deployment"]["spec"]["template"]["spec"]
    yield from (container["args"] for container in pod["containers"])


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: str(command[0]))
def test_every_command_is_one_of_ours_with_options_that_it_has(command: list[str]) -> None:
    args = cli._parse(command)
    assert args.command == command[0]


def test_the_parts_of_the_manifests_name_each_other() -> None:
    by_kind = objects()
    space = by_kind["Namespace"]["metadata"]["name"]
    for kind, one in by_kind.items():
        assert one["apiVersion"] and one["metadata"]["name"]
        assert kind == "Namespace" or one["metadata"]["namespace"] == space
    deployment = by_kind["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    pod = deployment["template"]["spec"]
    for selector in (
        deployment["selector"]["matchLabels"],
        by_kind["Service"]["spec"]["selector"],
        by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in pod["topologySpreadConstraints"]),
    ):
        assert selector == labels
    assert by_kind["PodDisruptionBudget"]["spec"]["minAvailable"] < deployment["replicas"]
    assert pod["serviceAccountName"] == by_kind["ServiceAccount"]["metadata"]["name"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounted = {
        mount["name"] for one in pod["initContainers"] + pod["containers"] for mount in one["volumeMounts"]
    }
    assert mounted == volumes
    (container,) = pod["containers"]
    assert [one["configMapRef"]["name"] for one in container["envFrom"]] == [
        by_kind["ConfigMap"]["metadata"]["name"]
    ]


def test_ports_and_probes_are_those_of_the_server() -> None:
    by_kind = objects()
    (container,) = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    options = dict(zip(container["args"][1::2], container["args"][2::2], strict=True))
    assert options["--listen"].endswith(f":{ports['http']}")
    assert options["--metrics"].endswith(f":{ports['metrics']}")
    assert by_kind["Service"]["spec"]["ports"][0]["targetPort"] in ports
    server = "".join(path.read_text("utf-8") for path in (NODES.parent.parent / "memory").glob("http*.py"))
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        asked = container[probe]["httpGet"]
        assert f'"{asked["path"]}"' in server and asked["port"] in ports


def test_secrets_are_files_of_the_operator_and_their_making_is_told() -> None:
    text = (NODES / "kubernetes.yaml").read_text("utf-8")
    pod = objects()["Deployment"]["spec"]["template"]["spec"]
    secrets = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    assert secrets and all(f"create secret generic {one}" in text for one in secrets)
    assert "Secret" not in objects(), "a secret in a manifest is no secret"
    whole = compose()
    used = {one for service in whole["services"].values() for one in service.get("secrets", ())}
    assert used == set(whole["secrets"])
    for service in whole["services"].values():
        for name, value in service["environment"].items():
            if re.search("SECRET|ACCESS_KEY|PASSWORD$", name):
                assert REFERENCE.fullmatch(value), f"{name} stands in the file"
    named = {volume.partition(":")[0] for one in whole["services"].values() for volume in one["volumes"]}
    assert {one for one in named if not one.startswith(".")} == set(whole["volumes"])
    assert {one for one in named if one.startswith(".")} == {"./roles.sh"}


def test_the_roles_are_those_of_the_schema_and_the_script_is_one() -> None:
    from memory.pg_schema import WHOLE

    script = (NODES / "roles.sh").read_text("utf-8")
    assert f"CREATE ROLE {WHOLE} NOLOGIN" in script and "LOGIN NOINHERIT" in script
    subprocess.run(["sh", "-n", str(NODES / "roles.sh")], check=True)
