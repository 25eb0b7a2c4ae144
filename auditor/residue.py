"""Where the needles lie: a scan of files for texts that should be gone, in every form of `auditor.encodings`.

Needles live in memory only. A result names files, forms and counts, never a needle; a file whose very name
holds one is named by its number. Symbolic links are not followed, and what could not be read is listed, for a
scan that skipped something has not found it clean. What is packed is opened wherever it begins, also within another
packing, up to a bound.
"""

from __future__ import annotations

import bz2
import errno
import io
import lzma
import os
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from auditor import containers, sqlite_joins
from auditor.encodings import ACROSS_PAGES, encodings_of, is_plain
from auditor.hits import Hit as Hit
from auditor.hits import ScanResult as ScanResult
from auditor.patterns import CANARY, Patterns, Tally, compile_patterns, hits_in, search, search_across, unlike
from tlog.errors import MalformedError

CHUNK_BYTES: Final = 1024 * 1024
Skip = Callable[[int], int]


def _zipped(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("member", data)
    return buffer.getvalue()


def _gzipped(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


_PACKED: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "gzip": _gzipped,
    "zlib": zlib.compress,
    "zip": _zipped,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "gzip in gzip": lambda data: _gzipped(_gzipped(data)),
}
PACKED_FORMS: Final = len(_PACKED)


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
    patterns = compile_patterns(forms, control)
    hits: list[Hit] = []
    not_read: list[str] = []
    not_opened: list[str] = []
    files = size_bytes = 0
    control_found = False
    for number, (path, label) in enumerate(_files(roots, not_read), start=1):
        names, tally = _in_name(patterns, label), Tally()
        shown = f"(file {number}, its name withheld)" if names.counts else _visible(label)
        hits += _hits(names, shown, "file name, ")
        if path is None:
            continue
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
        control_found = control_found or any(needle == CANARY for needle, _ in tally.counts)
        hits += _hits(tally, shown, "")
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
        _plant(folder / name, b"\x00" * 7 + unlike(form) + b"\x00")
    for name, pack in _PACKED.items():
        _plant(folder / name, b"\x00" * 7 + pack(canary.encode()))
    found = {(hit.file, hit.encoding) for hit in scan_files(folder, [canary], canary=canary).hits}
    missed = [form.name for name, form in planted.items() if (name, form.name) not in found]
    missed += [name for name in _PACKED if not any(file == name for file, _ in found)]
    return tuple(missed)


def _in_name(patterns: Patterns, label: str) -> Tally:
    """The needles in the name of a file; a canary there is no control of what is in files."""
    found = Tally()
    search(patterns, os.fsencode(label), 0, 0, found, "")
    found.counts = Counter({place: count for place, count in found.counts.items() if place[0] != CANARY})
    return found


def _plant(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _files(roots: Sequence[Path], not_read: list[str]) -> Iterator[tuple[Path | None, str]]:
    """Each regular file below the roots with the name to report it by, in a fixed order; of others, the name alone."""
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


def _files_below(folder: Path, prefix: str, not_read: list[str]) -> Iterator[tuple[Path | None, str]]:
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
            yield None, label
        elif entry.is_dir(follow_symlinks=False):
            if not _holds_files(entry.path):
                yield None, label + "/"
            yield from _files_below(Path(entry.path), label + "/", not_read)
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path), label
        else:
            # Sockets, pipes and devices hold no bytes of their own; they have a name.
            yield None, label


def _holds_files(folder: str) -> bool:
    """Whether the name of a folder is in that of something else that is looked at."""
    try:
        with os.scandir(folder) as listing:
            return any(True for _ in listing)
    except OSError:
        return False


def _scan_file(path: Path, patterns: Patterns, tally: Tally) -> tuple[int, bool]:
    """Bytes looked at, and whether everything packed was looked at to its end."""
    # O_NOFOLLOW and O_NONBLOCK: what was a file when listed may be a link or a pipe by now.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return 0, True
        scan = _Scan(patterns, tally, containers.MAX_OPENED_BYTES, path.with_name(path.name + "-wal"))
        size = scan.look(
            lambda offset, count: os.pread(descriptor, count, offset),
            after_hole=lambda position: _after_hole(descriptor, position),
        )
        return size, scan.whole
    finally:
        os.close(descriptor)


def _open_beside(files: ExitStack, path: Path) -> containers.Read | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # Where it is there and can't be read, it is among what was not read by itself.
        return None
    files.callback(os.close, descriptor)
    return lambda offset, count: os.pread(descriptor, count, offset)


def _after_hole(descriptor: int, position: int) -> int:
    """The place itself, or where a hole ends that is there: a file of a few bytes may claim to be a terabyte."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        # There is no more of it, or its file system knows no holes.
        return max(position, os.fstat(descriptor).st_size) if error.errno == errno.ENXIO else position


def _stay(position: int) -> int:
    return position


@dataclass(slots=True)
class _Scan:
    """The scan of one file: what it may still unpack, and whether it has looked at everything so far."""

    patterns: Patterns
    tally: Tally
    budget: int
    log: Path
    """Where a SQLite file has its write-ahead log."""
    whole: bool = True

    def look(self, read: containers.Read, depth: int = 0, place: int = 0, after_hole: Skip = _stay) -> int:
        """How many bytes there were to look at; `place` is where in the file their packing begins."""
        position = 0
        prefix = "compressed, " if depth else ""
        while True:
            # What was looked at last is looked at again with what follows, since a needle may lie across both.
            start = max(position - self.patterns.carry_bytes, 0)
            seen = position - start
            window = read(start, seen + CHUNK_BYTES)
            last = len(window) < seen + CHUNK_BYTES
            search(self.patterns, window, seen, place if depth else start, self.tally, prefix)
            first = max(seen - containers.START_BYTES, 0)
            end = len(window) if last else len(window) - containers.START_BYTES
            for begin in containers.starts_in(window, front=position == 0):
                if first <= begin < end:
                    self._open(read, start + begin, depth, place if depth else start + begin)
            position = start + len(window)
            if last:
                self._look_across_pages(read, depth, place)
                return position
            position = after_hole(position)

    def _look_across_pages(self, read: containers.Read, depth: int, place: int) -> None:
        """What is cut where a page of a SQLite file ends; what stands in one piece was found before."""
        if read(0, len(sqlite_joins.MAGIC)) != sqlite_joins.MAGIC:
            return
        size = self.patterns.carry_bytes
        prefix = ("compressed, " if depth else "") + ACROSS_PAGES
        with ExitStack() as files:
            log = None if depth else _open_beside(files, self.log)
            for join in sqlite_joins.joins(read, log, size):
                at = place if depth else join.offset
                search_across(self.patterns, join.before, join.behind, at, self.tally, prefix)

    def _open(self, read: containers.Read, offset: int, depth: int, place: int) -> None:
        if self.budget <= 0:
            self.whole = False
            return
        limit = min(self.budget, containers.MAX_STREAM_BYTES) if depth < containers.MAX_DEPTH else 1
        opened = containers.open_stream(read, offset, limit)
        if opened is None:
            return
        self.budget -= len(opened.data)
        if not opened.whole or (depth >= containers.MAX_DEPTH and opened.data):
            self.whole = False
        if depth < containers.MAX_DEPTH and opened.data:
            data = opened.data
            self.look(lambda at, count: data[at : at + count], depth + 1, place)


def _hits(tally: Tally, file: str, prefix: str) -> list[Hit]:
    return [
        Hit(
            class_code="RESIDUE_FILE" if is_plain(encoding) else "RESIDUE_ENCODED",
            file=file,
            count=count,
            encoding=prefix + encoding,
            first_offset=offset,
            needle=needle,
        )
        for needle, encoding, count, offset in hits_in(tally)
    ]


def _visible(label: str) -> str:
    """A file name as a report may show it: undecodable bytes and control characters as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in label)
