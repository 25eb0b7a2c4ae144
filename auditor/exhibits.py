"""What a report shows beside its findings, as values without content: heads, pages, requests, a sample.

Everything here is for people to look at and to check again by hand. Nothing in it is a verdict: what is wrong is a
finding, and stands among the findings.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final

from auditor.evidence import Entries, ErasureRow, LogFiles, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.manifests import (
    FOLDER,
    Manifest,
    decode_manifest,
    hour_of,
    list_in,
    map_in,
    map_of,
    number_in,
)
from auditor.residual import Backup as Backup
from auditor.residual import residual_backups
from auditor.statements import of_kind, unusual
from tlog import cbor
from tlog.errors import Error, MalformedError
from tlog.merkle import Frontier, leaf_hash
from tlog.policy import Policy, VerifiedCheckpoint, verify_checkpoint

SAMPLE: Final = 24
MAX_CARDS: Final = 1000
MAX_DETAIL_BYTES: Final = 1 << 20
OPEN_STATES: Final = frozenset(
    {"executing", "inconclusive", "failed", "awaiting_backups", "awaiting_recipients", "closed_partial"}
)
"""States in which somebody still has something to do, or to explain, before a request is wholly answered."""
KINDS: Final = ("zero", "live", "old", "broken", "residue")
"""What a page can be, worst last: what stands for several is called by the worst of them."""


@dataclass(frozen=True, slots=True)
class Head:
    """A head that the log signed, when each witness cosigned it (in seconds), and where it was found."""

    origin: str
    size: int
    root: str
    cosigned: tuple[tuple[str, int], ...]
    found_in: str
    note: str = ""

    @property
    def at(self) -> int | None:
        """The newest cosignature, in seconds; None where nobody dates the head."""
        return max((time for _, time in self.cosigned), default=None)


@dataclass(frozen=True, slots=True)
class PageMap:
    """What each page of a file is, in runs of equal ones: live, zero, old, residue or broken."""

    file: str
    unit: str
    unit_bytes: int
    runs: tuple[tuple[str, int], ...]
    totals: Mapping[str, int]
    """How many there are of each kind, also where the runs take several together."""


@dataclass(frozen=True, slots=True)
class System:
    """One system of an erasure, as its manifest names it."""

    kind: str
    method: str
    erased: int
    result: str


@dataclass(frozen=True, slots=True)
class Card:
    """One erasure, as its newest manifest tells it, or as the store does while there is none. Times to the hour."""

    request: str
    number: int | None
    state: str
    basis: str = ""
    scope: str = ""
    erased: int = 0
    guard: str = ""
    started_at: int | None = None
    erased_at: int | None = None
    closed_at: int | None = None
    due_at: int | None = None
    systems: tuple[System, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    why: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    exceptions: tuple[tuple[str, int], ...] = ()
    backups: tuple[tuple[str, int | None], ...] = ()
    """Random number of each backup that holds what was erased, and when it goes."""
    recipients: int = 0
    digest: str = ""
    tombstone: str = ""

    @property
    def is_open(self) -> bool:
        """Whether something remains to be done or explained."""
        return self.state in OPEN_STATES

    def age_seconds(self, now: int) -> int | None:
        """From its beginning to its end, or to `now` while it is open; None where no time is told."""
        if self.started_at is None:
            return None
        end = now * 1_000_000 if self.is_open or self.closed_at is None else self.closed_at
        return max(0, end - self.started_at) // 1_000_000


@dataclass(frozen=True, slots=True)
class Sampled:
    """A statement picked for checking by hand. No content: what the log shows to anybody."""

    seq: int
    kind: str
    index: int | None
    commitment: str
    leaf: str
    content: str


@dataclass(frozen=True, slots=True)
class Exhibits:
    """Everything that a report shows beside findings and notes."""

    heads: tuple[Head, ...] = ()
    maps: tuple[PageMap, ...] = ()
    cards: tuple[Card, ...] = ()
    kinds: Mapping[str, int] = field(default_factory=dict)
    statuses: Mapping[str, int] = field(default_factory=dict)
    sample: tuple[Sampled, ...] = ()
    backups: tuple[Backup, ...] = ()


def head_of(verified: VerifiedCheckpoint, found_in: str) -> Head:
    """The head of a checkpoint that a policy accepts."""
    checkpoint = verified.checkpoint
    times = (one.timestamp for one in verified.cosignatures)
    return Head(
        checkpoint.origin,
        checkpoint.size,
        checkpoint.root.hex(),
        tuple(zip(verified.witnesses, times, strict=True)),
        found_in,
        verified.note.text,
    )


def manifests_in(files: LogFiles, numbers: Iterable[int]) -> Iterator[Manifest]:
    """The manifests of these numbers that can be read, in order."""
    for number in sorted(set(numbers))[:MAX_CARDS]:
        data = files.read(f"{FOLDER}{number}.cose")
        if data is not None:
            try:
                yield decode_manifest(data)
            except Error:
                continue  # a finding names it


def heads_in(manifests: Iterable[Manifest], policy: Policy) -> Iterator[Head]:
    """The heads that erasures were closed under: checkpoints in their manifests, where the policy accepts them."""
    for manifest in manifests:
        data = map_in(manifest.document, "log").get("checkpoint")
        if isinstance(data, bytes):
            try:
                yield head_of(verify_checkpoint(policy, data), f"{FOLDER}{manifest.number}.cose")
            except Error:
                continue


def make_cards(manifests: Iterable[Manifest], rows: Sequence[ErasureRow] = ()) -> tuple[Card, ...]:
    """A card for each erasure, oldest first: the newest manifest of a request counts."""
    cards: dict[str, Card] = {}
    for manifest in manifests:
        card = _card(manifest)
        cards[card.request] = card
    for row in rows:
        request = row.request.hex()
        if request not in cards and row.state != "abandoned":
            cards[request] = _unfinished(row)
    return tuple(cards.values())


def _unfinished(row: ErasureRow) -> Card:
    """What the store noted of an erasure that has no manifest yet."""
    try:
        noted = map_of(cbor.decode(row.detail, max_bytes=MAX_DETAIL_BYTES))
    except MalformedError:
        noted = {}
    scope = map_of(noted.get("scope"))
    return Card(
        request=row.request.hex(),
        number=None,
        state=_word(row.state),
        basis=_word(noted["basis"]) if "basis" in noted else "",
        scope=_word(scope["kind"]) if "kind" in scope else "",
        erased=number_in(scope, "count") + number_in(scope, "derived"),
        started_at=_time(hour_of(noted.get("started_at"))),
    )


def _card(manifest: Manifest) -> Card:
    document = manifest.document
    scope, times = map_in(document, "scope"), map_in(document, "times")
    request = document.get("request")
    return Card(
        request=request.hex() if isinstance(request, bytes) else "",
        number=manifest.number,
        state=_word(document.get("state")),
        basis=_word(document.get("basis")),
        scope=_word(scope.get("kind")),
        erased=number_in(scope, "count") + number_in(scope, "derived"),
        guard=_word(map_in(document, "guard").get("disposition")),
        started_at=_time(times.get("received_at", times.get("started_at"))),
        erased_at=_time(times.get("erased_at")),
        closed_at=_time(times.get("closed_at")),
        due_at=_time(times.get("due_at")),
        systems=tuple(map(_system, map(map_of, list_in(document, "systems")))),
        checks=tuple(
            (_word(one.get("check")), _word(one.get("result")))
            for one in map(map_of, list_in(document, "checks"))
        ),
        why=tuple(map(_word, list_in(document, "why"))),
        limits=tuple(map(_word, list_in(document, "limits"))),
        exceptions=tuple(
            (_word(one.get("why")), number_in(one, "count"))
            for one in map(map_of, list_in(document, "exceptions"))
        ),
        backups=tuple(_backups(document)),
        recipients=len(list_in(document, "recipients")),
        digest=manifest.digest.hex(),
        tombstone=_tombstone(document),
    )


def _system(said: Mapping[str, object]) -> System:
    kind, method, result = (_word(said.get(name)) for name in ("kind", "method", "result"))
    return System(kind, method, number_in(said, "erased"), result)


def _backups(document: Mapping[str, object]) -> Iterator[tuple[str, int | None]]:
    for one in map(map_of, list_in(document, "backups")):
        number = one.get("backup")
        yield (number.hex() if isinstance(number, bytes) else "", _time(one.get("expires_at")))


def _tombstone(document: Mapping[str, object]) -> str:
    entry = map_in(document, "tombstone").get("entry")
    return leaf_hash(entry).hex() if isinstance(entry, bytes) else ""


def _word(value: object) -> str:
    """A word of a closed list; anything longer is not one, and may be content."""
    fits = (
        isinstance(value, str) and len(value) <= 40 and value.isascii() and value.replace("_", "a").isalnum()
    )
    return str(value) if fits else "(not a word)"


def _time(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 60 else None


def count_kinds(statements: Iterable[Statement]) -> dict[str, int]:
    """How many statements there are of each kind."""
    kinds = Counter("(unreadable)" if one.link is None else one.link.kind for one in statements)
    return dict(sorted(kinds.items()))


def count_statuses(rows: StoreRows) -> dict[str, int]:
    """How many facts there are of each status."""
    return dict(sorted(Counter(_word(fact.status) for fact in rows.facts).items()))


def draw_sample(
    statements: Iterable[Statement], root: bytes, erased: frozenset[bytes]
) -> tuple[Sampled, ...]:
    """Some statements, drawn by a rule that anybody can repeat and that nobody could bend: by the head's root.

    Those whose SHA-256 of root and commitment is lowest. Whoever signed the statements did not know the root.
    """
    drawn = nsmallest(SAMPLE, statements, key=lambda one: hashlib.sha256(root + one.row.commitment).digest())
    return tuple(sampled(one, erased) for one in sorted(drawn, key=lambda one: one.row.seq))


def sampled(statement: Statement, erased: frozenset[bytes]) -> Sampled:
    """What is shown of a statement that was drawn."""
    row = statement.row
    content = "opened" if statement.content is not None else "missing"
    if row.commitment in erased:
        content = "tombstoned" if statement.content is None else "tombstoned, and still there"
    kind = "(unreadable)" if statement.link is None else statement.link.kind
    return Sampled(row.seq, kind, row.entry_index, row.commitment.hex(), leaf_hash(row.entry).hex(), content)


def erased_in(statements: Sequence[Statement]) -> frozenset[bytes]:
    """The commitments that tombstones name."""
    links = (one.link for one in unusual(statements) if one.link is not None)
    return frozenset(target for link in links for target in link.acts.get("erases", ()))


def numbers_of_manifests(statements: Sequence[Statement], files: LogFiles) -> set[int]:
    """The numbers of the manifests that are announced, or lie beside the log."""
    listed = (
        name.removeprefix(FOLDER).removesuffix(".cose")
        for name in files.names or ()
        if name.startswith(FOLDER)
    )
    numbers = {int(name) for name in listed if name.isascii() and name.isdigit() and len(name) < 18}
    for one in of_kind(statements, "manifest"):
        if one.link is not None:
            numbers.add(number_in(one.link.details, "number"))
    return numbers


def exhibits_of_store(
    rows: StoreRows, statements: Sequence[Statement], files: LogFiles, root: bytes, policy: Policy
) -> Exhibits:
    """What the rows and manifests have to show."""
    manifests = list(manifests_in(files, numbers_of_manifests(statements, files)))
    return Exhibits(
        heads=tuple(heads_in(manifests, policy)),
        cards=make_cards(manifests, rows.erasures),
        kinds=count_kinds(statements),
        statuses=count_statuses(rows),
        sample=draw_sample(statements, root, erased_in(statements)),
        # Whose each backup is, the store does not say: it holds those of all.
        backups=residual_backups(rows, statements, manifests) if rows.tenant_id is None else (),
    )


def exhibits_of_log(files: LogFiles, policy: Policy, erasures: Sequence[ErasureRow] = ()) -> Exhibits:
    """What a log without its store has to show, and the store's list of erasures beside it."""
    manifests = list(manifests_in(files, numbers_of_manifests((), files)))
    return Exhibits(heads=tuple(heads_in(manifests, policy)), cards=make_cards(manifests, erasures))


