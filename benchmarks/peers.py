"""The same facts and operations through four memories, each in an environment of its own, in turns.

    python benchmarks/peers.py [--facts 200] [--calls 20] [--rounds 3] [--json FILE] [--plot FILE]
                               [--have FOLDER] [--stores FOLDER] [--only NAME ...]

Muniment, the reference memory server and basic-memory are spoken to as MCP servers over stdio, inspeximus through its
library by the same lines (benchmarks/peers_inspeximus.py), with receipts and without. They are installed for the run;
`--have` names a folder that keeps them. One that cannot be installed is left out and said.

First each gets the facts, all at the same time and in the quickest way it has; `--stores` names a folder that keeps
what was filled, where the next run goes on. Each round begins with a copy of that. Then each operation is asked of one
after the other, a few calls at a time, so that what else the machine does falls on all. Times are medians of calls;
processor time is that of the server, from its ticks of 10 ms over all calls of an operation. Flushes are the fsync
and fdatasync calls that strace counts in a server while it takes twenty facts; without them a fact may be lost with
the power.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "interop")]

from installing import CannotInstall, environment, node_modules  # noqa: E402
from log_plot import Drawing  # noqa: E402
from surface_rates import Server, Stdio, text_of  # noqa: E402

INSPEXIMUS, REFERENCE, BASIC = (
    "inspeximus==3.23.1",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "basic-memory==0.24.1",
)
OPERATIONS = ("remember", "correct", "recall", "get", "as_of", "history", "provenance", "forget")
BESIDE = ("inspeximus", "reference", "basic")
AT_A_TIME = 5
STRACED = 20
LEAVE_SECONDS = 60
Call = Callable[[Stdio, int], None]
COLOURS = ("#1b6e53", "#8a8f94", "#b9bdc1", "#b0682c", "#5b5fa8")


@dataclass(frozen=True)
class Peer:
    """A memory, how one is started on an empty folder, and what it can be asked."""

    name: str
    start: Callable[[Path], Server]
    calls: dict[str, Call]
    many: Callable[[Stdio, int], None] | None = None
    """Gives as many facts at once, where it has a way to; else each is remembered"""


def ask(one: Stdio, tool: str, **arguments: Any) -> str:
    """The text that a tool answers; an error of it ends the run, for it would look fast."""
    result, _ = one.tool(tool, arguments)
    text = "".join(part.get("text", "") for part in result.get("content", ()))
    if result.get("isError"):
        raise RuntimeError(f"{tool}: {text[:300]}")
    return text


def server(name: str, command: list[str], **variables: str) -> Server:
    def unused(_: int) -> tuple[str, dict[str, Any]]:
        raise NotImplementedError

    return Server(name, command, unused, ("", {}), variables)


def moved(number: int) -> tuple[str, str, str]:
    """What is said of the same key later."""
    text, key, value = text_of(number)
    new = f"{value}-new-{number}"
    return text.replace(value, new), key, new


def question(number: int) -> str:
    return f"which region does {text_of(number)[1].partition('/')[0]} run in"


def muniment() -> Peer:
    def write(one: Stdio, said: tuple[str, str, str]) -> None:
        ask(one, "remember", text=said[0], key=said[1], value=said[2])

    def forget(one: Stdio, number: int) -> None:
        key = text_of(number)[1]
        token = re.search(r'"confirm":\s*"([^"]+)"', ask(one, "forget", key=key))
        assert token is not None
        ask(one, "forget", key=key, confirm=token[1])

    def provenance(one: Stdio, number: int) -> None:
        found = re.search(r'"id":\s*"([a-z2-7]{26})"', ask(one, "get", key=text_of(number)[1]))
        assert found is not None
        ask(one, "provenance", id=found[1])

    def start(folder: Path) -> Server:
        command = [sys.executable, "-m", "memory.cli", "mcp", "--home", str(folder / "home")]
        return server("muniment", command, PYTHONPATH=str(REPOSITORY))

    return Peer(
        "Muniment",
        start,
        {
            "remember": lambda one, number: write(one, text_of(number)),
            "correct": lambda one, number: write(one, moved(number)),
            "recall": lambda one, number: _nothing(ask(one, "recall", query=question(number), limit=10)),
            "get": lambda one, number: _nothing(ask(one, "get", key=text_of(number)[1])),
            "as_of": lambda one, number: _nothing(ask(one, "get", key=text_of(number)[1], as_of=_now())),
            "history": lambda one, number: _nothing(ask(one, "history", key=text_of(number)[1])),
            "provenance": provenance,
            "forget": forget,
        },
    )


def _at_once(tool: str, argument: str, make: Callable[[int], Any], size: int) -> Callable[[Stdio, int], None]:
    def many(one: Stdio, facts: int) -> None:
        for begin in range(0, facts, size):
            ask(one, tool, **{argument: [make(at) for at in range(begin, min(begin + size, facts))]})

    return many


def inspeximus(python: str, kind: str) -> Peer:
    def write(one: Stdio, said: tuple[str, str, str]) -> None:
        ask(one, "remember", text=said[0], key=said[1], value=said[2])

    def keyed(tool: str) -> Call:
        return lambda one, number: _nothing(ask(one, tool, key=text_of(number)[1]))

    def start(folder: Path) -> Server:
        driver = str(REPOSITORY / "benchmarks" / "peers_inspeximus.py")
        return server("inspeximus", [python, driver, str(folder / "store.json"), kind], HOME=str(folder))

    return Peer(
        f"inspeximus, {'receipts' if kind == 'receipts' else 'no receipts'}",
        start,
        {
            "remember": lambda one, number: write(one, text_of(number)),
            "correct": lambda one, number: write(one, moved(number)),
            "recall": lambda one, number: _nothing(ask(one, "recall", query=question(number))),
            **{name: keyed(name) for name in ("get", "as_of", "history", "provenance", "forget")},
        },
        _at_once("remember_many", "facts", text_of, 500),
    )


def reference(place: Path) -> Peer:
    def name_of(number: int) -> str:
        return text_of(number)[1].partition("/")[0]

    def entity(number: int) -> dict[str, Any]:
        return {"name": name_of(number), "entityType": "service", "observations": [text_of(number)[0]]}

    def remember(one: Stdio, number: int) -> None:
        ask(one, "create_entities", entities=[entity(number)])

    def correct(one: Stdio, number: int) -> None:
        # It keeps what was said before beside it, unless the caller takes that out.
        said = {"entityName": name_of(number), "contents": [moved(number)[0]]}
        ask(one, "add_observations", observations=[said])

    def start(folder: Path) -> Server:
        command = ["node", str(place / "dist" / "index.js")]
        return server("reference", command, MEMORY_FILE_PATH=str(folder / "memory.jsonl"))

    return Peer(
        "reference server",
        start,
        {
            "remember": remember,
            "correct": correct,
            # It finds what contains the whole query.
            "recall": lambda one, number: _nothing(ask(one, "search_nodes", query=name_of(number))),
            "get": lambda one, number: _nothing(ask(one, "open_nodes", names=[name_of(number)])),
            "forget": lambda one, number: _nothing(
                ask(one, "delete_entities", entityNames=[name_of(number)])
            ),
        },
        _at_once("create_entities", "entities", entity, 500),
    )


def basic_memory(program: str) -> Peer:
    def title(number: int) -> str:
        return text_of(number)[1].replace("/", " ")

    def note(number: int) -> str:
        return f"facts/{title(number).replace(' ', '-')}"

    def remember(one: Stdio, number: int) -> None:
        ask(
            one,
            "write_note",
            title=title(number),
            content=text_of(number)[0],
            directory="facts",
            project="main",
        )

    def correct(one: Stdio, number: int) -> None:
        said = {"operation": "append", "content": moved(number)[0]}
        ask(one, "edit_note", identifier=note(number), project="main", **said)

    def recall(one: Stdio, number: int) -> None:
        ask(one, "search_notes", query=question(number), project="main", search_type="text")

    def start(folder: Path) -> Server:
        notes = {"HOME": str(folder), "BASIC_MEMORY_HOME": str(folder / "notes")}
        return server("basic-memory", [program, "mcp"], BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED="false", **notes)

    return Peer(
        "basic-memory",
        start,
        {
            "remember": remember,
            "correct": correct,
            "recall": recall,
            "get": lambda one, number: _nothing(
                ask(one, "read_note", identifier=note(number), project="main")
            ),
            "forget": lambda one, number: _nothing(
                ask(one, "delete_note", identifier=note(number), project="main")
            ),
        },
    )


def _nothing(_: object) -> None:
    """For calls whose answer is not looked at."""


def _now() -> str:
    return datetime.now(UTC).isoformat()


def peers(have: Path, only: list[str]) -> tuple[list[Peer], list[str]]:
    """Those that can be had here, and why others cannot."""
    found, without = [muniment()], []

    def add(name: str, make: Callable[[Path], list[Peer]]) -> None:
        if name not in only:
            return
        folder = have / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            found.extend(make(folder))
        except CannotInstall as reason:
            without.append(str(reason))

    def environment_in(folder: Path, package: str, *versions: str) -> Path:
        ready = folder / "environment" / "bin"
        return ready if ready.is_dir() else environment(folder, package, *versions)

    def node_in(folder: Path) -> Path:
        place = folder / "node_modules" / REFERENCE.rpartition("@")[0]
        if not place.is_dir():
            node_modules(folder, REFERENCE)
        return place

    def both(folder: Path) -> list[Peer]:
        python = str(environment_in(folder, INSPEXIMUS) / "python")
        return [inspeximus(python, "receipts"), inspeximus(python, "plain")]

    add("inspeximus", both)
    add("reference", lambda folder: [reference(node_in(folder))])
    add(
        "basic",
        lambda folder: [basic_memory(str(environment_in(folder, BASIC, "3.13", "3.12") / "basic-memory"))],
    )
    return found, without


def fill(found: list[Peer], facts: int, stores: Path) -> dict[str, float]:
    """A store of each with the facts, and the seconds that took; what is there already is not filled again."""

    def one_of(number: int, peer: Peer) -> float:
        folder, done = stores / str(number), stores / f"{number}.done"
        if done.exists():
            return float(done.read_text("utf-8"))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        one = Stdio(peer.start(folder))
        began = time.perf_counter()
        try:
            one.begin()
            if peer.many is not None:
                peer.many(one, facts)
            else:
                for at in range(facts):
                    peer.calls["remember"](one, at)
        finally:
            _leave(one)
        took = round(time.perf_counter() - began, 1)
        done.write_text(f"{took}", "utf-8")
        return took

    with ThreadPoolExecutor(len(found)) as pool:
        took = list(pool.map(one_of, range(len(found)), found))
    return {peer.name: seconds for peer, seconds in zip(found, took, strict=True)}


def _leave(one: Stdio) -> None:
    """Ends a server as a host does, which gives it the time to write what it holds back."""
    assert one.process.stdin is not None
    one.process.stdin.close()
    try:
        one.process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        one.process.kill()
        one.process.wait()


def one_round(
    found: list[Peer], facts: int, calls: int, times: dict[str, dict[str, list[Any]]], stores: Path
) -> None:
    """Adds the seconds of each call, and the processor seconds of each operation by its calls."""
    with tempfile.TemporaryDirectory(prefix="peers-") as place:
        running: dict[str, Stdio] = {}
        try:
            for number, peer in enumerate(found):
                folder = Path(place) / str(number)
                shutil.copytree(stores / str(number), folder)
                running[peer.name] = Stdio(peer.start(folder))
                running[peer.name].begin()
                # What a server loads or builds at its first question is not the price of a question.
                peer.calls["recall"](running[peer.name], 0)
            for operation in OPERATIONS:
                _turns(found, running, operation, facts, calls, times)
        finally:
            for one in running.values():
                one.process.kill()
                one.process.communicate()


def _turns(
    found: list[Peer],
    running: dict[str, Stdio],
    operation: str,
    facts: int,
    calls: int,
    times: dict[str, dict[str, list[Any]]],
) -> None:
    able = [peer for peer in found if operation in peer.calls]
    spent = {peer.name: running[peer.name].cpu() for peer in able}
    for begin in range(0, calls, AT_A_TIME):
        for peer in able:
            for at in range(begin, min(begin + AT_A_TIME, calls)):
                # New ones are remembered; everything else is about what has been there from the first.
                number = facts + at if operation == "remember" else at
                began = time.perf_counter()
                peer.calls[operation](running[peer.name], number)
                times[peer.name].setdefault(operation, []).append(time.perf_counter() - began)
    for peer in able:
        used = (running[peer.name].cpu() - spent[peer.name]) / calls
        times[peer.name].setdefault(f"{operation} cpu", []).append(used)


def flushes(peer: Peer) -> float | None:
    """How often a server flushes a file to the disk for each fact that it takes; None where strace is not there."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with tempfile.TemporaryDirectory(prefix="peers-") as place:
        trace = Path(place) / "trace"
        (Path(place) / "store").mkdir()
        plain = peer.start(Path(place) / "store")
        command = [strace, "-f", "-q", "-e", "trace=fsync,fdatasync", "-o", str(trace), *plain.command]
        one = Stdio(server(plain.name, command, **plain.environment))
        one.begin()
        peer.calls["remember"](one, 0)
        before = _count(trace)
        for number in range(1, STRACED + 1):
            peer.calls["remember"](one, number)
        after = _count(trace)
        one.process.send_signal(signal.SIGTERM)
        one.end()
        return (after - before) / STRACED


