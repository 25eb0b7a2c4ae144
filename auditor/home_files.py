"""Files of a home that no home has: a copy, an export or a journal left there keeps what an erasure destroys.

What belongs there is listed in docs/formats/home.md, and here a second time. The name of a file that does not may be
content itself, so a finding gives it only where it differs from a known name in its ending; otherwise the number by
which the file system knows it, for `find -inum`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from auditor.findings import Finding, Note, Outcome
from auditor.home_contents import guard_key_number, holds_its_kind, read_plain, widths_beyond
from auditor.registrations import policy_of
from tlog.checkpoint import parse_checkpoint
from tlog.errors import Error, MalformedError
from tlog.note import parse_note
from tlog.staging import parse_segment
from tlog.tile import decode_bundle

CONFIG: Final = "config.toml"
KEYS: Final = "keys"
LOG: Final = "log"
MAX_FILES: Final = 2_000_000
MAX_DEPTH: Final = 12
TEMPORARY_SECONDS: Final = 2 * 3600
_MOMENT_SECONDS: Final = 60
"""A file may have two names, or be ahead of what the audit has read, for as long as it is being put in its place."""
_RESTORING: Final = re.compile(r"restoring\.db.*")
_NUMBER: Final = "[1-9][0-9]{0,17}"
_HEX: Final = "[0-9a-f]{64}"
_SPACES: Final = "record|tenant|meta|ledger|request|conflict|grant|erasure|made"
"""What the keys of backups are for: docs/formats/backup.md."""
_GROUP: Final = "(?:x[0-9]{3}/){0,6}[0-9]{3}"
_TILES: Final = r"(?:[0-9]|[1-5][0-9]|6[0-3]|entries)(?:/(?:x[0-9]{3}/){0,6}(?:x[0-9]{3}|[0-9]{3}\.p))?"
_LOG: Final = rf"log(?:-{_NUMBER})?"
_STATE: Final = rf"log-state(?:-{_NUMBER})?"
_DATABASE: Final = r"\.sqlite(?:-wal|-shm)?"
_KNOWN: Final = re.compile(
    "|".join(
        (
            r"config\.toml|policy\.txt|trust\.toml|keys\.cbor|keys\.cose",
            r"store\.db(?:-wal|-shm)?",
            rf"keys/(?:log(?:-{_NUMBER})?|(?:issuer|receipt|manifest)(?:\.next)?|registration|index|seal)\.key",
            r"keys/guard/[0-9a-f]{32}\.key",
            rf"keys/backup/(?:(?:{_SPACES})-(?:0|{_NUMBER})\.keys|subjects/[0-9a-f]{{32}}\.key)",
            r"restoring\.db(?:-wal|-shm|-journal)?",
            rf"{_LOG}/(?:checkpoint|keys\.cose|erasures/{_NUMBER}\.cose|registration/{_HEX}\.toml)",
            rf"{_LOG}/sealed/{_HEX}\.sealed",
            rf"{_LOG}/scitt-keys/(?:[0-9a-f]{{2}}){{1,64}}\.cose",
            rf"{_LOG}/tile/(?:[0-9]|[1-5][0-9]|6[0-3]|entries)/{_GROUP}(?:\.p/(?:[1-9]|[1-9][0-9]|1[0-9]{{2}}|2[0-5][0-9]))?",
            rf"{_STATE}/(?:head|integrated|signed|frozen|pruned|registration|staging/[0-9]{{1,19}}\.[0-9]{{1,19}}(?:\.[A-Za-z0-9_-]{{43}}){{2}})",
            rf"{_STATE}/(?:entry-ids|identities){_DATABASE}",
            rf"{_STATE}/witnesses/(?:lies/)?{_HEX}\.json",
            rf"(?:(?:{_LOG}|{_STATE}(?:/witnesses)?)/)?\.locks/[a-z-]{{1,16}}",
        )
    )
)
_FOLDERS: Final = re.compile(
    rf"keys|keys/guard|keys/backup(?:/subjects)?"
    rf"|(?:{_LOG})(?:/(?:erasures|registration|scitt-keys|sealed|tile(?:/{_TILES})?))?"
    rf"|{_STATE}(?:/(?:staging|witnesses(?:/lies)?))?|(?:.*/)?(?:\.tmp|\.locks)"
)
_TEMPORARY: Final = re.compile(
    rf"(?:(?:{_LOG}|{_STATE}(?:/witnesses)?)/)?\.tmp/[A-Za-z0-9._-]{{1,100}}"
    r"|keys/(?:guard/)?\.[a-z0-9.-]{1,80}\.[0-9a-f]{16}\.new"
)
_REGISTRATION: Final = re.compile(rf"{_LOG}/registration/({_HEX})\.toml")
_ENDING: Final = re.compile(r"[~.-](?=[A-Za-z0-9~._-]{0,11}\Z)")
_NEXT_KEY: Final = re.compile(r"keys/(?:issuer|receipt|manifest|registration|index|log)(?:\.next)?\.key")
_TOLD: Final = frozenset(
    {"restoring.db", "keys.cbor", "keys.cose", "store.db-shm", "log/keys.cose", "store.db"}
    | {f"log-state/{name}" for name in ("integrated", "pruned", "identities.sqlite", "entry-ids.sqlite")}
)
_NAMED: Final = frozenset(
    {"config.toml", "policy.txt", "trust.toml", "keys.cbor", "keys.cose", "store.db", "checkpoint", "head"}
)


@dataclass(frozen=True, slots=True)
class HomeFile:
    """A file, link or folder of a home. `kind` is file, folder, or other."""

    path: str
    kind: str
    size_bytes: int
    inode: int
    changed_at: float
    names: int = 1
    """How many names the file has, here or anywhere."""


@dataclass(frozen=True, slots=True)
class Belongs:
    """What the rest of the evidence says may be in a home: the sizes of its logs, by folder; empty if not known."""

    names: frozenset[str] = frozenset()

    logs: Mapping[str, int] = field(default_factory=dict)
    policies: frozenset[str] | None = None
    """SHA-256, in hexadecimal, of the registration policies that entries commit to; None where those are not known."""


def check_home_files(home: Path, now: int, belongs: Belongs | None = None) -> Outcome:
    """Whether every file of the home is one that a home has; `now` in microseconds."""
    if not (home / CONFIG).exists() and not (home / KEYS).exists():
        note = Note(
            "home files", "this is a copy of evidence, and no home: what else lies there was not judged"
        )
        return Outcome(not_checked=(note,))
    findings: list[Finding] = []
    count = 0
    for file in _files(home, "", 0):
        count += file.kind == "file"
        if count > MAX_FILES:
            raise MalformedError(f"expected at most {MAX_FILES} files in a home")
        what = _fault(file, now / 1e6) or _fault_within(home, file, belongs or Belongs(), now / 1e6)
        if what is not None:
            evidence: dict[str, str | int] = {"bytes": file.size_bytes, "inode": file.inode}
            findings.append(Finding("RESIDUE_FILE", _place(file.path), what, evidence))
    checked = Note("home files", "files of the home, each one that a home has, in its form", count)
    return Outcome(tuple(findings), (checked,))


def check_guard_keys(home: Path, tenants: Collection[bytes], now: int) -> Outcome:
    """Whether each key of hashes is of a tenant that the store has; `tenants` are the numbers of those."""
    findings = []
    count = 0
    for file in _files(home / KEYS / "guard", "keys/guard/", 0):
        number = guard_key_number(file.path)
        if number is None or abs(now / 1e6 - file.changed_at) <= _MOMENT_SECONDS:
            continue
        count += 1
        if bytes.fromhex(number) not in tenants:
            what = "A key lies in the home of hashes of a tenant that the store does not have, or no more."
            findings.append(Finding("RESIDUE_FILE", file.path, what))
    checked = Note("guard keys", "keys of tenants' hashes, each of a tenant that the store has", count)
    return Outcome(tuple(findings), (checked,))


def sizes_of_logs(home: Path, names: Collection[str]) -> dict[str, int]:
    """Up to where the logs of a home have tiles, by their folders: what is served, or is about to be."""
    sizes = {}
    for name in names:
        try:
            head = read_plain(home / name / "checkpoint")
            sizes[name] = parse_checkpoint(parse_note(head).text).size
            sizes[name] = max(
                sizes[name], int(read_plain(home / name.replace(LOG, f"{LOG}-state", 1) / "integrated"))
            )
        except (OSError, ValueError, Error):
            continue  # what is wrong with a checkpoint is found elsewhere
    return sizes


def staged_policies(home: Path, names: Collection[str]) -> frozenset[str]:
    """The same of entries that the logs of a home have taken, and that are in no tile yet."""
    found: set[str] = set()
    for name in names:
        folder = home / name.replace(LOG, f"{LOG}-state", 1) / "staging"
        for path in sorted(folder.glob("*.*.*.*")) if folder.is_dir() else ():
            segment = parse_segment(f"staging/{path.name}")
            try:
                size = 0 if segment is None else segment.new.size - segment.old.size
                entries = decode_bundle(read_plain(path), size)
            except (OSError, Error):
                continue  # a segment that is none is found as such
            found |= {digest for entry in entries if (digest := policy_of(entry)) is not None}
    return frozenset(found)


def _fault(file: HomeFile, now: float) -> str | None:
    """What is wrong with there being this file; None if it belongs there."""
    if file.kind == "folder":
        return None if _FOLDERS.fullmatch(file.path) else "A folder lies in the home that no home has."
    if file.kind == "other":
        return "A link, or something else that is no file, lies in the home."
    if _KNOWN.fullmatch(file.path):
        return None
    if _TEMPORARY.fullmatch(file.path):
        old = abs(now - file.changed_at) > TEMPORARY_SECONDS
        return "A file that was being written hours ago was left in the home." if old else None
    if file.path.endswith("-journal"):
        return "A rollback journal lies beside a database: it holds pages as they were."
    return "A file lies in the home that no home has."


def _fault_within(home: Path, file: HomeFile, belongs: Belongs, now: float) -> str | None:
    """What is wrong with a file that has a name of a home; None if nothing is."""
    if file.kind == "folder":
        number = re.fullmatch(_LOG, file.path)
        known = not belongs.names or number is None or file.path in belongs.names
        return None if known else "A log lies in the home that no other leads to."
    old = abs(now - file.changed_at) > _MOMENT_SECONDS
    if file.names > 1 and old:
        return "A file of the home has another name, here or elsewhere, under which it stays."
    if _RESTORING.fullmatch(file.path) and (home / "store.db").exists():
        return "A store that was being put back lies beside the store."
    folder, _, rest = file.path.partition("/")
    policy = _REGISTRATION.fullmatch(file.path)
    if policy is not None and belongs.policies is not None and old and policy[1] not in belongs.policies:
        return "A registration policy lies beside a log that no entry of it commits to."
    if folder in belongs.logs and old and widths_beyond(rest, belongs.logs[folder]):
        return "A tile lies beyond the end of the log."
    if _has_notes(home / file.path):
        return "A file of the home has notes of somebody's, as an attribute beside what it holds."
    return None if holds_its_kind(home, file.path) else "A file of a home holds what such a file never holds."


def _has_notes(path: Path) -> bool:
    """Whether somebody has put a text beside a file, where its bytes do not show it."""
    try:
        return any(name.startswith("user.") for name in os.listxattr(path, follow_symlinks=False))
    except (OSError, AttributeError):
        return False  # the system has no such attributes, or the file is gone


def _place(path: str) -> str:
    """Where it is, without a name that could be content."""
    folder, _, name = path.rpartition("/")
    beginnings = (name[: match.start()] for match in _ENDING.finditer(name))
    if path in _TOLD or _NEXT_KEY.fullmatch(path):
        return path
    told = name if any(_is_told(folder, beginning) for beginning in beginnings) else "(name withheld)"
    known = folder if not folder or _FOLDERS.fullmatch(folder) else "(folder withheld)"
    return f"{known}/{told}" if known else told


def _is_told(folder: str, beginning: str) -> bool:
    """Whether a name begins with one that is known there, so that the rest is an ending."""
    path = f"{folder}/{beginning}" if folder else beginning
    return beginning in _NAMED or _KNOWN.fullmatch(path) is not None


def _files(folder: Path, prefix: str, depth: int) -> Iterator[HomeFile]:
    if depth > MAX_DEPTH:
        raise MalformedError(f"expected folders in a home to lie within {MAX_DEPTH} others at most")
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except FileNotFoundError:
        return  # a home in use: gone since its folder was listed
    for entry in entries:
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        kind = "folder" if is_folder else "file" if entry.is_file(follow_symlinks=False) else "other"
        path = prefix + entry.name
        yield HomeFile(path, kind, info.st_size, info.st_ino, info.st_mtime, info.st_nlink)
        # What lies in a folder that does not belong there is found with the folder.
        if is_folder and _FOLDERS.fullmatch(path):
            yield from _files(folder / entry.name, path + "/", depth + 1)
