"""Go's sumdb/note and sumdb/tlog, from Debian, read our notes, proofs and tiles."""

from __future__ import annotations

import base64
import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

from installing import REPOSITORY, Tool, apt, run
from judging import Judge, flipped
from sample import Bench, Head, make_large_log

SOURCES = Path("/usr/share/gocode/src/golang.org/x/mod/sumdb")
PACKAGES = ["golang-go", "golang-golang-x-mod-dev"]
WITNESS = "witness.interop.invalid"
TIME = 1_760_000_000
# What a path of ours has to mean to Go: level (-1: entries), index and width.
PATHS = {
    "tile/0/000": (0, 0, 256),
    "tile/0/000.p/1": (0, 0, 1),
    "tile/0/255.p/255": (0, 255, 255),
    "tile/1/999": (1, 999, 256),
    "tile/2/x001/000": (2, 1000, 256),
    "tile/5/x001/x234/067.p/9": (5, 1_234_067, 9),
    "tile/entries/x273/112.p/112": (-1, 273_112, 112),
}
NO_PATHS = ("tile/0/x000/001", "tile/0/1", "tile/0/000.p/0", "tile/0/000.p/256", "tile/00/000")


def install(folder: Path) -> Tool:
    """Go and its packages from Debian, where they are not there, and the program in gocheck/ built with them."""
    if not SOURCES.is_dir() or shutil.which("go") is None:
        apt(PACKAGES)
    program = folder / "gocheck"
    run(
        ["go", "build", "-o", str(program), "."],
        cwd=REPOSITORY / "tests" / "interop" / "gocheck",
        timeout=240,
        GO111MODULE="off",
        GOPATH="/usr/share/gocode",
        GOCACHE=str(folder / "cache"),
        GOFLAGS="",
    )
    return Tool(program, f"{_version('go', 'version')}, x/mod {_debian_version(PACKAGES[1])}")


def _version(*command: str) -> str:
    found = re.search(r"[0-9]+(\.[0-9]+)+", run(list(command)))
    return found[0] if found else "of unknown version"


def _debian_version(package: str) -> str:
    if shutil.which("dpkg-query") is None:
        return "of unknown version"
    return _version("dpkg-query", "-W", "-f=${Version}", package)


class Go:
    """The program, asked for a verdict: what it printed, or None if Go refused."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def ask(self, *arguments: str) -> str | None:
        done = subprocess.run(
            [str(self.bench.tool), *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode == 1 and done.stderr.startswith("refused: "):
            return None
        if done.returncode:
            raise RuntimeError(f"gocheck {arguments[0]} ended with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout

    def opens(self, note: bytes, *vkeys: str) -> bool:
        """Whether each of the keys has signed the note, and Go reads the text that we wrote."""
        text = self.ask("note", self.bench.write("note", note), *vkeys)
        return text is not None and note.startswith(f"{text}\n".encode())

    def proves(self, proof: bytes, vkey: str, entry: bytes) -> bool:
        """Whether the tlog-proof shows the entry."""
        written = self.bench.write("proof", proof), self.bench.write("entry", entry)
        return self.ask("proof", written[0], vkey, written[1]) is not None

    def derives(self, log: Path, head: Head) -> bool:
        """Whether tiles and bundles make the root."""
        return self.ask("tree", str(log), str(head.size), head.root) is not None

    def extends(self, log: Path, old: Head, new: Head) -> bool:
        """Whether the tiles show one head's tree to begin with the other's."""
        heads = str(old.size), old.root, str(new.size), new.root
        return self.ask("consistency", str(log), *heads) is not None


def other_vkey(vkey: str) -> str:
    """A key of the same name that has signed nothing."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from tlog.note import make_verifier_key, parse_vkey

    key = parse_vkey(vkey)
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    return make_verifier_key(key.name, key.kind, public).vkey


def with_root_changed(head: Head) -> Head:
    """A head of the same size with one bit of the root changed."""
    return Head(head.size, base64.b64encode(flipped(base64.b64decode(head.root))).decode())


def with_signature_changed(note: bytes, name: str) -> bytes:
    """The note with one bit changed in the signature line of that name."""
    start = note.index(f"— {name} ".encode()) + len(f"— {name} ".encode())
    end = note.index(b"\n", start)
    return note[:start] + base64.b64encode(flipped(base64.b64decode(note[start:end]))) + note[end:]


def with_size_changed(note: bytes, size: int) -> bytes:
    """The note with another size in its text."""
    return note.replace(f"\n{size}\n".encode(), f"\n{size + 1}\n".encode(), 1)


def check_notes(bench: Bench, judge: Judge) -> None:
    """Our checkpoint opens in Go, alone and with foreign lines put before the log's own."""
    go, sample, note = Go(bench), bench.sample, bench.sample.checkpoint
    size = sample.heads[1].size
    judge.both_ways(
        "Go opens our checkpoint with our vkey",
        lambda one: go.opens(one[0], one[1]),
        (note, sample.vkey),
        {
            "size": (with_size_changed(note, size), sample.vkey),
            "signature": (with_signature_changed(note, sample.origin), sample.vkey),
            "another key": (note, other_vkey(sample.vkey)),
        },
    )


