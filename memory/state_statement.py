"""Once a day, a statement about the store as a whole: how much of everything there is, and where its chains end.

    counts     statements of each kind before this one       sequences  SHA-256 of dCBOR([[tenant, last], …])
    tombstone  [number, commitment] of the last erasure      manifest   [number, digest] of the last manifest
    number     of this statement among its kind, from 1      previous   commitment of the one before it

Whoever rewrites the past of a store has to rewrite these too, and they are in a log that others have cosigned. A
publication that would log nothing logs no such statement: a home in which nothing happens stays silent, and one more
statement among others tells nobody what kind it is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from memory import sealed, store_state
from memory.event import decode_link
from memory.recovery import last_manifest
from tlog import cbor

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.store_read import Snapshot
    from memory.wiring import Home

LAST_STATE: Final = "state.last"
"""Name of the store's value [number of the statement, when it was made] of the last one."""
PERIOD: Final = 24 * 3_600_000_000
_SECOND: Final = 1_000_000


def add_state_if_due(home: Home) -> bool:
    """Whether a state statement was added: a day after the last, or the home's making, if anything came since."""
    parts = home.parts()
    with parts.store.read_whole() as view:
        last, at = _last(view)
        until = store_state.last_seq(view)
    if not _is_due(home, at) or until <= last:
        return False
    # Where many nodes write, a smaller number than the last one may be on its way.
    parts.store.settle()
    with parts.store.read_whole() as view:
        counts = _counts_before(view, last)
        # What takes time is counted while others may write.
        counts += store_state.count_kinds(view, max(last - 1, 0), until)
    return add_state(parts, last, until, counts)


def _is_due(home: Home, at: int | None) -> bool:
    since = home.config.created_at * _SECOND if at is None else at
    return home.clock() - since >= PERIOD


def add_state(parts: Parts, last: int, until: int, counts: Counter[str]) -> bool:
    """Whether a state statement was added after the one numbered `last`; `counts` are those up to `until`."""
    with parts.store.write_alone() as txn:
        if _last(txn.view)[0] != last:
            return False  # another process was faster
        tenant = store_state.first_tenant(txn.view)
        if tenant is None:
            return False
        counts += store_state.count_kinds(txn.view, until, store_state.last_seq(txn.view))
        now = parts.clock()
        made = txn.add_event(
            tenant,
            "state",
            {"recorded_at": txn.stamp(now)},
            sign=parts.sign_entry,
            details=_details(txn.view, last, counts),
        )
        txn.set_meta(LAST_STATE, cbor.encode([made.seq, now]))
        sealed.seal_statement(parts.home, parts.vault, txn, made)
    return True


def _details(view: Snapshot, last: int, counts: Counter[str]) -> dict[str, Any]:
    number, digest = last_manifest(view)
    tombstone = store_state.last_tombstone(view)
    before = None if last == 0 else view.event_by_seq(last)
    return {
        "number": 1 if before is None else int(decode_link(before.link).details["number"]) + 1,
        "previous": None if before is None else before.commitment,
        "counts": dict(sorted(counts.items())),
        "sequences": hashlib.sha256(cbor.encode(store_state.tenant_tips(view))).digest(),
        "tombstone": None if tombstone is None else list(tombstone),
        "manifest": None if digest is None else [number, digest],
    }


def _counts_before(view: Snapshot, last: int) -> Counter[str]:
    """What the last state statement counted, so that only what came since is read."""
    if last == 0:
        return Counter()
    return Counter(decode_link(store_state.link_of(view, last)).details["counts"])


def _last(view: Snapshot) -> tuple[int, int | None]:
    """Number and time of the last state statement; 0 and None before the first."""
    value = view.meta(LAST_STATE)
    if not isinstance(value, bytes):
        return 0, None
    pair = cbor.decode(value, max_bytes=64)
    assert isinstance(pair, list)  # written when the statement was made
    seq, at = pair
    assert isinstance(seq, int) and isinstance(at, int)
    return seq, at
