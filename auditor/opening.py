"""Every row of events opened as it is read: its link and content re-hashed with their salts against C and its entry.

Of a row that was opened, and of what it says, one copy stays: the bytes of link and content are dropped once they were
judged, and what many statements say alike is in memory once. What an audit holds in memory grows with that alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import cbor2

from auditor import pins
from auditor.evidence import Entries, EventRow, Statement, StoreRows, TenantRow
from auditor.findings import Finding, Note, Outcome
from auditor.progress import Tell, silent
from memory import event
from memory.event import Link
from tlog.errors import MalformedError, VerificationError
from tlog.statement import payload_hash_of

_UNNAMED: Final = "default"
"""The tenant of callers that name none: it keeps its name."""
_THERE: Final = b""
"""Stands for the bytes of a content that was judged: whether there is one is all that is asked of it later."""
_ALIKE: Final = ("agent", "client", "tenant", "source", "key", "subject", "value")
"""Texts of a content that others are likely to have as well."""
_make: Final[Any] = tuple.__new__
"""Makes a named tuple of values that are known to be as many as its names: half the time of a call."""
_MAX_ALIKE: Final = 1 << 16
_Opened = tuple[Link | None, dict[str, Any] | None, list[tuple[str, str]]]


class Opening:
    """Opens rows, block by block, as they are read, and keeps what the checks of them all need."""

    def __init__(
        self,
        entries: Entries,
        tell: Tell = silent,
        earlier: Sequence[bytes] | None = None,
        kept: Collection[str] = (),
    ) -> None:
        """`kept` are columns whose bytes somebody asks for afterwards."""
        self.statements: list[Statement] = []
        self.faults: list[Finding] = []
        self.digests: list[bytes] = []
        """The digests of blocks (`auditor.pins`), if those of an earlier audit are there to be compared with."""
        self.known: set[int] = set()
        """The blocks that the earlier audit opened, byte for byte: they are decoded alone."""
        self.reread = 0
        self.salts = 0
        self.reused: list[tuple[str, str]] = []
        """Where a salt stands that another place before it has, too, and that place."""
        self._salts: dict[str, dict[bytes, int]] = {"link": {}, "content": {}}
        self._entries = entries
        self._tell = tell
        self._earlier = earlier
        self._kept = kept
        self._alike: dict[str, str] = {}
        self._flags: dict[str, list[str]] = {}

    def take(self, rows: Iterable[EventRow], tenants: Sequence[TenantRow]) -> Iterator[EventRow]:
        """What is left of each row once it was opened."""
        left, named = iter(rows), {tenant.id: tenant for tenant in tenants}
        while block := list(islice(left, pins.BLOCK)):
            self._tell("statements", len(self.statements), max(self._entries.size, len(self.statements)))
            number = len(self.digests)
            known = self._is_known(block)
            if known:
                self.known.add(number)
                self.reread += len(block)
            self._compare_salts(block)
            if len(self._alike) > _MAX_ALIKE:
                self._alike.clear()  # those that come next are more like the last ones
            open_row = _open_again if known else _open
            for row in block:
                tenant = named.get(row.tenant_id)
                link, content, faults = open_row(row, tenant)
                if faults:
                    self.faults += [Finding("FACT_ALTERED", where, what) for where, what in faults]
                slim = self._slim(row, link)
                if link is not None and tenant is not None:
                    link = _like(link, slim, tenant)
                if content is not None:
                    self._share(content)
                self.statements.append(_make(Statement, (slim, link, content)))
                yield slim
        self.salts = sum(map(len, self._salts.values()))
        self._salts = {"link": {}, "content": {}}
        self._alike, self._flags = {}, {}

    def _is_known(self, block: Sequence[EventRow]) -> bool:
        if self._earlier is None:
            return False
        number, digest = len(self.digests), pins.digest_of(block)
        self.digests.append(digest)
        return number < len(self._earlier) and self._earlier[number] == digest

    def _compare_salts(self, block: Sequence[EventRow]) -> None:
        """Notes each salt that a place before it has, too."""
        of_links, of_contents = self._salts["link"], self._salts["content"]
        links = {row[5]: row[0] for row in block}
        contents = {row[10]: row[0] for row in block if row[10] is not None}
        earlier = (of_links.keys(), of_contents.keys())
        count = 2 * len(block) - sum(row[10] is None for row in block)
        if (
            len(links) + len(contents) == count
            and links.keys().isdisjoint(contents)
            and all(known.isdisjoint(links) and known.isdisjoint(contents) for known in earlier)
        ):
            of_links.update(links)
            of_contents.update(contents)
            return
        for row in block:
            salt, other = row.link_salt, row.content_salt
            if salt in of_links or salt in of_contents:
                self._note_reused(row.seq, "link", salt)
            else:
                of_links[salt] = row.seq
            if other is None:
                continue
            if other in of_contents or other in of_links:
                self._note_reused(row.seq, "content", other)
            else:
                of_contents[other] = row.seq

    def _slim(self, row: EventRow, link: Link | None) -> EventRow:
        """The same row without bytes that were judged, and nothing of it in memory twice."""
        seq, tenant_id, tenant_seq, commitment, data, link_salt, content_hash, entry, index, there, salt = row
        if index is not None and 0 <= index < len(self._entries.entries):
            logged = self._entries.entries[index]
            if logged == entry and logged is not None:
                entry = logged
        if there is not None:
            there = _THERE
            if link is not None and link.kind == "write":
                # Of tombstones, of announcements, and of what is erased, a manifest says them again.
                link_salt = content_hash = _THERE
                if "link" not in self._kept:
                    data = _THERE
        if salt is not None:
            salt = _THERE
        columns = (
            seq,
            tenant_id,
            tenant_seq,
            commitment,
            data,
            link_salt,
            content_hash,
            entry,
            index,
            there,
            salt,
        )
        return _make(EventRow, columns)  # type: ignore[no-any-return]

    def _note_reused(self, seq: int, of: str, salt: bytes) -> None:
        like = next(name for name, seen in self._salts.items() if salt in seen)
        self.reused.append((_salt_place(seq, of), _salt_place(self._salts[like][salt], like)))

    def _share(self, content: dict[str, Any]) -> None:
        same, get = self._alike.setdefault, content.get
        for name in _ALIKE:
            said = get(name)
            if type(said) is str:
                content[name] = same(said, said)
        at = get("recorded_at")
        if type(at) is int and at == get("valid_from") and type(content["valid_from"]) is int:
            content["valid_from"] = at
        flags = get("flags")
        if type(flags) is list and len(flags) == 1 and type(flags[0]) is str:
            content["flags"] = self._flags.setdefault(flags[0], flags)


def open_statements(rows: StoreRows) -> tuple[Outcome, tuple[Statement, ...]]:
    """Every row of events decoded, its link and content re-hashed with their salts against C and its entry."""
    opening, _ = opened(rows, Entries(0))
    return judge_opened(rows, opening), tuple(opening.statements)


def opened(rows: StoreRows, entries: Entries) -> tuple[Opening, StoreRows]:
    """The rows opened, and what is left of them."""
    opening = Opening(entries)
    return opening, replace(rows, events=tuple(opening.take(rows.events, rows.tenants)))


def check_salts(opening: Opening) -> Outcome:
    """No salt is used twice: two openings under one salt would tell whether they are equal."""
    findings = [
        Finding("SALT_REUSED", place, "A salt is used twice.", {"first": first})
        for place, first in opening.reused
    ]
    return Outcome(tuple(findings), (Note("salts", "salts compared with each other", opening.salts),))


def judge_opened(rows: StoreRows, opening: Opening) -> Outcome:
    """What was found as these rows were opened."""
    statements, reread = opening.statements, opening.reread
    findings = list(opening.faults)
    findings += [
        Finding("FACT_UNLOGGED", f"store.db contents seq {seq}", "A content belongs to no statement.")
        for seq in rows.stray_contents
    ]
    findings += [Finding("FACT_ALTERED", flaw.where, flaw.what) for flaw in rows.flaws]
    findings += _check_names({tenant.id: tenant for tenant in rows.tenants}, statements)
    findings += _check_nameless(rows, statements)
    opened = sum(statement.content is not None for statement in statements)
    checked = [
        Note(
            "links",
            "links hashed with their salts up to the commitment that was signed",
            len(statements) - reread,
        ),
        Note("contents", "contents hashed with their salts up to the commitment that was signed", opened),
    ]
    if reread:
        text = "statements that an earlier audit opened under the same trust, in rows that are the same bytes"
        checked.append(Note("links", text, reread))
    counts = {"statements": len(statements), "opened": opened}
    return Outcome(tuple(findings), tuple(checked), counts=counts)


def _like(link: Link, row: EventRow, tenant: TenantRow) -> Link:
    """The same link, with the very numbers that its row and tenant have, where they are the same."""
    kind, seq, number, tenant_seq, acts, details = link
    if seq != row[0] or number != tenant.number or tenant_seq != row[2]:
        return link
    return _make(Link, (kind, row[0], tenant.number, row[2], acts, details))  # type: ignore[no-any-return]


def _salt_place(seq: int, of: str) -> str:
    return f"store.db events seq {seq}, salt of the {of}"


def _open(row: EventRow, tenant: TenantRow | None) -> _Opened:
    """Link and content of a row, and its faults, each with its place."""
    faults: list[tuple[str, str]] = []
    link = content = None
    seq, _, tenant_seq, commitment, data, link_salt, content_hash, entry, _, there, salt = row
    try:
        if payload_hash_of(entry) != commitment:
            faults.append((row.place, "The signed entry states another commitment than the row."))
    except MalformedError:
        faults.append((row.place, "The signed entry is not one."))
    try:
        event.open_link(commitment, data, link_salt, content_hash)
        link = event.decode_link(data)
    except VerificationError:
        faults.append(
            (row.place, "Link, salt of the link and hash of the content do not open the commitment.")
        )
    except MalformedError:
        faults.append((row.place, "The link or its salt is not what a link can be."))
    if link is not None:
        _, stated, named, stated_in_tenant, _, _ = link
        if stated != seq or stated_in_tenant != tenant_seq or (tenant is not None and named != tenant.number):
            faults.append((row.place, "The row has other numbers or another tenant than its signed link."))
    if there is not None and salt is not None:
        what = None
        try:
            if event.content_hash(there, salt) != content_hash:
                what = "The content or its salt is not the one that was promised."
            else:
                content = event.decode_content(there)
        except MalformedError:
            what = "The content or its salt is not what one can be."
        if what is not None:
            faults.append((f"store.db contents seq {seq}", what))
    return link, content, faults


def _open_again(row: EventRow, tenant: TenantRow | None) -> _Opened:
    """The same of a row in which an earlier audit found no fault: only what is not in the row itself is compared."""
    link = event.decode_link(row.link)
    content = None
    if row.content is not None:
        read = cbor2.loads(row.content)
        content = dict(zip(_same(tuple(read)), read.values(), strict=True))
    if tenant is not None and link.tenant != tenant.number:
        return _open(row, tenant)
    return link, content, []


@lru_cache(maxsize=256)
def _same(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same texts each time: those of all contents are a few, and each is in memory once."""
    return names


