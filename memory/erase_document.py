"""What a manifest says of an erasure, put together from what is known of it: the document, its reasons, its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import event
from memory.layout import CHECKPOINT
from memory.manifest import SCHEMA
from memory.manifest_fields import ASKED_FOR, DENIALS, MAX_ITEMS
from memory.times import whole_hour
from tlog import cbor

if TYPE_CHECKING:
    from memory.erase_checks import Check
    from memory.parts import Parts
    from memory.rows import ErasureRow, EventRow

WITHDRAWN: Final = "withdrawn"
_MAX_DETAIL_BYTES: Final = 4 << 20
_KEPT_ON_PURPOSE: Final = frozenset({"mentions_elsewhere", "legal_hold"}) | DENIALS
_LIMITS: Final = (
    "file_system_free_space",
    "memory_and_swap",
    "other_systems",
    "paraphrases",
    "storage_hardware",
    "who_had_an_opening",
)
# Of each manifest its own.
_ITS_OWN: Final = ("previous", "number", "announcement")
_TOMBSTONE: Final = ("entry", "link", "link_salt", "content_hash")


@dataclass(frozen=True)
class Outcome:
    """What was found after the content went: the systems and the checks of the manifest, and destroyed keys."""

    systems: tuple[dict[str, Any], ...]
    checks: tuple[Check, ...]
    keys: tuple[dict[str, Any], ...] = ()


def new_document(
    parts: Parts,
    row: ErasureRow,
    tombstone: EventRow,
    outcome: Outcome,
    recipients: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What there is to say of an erasure now, without its place in the chain of manifests."""
    detail = decode_detail(row.detail)
    asked = {name: whole_hour(detail[name]) for name in ("received_at", "due_at") if name in detail}
    before: dict[str, Any] = {"before": detail["before"]} if "before" in detail else {}
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "request": row.request,
        "basis": detail["basis"],
        "scope": detail["scope"],
        "guard": detail["guard"],
        "erased": detail["erased"],
        "tombstone": {
            "entry": tombstone.entry,
            "link": tombstone.link,
            "link_salt": tombstone.link_salt,
            "content_hash": tombstone.content_hash,
        },
        "systems": list(outcome.systems),
        "checks": list(outcome.checks),
        "limits": sorted(_limits(detail, outcome)),
        # The exact times are in the store, for whoever may read it.
        "times": {
            "started_at": whole_hour(detail["started_at"]),
            "erased_at": whole_hour(_erased_at(tombstone, detail)),
            "closed_at": 0,
            **asked,
        },
        "log": {"origin": parts.home.origin, **before},
        "tools": _tools(),
        **{name: detail[name] for name in ("claim", "exceptions") if name in detail},
        **({"keys": list(outcome.keys)} if outcome.keys else {}),
        **({"recipients": list(recipients)[:MAX_ITEMS]} if recipients else {}),
    }
    return closed_now(parts, document)


def closed_now(parts: Parts, document: Mapping[str, Any], state: str | None = None) -> dict[str, Any]:
    """The same for a further manifest: closed at this hour, in the state that its reasons leave, or in one given."""
    kept = _as_of_now({name: value for name, value in document.items() if name not in _ITS_OWN})
    why = reasons_of(kept)
    checkpoint = parts.home.public_storage().read(CHECKPOINT)
    # Another log may have taken over since; what was public before the erasure stays what it was.
    log = {name: value for name, value in kept["log"].items() if name == "before"} | {
        "origin": parts.home.origin
    }
    return {
        **kept,
        "state": state or state_for(why, erased=sum(kept["scope"][name] for name in ("count", "derived"))),
        "why": sorted(why),
        "times": {**kept["times"], "closed_at": whole_hour(parts.clock())},
        "log": log | ({} if checkpoint is None else {"checkpoint": checkpoint}),
    }


def _as_of_now(document: dict[str, Any]) -> dict[str, Any]:
    """What an earlier manifest said, in the form of those that are made now: times to the hour, none of them opened."""
    tombstone = {name: document["tombstone"][name] for name in _TOMBSTONE}
    times = {name: whole_hour(time) for name, time in document["times"].items()}
    return document | {"schema": SCHEMA, "tombstone": tombstone, "times": times}


def reasons_of(document: Mapping[str, Any]) -> set[str]:
    """The reasons why what a document tells of is not complete."""
    lines = (*document["systems"], *document["checks"])
    why = {reason for line in lines for reason in line.get("why", ())}
    why |= {line["why"] for line in document.get("exceptions", ())}
    if document["scope"].get("mentions"):
        why.add("mentions_elsewhere")
    if any(not key["destroyed"] for key in document.get("keys", ())):
        why.add("system_failed")
    # GDPR, 19: whoever was given it is told, where a person asked.
    untold = any(not one["told"] for one in document.get("recipients", ()))
    if untold and document["basis"] in ASKED_FOR:
        why.add("recipients_remain")
    return why


def state_for(why: Set[str], *, erased: int) -> str:
    """The state that these reasons leave: complete without any, partial where something was kept on purpose."""
    if not why:
        return "closed_complete"
    if why & DENIALS and not erased:
        return "closed_denied"
    if "content_present" in why:
        return "failed"
    waits_for = why - _KEPT_ON_PURPOSE
    if not waits_for:
        return "closed_partial"
    if waits_for == {"backups_remain"}:
        return "awaiting_backups"
    return "awaiting_recipients" if waits_for <= {"backups_remain", "recipients_remain"} else "inconclusive"


def encode_detail(detail: Mapping[str, Any]) -> bytes:
    """The bytes of what a record knows of its erasure, as `decode_detail` reads them."""
    return cbor.encode(dict(detail))


def decode_detail(data: bytes) -> dict[str, Any]:
    """What a record knows of its erasure."""
    detail = cbor.decode(data, max_bytes=_MAX_DETAIL_BYTES)
    assert isinstance(detail, dict)
    return detail  # type: ignore[return-value]  # written by `erase_record.start`, with text keys


def _erased_at(tombstone: EventRow, detail: Mapping[str, Any]) -> int:
    """When the tombstone was made; to the hour that it began, where a restore has taken it from its manifest."""
    if tombstone.content is None:
        return int(detail["started_at"])
    return int(event.decode_content(tombstone.content)["recorded_at"])


def _limits(detail: Mapping[str, Any], outcome: Outcome) -> set[str]:
    """What was not looked at, cannot be, or was kept."""
    scope, guard = detail["scope"], detail["guard"]
    counted = {name for one in outcome.checks for name, count in one["counts"].items() if count}
    holds = {
        "ledger_kept": guard["disposition"] != "erase",
        "requests_kept": guard["disposition"] == "keep" and "requests" in guard,
        "mentions_elsewhere": bool(scope.get("mentions")),
        "openings_given": "openings" in scope,
        "needles_shared": "needles_shared" in counted,
        "needles_not_searchable": "records_not_covered" in counted,
        "needles_unconfirmed": "needles_given" in counted,
        "database_copies": any(one["kind"] == "replica" and "system" not in one for one in outcome.systems),
        "copies_declared": any("until" in one and one["result"] == "verified" for one in outcome.systems),
    }
    return {*_LIMITS, *(name for name, is_so in holds.items() if is_so)}


def _tools() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    import apsw

    try:
        own = version("muniment")
    except PackageNotFoundError:
        own = "0"
    return {"muniment": own, "sqlite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version()}
