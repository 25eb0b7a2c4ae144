"""Whether a manifest has the form of one: numbers, whole hours, bytes of a length, and words of closed lists alone.

The form is that of docs/formats/manifest.md, written down here a second time: a manifest lies beside the log for
anybody to read, so a field that took any text would be a place for what was erased.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from auditor.findings import Finding
from auditor.manifests import list_in, map_in, map_of, number_in
from memory import event
from tlog.checkpoint import parse_checkpoint
from tlog.errors import Error
from tlog.note import parse_note

Is = Callable[[object], bool]
CODE: Final = "MANIFEST_ALTERED"
FIRST_SCHEMA: Final = 1
SCHEMA: Final = 2
_NOT_AT_FIRST: Final = frozenset({"announcement"})
MAX_ITEMS: Final = 1000
MAX_KEPT: Final = 10_000
_HOUR: Final = 3_600_000_000
_CLOCK_SKEW: Final = 300_000_000
_MAX_NUMBER: Final = 1 << 63
_VERSION: Final = re.compile(
    r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}(?:(?:a|b|rc|\.dev|\.post)[0-9]{1,6}){0,2}(?:\+[0-9a-f.g]{1,16})?"
)
"""A release, or one on its way: a name that only looks like one could be somebody's."""
_ORIGIN: Final = re.compile(r"[!-~]{1,255}")


