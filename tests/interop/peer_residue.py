"""Four programs that recover what is deleted find nothing after an erasure, and do in a careless twin.

strings (binutils), yara, sqlite_dissect (a carver of SQLite files by the DC3) and scalpel (a carver of anything).
Each must also find, in the very files it finds nothing erased in, a word of the same shape that was kept.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from erased import GONE, KEPT, count, files, make_erased
from installing import Tool, apt, environment, run
from judging import Judge
from sample import Bench

YARA = "yara-python==4.5.4"
DISSECT = "sqlite-dissect==1.0.0"


def install_strings(folder: Path) -> Tool:
    """strings, which is there wherever anything is compiled."""
    return _program("strings", "binutils", r"\d+\.\d+\S*")


def install_scalpel(folder: Path) -> Tool:
    """scalpel of Debian."""
    return _program("scalpel", "scalpel", r"(?<=version )\d+\.\d+")


def _program(name: str, package: str, version: str) -> Tool:
    if shutil.which(name) is None:
        apt([package])
    program = shutil.which(name)
    assert program is not None
    said = re.search(version, run(["sh", "-c", f"{name} --version 2>&1 || {name} -V 2>&1 || true"]))
    return Tool(Path(program), said.group() if said else "")


def install_yara(folder: Path) -> Tool:
    """yara in an environment of its own."""
    programs = environment(folder, YARA)
    run([str(programs / "python"), "-c", "import yara"])
    return Tool(programs / "python", YARA.partition("==")[2])


def install_dissect(folder: Path) -> Tool:
    """sqlite_dissect in an environment of its own."""
    programs = environment(folder, DISSECT)
    run([str(programs / "sqlite_dissect"), "--help"])
    return Tool(programs / "python", DISSECT.partition("==")[2])


def _judge(bench: Bench, judge: Judge, name: str, recovered: Callable[[Path, str], int]) -> None:
    """Asks for both words in both homes; `recovered` counts what the program gets of a word out of a home."""
    made = make_erased(bench.folder)
    # What a careless store leaves has to be there for any of them, or nothing was left for them to find.
    found = {
        (home.name, word): recovered(home, word)
        for home in (made.ours, made.careless)
        for word in (GONE, KEPT)
    }
    judge.story(
        f"{name} recovers nothing of what was erased ({found['ours', GONE]}; {found['ours', KEPT]} of what was kept)",
        {
            "nothing of it": found["ours", GONE] == 0,
            "what was kept, in both": min(found["ours", KEPT], found["careless", KEPT]) > 0,
        },
        {f"the careless twin, with {found['careless', GONE]} recovered": found["careless", GONE] > 0},
    )


def check_strings(bench: Bench, judge: Judge) -> None:
    """strings over every file of the home, also for two-byte characters of either order."""

    def recovered(home: Path, word: str) -> int:
        paths = [str(path) for path in files(home)]
        return sum(count([str(bench.tool), "-a", "-n", "6", "-e", code, *paths], word) for code in "slb")

    _judge(bench, judge, "strings", recovered)


def check_yara(bench: Bench, judge: Judge) -> None:
    """yara over every file: in either case, two-byte, in base64 and under every one-byte xor."""

    def recovered(home: Path, word: str) -> int:
        script = str(Path(__file__).with_name("yaracheck.py"))
        answer = run([str(bench.tool), script, word, *(str(path) for path in files(home))])
        return int(json.loads(answer)["matches"])

    _judge(bench, judge, "yara", recovered)


def check_dissect(bench: Bench, judge: Judge) -> None:
    """sqlite_dissect over the table of contents: its rows, and what it carves from pages, gaps and the freelist."""

    def recovered(home: Path, word: str) -> int:
        out = bench.folder / f"dissected-{home.name}"
        if not out.exists():
            out.mkdir()
            options = ["-c", "-f", "-b", "contents", "-d", str(out), "-e", "text", "--"]
            script = str(Path(__file__).with_name("dissectcheck.py"))
            run([str(bench.tool), script, *options, str(home / "store.db")], timeout=300)
        said = b"\n".join(path.read_bytes() for path in files(out))
        return len(set(re.findall(word.encode() + rb" number \d+", said)))

    _judge(bench, judge, "sqlite_dissect", recovered)


def check_scalpel(bench: Bench, judge: Judge) -> None:
    """scalpel over the store and its journal, by the word as the header of a file."""

    def recovered(home: Path, word: str) -> int:
        settings = bench.write(f"{word}.conf", f"txt y 200 {word}\n")
        total = 0
        for path in files(home):
            if path.name.startswith("store.db") and path.stat().st_size:
                out = bench.folder / f"carved-{home.name}-{path.name}-{word}"
                run([str(bench.tool), "-c", settings, "-o", str(out), str(path)])
                total += len(list(out.glob("txt-*/*.txt")))
        return total

    _judge(bench, judge, "scalpel", recovered)
