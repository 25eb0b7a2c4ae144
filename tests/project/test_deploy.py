"""The files by which hosts and registries find the server: of one version, of the shape they ask for, and runnable."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from memory import cli
from memory.install import SERVER_NAME

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DEPLOY = REPOSITORY / "deploy"
PLUGIN = DEPLOY / "claude-code-plugin"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def test_all_are_of_the_version_of_the_project() -> None:
    registry = read(DEPLOY / "mcp-registry" / "server.json")
    versions = [
        read(PLUGIN / ".claude-plugin" / "plugin.json")["version"],
        read(DEPLOY / "mcpb" / "manifest.json")["version"],
        registry["version"],
        *(package["version"] for package in registry["packages"]),
    ]
    assert set(versions) == {PROJECT["version"]}


def test_the_plugin_has_its_servers_where_the_host_looks() -> None:
    # In .claude-plugin it would register no server at all.
    assert sorted(path.name for path in (PLUGIN / ".claude-plugin").iterdir()) == ["plugin.json"]
    plugin = read(PLUGIN / ".claude-plugin" / "plugin.json")
    assert re.fullmatch(r"[a-z0-9-]+", plugin["name"])
    server = read(PLUGIN / ".mcp.json")["mcpServers"][SERVER_NAME]
    assert server["command"] in PROJECT["scripts"] and server["args"][0] in cli.COMMANDS


def test_hooks_call_commands_that_there_are_and_never_fail_the_host() -> None:
    hooks = read(PLUGIN / "hooks" / "hooks.json")["hooks"]
    assert set(hooks) == {"SessionStart", "UserPromptSubmit"}
    for matchers in hooks.values():
        for hook in (one for matcher in matchers for one in matcher["hooks"]):
            program, command, event, *rest = hook["command"].split()
            assert hook["type"] == "command" and program in PROJECT["scripts"]
            assert command in cli.COMMANDS and event in ("session-start", "prompt")
            assert rest == ["||", "true"] and hook["timeout"] <= 10


def test_the_registry_entry() -> None:
    entry = read(DEPLOY / "mcp-registry" / "server.json")
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"]), "reverse-DNS with one slash"
    assert 1 <= len(entry["description"]) <= 100
    (package,) = entry["packages"]
    assert (package["registryType"], package["identifier"]) == ("pypi", PROJECT["name"])
    assert package["transport"] == {"type": "stdio"}
    assert f"<!-- mcp-name: {entry['name']} -->" in (REPOSITORY / "README.md").read_text("utf-8"), (
        "the registry finds the owner by this line of the published README"
    )


def test_the_bundle_manifest() -> None:
    manifest = read(DEPLOY / "mcpb" / "manifest.json")
    assert manifest["manifest_version"] == "0.4"
    assert {"name", "version", "description", "author", "server"} <= manifest.keys()
    assert (REPOSITORY / manifest["server"]["entry_point"]).is_file()
    config = manifest["server"]["mcp_config"]
    assert config["args"][-1] in cli.COMMANDS
    asked = set(re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(config)))
    assert asked == set(manifest["user_config"])


def test_the_container_copies_every_package() -> None:
    for name in ("Containerfile", "Containerfile.server"):
        text = (DEPLOY / name).read_text("utf-8")
        for package in ("memory", "tlog", "witness", "auditor"):
            assert f"COPY {package} /source/{package}\n" in text
        (command,) = re.findall(r'^CMD \["([a-z]+)"', text, flags=re.MULTILINE)
        entry = re.findall(r'^ENTRYPOINT \["muniment"(?:, "([a-z]+)")?\]', text, flags=re.MULTILINE)
        assert entry and (entry[0] or command) in cli.COMMANDS
        assert "\nUSER 73" in text, "it does not run as root"