def _number(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _positive(value: object) -> bool:
    return _number(value) and value != 0


def _hour(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBER and value % _HOUR == 0


def _truth(value: object) -> bool:
    return type(value) is bool


def _blob(at_least: int, at_most: int | None = None) -> Is:
    longest = at_least if at_most is None else at_most
    return lambda value: isinstance(value, bytes) and at_least <= len(value) <= longest


def _like(pattern: re.Pattern[str]) -> Is:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _word(words: str) -> Is:
    known = frozenset(words.split())
    return lambda value: isinstance(value, str) and value in known


def _words(words: str) -> Is:
    """Some of the words, each once, in order."""
    known = frozenset(words.split())

    def check(value: object) -> bool:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            return False
        return value == sorted(set(value) & known)

    return check


def _tally(words: str) -> Is:
    known = frozenset(words.split())
    return lambda value: (
        isinstance(value, dict) and value.keys() <= known and all(map(_number, value.values()))
    )


def _each(item: Is, most: int = MAX_ITEMS) -> Is:
    return lambda value: isinstance(value, list) and len(value) <= most and all(map(item, value))


def _record(needed: Mapping[str, Is], more: Mapping[str, Is] | None = None) -> Is:
    known = {**needed, **(more or {})}

    def check(value: object) -> bool:
        if not isinstance(value, dict) or not needed.keys() <= value.keys() <= known.keys():
            return False
        return all(known[name](one) for name, one in value.items())

    return check


_DENIALS: Final = """freedom_of_expression legal_obligation public_health archiving legal_claims
    identity_not_shown unfounded"""
_REASONS: Final = f"""{_DENIALS} crash_before_scan scan_not_available residue_found control_failed
    needles_not_searchable
    needles_unconfirmed rows_pinned not_rewritten copies_remain
    wal_pinned content_present bystander_damaged mentions_elsewhere legal_hold system_failed
    system_not_reachable system_not_verified backups_remain recipients_remain"""
_LIMITS: Final = """file_system_free_space storage_hardware memory_and_swap other_systems who_had_an_opening
    paraphrases ledger_kept requests_kept openings_given needles_shared needles_not_searchable needles_unconfirmed
    mentions_elsewhere database_copies copies_declared"""
_COUNTS: Final = """contents facts idempotency tokens ledger conflicts remaining bystanders files bytes needles
    needles_given needles_shared needles_not_searchable records_not_covered files_not_searched files_not_known
    controls_planted controls_found hits pages pages_in_log dead_rows free_bytes systems_counted systems_not_counted"""
_RESIDUE: Final = """RESIDUE_ROW RESIDUE_INDEX RESIDUE_VECTOR RESIDUE_FREE_SPACE RESIDUE_WAL RESIDUE_FILE
    RESIDUE_ENCODED RESIDUE_LOG_CONFIRMABLE"""
_TOMBSTONE: Final[Mapping[str, Is]] = {
    "entry": _blob(1, 65535),
    "link": _blob(1, 64 << 20),
    "link_salt": _blob(32),
    "content_hash": _blob(32),
}
_FIELDS: Final[Mapping[str, Is]] = {
    "schema": lambda value: type(value) is int and value == SCHEMA,
    "number": _positive,
    "request": _blob(16),
    "state": _word(
        "inconclusive failed awaiting_backups awaiting_recipients closed_complete closed_partial closed_denied "
        "withdrawn"
    ),
    "why": _words(_REASONS),
    "basis": _word("data_subject operator retention consent contract legal other"),
    "scope": _record(
        {
            "kind": _word("id key subject all tenant value time combined retention"),
            "count": _number,
            "derived": _number,
        },
        {
            "by_status": _tally("active superseded history conflict held refused retracted discarded"),
            "mentions": _number,
            "held": _number,
            "openings": _positive,
        },
    ),
    "guard": _record(
        {"disposition": _word("keep erase expire"), "entries": _number},
        {"expires_at": _hour, "requests": _positive},
    ),
    "tombstone": _record(_TOMBSTONE),
    "announcement": _record(
        {"seq": _positive, "tenant_seq": _positive, "link_salt": _blob(32), "content_hash": _blob(32)}
    ),
    "systems": _each(
        _record(
            {
                "kind": _word(
                    "store heap index vector cache ledger wal log export backup replica processor transcript"
                ),
                "method": _word(
                    "delete delete_and_zero delete_command truncate vacuum rewrite destroy_key none external"
                ),
                "erased": _number,
                "result": _word("verified not_verified inconclusive held failed not_reachable out_of_scope"),
            },
            {
                "system": _blob(16),
                "before": _number,
                "held": _number,
                "why": _words(_REASONS),
                "until": _hour,
            },
        )
    ),
    "checks": _each(
        _record(
            {
                "check": _word("structure rows bystanders residue free_space independent_count"),
                "result": _word("clean found inconclusive not_run"),
                "counts": _tally(_COUNTS),
            },
            {
                "why": _words(_REASONS),
                "residue": _each(_record({"class": _word(_RESIDUE), "count": _positive})),
            },
        )
    ),
    "limits": _words(_LIMITS),
    "times": _record(
        {"started_at": _hour, "erased_at": _hour, "closed_at": _hour},
        {"received_at": _hour, "due_at": _hour},
    ),
    "log": _record(
        {"origin": _like(_ORIGIN)}, {"before": _blob(1, 1 << 20), "checkpoint": _blob(1, 1 << 20)}
    ),
    "tools": _record({"muniment": _like(_VERSION), "sqlite": _like(_VERSION), "apsw": _like(_VERSION)}),
}
_OPTIONAL: Final[Mapping[str, Is]] = {
    "previous": _blob(32),
    "erased": _tally(_COUNTS),
    "claim": _blob(32),
    "exceptions": _each(
        _record(
            {"why": _word(_REASONS), "count": _positive},
            {"review_at": _hour, "statements": _each(_blob(32)), "items": _each(_blob(32), MAX_KEPT)},
        )
    ),
    "keys": _each(_record({"key": _blob(16), "destroyed": _truth})),
    "backups": _each(
        _record(
            {"backup": _blob(16), "beyond_use": _truth},
            {"made_at": _hour, "expires_at": _hour, "count": _positive},
        )
    ),
    "recipients": _each(
        _record(
            {"recipient": _blob(16), "told": _truth},
            {
                "told_at": _hour,
                "kind": _word("opening evidence export"),
                "count": _positive,
            },
        )
    ),
}
_ALL: Final = {**_FIELDS, **_OPTIONAL}
# Schema 1 had times to the microsecond, and its tombstone could be opened whole; it need not say what announces it.
_FIRST_ALL: Final[Mapping[str, Is]] = {
    **_ALL,
    "schema": lambda value: type(value) is int and value == FIRST_SCHEMA,
    "tombstone": lambda value: (
        _record(_TOMBSTONE, {"content": _blob(1, 64), "content_salt": _blob(32)})(value)
        and _is_time_alone(map_of(value))
    ),
    "times": _record(
        {"started_at": _number, "erased_at": _number, "closed_at": _number},
        {"received_at": _number, "due_at": _number},
    ),
}


def is_first_form(document: Mapping[str, Any]) -> bool:
    """Whether a manifest says that it is of the form that the first versions made."""
    return document.get("schema") == FIRST_SCHEMA


def _is_time_alone(tombstone: Mapping[str, Any]) -> bool:
    """Whether the content of a tombstone, if it is there, is the one that was logged, and tells a time and no more."""
    content, salt = tombstone.get("content"), tombstone.get("content_salt")
    if content is None and salt is None:
        return True
    if not isinstance(content, bytes) or not isinstance(salt, bytes):
        return False
    try:
        told = event.decode_content(content)
        return (
            told.keys() == {"recorded_at"} and event.content_hash(content, salt) == tombstone["content_hash"]
        )
    except (Error, TypeError):
        return False


def check_form(
    document: Mapping[str, Any], place: str, now: int, holds: Collection[bytes]
) -> Iterator[Finding]:
    """Whether the document has the fields of a manifest and no others, and agrees with itself.

    `now` is in microseconds; `holds` are the commitments of the legal holds that were ever made.
    """
    # Of what no manifest has the name may be content, and only how many there are is told.
    first = is_first_form(document)
    known = _FIRST_ALL if first else _ALL
    wrong = sorted(name for name, value in document.items() if name in known and not known[name](value))
    lacking = _FIELDS.keys() - document.keys() - (_NOT_AT_FIRST if first else frozenset())
    unknown = len(document.keys() - _ALL.keys())
    if wrong or lacking or unknown:
        what = "The manifest has fields, words or values that none has: content could stand there."
        named = ", ".join(sorted({*wrong, *lacking}))
        yield Finding(CODE, place, what, {"fields": named, "unknown_fields": unknown})
    yield from _check_times(document, place, now)
    yield from _check_sums(document, place)
    yield from _check_clean(document, place)
    kept = [hold for one in list_in(document, "exceptions") for hold in list_in(map_of(one), "statements")]
    if any(hold not in holds for hold in kept):
        what = "The manifest says that a hold kept something, and no statement made such a hold."
        yield Finding("MANIFEST_INCOMPLETE", place, what)
    if not _is_head(map_in(document, "log")):
        what = "What the manifest shows as the checkpoint of its log is none, or another log's."
        yield Finding(CODE, place, what)


def _check_sums(document: Mapping[str, Any], place: str) -> Iterator[Finding]:
    scope = map_in(document, "scope")
    whole = number_in(scope, "count") + number_in(scope, "derived")
    by_status = sum(count for count in map_in(scope, "by_status").values() if type(count) is int)
    if max(by_status, number_in(map_in(document, "erased"), "contents")) > whole:
        what = "The manifest counts more that was erased than its erasure was about."
        yield Finding("MANIFEST_INCOMPLETE", place, what, {"scope": whole, "by_status": by_status})


def _check_clean(document: Mapping[str, Any], place: str) -> Iterator[Finding]:
    """A check that found something is not clean, and an erasure whose keys are there is not complete."""
    checks = [map_of(one) for one in list_in(document, "checks")]
    found = [
        one
        for one in checks
        if one.get("result") == "clean"
        and (
            one.get("residue")
            or number_in(map_in(one, "counts"), "hits")
            or number_in(map_in(one, "counts"), "remaining")
        )
    ]
    if found:
        what = "A check of the erasure is called clean, and its own counts say that it found something."
        yield Finding("ERASURE_STATE_FALSE", place, what, {"checks": len(found)})
    kept = [one for one in map(map_of, list_in(document, "keys")) if one.get("destroyed") is not True]
    if kept and document.get("state") == "closed_complete":
        what = "The erasure is called complete, and a key of it is not destroyed."
        yield Finding("ERASURE_STATE_FALSE", place, what, {"keys": len(kept)})


def _is_head(log: Mapping[str, Any]) -> bool:
    """Whether the checkpoints that a manifest shows, if it does, are some, and the later one of the log that it names.

    That of before the erasure may be of a log that this one has taken the place of.
    """
    try:
        origins = {
            name: parse_checkpoint(parse_note(log[name]).text).origin
            for name in ("before", "checkpoint")
            if name in log
        }
        return origins.get("checkpoint", log.get("origin")) == log.get("origin")
    except (Error, TypeError, AttributeError):
        return False


def _check_times(document: Mapping[str, Any], place: str, now: int) -> Iterator[Finding]:
    times = map_in(document, "times")
    order = [number_in(times, name) for name in ("started_at", "erased_at", "closed_at") if name in times]
    if order != sorted(order) or (order and order[-1] > now + _CLOCK_SKEW):
        what = "The manifest's times are not in the order in which an erasure goes, or lie ahead."
        yield Finding("TIME_IMPLAUSIBLE", place, what)
