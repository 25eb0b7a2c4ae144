"""Statements of other issuers in a log, judged again by the registration policies that are in the log itself.

A log may take statements of others (docs/formats/scrapi.md). Which ones, its operator has put into the log before it
took them, so nothing but the log and the key that signs its policies is needed to make each decision again. What
claims to be of the store's own issuer is never one of them: the store has to answer for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from auditor.checks_log import MAX_FINDINGS
from auditor.evidence import Asked, Entries, LogFiles, StoreRows
from auditor.findings import Finding, Note, Outcome
from tlog.errors import Error, VerificationError
from tlog.registration import FOLDER, document_path
from tlog.registration_log import Decision, Operator, parse_policy_entry, replay
from tlog.statement import parse_signed_statement

USE: Final = "registration"
_SECOND: Final = 1_000_000
_NO_POLICY: Final = "no_policy"
_DIFFERENT_BYTES: Final = 2 + 32 + 2 + 64


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The entries of one log that the store has no row for, with their places among the entries of all logs."""

    origin: str
    indexes: tuple[int, ...]
    entries: tuple[bytes, ...]


def check_registrations(
    entries: Entries, rows: StoreRows | None, files: LogFiles, asked: Asked
) -> tuple[Outcome, Entries]:
    """What there is to say about entries of others, and the entries that know which of them those are."""
    in_store = frozenset(() if rows is None else (event.entry for event in rows.events))
    left = [
        (n, entry)
        for n, entry in enumerate(entries.entries)
        if entry is not None and entry not in in_store and n not in entries.successions
    ]
    own = _issuers(in_store) if left else frozenset()
    whose = {n: _issuer_of(entry) for n, entry in left}
    policies = [n for n, entry in left if parse_policy_entry(entry) is not None]
    foreign = {n for n, issuer in whose.items() if own and issuer is not None and issuer not in own}
    if not policies and not foreign:
        return Outcome(checked=(Note(USE, "statements of other issuers in the log", 0),)), entries
    if not any(asked.trust.has(use) for use in ("issuer", USE)):
        others = frozenset(foreign | set(policies))
        text = "entries of other issuers, and policies for them: the trust file has no key that they could hold under"
        return Outcome(not_checked=(Note(USE, text, len(others)),)), replace(entries, others=others)
    findings: list[Finding] = []
    admitted: set[int] = set()
    for stretch in _stretches(entries, left, asked):
        found, taken = _judge(stretch, entries, files, asked, own)
        findings += found
        admitted |= taken
    others = frozenset(admitted | foreign | set(policies))
    checked = (
        Note(USE, "foreign statements: admitted by policy", len(admitted)),
        Note(USE, "registration policies in the log", len(policies)),
    )
    counts = {"foreign_statements": len(others - set(policies)), "foreign_admitted": len(admitted)}
    return Outcome(tuple(findings[:MAX_FINDINGS]), checked, counts=counts), replace(entries, others=others)


def policies_in(entries: Entries) -> frozenset[str]:
    """SHA-256, in hexadecimal, of each registration policy that an entry commits to, in force or not."""
    return frozenset(digest for entry in entries.entries if entry and (digest := policy_of(entry)))


def policy_of(entry: bytes) -> str | None:
    """SHA-256, in hexadecimal, of the registration policy that an entry commits to; None if it is no such entry."""
    statement = parse_policy_entry(entry)
    payload = None if statement is None else statement.message.payload
    return None if payload is None else payload.hex()


def _judge(
    stretch: _Stretch, entries: Entries, files: LogFiles, asked: Asked, own: Collection[str]
) -> tuple[list[Finding], set[int]]:
    """A finding for each entry of a log that its policies did not admit, and the places of those that they did."""
    keys = tuple(one.key for one in asked.trust.keys_for(USE))
    findings: list[Finding] = []
    admitted = set()
    last = -1

    def read(digest: bytes) -> bytes | None:
        return files.read(document_path(digest))

    try:
        for decision in replay(stretch.entries, read, Operator(stretch.origin, keys)):
            last = decision.index
            index, entry = stretch.indexes[last], stretch.entries[last]
            ours = _is_ours(entry, decision, own)
            if decision.outcome == "policy":
                findings += _check_key(index, entry, entries, asked)
            elif decision.outcome == "admitted" and not ours:
                admitted.add(index)
            elif not ours:
                findings.append(_not_admitted(index, entry, decision))
    except VerificationError:
        at = stretch.indexes[last + 1]
        what = "The document of a registration policy is missing or altered: what came after is not judged by it."
        findings.append(Finding("ENTRY_ALTERED", f"log {FOLDER}", what, {"index": at}))
    return findings, admitted


def _is_ours(entry: bytes, decision: Decision, own: Collection[str]) -> bool:
    """Whether the store has to answer for an entry. What the policy calls its own is, and so is its own issuer's."""
    if decision.outcome == "policy" or parse_policy_entry(entry) is not None:
        return False
    issuer = _issuer_of(entry)
    if own and issuer is not None:
        return issuer in own
    # Nothing of the store's own is known, or the bytes are no statement: checked as any other entry is.
    return decision.outcome in ("own", "before_policy") or issuer is None


def _not_admitted(index: int, entry: bytes, decision: Decision) -> Finding:
    where, reason = f"log entry {index}", decision.code or _NO_POLICY
    if parse_policy_entry(entry) is not None:
        what = (
            "The log holds a registration policy that no key trusted for that has signed, or out of its turn."
        )
        code = "KEY_NOT_VALID" if reason == "key_unknown" else "STATEMENT_NOT_ADMITTED"
        return Finding(code, where, what, {"reason": reason})
    what = "The log holds a statement of another issuer that no registration policy in force had admitted."
    return Finding("STATEMENT_NOT_ADMITTED", where, what, {"reason": reason})


def _check_key(index: int, entry: bytes, entries: Entries, asked: Asked) -> Iterator[Finding]:
    """A policy was signed while its key was valid, by the time of the witnesses."""
    statement = parse_policy_entry(entry)
    assert statement is not None
    at, logged = entries.seen(index, entry)
    when = asked.now // _SECOND if at is None else at
    try:
        asked.trust.key(USE, statement.kid, when, logged=logged)
    except VerificationError:
        what = "The key that signed the registration policy is not trusted for that at its time."
        yield Finding("KEY_NOT_VALID", f"log entry {index}", what)


def _stretches(entries: Entries, left: Sequence[tuple[int, bytes]], asked: Asked) -> Iterator[_Stretch]:
    """What is left to judge, log by log: a policy is in force in its own log alone."""
    starts = sorted((span.start, span.origin) for span in entries.spans)
    if not starts:
        logs = asked.trust.policy.logs
        starts = [(0, logs[0].key.name if logs else "")]
    ends = [start for start, _ in starts[1:]] + [len(entries.entries)]
    for (start, origin), end in zip(starts, ends, strict=True):
        own = [(n, entry) for n, entry in left if start <= n < end]
        if own:
            yield _Stretch(origin, tuple(n for n, _ in own), tuple(entry for _, entry in own))


def _issuers(in_store: Collection[bytes]) -> frozenset[str]:
    """Whom the statements of the store are of."""
    # Those of one issuer and key begin alike, up to the payload: one of them is read for all.
    alike = {entry[:-_DIFFERENT_BYTES]: entry for entry in in_store}
    return frozenset(issuer for entry in alike.values() if (issuer := _issuer_of(entry)) is not None)


def _issuer_of(entry: bytes) -> str | None:
    try:
        return parse_signed_statement(entry).issuer
    except Error:
        return None
