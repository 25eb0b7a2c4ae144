"""Every byte of a SQLite file that no row owns, and whether it is zero.

SQL shows what is there. What was there stays in free pages, freeblocks, the gap between pointers and cells,
and the tails of overflow pages. `check_pages` walks all b-trees from the schema down, tells which table or
index each page serves, and lists the bytes that belong to nobody and are not zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from auditor import sqlite_format as fmt
from auditor.progress import EVERY, Tell, silent
from auditor.sqlite_file import Pages
from tlog.errors import MalformedError

MAX_FLAWS: Final = 1000
"""Flaws reported one by one; the rest are counted."""
MAX_DEPTH: Final = 40
_MAX_SCHEMA_BYTES: Final = 16 * 1024 * 1024
_LOCK_BYTE_OFFSET: Final = 1 << 30
_RESERVED: Final = (72, 92)
_SCHEMA: Final = "sqlite_schema"


@dataclass(frozen=True, slots=True)
class Flaw:
    """Bytes that belong to nobody and are not zero (`residue`), or a page that is not sound (`broken`)."""

    kind: str
    page: int
    offset: int
    size_bytes: int
    region: str
    owner: str
    in_wal: bool


@dataclass(slots=True)
class PageReport:
    """What the walk saw: pages by owner, bytes that belong to nobody, and the flaws among them."""

    page_count: int
    owners: dict[int, str] = field(default_factory=dict)
    pages_by_owner: Counter[str] = field(default_factory=Counter)
    free_bytes: int = 0
    gaps_in_wal: int = 0
    """Gaps of pages whose newest version is still in the log: they are zeroed on the way to the main file."""
    flaws: list[Flaw] = field(default_factory=list)
    flaws_left_out: int = 0

    def add(self, flaw: Flaw) -> None:
        """Keep a flaw, or count it once there are very many."""
        if len(self.flaws) < MAX_FLAWS:
            self.flaws.append(flaw)
        else:
            self.flaws_left_out += 1


def check_pages(pages: Pages, tell: Tell = silent) -> PageReport:
    """Which page serves what, and every byte without an owner that is not zero."""
    report = PageReport(pages.page_count)
    held = pages.main.size_bytes // pages.header.page_bytes + len(pages.newest)
    if not 1 <= pages.page_count <= held:
        raise MalformedError("expected a database of as many pages as its files hold")
    walk = _Walk(pages, report, tell)
    walk.file_header()
    roots = walk.schema()
    walk.free_pages()
    for name, root in roots:
        walk.tree(root, name)
    walk.unowned()
    _check_tail(pages, report)
    report.pages_by_owner.update(report.owners.values())
    return report


class _Walk:
    """One walk over a database; it visits each page once."""

    def __init__(self, pages: Pages, report: PageReport, tell: Tell = silent) -> None:
        self._tell = tell
        self._pages = pages
        self._report = report
        self._usable = pages.header.usable_bytes

    def file_header(self) -> None:
        """The bytes of the file header that are kept for later versions of SQLite (1.3)."""
        self._check_zero(1, self._pages.read(1), _RESERVED, "file header", _SCHEMA)

    def schema(self) -> list[tuple[str, int]]:
        """Name and root page of each table and index, the schema's own tree walked on the way."""
        roots: list[tuple[str, int]] = []
        size = 0
        for payload in self.tree(1, _SCHEMA):
            size += len(payload)
            if size > _MAX_SCHEMA_BYTES:
                raise MalformedError("expected a schema of at most 16 MiB", page=1)
            columns = fmt.parse_record(payload)
            if len(columns) != 5:
                raise MalformedError("expected five columns in each row of the schema", page=1)
            name, root = columns[1], columns[3]
            if isinstance(root, int) and root > 0:
                roots.append((_plain_name(name), root))
        return roots

    def tree(self, root: int, owner: str) -> list[bytes]:
        """Walk a b-tree. Its payloads come back for the schema alone, where they are needed."""
        payloads: list[bytes] = []
        waiting = [(root, 0)]
        while waiting:
            number, depth = waiting.pop()
            if not self._claim(number, owner, "page", root) or depth > MAX_DEPTH:
                continue
            if not len(self._report.owners) % EVERY:
                self._tell("pages", len(self._report.owners), self._pages.page_count)
            data = self._pages.read(number)
            at = fmt.HEADER_BYTES if number == 1 else 0
            outline = None if owner == _SCHEMA else fmt.outline_page(data, self._usable)
            if outline is not None and self._is_zero(data, outline.free):
                self._check_gap(number, data, (outline.array_end, outline.content_start), owner)
                # In the order of the cells, the right child first: what comes last is gone through first.
                waiting += [(child, depth + 1) for child in outline.children]
                continue
            try:
                page = fmt.parse_page(data, self._usable, at)
            except MalformedError as error:
                self._broken(number, int(str(error.fields.get("offset", 0))), error.message, owner)
                continue
            self._check_page(number, data, page, owner)
            if page.right_child:
                waiting.append((page.right_child, depth + 1))
            for cell in page.cells:
                if cell.child:
                    waiting.append((cell.child, depth + 1))
                whole = self._overflow(number, cell, owner, keep=owner == _SCHEMA)
                if owner == _SCHEMA and page.kind == fmt.TABLE_LEAF:
                    payloads.append(fmt.local_payload(data, cell) + whole)
        return payloads

    def free_pages(self) -> None:
        """Walk the list of free pages (1.5)."""
        number = self._pages.header.first_trunk
        found = 0
        while number:
            if not self._claim(number, "free", "free page", 0):
                break
            data = self._pages.read(number)
            following, count = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
            if count > self._usable // 4 - 2:
                self._broken(number, 4, "expected a list of free pages that fits its page", "free")
                break
            self._check_trunk(number, data, 8 + 4 * count)
            found += 1 + count
            for position in range(8, 8 + 4 * count, 4):
                leaf = int.from_bytes(data[position : position + 4], "big")
                if self._claim(leaf, "free", "free page", number):
                    self._check_zero(leaf, self._pages.read(leaf), (0, len(data)), "free page", "free")
            number = following
        if found != self._pages.header.free_pages:
            self._broken(1, 36, "expected as many free pages as the header says", "free")

    def unowned(self) -> None:
        """Pages that neither a tree nor the list of free pages reaches."""
        lock_page = _LOCK_BYTE_OFFSET // self._pages.header.page_bytes + 1
        for number in range(1, self._pages.page_count + 1):
            if number not in self._report.owners and number != lock_page:
                self._report.owners[number] = "nobody"
                self._broken(
                    number, 0, "expected every page to be in use or in the list of free pages", "nobody"
                )
                data = self._pages.read(number)
                self._check_zero(number, data, (0, len(data)), "page of nobody", "nobody")

    def _claim(self, number: int, owner: str, what: str, named_by: int) -> bool:
        """True the first time a page is reached; a page that is out of range or reached twice is a flaw."""
        if 1 <= number <= self._pages.page_count and number not in self._report.owners:
            self._report.owners[number] = owner
            return True
        self._broken(named_by or 1, 0, f"expected each {what} to be in the file and reached once", owner)
        return False

    def _overflow(self, number: int, cell: fmt.Cell, owner: str, *, keep: bool) -> bytes:
        """Walk the overflow pages of a cell (1.7); what they hold comes back if it is to be kept."""
        left = cell.payload_bytes - (cell.payload_end - cell.payload_start)
        following = cell.overflow
        kept = bytearray()
        while following and left > 0:
            if not self._claim(following, owner, "overflow page", number):
                return bytes(kept)
            data = self._pages.read(following)
            used = min(left, self._usable - 4)
            if keep:
                kept += data[4 : 4 + used]
            region = (4 + used, len(data))
            self._check_zero(following, data, region, "end of an overflow page", owner)
            left -= used
            number, following = following, int.from_bytes(data[:4], "big")
        if left > 0 or following:
            self._broken(number, 0, "expected as many overflow pages as the payload needs", owner)
        return bytes(kept)

    def _check_page(self, number: int, data: bytes, page: fmt.Page, owner: str) -> None:
        self._check_gap(number, data, (page.array_end, page.content_start), owner)
        taken = sorted(
            [(cell.start, cell.end, "cell") for cell in page.cells]
            + [(start, end, "freeblock") for start, end in page.freeblocks]
        )
        position = page.content_start
        for start, end, what in taken:
            if start < position:
                self._broken(number, start, "expected cells and freeblocks that do not overlap", owner)
            self._check_zero(number, data, (position, start), "between the cells", owner)
            if what == "freeblock":
                self._check_zero(number, data, (start + 4, end), "freeblock", owner)
            position = max(position, end)
        self._check_zero(number, data, (position, len(data)), "end of the page", owner)

    def _is_zero(self, data: bytes, regions: Sequence[tuple[int, int]]) -> bool:
        """Whether all these regions are; if so, they are counted."""
        size = 0
        for start, end in regions:
            if data[start:end] != bytes(end - start):
                return False
            size += end - start
        self._report.free_bytes += size
        return True

    def _check_gap(self, number: int, data: bytes, gap: tuple[int, int], owner: str) -> None:
        if number in self._pages.newest:
            self._report.gaps_in_wal += 1
        else:
            self._check_zero(number, data, gap, "gap before the cells", owner)

    def _check_trunk(self, number: int, data: bytes, end: int) -> None:
        # SQLite leaves the numbers of pages it took back into use right behind the list; they are not content.
        while (
            end + 4 <= len(data) and 1 <= int.from_bytes(data[end : end + 4], "big") <= self._pages.page_count
        ):
            end += 4
        self._check_zero(number, data, (end, len(data)), "list of free pages", "free")

    def _check_zero(self, number: int, data: bytes, region: tuple[int, int], what: str, owner: str) -> None:
        start, end = region
        if start >= end:
            return
        self._report.free_bytes += end - start
        part = data[start:end]
        if part != bytes(end - start):
            left = len(part) - part.count(0)
            self._residue(number, start + len(part) - len(part.lstrip(b"\0")), left, what, owner)

    def _residue(self, number: int, offset: int, size: int, region: str, owner: str) -> None:
        in_wal = number in self._pages.newest
        self._report.add(Flaw("residue", number, offset, size, region, owner, in_wal))

    def _broken(self, number: int, offset: int, what: str, owner: str) -> None:
        in_wal = number in self._pages.newest
        self._report.add(Flaw("broken", number, offset, 0, what, owner, in_wal))


def _check_tail(pages: Pages, report: PageReport) -> None:
    """Whatever the main file holds behind its last page."""
    size = pages.header.page_bytes
    end = pages.page_count * size
    position = end
    while data := pages.main.read(position, size):
        report.free_bytes += len(data)
        left = len(data) - data.count(0)
        if left and not pages.newest:
            report.add(
                Flaw("residue", position // size + 1, 0, left, "behind the last page", "nobody", False)
            )
        position += len(data)


def _plain_name(name: fmt.Value) -> str:
    """The name of a table or index as a report may show it."""
    if isinstance(name, str) and len(name) <= 64 and name.isascii() and name.replace("_", "a").isalnum():
        return name
    return "(name withheld)"