def check_cosigned_note(bench: Bench, judge: Judge) -> None:
    """A grease line and our witnesses' lines first, the log's line last; Go verifies the Ed25519 ones."""
    from tlog.keys import make_cosigner_key
    from tlog.note import Note, SignatureLine, SignatureType, format_note, parse_note
    from tlog.policy import parse_policy, verify_checkpoint

    go, sample = Go(bench), bench.sample
    plain = parse_note(sample.checkpoint)
    grease = SignatureLine("grease.invalid", os.urandom(4), os.urandom(40))
    ed25519 = make_cosigner_key(bench.folder / "keys" / "ed25519", WITNESS)
    mldsa = make_cosigner_key(bench.folder / "keys" / "mldsa", WITNESS, SignatureType.MLDSA44)
    lines = (grease, ed25519.cosign(plain.text, TIME), mldsa.cosign(plain.text, TIME), *plain.signatures)
    note = format_note(Note(plain.text, lines))
    vkey = ed25519.verifier_key.vkey
    policy = parse_policy(
        f"log {sample.vkey}\nwitness one {vkey}\nwitness two {mldsa.verifier_key.vkey}\n"
        "group both all one two\nquorum both\n"
    )
    if len(verify_checkpoint(policy, note).cosignatures) != 2:
        raise AssertionError("our own verifier counts other cosignatures")
    judge.both_ways(
        "Go opens it after a grease line and two witnesses' lines, and verifies our Ed25519 cosignature",
        lambda one: go.opens(one[0], sample.vkey, one[1]),
        (note, vkey),
        {
            "the log's signature": (with_signature_changed(note, sample.origin), vkey),
            "the cosignature": (with_signature_changed(note, WITNESS), vkey),
            "another witness key": (note, other_vkey(vkey)),
            "no cosignature": (sample.checkpoint, vkey),
        },
    )


def check_proofs(bench: Bench, judge: Judge) -> None:
    """Our tlog-proof, read by a parser of Go's side and checked by sumdb/tlog."""
    from tlog.proof import format_proof, parse_proof

    go, sample = Go(bench), bench.sample
    data = sample.proof.read_bytes()
    proof = parse_proof(data)
    entry = proof.extra
    if entry is None:
        raise AssertionError("our tlog-proof does not carry the entry")
    hashes = (flipped(proof.hashes[0]), *proof.hashes[1:])
    judge.both_ways(
        "Go checks our tlog-proof",
        lambda one: go.proves(one[0], sample.vkey, one[1]),
        (data, entry),
        {
            "a hash": (format_proof(type(proof)(proof.index, hashes, proof.checkpoint)), entry),
            "the index": (format_proof(type(proof)(proof.index - 1, proof.hashes, proof.checkpoint)), entry),
            "the entry": (data, flipped(entry)),
            "the checkpoint": (with_size_changed(data, sample.heads[1].size), entry),
        },
    )


def check_tiles(bench: Bench, judge: Judge) -> None:
    """Go derives our root from our tiles and bundles, proves records, and that the log only grew."""
    go, sample = Go(bench), bench.sample
    old, new = sample.heads
    changed = {
        name: _copy_with_byte_changed(sample.log, path, bench.folder)
        for name, path in (("a tile", "tile/0/000"), ("an entry", "tile/entries/000"))
    }
    judge.both_ways(
        f"Go derives the root of our {new.size} entries from our tiles, and proves records with them",
        lambda one: go.derives(one[0], one[1]),
        (sample.log, new),
        {"the root": (sample.log, with_root_changed(new))}
        | {name: (log, new) for name, log in changed.items()},
    )
    judge.both_ways(
        f"Go proves that our log of {new.size} extends that of {old.size}",
        lambda one: go.extends(sample.log, one, new),
        old,
        {"the old root": with_root_changed(old), "the old size": Head(old.size - 1, old.root)},
    )


def check_large_log(bench: Bench, judge: Judge) -> None:
    """The same across the ends of tiles of three levels."""
    go = Go(bench)
    heads = make_large_log(bench.folder / "large")
    log, last = bench.folder / "large" / "log", list(heads.values())[-1]
    judge.both_ways(
        f"Go derives the root of our {last.size} entries from tiles of three levels",
        lambda one: go.derives(log, one),
        last,
        {"the root": with_root_changed(last), "the size": Head(last.size - 1, last.root)},
    )
    steps = list(itertools.pairwise(heads.values()))
    judge.story(
        "Go proves every step between the sizes around the ends of its tiles",
        {f"{old.size} to {new.size}": go.extends(log, old, new) for old, new in steps},
        {
            "a changed old root at any step": not any(
                go.extends(log, with_root_changed(old), new) for old, new in steps
            )
        },
    )


def check_paths(bench: Bench, judge: Judge) -> None:
    """Tile paths: ours mean to Go what they mean to us, and what Go refuses we refuse."""
    from tlog.errors import MalformedError
    from tlog.tile import Tile, parse_path

    go = Go(bench)

    def ours(path: str) -> bool:
        try:
            parse_path(path)
        except MalformedError:
            return False
        return True

    accepted = {}
    for path, (level, index, width) in PATHS.items():
        same = Tile(None if level < 0 else level, index, width)
        said = go.ask("path", path)
        accepted[path] = (
            said == f"{level} {index} {width}\n" and same.path == path and parse_path(path) == same
        )
    refused = {path: go.ask("path", path) is None and not ours(path) for path in NO_PATHS}
    judge.story("Go reads our tile paths as the tiles we mean", accepted, refused)


def _copy_with_byte_changed(log: Path, path: str, folder: Path) -> Path:
    copy = folder / f"changed-{path.replace('/', '-')}"
    shutil.copytree(log, copy)
    file = copy / path
    file.write_bytes(flipped(file.read_bytes(), 40))
    return copy


CHECKS = (check_notes, check_cosigned_note, check_proofs, check_tiles, check_large_log, check_paths)
