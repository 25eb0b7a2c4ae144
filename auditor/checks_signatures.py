"""Whether each statement is signed under a key that was valid at its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from auditor.evidence import Asked, Entries, Statement
from auditor.findings import Finding, Note, Outcome
from tlog.certificates import Logged
from tlog.cose import CoseKey
from tlog.errors import Error, MalformedError, VerificationError
from tlog.statement import Statement as Parsed
from tlog.statement import parse_statement, verify_statement

_SECOND: Final = 1_000_000


def check_signatures(
    statements: Sequence[Statement], entries: Entries, asked: Asked, dated: Entries | None = None
) -> Outcome:
    """Every statement, of the store and of the log alone, under an issuer key that was valid at its time.

    The time is that of the witnesses, never the one that a statement says of itself: whoever has a key that has
    ended could write any. `dated` are the entries that tell it, where `entries` leaves out those of others.
    """
    dated = entries if dated is None else dated
    if not asked.trust.has("issuer"):
        text = (
            "no issuer key is trusted: who made the statements is not proved, only that they are in the log"
        )
        return Outcome(not_checked=(Note("signatures", text),))
    findings: list[Finding] = []
    issuers = _Issuers(asked)
    count = known = 0
    in_store = set()
    for statement in statements:
        row = statement.row
        in_store.add(row.entry)
        count += 1
        known += dated.is_verified(row.entry_index, row.entry)
        findings += _verify(row.entry, row.entry_index, dated, issuers, ("FACT_ALTERED", row.place))
    for index, entry in enumerate(entries.entries):
        if entry is not None and entry not in in_store and index not in entries.others:
            count += 1
            known += dated.is_verified(index, entry)
            findings += _verify(entry, index, dated, issuers, ("ENTRY_ALTERED", f"log entry {index}"))
    checked = [Note("signatures", "signatures of statements verified", count - known)]
    if known:
        text = "signatures that an earlier audit verified under the same trust, on entries that are the same bytes"
        checked.append(Note("signatures", text, known))
    return Outcome(tuple(findings), tuple(checked))


class _Issuers:
    """The keys of issuers that count, each looked up once for all statements seen at one time."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._by_place = any(one.until for one in asked.trust.keys_for("issuer"))
        self._known: dict[tuple[object, ...], CoseKey] = {}

    def key(self, statement: Parsed, at: int | None, logged: Logged | None) -> CoseKey:
        """The key that signed a statement; VerificationError if it did not count then."""
        # What no witness dates counts as signed now: a key whose time is over could have signed it since.
        when = self._asked.now // _SECOND if at is None else at
        name = (statement.kid, statement.issuer, when, logged if self._by_place else None)
        if name not in self._known:
            key = self._asked.trust.key("issuer", statement.kid, when, statement.issuer, logged)
            self._known[name] = key
        return self._known[name]


def _verify(
    entry: bytes, index: int | None, dated: Entries, issuers: _Issuers, fault: tuple[str, str]
) -> Iterator[Finding]:
    at, logged = dated.seen(index, entry)
    code, where = fault
    try:
        statement = parse_statement(entry)
        key = issuers.key(statement, at, logged)
    except MalformedError:
        yield Finding(code, where, "The entry is not a signed statement.")
        return
    except VerificationError:
        what = "The key that signed the statement is not trusted for issuing at its time."
        yield Finding("KEY_NOT_VALID", where, what)
        return
    if dated.is_verified(index, entry) or dated.holds(index, entry, key):
        return
    try:
        verify_statement(entry, key)
    except Error:
        yield Finding(code, where, "The signature of the statement does not hold.")
