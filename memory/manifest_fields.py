"""The fields of a deletion manifest, and what each may hold: numbers, whole hours, fixed bytes, and listed words.

The lists are closed on purpose. A field that took any text would one day carry a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tlog.errors import MalformedError

Check = Callable[[object, str], None]

STATES: Final = frozenset(
    {
        "inconclusive",
        "failed",
        "awaiting_backups",
        "awaiting_recipients",
        "closed_complete",
        "closed_partial",
        "closed_denied",
        "withdrawn",
    }
)
BASES: Final = frozenset({"data_subject", "operator", "retention", "consent", "contract", "legal", "other"})
ASKED_FOR: Final = frozenset({"data_subject", "consent"})
"""Where a person asks: to be answered within a month, and recipients are to be told (GDPR, 12(3) and 19)."""
SCOPES: Final = frozenset({"id", "key", "subject", "all", "tenant", "value", "time", "combined", "retention"})
DISPOSITIONS: Final = frozenset({"keep", "erase", "expire"})
STATUSES: Final = frozenset(
    {"active", "superseded", "history", "conflict", "held", "refused", "retracted", "discarded"}
)
# Why a request is denied, or what is left of it: GDPR, 17(3)(a) to (e), 12(6) and 12(5)(b).
DENIALS: Final = frozenset(
    {
        "freedom_of_expression",
        "legal_obligation",
        "public_health",
        "archiving",
        "legal_claims",
        "identity_not_shown",
        "unfounded",
    }
)
# Why an erasure is not complete.
REASONS: Final = (
    frozenset(
        {
            "crash_before_scan",  # the needles were in memory alone and are lost
            "scan_not_available",
            "residue_found",
            "control_failed",  # the planted canary was not found: the scan proves nothing
            "needles_not_searchable",  # a record of which no part is long and rare enough to be looked for
            "needles_unconfirmed",  # nobody knows whether the words that were given again are those of the records
            "rows_pinned",  # a transaction kept a vacuum from taking out dead rows
            "not_rewritten",  # a part of a table was too large to be written anew
            "copies_remain",  # the log, standbys and archives of a database
            "wal_pinned",  # a reader kept the checkpoint from truncating the write-ahead log
            "content_present",
            "bystander_damaged",
            "mentions_elsewhere",  # records outside the selection name the subject
            "legal_hold",
            "system_failed",
            "system_not_reachable",
            "system_not_verified",
            "backups_remain",
            "recipients_remain",
        }
    )
    | DENIALS
)
KINDS: Final = frozenset(
    {
        "store",
        "heap",
        "index",
        "vector",
        "cache",
        "ledger",
        "wal",
        "log",
        "export",
        "backup",
        "replica",
        "processor",
        "transcript",
    }
)
# What somebody was given of the erased records.
GIVEN: Final = frozenset({"opening", "evidence", "export"})
METHODS: Final = frozenset(
    {
        "delete",
        "delete_and_zero",
        "delete_command",
        "truncate",
        "vacuum",
        "rewrite",
        "destroy_key",
        "none",
        "external",
    }
)
RESULTS: Final = frozenset(
    {"verified", "not_verified", "inconclusive", "held", "failed", "not_reachable", "out_of_scope"}
)
CHECKS: Final = frozenset({"structure", "rows", "bystanders", "residue", "free_space", "independent_count"})
CHECK_RESULTS: Final = frozenset({"clean", "found", "inconclusive", "not_run"})
# What a check or the erasing transaction counted.
COUNTS: Final = frozenset(
    {
        "contents",
        "facts",
        "idempotency",
        "tokens",
        "ledger",
        "conflicts",
        "remaining",
        "bystanders",
        "files",
        "bytes",
        "needles",
        "needles_given",
        "needles_shared",
        "needles_not_searchable",
        "records_not_covered",
        "files_not_searched",
        "files_not_known",
        "controls_planted",
        "controls_found",
        "hits",
        "pages",
        "pages_in_log",
        "dead_rows",
        "free_bytes",
        "systems_counted",
        "systems_not_counted",
    }
)
# The places a scan found something in, as `muniment audit` names them.
RESIDUE: Final = frozenset(
    {
        "RESIDUE_ROW",
        "RESIDUE_INDEX",
        "RESIDUE_VECTOR",
        "RESIDUE_FREE_SPACE",
        "RESIDUE_WAL",
        "RESIDUE_FILE",
        "RESIDUE_ENCODED",
        "RESIDUE_LOG_CONFIRMABLE",
    }
)
LIMITS: Final = frozenset(
    {
        "file_system_free_space",
        "storage_hardware",
        "memory_and_swap",
        "other_systems",
        "who_had_an_opening",
        "paraphrases",
        "ledger_kept",
        "requests_kept",
        "openings_given",
        "needles_shared",
        "needles_not_searchable",
        "needles_unconfirmed",
        "mentions_elsewhere",
        "database_copies",
        "copies_declared",
    }
)

_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,31}")
_ORIGIN: Final = re.compile(r"[!-~]{1,255}")
_MAX_ENTRY_BYTES: Final = 65535
_MAX_CHECKPOINT_BYTES: Final = 1 << 20
_MAX_LINK_BYTES: Final = 64 << 20
_MAX_TOMBSTONE_CONTENT_BYTES: Final = 64
MAX_ITEMS: Final = 1000
MAX_KEPT: Final = 10_000
_HOUR: Final = 3_600_000_000
FIRST_SCHEMA: Final = 1
"""Of manifests that may be finer than the hour, carry the time of their tombstone, or not say what announces them."""


def check_document(document: object) -> None:
    """Returns if `document` has the fields of a manifest of its schema alone; MalformedError naming the field."""
    older = isinstance(document, Mapping) and document.get("schema") == FIRST_SCHEMA
    (_FIRST_DOCUMENT if older else _DOCUMENT)(document, "manifest")


def _number(value: object, name: str) -> None:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise MalformedError(f"expected {name} to be a number from 0")


def _positive(value: object, name: str) -> None:
    if type(value) is not int or not 1 <= value < 1 << 63:
        raise MalformedError(f"expected {name} to be a number from 1")


def _time(value: object, name: str) -> None:
    _number(value, name)
    # Finer, it would tell a reader of the log which of its entries somebody's request was.
    if value % _HOUR:  # type: ignore[operator]  # it is a number
        raise MalformedError(f"expected {name} to be the beginning of an hour, in microseconds")


def _truth(value: object, name: str) -> None:
    if type(value) is not bool:
        raise MalformedError(f"expected {name} to be true or false")


def _fixed(size_bytes: int) -> Check:
    def check(value: object, name: str) -> None:
        if type(value) is not bytes or len(value) != size_bytes:
            raise MalformedError(f"expected {name} to be {size_bytes} bytes")

    return check


def _bytes(max_bytes: int) -> Check:
    def check(value: object, name: str) -> None:
        if type(value) is not bytes or not 1 <= len(value) <= max_bytes:
            raise MalformedError(f"expected {name} to be 1 to {max_bytes} bytes")

    return check


def _word(words: frozenset[str]) -> Check:
    def check(value: object, name: str) -> None:
        if type(value) is not str or value not in words:
            raise MalformedError(f"expected {name} to be one of its listed words")

    return check


def _text(pattern: re.Pattern[str]) -> Check:
    def check(value: object, name: str) -> None:
        if type(value) is not str or not pattern.fullmatch(value):
            raise MalformedError(f"expected {name} to be a short text of its form")

    return check


def _several(item: Check, most: int = MAX_ITEMS) -> Check:
    def check(value: object, name: str) -> None:
        if type(value) not in (list, tuple) or len(value) > most:  # type: ignore[arg-type]
            raise MalformedError(f"expected {name} to be an array of at most {most}")
        for one in value:  # type: ignore[attr-defined]
            item(one, name)

    return check


def _words(words: frozenset[str]) -> Check:
    """Some of the words, each once, in order: one document has one encoding."""
    several = _several(_word(words))

    def check(value: Any, name: str) -> None:
        several(value, name)
        if list(value) != sorted(set(value)):
            raise MalformedError(f"expected {name} to be sorted, each word once")

    return check


def _tally(words: frozenset[str]) -> Check:
    def check(value: object, name: str) -> None:
        if type(value) is not dict or not value.keys() <= words:
            raise MalformedError(f"expected {name} to count its listed words alone")
        for word, count in value.items():
            _number(count, f"{name}.{word}")

    return check


def _record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    known = {**required, **(optional or {})}

    def check(value: object, name: str) -> None:
        if type(value) is not dict or not required.keys() <= value.keys() <= known.keys():
            raise MalformedError(f"expected {name} to have the fields of its format and no others")
        for field, item in value.items():
            known[field](item, f"{name}.{field}")

    return check


_TOMBSTONE: Final[Mapping[str, Check]] = {
    "entry": _bytes(_MAX_ENTRY_BYTES),
    "link": _bytes(_MAX_LINK_BYTES),
    "link_salt": _fixed(32),
    "content_hash": _fixed(32),
}
_NEEDED: Final[Mapping[str, Check]] = {
    "schema": _positive,
    "number": _positive,
    "request": _fixed(16),
    "state": _word(STATES),
    "why": _words(REASONS),
    "basis": _word(BASES),
    "scope": _record(
        {"kind": _word(SCOPES), "count": _number, "derived": _number},
        {"by_status": _tally(STATUSES), "mentions": _number, "held": _number, "openings": _positive},
    ),
    "guard": _record(
        {"disposition": _word(DISPOSITIONS), "entries": _number},
        {"expires_at": _time, "requests": _positive},
    ),
    "tombstone": _record(_TOMBSTONE),
    "announcement": _record(
        {"seq": _positive, "tenant_seq": _positive, "link_salt": _fixed(32), "content_hash": _fixed(32)}
    ),
    "systems": _several(
        _record(
            {
                "kind": _word(KINDS),
                "method": _word(METHODS),
                "erased": _number,
                "result": _word(RESULTS),
            },
            {
                "system": _fixed(16),
                "before": _number,
                "held": _number,
                "why": _words(REASONS),
                "until": _time,
            },
        )
    ),
    "checks": _several(
        _record(
            {"check": _word(CHECKS), "result": _word(CHECK_RESULTS), "counts": _tally(COUNTS)},
            {
                "why": _words(REASONS),
                "residue": _several(_record({"class": _word(RESIDUE), "count": _positive})),
            },
        )
    ),
    "limits": _words(LIMITS),
    "times": _record(
        {"started_at": _time, "erased_at": _time, "closed_at": _time},
        {"received_at": _time, "due_at": _time},
    ),
    "log": _record(
        {"origin": _text(_ORIGIN)},
        {"before": _bytes(_MAX_CHECKPOINT_BYTES), "checkpoint": _bytes(_MAX_CHECKPOINT_BYTES)},
    ),
    "tools": _record(
        {"muniment": _text(_VERSION), "sqlite": _text(_VERSION), "apsw": _text(_VERSION)},
    ),
}
_OPTIONAL: Final[Mapping[str, Check]] = {
    "previous": _fixed(32),
    "erased": _tally(COUNTS),
    "claim": _fixed(32),
    "exceptions": _several(
        _record(
            {"why": _word(REASONS), "count": _positive},
            {
                "review_at": _time,
                "statements": _several(_fixed(32)),
                "items": _several(_fixed(32), MAX_KEPT),
            },
        )
    ),
    "keys": _several(_record({"key": _fixed(16), "destroyed": _truth})),
    "backups": _several(
        _record(
            {"backup": _fixed(16), "beyond_use": _truth},
            {"made_at": _time, "expires_at": _time, "count": _positive},
        )
    ),
    "recipients": _several(
        _record(
            {"recipient": _fixed(16), "told": _truth},
            {"told_at": _time, "kind": _word(GIVEN), "count": _positive},
        )
    ),
}
_DOCUMENT: Final = _record(_NEEDED, _OPTIONAL)

# The form of schema 1. Nothing of it takes more than a number or bytes of a length, either.
_FIRST_TIMES: Final = dict.fromkeys(("started_at", "erased_at", "closed_at"), _number)
_OLDER: Final[Mapping[str, Check]] = {
    "tombstone": _record(
        _TOMBSTONE, {"content": _bytes(_MAX_TOMBSTONE_CONTENT_BYTES), "content_salt": _fixed(32)}
    ),
    "times": _record(_FIRST_TIMES, {"received_at": _number, "due_at": _number}),
}
_FIRST_DOCUMENT: Final = _record(
    {**{name: check for name, check in _NEEDED.items() if name != "announcement"}, **_OLDER},
    {**_OPTIONAL, "announcement": _NEEDED["announcement"]},
)