def check_heads(heads: Iterable[Head], entries: Entries) -> Outcome:
    """Each head that somebody was given earlier is one that the log had: its entries, up to there, have that root."""
    spans = {span.origin: span for span in entries.spans}
    known = sorted((head for head in heads if head.origin in spans), key=lambda head: head.size)
    findings: list[Finding] = []
    for origin, span in spans.items():
        frontier = Frontier(0, ())
        for head in (head for head in known if head.origin == origin):
            place = f"log {head.found_in}"
            if head.size > span.size:
                what = "The log is shorter than a head of it that stands in a manifest."
                findings.append(
                    Finding("LOG_ROLLED_BACK", place, what, {"size": span.size, "seen_size": head.size})
                )
                continue
            part = entries.entries[span.start + frontier.size : span.start + head.size]
            frontier = frontier.extend(leaf_hash(entry or b"") for entry in part)
            if frontier.root().hex() != head.root:
                what = (
                    "The log does not extend a head of it that stands in a manifest: its past was rewritten."
                )
                findings.append(
                    Finding("LOG_FORK", place, what, {"seen_size": head.size, "seen_root": head.root})
                )
    checked = (Note("heads", "heads in manifests, each the root of the entries up to it", len(known)),)
    return Outcome(tuple(findings), checked if known else ())