def _count(trace: Path) -> int:
    return len(re.findall(r"f(?:data)?sync\(", trace.read_text("utf-8", "replace")))


def table(found: list[Peer], times: dict[str, dict[str, list[Any]]], facts: int) -> list[dict[str, Any]]:
    """A row for each memory: milliseconds and processor milliseconds of each operation, as medians."""
    return [
        {
            "memory": peer.name,
            "flushes_a_fact": flushes(peer),
            "facts": facts,
            "operations": {
                name: {
                    "ms": round(statistics.median(times[peer.name][name]) * 1e3, 2),
                    "cpu_ms": round(statistics.median(times[peer.name][f"{name} cpu"]) * 1e3, 2),
                }
                for name in OPERATIONS
                if name in peer.calls
            },
        }
        for peer in found
    ]


def show(rows: list[dict[str, Any]]) -> None:
    """Prints medians, and how many times as long as Muniment each takes."""
    own = rows[0]["operations"]
    for row in rows:
        count = row["flushes_a_fact"]
        told = "flushes not counted" if count is None else f"{count:g} flushes a fact"
        print(f"\n{row['memory']}, {row['facts']} facts, {told}")
        for name, one in row["operations"].items():
            ratio = one["ms"] / own[name]["ms"] if own[name]["ms"] else 0
            print(
                f"  {name:<12}{one['ms']:>10.2f} ms{one['cpu_ms']:>10.2f} ms of processor{ratio:>8.2f} x ours"
            )


