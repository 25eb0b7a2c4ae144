"""Whether a crash left something of an erasure to finish: asked whenever a home is opened, so it loads little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tlog import cbor
from tlog.errors import UnavailableError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.store_read import Snapshot

EXECUTING: Final = "erasure.executing"
"""Name of the store's value [request, what is known of it]; 0 for none."""
LAST_MANIFEST: Final = "erasure.manifest"
"""Name of the store's value [number, digest] of the last manifest."""


def needs_recovery(parts: Parts) -> bool:
    """Whether an erasure is executing, or the last manifest does not lie beside the tiles.

    Where a bucket does not answer, the next opening looks for the manifest: what is written meanwhile needs no bucket.
    """
    with parts.store.read() as view:
        executing = bool(view.meta(EXECUTING))
        last, _ = last_manifest(view)
    if executing or last == 0:
        return executing
    try:
        return not parts.home.has_public_file(manifest_path(last))
    except UnavailableError:
        if parts.home.config.log_storage is None:
            raise
        return False


def recover_if_needed(parts: Parts) -> None:
    """Finishes what a crash left of an erasure, unless another process is at it; else returns at once."""
    if needs_recovery(parts):
        from memory.erase_record import recover_if_free

        recover_if_free(parts)


def last_manifest(view: Snapshot) -> tuple[int, bytes | None]:
    """Number and digest of the last manifest; 0 and None before the first."""
    value = view.meta(LAST_MANIFEST)
    if not isinstance(value, bytes):
        return 0, None
    pair = cbor.decode(value, max_bytes=64)
    assert isinstance(pair, list)  # written when the manifest was signed
    number, digest = pair
    assert isinstance(number, int) and isinstance(digest, bytes)
    return number, digest


def manifest_path(number: int) -> str:
    """Where a manifest lies in the public files of the log."""
    return f"erasures/{number}.cose"
