"""A home's store, vault and signer put together, and what is looked at before they are handed out.

A database can be put back by others than us, while the log and its manifests stay what they are. A store that lacks an
erasure would serve what was erased, so it is not opened before `muniment log restore` has erased it again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from memory import log_places
from tlog.errors import UnavailableError, VerificationError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.wiring import Home

RESTORING: Final = "restoring"
"""Name of the store's value that is 1 while a database is to be filled from a backup."""


def open_parts(home: Home) -> Parts:
    """Store, vault and signer, opened; an erasure that a crash cut short is finished first."""
    from memory.recovery import recover_if_needed

    parts = put_together(home)
    try:
        if home.config.database is not None:
            require_filled(parts)
            require_not_put_back(parts)
        recover_if_needed(parts)
    except BaseException:
        parts.store.close()
        raise
    return parts


def put_together(home: Home) -> Parts:
    """The same as it is found: for what puts it right."""
    from memory.engines import open_engine
    from memory.parts import Parts

    store = open_engine(home.path, home.config.database)
    try:
        # A database that has lost the log's tables gets them before it is asked what all nodes agreed on.
        log_places.prepare_private(home.config)
        home.state.settle()
        return Parts(
            store=store,
            vault=store.vault,
            signer=_signer(home),
            guard=home.guard,
            issuer=home.config.issuer,
            subject=home.config.subject,
            home=home,
            clock=home.clock,
        )
    except BaseException:
        store.close()
        raise


def _signer(home: Home) -> Callable[[], Callable[[bytes], bytes]]:
    from memory.key_check import follow_issuer, require_sound_keys
    from tlog.statement import sign_statement

    issuer, subject = home.config.issuer, home.config.subject
    # A key that is missing, damaged or open to others is an error now, not when it has to sign an erasure.
    require_sound_keys(home.path, home.config)
    signer = follow_issuer(home.path, lambda: home.config)

    def current() -> Callable[[bytes], bytes]:
        home.state.follow()
        return partial(sign_statement, signer(), issuer, subject)

    return current


def require_filled(parts: Parts) -> None:
    """Returns unless the database is to be filled first: it is empty and the log is not, or a restore was cut short."""
    if is_to_be_filled(parts):
        raise UnavailableError(
            "the database is empty although the log has entries: put it back (muniment restore, or the database's own"
            " backup)",
            code="store_missing",
        )


def is_to_be_filled(parts: Parts) -> bool:
    """Whether the database has lost what the log tells of, and nothing was put in its place."""
    from memory.store_backup import last_seq
    from tlog.checkpoint import parse_checkpoint
    from tlog.known_heads import CHECKPOINT
    from tlog.note import parse_note
    from tlog.staging import HEAD

    with parts.store.read_whole() as view:
        if view.meta(RESTORING):
            return True
        if last_seq(view):
            return False
    log_places.prepare_private(parts.home.config)
    try:
        note = parts.home.public_storage().read(CHECKPOINT)
    except UnavailableError:
        return False
    if note is None or not parse_checkpoint(parse_note(note).text).size:
        return False
    # A head is the database's before its checkpoint is public: without one, it never knew of this log.
    return parts.home.private_storage().read(HEAD) is None


def require_not_put_back(parts: Parts) -> None:
    """Returns if the store knows of every erasure that there is a manifest of.

    VerificationError with code `rolled_back` otherwise: the database was put back to before one.
    """
    from memory.recovery import last_manifest, manifest_path

    def last() -> int:
        with parts.store.read_whole() as view:
            return last_manifest(view)[0]

    known = last()
    try:
        ahead = parts.home.has_public_file(manifest_path(known + 1))
    except UnavailableError:
        # Of a bucket that does not answer: what is written meanwhile needs none.
        if parts.home.config.log_storage is None:
            raise
        return
    # A manifest is the database's before it is public, so another node's that was just made is known by now.
    if ahead and last() == known:
        raise VerificationError(
            "the database was put back to before an erasure: muniment log restore erases it again; until then nothing"
            " is served",
            code="rolled_back",
        )
