"""Whether each statement is signed under a key that was valid at its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from auditor.evidence import Asked, Entries, Span, Statement
from auditor.findings import Finding, Note, Outcome
from tlog.bulk_signatures import verify_signature
from tlog.certificates import Logged
from tlog.cose import CoseKey
from tlog.errors import Error, MalformedError, VerificationError
from tlog.statement import require_signed, signer_of

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
    judge = _Judge(dated, asked)
    in_store = set()
    for statement in statements:
        row = statement.row
        in_store.add(row.entry)
        judge.judge(row.entry, row.entry_index, "FACT_ALTERED", row.place)
    for index, entry in enumerate(entries.entries):
        if entry is not None and entry not in in_store and index not in entries.others:
            judge.judge(entry, index, "ENTRY_ALTERED", f"log entry {index}")
    count, known = judge.count, judge.known
    checked = [Note("signatures", "signatures of statements verified", count - known)]
    if known:
        text = "signatures that an earlier audit verified under the same trust, on entries that are the same bytes"
        checked.append(Note("signatures", text, known))
    return Outcome(tuple(judge.findings), tuple(checked))


class _Judge:
    """Judges signatures one after the other; a key is looked up once for all statements seen at one time."""

    def __init__(self, dated: Entries, asked: Asked) -> None:
        self.findings: list[Finding] = []
        self.count = self.known = 0
        self._dated = dated
        self._asked = asked
        self._by_place = any(one.until for one in asked.trust.keys_for("issuer"))
        self._keys: dict[tuple[object, ...], CoseKey] = {}

    def judge(self, entry: bytes, index: int | None, code: str, where: str) -> None:
        """Judges one entry that is said to stand at `index`; what is wrong with it is a finding of this code."""
        self.count += 1
        span = self._dated.span_of(index, entry)
        known = span is not None and index is not None and index - span.start < span.verified
        self.known += known
        try:
            key = self._key(entry, index, span)
        except MalformedError:
            self.findings.append(Finding(code, where, "The entry is not a signed statement."))
            return
        except VerificationError:
            what = "The key that signed the statement is not trusted for issuing at its time."
            self.findings.append(Finding("KEY_NOT_VALID", where, what))
            return
        if known or self._dated.holds(index, span, key):
            return
        try:
            require_signed(entry, key, verify_signature)
        except Error:
            self.findings.append(Finding(code, where, "The signature of the statement does not hold."))

    def _key(self, entry: bytes, index: int | None, span: Span | None) -> CoseKey:
        """The key that signed a statement; VerificationError if it did not count then."""
        issuer, kid = signer_of(entry)
        # What no witness dates counts as signed now: a key whose time is over could have signed it since.
        at = None if span is None else span.at
        logged = None
        if self._by_place and span is not None and index is not None:
            logged = Logged(span.origin, index - span.start + 1)
        name = (kid, issuer, at, logged)
        if name not in self._keys:
            when = self._asked.now // _SECOND if at is None else at
            self._keys[name] = self._asked.trust.key("issuer", kid, when, issuer, logged)
        return self._keys[name]
