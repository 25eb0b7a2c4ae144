"""Looks again after an erasure that ended inconclusive, for words that whoever asks gives again.

What the first scan looked for was in memory alone. So a request whose scan a crash prevented, or that a reader or
a file stood in the way of, stays inconclusive until somebody who knows what was erased says it again. Nothing is
deleted here. What is found is a further manifest of the same request, which stands beside the ones before it.

Whether these are the words nobody can tell: what could confirm them is gone with the content. So a request is
complete only where checks that need no words show it, and other systems are counted by the ids of the records. A
system that one manifest of a request names is in every later one, and stays as it was until it is verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import erase_backups, erase_systems, erase_tenant, store_erase
from memory import erase_record as record
from memory.erase_answer import describe
from memory.erase_checks import check_residue, check_structure, cover
from memory.erase_document import Outcome, decode_detail
from memory.erase_found import rows_of
from memory.erase_look import Traces, look_at_store
from memory.erase_needles import needles_given, new_canary
from memory.erase_selection import Mentioned
from memory.manifest import decode_manifest
from memory.model import Principal, fact_id
from memory.principal import require
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.erase_checks import Check
    from memory.parts import Parts
    from memory.rows import ErasureRow
    from memory.store_read import Snapshot

MAX_NEEDLES: Final = 10_000
MAX_NEEDLE_BYTES: Final = 4096
LOOKED_AT_AGAIN: Final = frozenset({"inconclusive", "failed", "awaiting_backups"})
# What a later look cannot undo: the records beside the erased ones were compared when they were known.
_STAYS: Final = frozenset({"bystanders"})


@dataclass(frozen=True)
class _Request:
    """An erasure that is looked after again: its row, what it took, and the checks that stay as they were.

    `ids` are those of what it took, `systems` what the manifest before tells of other systems, and `stale` the
    checks of it that found bytes in the store that belong to no row. `until` is when copies of a database have nothing
    of it any more, if that was declared.
    """

    row: ErasureRow
    targets: tuple[int, ...]
    ids: tuple[str, ...]
    stays: tuple[Check, ...]
    systems: tuple[dict[str, Any], ...]
    stale: tuple[Check, ...]
    until: int | None


def look_again(
    parts: Parts, principal: Principal, request: object, needles: Sequence[object]
) -> dict[str, Any]:
    """What `forget` answers, for a request that was inconclusive.

    `request` is its reference, 32 hexadecimal digits, or the number of its last manifest. `needles` are words of
    what was erased; they stay in memory. Raises RefusedError with code `wrong_status` if the request is closed.
    """
    require(principal, "memory:forget")
    words = _check_needles(needles)
    with record.alone(parts):
        record.recover(parts)
        with parts.store.read_whole() as view:
            found = _find(view, parts, principal, request)
        parts.store.require_promises()
        if found.stale:
            # Something else has written to the store and left what no erasure of ours reaches.
            parts.store.write_anew()
        canary = new_canary()
        with parts.store.write() as txn:
            record.plant(txn, canary)
        finished = record.finish(parts, found.row.number, _look(parts, found, words, canary))
    return describe(parts, finished, Mentioned())


def _look(parts: Parts, found: _Request, words: tuple[str, ...], canary: str) -> Outcome:
    row, targets = found.row, found.targets
    detail = decode_detail(row.detail)
    if parts.home.config.database is None:
        cleared = record.clear_pages(parts)
    else:
        # Whoever asks again has chosen the time, so that no part is too large.
        cleared = record.clear_database(parts, row.tenant_id, None)
    with parts.store.read_whole() as view:
        structure = check_structure(view, targets)
        left = store_erase.ledger_of(view, row.tenant_id, seqs=targets)
    keys = erase_tenant.destroy_key(parts, row.tenant_id)
    residue = check_residue(parts.home, parts.store, needles_given(words), canary, row.tenant_id)
    residue[0]["counts"]["needles_given"] = len(words)
    looked = look_at_store(parts, cleared, Traces(row.tenant_id, targets, until=found.until))
    backups = erase_backups.destroy_keys(parts, row.tenant_id, targets)
    systems = [record.store_system(len(targets), len(targets), structure), *looked.systems, *backups]
    if detail["guard"]["disposition"] == "erase":
        result = {"result": "failed", "why": ["content_present"]} if left else {"result": "verified"}
        systems.append({"kind": "ledger", "method": "delete", "erased": detail["guard"]["entries"]} | result)
    order = erase_systems.order_of_words(row.request, words, found.ids)
    elsewhere, counted = erase_systems.erase_elsewhere(parts.home, order, found.systems)
    systems += elsewhere
    free_space = looked.free_space
    checks = (structure, *looked.others, *found.stays, cover(residue, free_space), free_space, *counted)
    return Outcome(tuple(systems), checks, keys)


def _find(view: Snapshot, parts: Parts, principal: Principal, reference: object) -> _Request:
    """The erasure of a request that is not closed yet."""
    found = rows_of(view, parts, principal, reference)
    row = next((one for one in found if one.state in LOOKED_AT_AGAIN), None)
    if row is None:
        raise RefusedError(
            f"expected a request that is inconclusive; this one is {found[-1].state}", code="wrong_status"
        )
    assert row.manifest is not None  # `rows_of` gives none without
    manifest = decode_manifest(row.manifest)
    return _Request(
        row,
        targets=record.targets_of(view, row),
        ids=tuple(map(fact_id, manifest.tombstone.targets)),
        stays=tuple(check for check in manifest.document["checks"] if check["check"] in _STAYS),
        stale=tuple(one for one in manifest.document["checks"] if _is_stale(one)),
        systems=tuple(one for one in manifest.document["systems"] if "system" in one),
        until=next((one["until"] for one in manifest.document["systems"] if "until" in one), None),
    )


def _is_stale(check: Check) -> bool:
    return (check["check"], check["result"]) == ("free_space", "found")


def _check_needles(needles: Sequence[object]) -> tuple[str, ...]:
    words = [one.strip() for one in needles if isinstance(one, str)]
    words = [one for one in words if one]
    if not 1 <= len(needles) <= MAX_NEEDLES or len(words) != len(needles):
        raise MalformedError(f"expected 1 to {MAX_NEEDLES} words of what was erased, none of them blank")
    for word in words:
        try:
            size = len(word.encode("utf-8"))
        except UnicodeEncodeError:
            raise MalformedError("expected the words to be valid Unicode") from None
        if size > MAX_NEEDLE_BYTES:
            raise MalformedError(f"expected words of at most {MAX_NEEDLE_BYTES} bytes")
    return tuple(dict.fromkeys(words))
