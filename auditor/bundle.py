"""An evidence bundle as an audit meets it: every file hashed again, none missing, none added, and who signed the list.

Somebody else made the folder, so links and anything but files are refused before a file is opened.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from auditor.evidence import Asked
from auditor.findings import Finding, Note, Outcome
from tlog.bundles import MAX_BUNDLE_BYTES, MAX_FILES, NAME, Bundle, BundleFile, parse_bundle
from tlog.cose import ALG, KID, Sign1, require_algorithm, sig_structure, verify_signature
from tlog.errors import MalformedError, VerificationError
from tlog.statement import issuer_headers

CODE: Final = "BUNDLE_ALTERED"
MAX_FINDINGS: Final = 100
MAX_DEPTH: Final = 12
_CHUNK_BYTES: Final = 1 << 20
_LARGE_BYTES: Final = 1 << 30
_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ReadBundle:
    """What a bundle says of itself, and what there is to say about its files and its signature."""

    bundle: Bundle
    outcome: Outcome


def is_bundle(folder: Path) -> bool:
    """Whether a folder is a bundle: it has the list of one."""
    return (folder / NAME).is_file()


def read_bundle(folder: Path, asked: Asked) -> ReadBundle:
    """The bundle in a folder. MalformedError if it has no list that can be read, or links, or too many files."""
    folders: set[str] = set()
    there = dict(_files(folder, folders))
    data = _read(folder / NAME)
    message, bundle = parse_bundle(data)
    findings = [*_check_signature(message, asked), *_check_files(folder, bundle, there)]
    findings += _check_folders(bundle, folders)
    del findings[MAX_FINDINGS:]
    checked = [Note("bundle", "files of the bundle hashed, and compared with its list", len(bundle.files))]
    not_checked = [
        Note(
            "bundle",
            "the home itself: its files, and the bytes of its store that no row owns, are not in a bundle",
        ),
        Note(
            "bundle", "whether the bundle has all of the home: what is left out and never logged is not seen"
        ),
    ]
    if not asked.trust.has("manifest"):
        not_checked.append(Note("bundle", "no manifest key is trusted: who made the bundle is not proved"))
    return ReadBundle(bundle, Outcome(tuple(findings), tuple(checked), tuple(not_checked)))


def _check_signature(message: Sign1, asked: Asked) -> Iterator[Finding]:
    if not asked.trust.has("manifest"):
        return
    kid = message.headers.get(KID)
    issuer = issuer_headers(message.headers)[0]
    try:
        key = asked.trust.key(
            "manifest", kid if isinstance(kid, bytes) else b"", asked.now // _SECOND, issuer
        )
    except VerificationError:
        yield Finding("KEY_NOT_VALID", NAME, "The key that signed the bundle is not trusted for manifests.")
        return
    try:
        signed = sig_structure(message.protected, message.payload or b"")
        verify_signature(key, require_algorithm(key, message.headers.get(ALG)), signed, message.signature)
    except VerificationError:
        yield Finding(CODE, NAME, "The signature of the bundle's list does not hold.")


def _check_files(folder: Path, bundle: Bundle, there: dict[str, int]) -> Iterator[Finding]:
    listed = {one.path for one in bundle.files}
    for one in bundle.files:
        if one.path not in there:
            yield Finding(CODE, one.path, "A file of the bundle is missing.")
        elif there[one.path] != one.size_bytes or _digest(folder, one) != one.digest:
            what = "A file of the bundle is not the one that its list names."
            yield Finding(CODE, one.path, what, {"size": there[one.path], "listed_size": one.size_bytes})
    added = sorted(path for path in there if path not in listed and path != NAME)
    if added:
        # Their names are nobody's promise, and could say anything.
        what = "The bundle has files that its list does not name."
        yield Finding(CODE, "bundle", what, {"files": len(added)})


def _check_folders(bundle: Bundle, folders: set[str]) -> Iterator[Finding]:
    """Every folder leads to a file of the list: the name of one that does not is nobody's promise."""
    leading = {str(parent) for one in bundle.files for parent in PurePosixPath(one.path).parents}
    added = folders - leading
    if added:
        what = "The bundle has folders that lead to no file of its list."
        yield Finding(CODE, "bundle", what, {"folders": len(added)})


def _digest(folder: Path, one: BundleFile) -> bytes:
    digest = hashlib.sha256()
    descriptor = os.open(folder / one.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        while data := file.read(_CHUNK_BYTES):
            digest.update(data)
    return digest.digest()


def _read(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(MAX_BUNDLE_BYTES + 1)
    except OSError:
        raise MalformedError(f"expected a bundle with a {NAME} that can be read") from None
    if len(data) > MAX_BUNDLE_BYTES:
        raise MalformedError(f"expected a {NAME} of at most {MAX_BUNDLE_BYTES} bytes")
    return data


def _files(folder: Path, folders: set[str]) -> Iterator[tuple[str, int]]:
    """Path and size of each file of the bundle, of which there may be only so many; the folders go into `folders`."""
    for count, (path, size) in enumerate(_walk(folder, "", 0), 1):
        if count > 2 * MAX_FILES:
            raise MalformedError(f"expected at most {MAX_FILES} files in a bundle")
        if size is None:
            folders.add(path)
        else:
            yield path, size


def _walk(folder: Path, prefix: str, depth: int) -> Iterator[tuple[str, int | None]]:
    """Path and size of each file and folder, which has none; MalformedError for anything else, or for mostly holes."""
    if depth > MAX_DEPTH:
        raise MalformedError(f"expected a bundle of at most {MAX_DEPTH} folders in each other")
    with os.scandir(folder) as listing:
        for entry in listing:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                yield prefix + entry.name, None
                yield from _walk(folder / entry.name, f"{prefix}{entry.name}/", depth + 1)
            elif stat.S_ISREG(status.st_mode):
                _require_filled(status)
                yield prefix + entry.name, status.st_size
            else:
                raise MalformedError(
                    "expected nothing but files and folders in a bundle, and no links or pipes"
                )


def _require_filled(status: os.stat_result) -> None:
    """Returns unless the file is a large hole: it costs nothing to send, and hours to read."""
    if status.st_size > _LARGE_BYTES and status.st_blocks * 512 < status.st_size // 100:
        raise MalformedError("expected the files of a bundle to be filled, and one is nearly all holes")