def _check_names(tenants: Mapping[int, TenantRow], statements: Sequence[Statement]) -> Iterator[Finding]:
    """A tenant has the name that the contents of its statements say."""
    wrong = set()
    for row, _, content in statements:
        said = None if content is None else content.get("tenant")
        if content is None or (said is None and "tenant" not in content):
            continue
        tenant = tenants.get(row.tenant_id)
        if tenant is not None and said != tenant.name:
            wrong.add(tenant.id)
    for number in sorted(wrong):
        what = "The tenant has another name than its statements say."
        yield Finding("FACT_ALTERED", f"store.db tenants row {number}", what)


def _check_nameless(rows: StoreRows, statements: Sequence[Statement]) -> Iterator[Finding]:
    """A tenant of which an erasure has left nothing has no name either."""
    kept = {row.tenant_id for table in (rows.facts, rows.ledger, rows.requests) for row in table}
    for row, link, content in statements:
        unread = content is None and row.content is not None
        # What expires later leaves without an erasure that could take the name along.
        passing = link is not None and link.details.get("guard") == "expire"
        if unread or passing or (content is not None and "tenant" in content):
            kept.add(row.tenant_id)
    for tenant in rows.tenants:
        if tenant.name not in ("", _UNNAMED) and tenant.id not in kept:
            what = "The name of a tenant is there, of which nothing is left that could say it."
            yield Finding("RESIDUE_ROW", f"store.db tenants row {tenant.id}", what)