def plot(rows: list[dict[str, Any]]) -> str:
    """Bars of the median time of each operation, on a scale of powers of ten."""
    import math

    drawing, left, top, height = Drawing(), 60.0, 60.0, 270.0
    width = (900 - left) / len(OPERATIONS)
    drawing.text(left, 28, "Milliseconds a call over stdio, each scale line ten times the one below", 15)
    highest = max(one["ms"] for row in rows for one in row["operations"].values())
    decades = max(1, math.ceil(math.log10(highest))) + 1  # from 0.1 ms
    for decade in range(decades + 1):
        y = top + height - height * decade / decades
        drawing.line([(left, y), (900, y)], "#c9ced2")
        drawing.text(left - 6, y + 4, f"{10.0 ** (decade - 1):g}", 11, "end")
    for at, name in enumerate(OPERATIONS):
        drawing.text(left + width * (at + 0.5), top + height + 18, name, 12, "middle")
        for number, row in enumerate(rows):
            one = row["operations"].get(name)
            if one is None:
                continue
            tall = max(2.0, height * (math.log10(max(one["ms"], 0.1)) + 1) / decades)
            x = left + width * at + 8 + number * (width - 16) / len(rows)
            drawing.rectangle(x, top + height - tall, (width - 16) / len(rows) - 1, tall, COLOURS[number])
    for number, row in enumerate(rows):
        count = row["flushes_a_fact"]
        told = "" if count is None else f" ({count:g} flushes a fact)"
        x, y = left + (number % 3) * 280, 378 + 20 * (number // 3)
        drawing.rectangle(x, y - 10, 12, 12, COLOURS[number])
        drawing.text(x + 18, y, f"{row['memory']}{told}")
    return drawing.svg()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--facts", type=int, default=200)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--have", type=Path)
    parser.add_argument("--stores", type=Path)
    parser.add_argument("--only", nargs="*", default=list(BESIDE), metavar="NAME", help=" ".join(BESIDE))
    args = parser.parse_args()
    if not set(args.only) <= set(BESIDE):
        parser.error(f"expected names out of {' '.join(BESIDE)}")
    with tempfile.TemporaryDirectory(prefix="peers-env-") as folder:
        found, without = peers(args.have or Path(folder), args.only)
        times: dict[str, dict[str, list[Any]]] = {peer.name: {} for peer in found}
        stores = (args.stores or Path(folder)) / f"stores-{args.facts}"
        filled = fill(found, args.facts, stores)
        for _ in range(args.rounds):
            one_round(found, args.facts, args.calls, times, stores)
        rows = table(found, times, args.facts)
    for row in rows:
        row["filled_in_s"] = filled[row["memory"]]
    show(rows)
    for reason in without:
        print(f"\nleft out: {reason}")
    if args.json is not None:
        about = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}",
            "load": round(os.getloadavg()[0], 1),
            "command": f"python benchmarks/peers.py --facts {args.facts} --calls {args.calls} --rounds {args.rounds}",
            "versions": [INSPEXIMUS, REFERENCE, BASIC],
            "left_out": without,
        }
        args.json.write_text(json.dumps({**about, "memories": rows}, indent=1) + "\n")
    if args.plot is not None:
        args.plot.write_text(plot(rows))


if __name__ == "__main__":
    main()
