"""Where the needles lie: a scan of files for texts that should be gone, in every form of `auditor.encodings`.

Needles live in memory only. A result names files, forms and counts, never a needle; a file whose very name
holds one is named by its number. Symbolic links are not followed, and what could not be read is listed, for a
scan that skipped something has not found it clean. Streams of gzip and zlib are looked into wherever they
begin, up to a bound.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from auditor.encodings import Encoding, encodings_of, is_plain
from auditor.hits import Hit as Hit
from auditor.hits import ScanResult as ScanResult
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

CHUNK_BYTES: Final = 4 * 1024 * 1024
MAX_STREAM_BYTES: Final = 32 * 1024 * 1024
"""How much of one compressed stream is looked at."""
MAX_OPENED_BYTES: Final = 256 * 1024 * 1024
"""How much is decompressed for one file, so that a bomb costs a bounded time."""
_STREAM_START: Final = re.compile(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]")
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_PACKED: Final = {"gzip": 16 + zlib.MAX_WBITS, "zlib": zlib.MAX_WBITS}
PACKED_FORMS: Final = len(_PACKED)
_PROBE_BYTES: Final = 4096
_CANARY: Final = -1


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The automata of a needle list; `owners` tells whose form a pattern is, automaton by automaton."""

    automata: tuple[tuple[BytesAhoCorasick, bool], ...]
    owners: tuple[tuple[tuple[int, Encoding], ...], ...]
    longest: int


@dataclass(slots=True)
class _Tally:
    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    firsts: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(self, needle: int, encoding: str, offset: int) -> None:
        place = (needle, encoding)
        self.counts[place] += 1
        self.firsts.setdefault(place, offset)


def scan_files(
    places: str | Path | Sequence[str | Path], needles: Sequence[str | bytes], *, canary: str
) -> ScanResult:
    """What a scan of the files and folders finds of the needles.

    `canary` is a text that the caller knows to lie in these files: unless `control_found`, the scan has shown
    nothing. A needle too short to mean anything is counted in `not_searchable`, not searched.
    """
    roots = [Path(places)] if isinstance(places, str | Path) else [Path(place) for place in places]
    forms = [encodings_of(needle) for needle in needles]
    control = encodings_of(canary)
    if not control:
        raise MalformedError("expected a canary long enough to search for")
    patterns = _compile(forms, control)
    hits: list[Hit] = []
    not_read: list[str] = []
    not_opened: list[str] = []
    files = size_bytes = 0
    control_found = False
    for number, (path, label) in enumerate(_files(roots, not_read), start=1):
        names, tally = _in_name(patterns, label), _Tally()
        shown = f"(file {number}, its name withheld)" if names.counts else _visible(label)
        try:
            scanned, whole = _scan_file(path, patterns, tally)
        except FileNotFoundError:
            continue
        except OSError:
            not_read.append(shown)
            continue
        files += 1
        size_bytes += scanned
        if not whole:
            not_opened.append(shown)
        control_found = control_found or any(needle == _CANARY for needle, _ in tally.counts)
        hits += _hits(names, shown, "file name, ") + _hits(tally, shown, "")
    return ScanResult(
        files=files,
        bytes_scanned=size_bytes,
        hits=tuple(hits),
        control_found=control_found,
        not_searchable=sum(1 for each in forms if not each),
        not_read=tuple(
            "(name withheld)" if _in_name(patterns, label).counts else _visible(label) for label in not_read
        ),
        not_opened=tuple(not_opened),
    )


def missed_forms(folder: Path, canary: str) -> tuple[str, ...]:
    """The forms of a canary that a scan does not find when each is planted in a file of the empty `folder`.

    The control of the scanner itself: empty when every form, also inside gzip and zlib, is found.
    """
    planted = {f"{number}": form for number, form in enumerate(encodings_of(canary))}
    for name, form in planted.items():
        _plant(folder / name, b"\x00" * 7 + form.data + b"\x00")
    for name, window_bits in _PACKED.items():
        packer = zlib.compressobj(wbits=window_bits)
        _plant(folder / name, b"\x00" * 7 + packer.compress(canary.encode()) + packer.flush())
    found = {(hit.file, hit.encoding) for hit in scan_files(folder, [canary], canary=canary).hits}
    missed = [form.name for name, form in planted.items() if (name, form.name) not in found]
    missed += [name for name in _PACKED if not any(file == name for file, _ in found)]
    return tuple(missed)


def _in_name(patterns: _Patterns, label: str) -> _Tally:
    """The needles in the name of a file; a canary there is no control of what is in files."""
    found = _Tally()
    _search(patterns, os.fsencode(label), 0, 0, found, "")
    found.counts = Counter({place: count for place, count in found.counts.items() if place[0] != _CANARY})
    return found


