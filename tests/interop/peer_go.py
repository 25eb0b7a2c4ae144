"""Go's sumdb/note and sumdb/tlog, from Debian, around the small program in gocheck/."""

from __future__ import annotations

import os
from pathlib import Path

from installing import REPOSITORY, apt, run
from sample import Sample

SOURCES = Path("/usr/share/gocode/src/golang.org/x/mod/sumdb")


def check(sample: Sample, folder: Path) -> str:
    """Opens our checkpoint, proves every record of our tiles, and that the log only grew."""
    gocheck = build(folder)
    text = run([gocheck, "note", str(sample.checkpoint), sample.vkey])
    if text.split("\n")[:3] != [sample.origin, str(sample.size), sample.root]:
        raise AssertionError("Go read another checkpoint from the note")
    log = str(sample.home / "log")
    proved = run([gocheck, "tree", log, str(sample.size), sample.root]).strip()
    run([gocheck, "consistency", log, str(sample.old_size), sample.old_root, str(sample.size), sample.root])
    _must_refuse(gocheck, sample, folder)
    return f"note opened, {proved}, {sample.old_size} to {sample.size} consistent, a changed root refused"


def _must_refuse(gocheck: str, sample: Sample, folder: Path) -> None:
    """The control: with one byte changed, Go has to refuse."""
    data = bytearray(sample.checkpoint.read_bytes())
    data[len(sample.origin) + 8] ^= 1
    changed = folder / "changed"
    changed.write_bytes(data)
    try:
        run([gocheck, "note", str(changed), sample.vkey])
    except RuntimeError:
        return
    raise AssertionError("Go opened a note with a changed byte")


def build(folder: Path) -> str:
    """The path of the program, built."""
    if not SOURCES.is_dir() or not any(
        os.access(Path(place) / "go", os.X_OK) for place in os.environ.get("PATH", "").split(":")
    ):
        apt(["golang-go", "golang-golang-x-mod-dev"])
    program = folder / "gocheck"
    run(
        ["go", "build", "-o", str(program), "main.go"],
        cwd=REPOSITORY / "tests" / "interop" / "gocheck",
        GO111MODULE="off",
        GOPATH="/usr/share/gocode",
        GOCACHE=str(folder / "cache"),
        GOFLAGS="",
    )
    return str(program)