def _plant(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _compile(forms: Sequence[Sequence[Encoding]], control: Sequence[Encoding]) -> _Patterns:
    from ahocorasick_rs import BytesAhoCorasick

    owned = [(number, form) for number, each in enumerate(forms) for form in each]
    owned += [(_CANARY, form) for form in control]
    automata: list[tuple[BytesAhoCorasick, bool]] = []
    owners: list[tuple[tuple[int, Encoding], ...]] = []
    for case in ("exact", "folded"):
        chosen = tuple((number, form) for number, form in owned if form.case == case)
        if chosen:
            automata.append((BytesAhoCorasick([form.data for _, form in chosen]), case == "folded"))
            owners.append(chosen)
    return _Patterns(tuple(automata), tuple(owners), max(len(form.data) for _, form in owned))


def _files(roots: Sequence[Path], not_read: list[str]) -> Iterator[tuple[Path, str]]:
    """Each regular file below the roots with the name to report it by, in a fixed order."""
    for root in roots:
        try:
            mode = root.stat().st_mode
        except OSError:
            raise MalformedError("expected an existing file or folder to scan") from None
        if stat.S_ISDIR(mode):
            yield from _files_below(root, "", not_read)
        elif stat.S_ISREG(mode):
            yield root.resolve(), root.name
        else:
            not_read.append(root.name)


def _files_below(folder: Path, prefix: str, not_read: list[str]) -> Iterator[tuple[Path, str]]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        not_read.append(prefix or ".")
        return
    for entry in entries:
        label = prefix + entry.name
        if entry.is_symlink():
            not_read.append(label)
        elif entry.is_dir(follow_symlinks=False):
            yield from _files_below(Path(entry.path), label + "/", not_read)
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path), label
        # Sockets, pipes and devices hold no bytes of their own.


def _scan_file(path: Path, patterns: _Patterns, tally: _Tally) -> tuple[int, bool]:
    """Bytes looked at, and whether every compressed stream was looked at to its end."""
    # O_NOFOLLOW and O_NONBLOCK: what was a file when listed may be a link or a pipe by now.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return 0, True
        return _scan_descriptor(descriptor, patterns, tally)
    finally:
        os.close(descriptor)


def _scan_descriptor(descriptor: int, patterns: _Patterns, tally: _Tally) -> tuple[int, bool]:
    kept = b""
    position = 0
    budget = MAX_OPENED_BYTES
    whole = True
    while chunk := os.pread(descriptor, CHUNK_BYTES, position):
        window = kept + chunk
        start = position - len(kept)
        _search(patterns, window, len(kept), start, tally, "")
        for match in _STREAM_START.finditer(window):
            if match.end() <= len(kept):
                continue
            used, complete = _scan_stream(descriptor, start + match.start(), budget, patterns, tally)
            budget -= used
            whole = whole and complete
        position += len(chunk)
        kept = window[-(patterns.longest - 1) :] if patterns.longest > 1 else b""
    return position, whole


def _scan_stream(
    descriptor: int, offset: int, budget: int, patterns: _Patterns, tally: _Tally
) -> tuple[int, bool]:
    """Bytes that came out of the stream at `offset`, if there is one, and whether that was all of it."""
    if budget <= 0:
        return 0, False
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    limit = min(budget, MAX_STREAM_BYTES)
    kept = b""
    produced = 0
    position = offset
    size = _PROBE_BYTES
    while not unpacker.eof and produced < limit:
        packed = unpacker.unconsumed_tail or os.pread(descriptor, size, position)
        if not packed:
            break
        if not unpacker.unconsumed_tail:
            position += len(packed)
            size = CHUNK_BYTES // 4
        try:
            data = unpacker.decompress(packed, CHUNK_BYTES)
        except zlib.error:
            return produced, True
        window = kept + data
        _search(patterns, window, len(kept), offset, tally, "compressed, ")
        produced += len(data)
        kept = window[-(patterns.longest - 1) :] if patterns.longest > 1 else b""
    return produced, produced < limit


def _search(
    patterns: _Patterns, data: bytes, seen_bytes: int, start: int, tally: _Tally, prefix: str
) -> None:
    """Tally the matches in `data` that end after its first `seen_bytes`, which were searched before."""
    for (automaton, folded), owners in zip(patterns.automata, patterns.owners, strict=True):
        searched = data.lower() if folded else data
        for pattern, begin, end in automaton.find_matches_as_indexes(searched, overlapping=True):
            if end > seen_bytes:
                needle, form = owners[pattern]
                tally.add(needle, prefix + form.name, start + (0 if prefix else begin))


def _hits(tally: _Tally, file: str, prefix: str) -> list[Hit]:
    return [
        Hit(
            class_code="RESIDUE_FILE" if is_plain(encoding) else "RESIDUE_ENCODED",
            file=file,
            count=count,
            encoding=prefix + encoding,
            first_offset=tally.firsts[needle, encoding],
            needle=needle,
        )
        for (needle, encoding), count in sorted(tally.counts.items())
        if needle != _CANARY
    ]


def _visible(label: str) -> str:
    """A file name as a report may show it: undecodable bytes and control characters as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in label)
