"""One log: entries appended durably and once, integrated into tiles, signed, witnessed and published.

The order is what makes it safe. Entries are staged durably; then the head is swapped, which alone commits
them; tiles are written from what is committed, any number of times with the same bytes; only then is the
staged copy dropped. A crash at any point leaves a log that the next opening completes. Appending stops at the
committed head, so a batch costs the same few flushes whatever its size; tiles are written when the log is
published, when it is opened, and when enough has gathered.

Only a committed head is ever signed, after the size and root to be signed were made durable, and only if it
extends every head signed or published before. The checkpoint becomes public when the policy's witnesses have
cosigned it, not before.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Literal

from tlog import dedup, merkle, staging
from tlog import policy as policies
from tlog.checkpoint import Checkpoint, format_checkpoint
from tlog.cosignature import verify_cosignature
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.known_heads import CHECKPOINT, SIGNED, KnownHeads
from tlog.log_settings import CosignFunction, LogSettings, Published
from tlog.note import (
    Note,
    NoteSigner,
    SignatureLine,
    add_signatures,
    format_note,
    sign_note,
)
from tlog.prune import partials_of
from tlog.staging import Head, State
from tlog.storage import LOCK_TIMEOUT_SECONDS, Storage
from tlog.tile import MAX_ENTRY_BYTES, WIDTH, tiles_for_growth

__all__ = ["MAX_BATCH", "CosignFunction", "Head", "Log", "LogSettings", "Published", "open_log"]

FROZEN: Final = "frozen"
PRUNED: Final = "pruned"
PRUNE_ENTRIES: Final = 1 << 18
MAX_BATCH: Final = 4096
# How much may wait between head and tiles before an append writes tiles itself.
STAGED_ENTRIES: Final = 4096
STAGED_SEGMENTS: Final = 256


def open_log(
    public: Storage,
    private: Storage,
    origin: str,
    note_signers: Sequence[NoteSigner],
    *,
    cosign: CosignFunction | None = None,
    policy: policies.Policy | None = None,
    clock: Callable[[], int] = lambda: int(time.time()),
) -> Log:
    """The log in these two storages, whatever a crash left undone completed. A new one is empty."""
    log = Log(public, private, LogSettings(origin, tuple(note_signers), cosign, policy, clock))
    log.recover()
    return log


class Log:
    """A log. Any number of processes and threads may use the same storages, each through its own object."""

    def __init__(self, public: Storage, private: Storage, settings: LogSettings) -> None:
        if settings.cosign is not None and settings.policy is None:
            raise MalformedError("log: expected a policy beside the function that asks its witnesses")
        self.public = public
        self.private = private
        self.settings = settings
        self._index = dedup.open_index(private)
        self._known = KnownHeads(public, private, settings)
        self._state: State | None = None

    def close(self) -> None:
        """Lets go of files; the log stays usable and opens them again."""
        self._index.close()

    def recover(self) -> None:
        """Returns once what was committed stands in the tiles and what never was is gone.

        Where witnesses or a mirror may know better, only what was signed is written; the rest waits for them.
        """
        with self._appending() as state:
            self._integrate(state, self._known.settled_size(state.head.size))

    # Reading

    def head(self) -> Head:
        """Size and root of what is committed, published or not."""
        return staging.parse_head(self.private.read(staging.HEAD), self.settings.origin)

    def checkpoint(self) -> bytes | None:
        """The public checkpoint, None before the first publication."""
        return self.public.read(CHECKPOINT)

    def read_entry(self, index: int) -> bytes:
        """The entry at `index` of the committed log."""
        return next(self.read_entries(index, index + 1))

    def read_entries(self, start: int, end: int) -> Iterator[bytes]:
        """The entries from `start` to before `end`, read bundle by bundle."""
        state = self._covering(end)
        if not 0 <= start <= end:
            raise MalformedError("log: expected a range of entries")
        firsts = range(start - start % WIDTH, end, WIDTH)
        return itertools.chain.from_iterable(
            state.read_entries(max(start, first), min(first + WIDTH, end)) for first in firsts
        )

    def hash_reader(self, size: int) -> merkle.HashReader:
        """A reader of the hashes of the tree of `size`, which must be committed."""
        return self._covering(size).read_hashes

    def root_at(self, size: int) -> bytes:
        """The root of the tree of `size`."""
        return merkle.tree_root(size, self.hash_reader(size))

    def prove_inclusion(self, index: int, size: int) -> tuple[bytes, ...]:
        """The inclusion proof of the entry at `index` in the tree of `size`."""
        return merkle.prove_inclusion(index, size, self.hash_reader(size))

    def prove_consistency(self, old_size: int, new_size: int) -> tuple[bytes, ...]:
        """The proof that the tree of `new_size` extends that of `old_size`."""
        return merkle.prove_consistency(old_size, new_size, self.hash_reader(new_size))

    # Appending

    def append(self, entries: Sequence[bytes]) -> tuple[int, ...]:
        """The index of each entry, in order, once all are durable.

        An entry that the log has already, by its identity, gets the index it has and is not added again, so
        the same call may be repeated after any error. More than MAX_BATCH entries are committed in several
        steps. Raises MalformedError before anything is written if one of them is too large.
        """
        for entry in entries:
            if len(entry) > MAX_ENTRY_BYTES:
                raise MalformedError(
                    f"log entry: expected at most {MAX_ENTRY_BYTES} bytes", size_bytes=len(entry)
                )
        identities = [self.settings.identify(entry) for entry in entries]
        indexes: list[int] = []
        for at in range(0, len(entries), MAX_BATCH):
            end = at + MAX_BATCH
            with self._appending() as state:
                self._require_not_frozen()
                indexes += self._append_new(state, entries[at:end], identities[at:end])
        return tuple(indexes)

    def _append_new(self, state: State, entries: Sequence[bytes], identities: Sequence[bytes]) -> list[int]:
        found = self._find(state, identities)
        added: dict[bytes, bytes] = {}
        for identity, entry in zip(identities, entries, strict=True):
            if identity not in found:
                added.setdefault(identity, entry)
        if added:
            found.update(zip(added, range(state.head.size, state.head.size + len(added)), strict=True))
            state = self._commit(self._with_room(state), list(added.values()))
            self._index.add(list(added), state.head)
        return [found[identity] for identity in identities]

    def _with_room(self, state: State) -> State:
        """The state with less staged, if much is; what may be a fork is neither written nor let grow on."""
        if len(state.entries) < STAGED_ENTRIES and len(state.segments) < STAGED_SEGMENTS:
            return state
        self._known.require_extended(state, self._known.mirrored())
        return self._integrate(state, state.head.size - state.head.size % WIDTH)

    def _commit(self, state: State, entries: Sequence[bytes]) -> State:
        """The state with the entries appended: staged durably, then committed by swapping the head."""
        segment, extended = state.extended(entries, self.settings.origin)
        assert extended.head_file is not None
        self.private.create(segment.path, staging.encode_segment(entries))
        self.settings.failpoint("staged")
        if not self.private.swap(staging.HEAD, state.head_file, extended.head_file):
            raise UnavailableError(
                "log: another process moved the head though the lock was held", code="busy"
            )
        self.settings.failpoint("committed")
        self._state = extended
        return extended

    def _find(self, state: State, identities: Sequence[bytes]) -> dict[bytes, int]:
        """The index of each entry that the log has, looked up and then compared with the entry itself."""
        self._complete_index(state)
        found = self._index.find(identities)
        for identity, entry in zip(found, state.read_each(found.values()), strict=True):
            if self.settings.identify(entry) != identity:
                self._index.clear()
                return self._find(state, identities)
        return found

    def _complete_index(self, state: State) -> None:
        identify = self.settings.identify

        def identities(start: int) -> list[bytes]:
            entries = state.read_entries(start, min(start + MAX_BATCH, state.head.size))
            return [identify(entry) for entry in entries]

        dedup.complete(
            self._index, state.head, lambda size: merkle.tree_root(size, state.read_hashes), identities
        )

    # Integrating

    def _integrate(self, state: State, size: int) -> State:
        """The state with all tiles of `size` standing. The append lock must be held."""
        if size > state.integrated:
            tiles = state.tiles(size)
            while files := dict(itertools.islice(tiles, WIDTH)):
                self.public.create_all(files)
                self.settings.failpoint("tiles")
            self.private.replace(staging.INTEGRATED, staging.format_integrated(size))
            self.settings.failpoint("integrated")
            self.private.remove(segment.path for segment in state.segments if segment.new.size <= size)
            self.settings.failpoint("dropped")
            state = state.integrated_to(size)
            self._state = state
        return state

    # Publishing

    def require_not_rolled_back(self) -> None:
        """Returns unless somebody who answers knows a head that the committed log does not extend (`rolled_back`).

        For whoever is about to append what would then be a fork. Who does not answer is asked before a signature.
        """
        with self._appending() as state:
            pass
        self._known.require_not_rolled_back(state)

    def publish(self, deadline_seconds: float) -> Published:
        """The checkpoint of all that is committed, public when this returns.

        Publishing a size again refreshes its cosignatures. Raises UnavailableError with code
        `witness_quorum_not_met` if the policy's quorum did not cosign in time, and VerificationError with
        code `rolled_back` if the committed log does not extend one that was signed or seen before; the public
        checkpoint then stays as it was.
        """
        deadline = time.monotonic() + deadline_seconds
        with self.private.lock("publish", min(deadline_seconds, LOCK_TIMEOUT_SECONDS)):
            self.settings.still()
            with self._appending() as state:
                self._require_not_frozen()
            previous, mirrored = self._known.published(), self._known.mirrored()
            self._known.require_extended(state, mirrored)
            # Only now: a copy that was rolled back must not write tiles that differ from those of the original.
            with self._appending() as state:
                state.sound_edges()  # also where nothing grows: what is signed is served with these files
                state = self._integrate(state, state.head.size)
            if mirrored is not None:
                mirrored.copy_tiles(self.public, state.head.size)
                self.settings.failpoint("mirrored")
            self.private.replace(SIGNED, staging.format_head(self.settings.origin, state.head))
            text = format_checkpoint(Checkpoint(self.settings.origin, state.head.size, state.head.root))
            note = sign_note(text, self.settings.note_signers)
            self.settings.failpoint("signed")
            note = self._cosigned(note, state, previous.size, deadline)
            published = self._judged(note, state.head)
            self.settings.failpoint("cosigned")
            if mirrored is not None:
                mirrored.replace_checkpoint(published.note)
                self.settings.failpoint("announced to the mirror")
            self.public.replace(CHECKPOINT, published.note)
            self.settings.failpoint("published")
            self._prune(state.head.size)
        return published

    def freeze(self) -> Head:
        """The last head of this log: nothing is appended to it or signed of it from now on, by anybody.

        Raises RefusedError with code `unpublished` unless its public checkpoint covers all that is committed.
        """
        with self.private.lock("publish"), self._appending() as state:
            if self.frozen() is None:
                if self._known.published() != state.head:
                    raise RefusedError(
                        "log: expected everything in it to be published before it is frozen",
                        code="unpublished",
                    )
                self.private.create(FROZEN, staging.format_head(self.settings.origin, state.head))
        return state.head

    def frozen(self) -> Head | None:
        """The head that the log was frozen at, None while it may grow."""
        data = self.private.read(FROZEN)
        return None if data is None else staging.parse_head(data, self.settings.origin)

    def _require_not_frozen(self) -> None:
        if self.frozen() is not None:
            raise RefusedError("log: is frozen; another log has taken its place", code="frozen")

    def _cosigned(self, note: Note, state: State, previous: int, deadline: float) -> Note:
        if self.settings.cosign is None or self.settings.policy is None:
            return note

        def prove(old_size: int) -> tuple[bytes, ...]:
            return merkle.prove_consistency(old_size, state.head.size, state.read_hashes)

        remaining = max(deadline - time.monotonic(), 0.0)
        lines = self.settings.cosign(format_note(note), prove, previous, remaining)
        return add_signatures(note, _holding(lines, note, self.settings.policy))

    def _judged(self, note: Note, head: Head) -> Published:
        """The publication of a note that its future readers will accept under the log's own policy."""
        data, policy = format_note(note), self.settings.policy
        state: Literal["logged", "witnessed"] = "logged"
        if policy is not None:
            try:
                policies.verify_checkpoint(policy, data, self.settings.origin)
            except VerificationError as error:
                if error.code != "quorum_not_met":
                    raise
                raise UnavailableError(
                    "log: the policy's witnesses did not cosign in time; the checkpoint stays as it was",
                    code="witness_quorum_not_met",
                    size=head.size,
                ) from None
            state = "logged" if policy.quorum is None else "witnessed"
        return Published(data, head.size, head.root, state, self.settings.clock())

    def _prune(self, size: int) -> None:
        """Removes partial tiles whose full ones stand, once no public checkpoint has need of them.

        What is done is written down, so that a crash leaves none behind for good. Much is done in several calls.
        """
        try:
            with self.private.lock("gc", 0.0):
                done = staging.parse_integrated(self.private.read(PRUNED))
                until = min(size - size % WIDTH, done + PRUNE_ENTRIES)
                if until <= done:
                    return
                full = [tile.path for tile in tiles_for_growth(done, until) if tile.width == WIDTH]
                self.public.remove(partials_of(self.public, full))
                self.private.replace(PRUNED, staging.format_integrated(until))
        except UnavailableError as error:
            if error.code != "busy":  # somebody else is at it
                raise

    # State

    @contextmanager
    def _appending(self) -> Iterator[State]:
        """The committed state, which nobody else changes within the block."""
        with self.private.lock("append"):
            yield self._current()

    def _current(self) -> State:
        state = self._state
        files = self.private.read(staging.HEAD), self.private.read(staging.INTEGRATED)
        if state is None or files != (state.head_file, state.integrated_file):
            if files[0] is None:
                self._require_new()
            state, abandoned = staging.load_state(self.public, self.private, self.settings.origin)
            self.private.remove(abandoned)
            self._state = state
        return state

    def _require_new(self) -> None:
        """Returns unless tiles or signatures show that there was a head once."""
        heads = (self._known.published(), self._known.signed())
        if any(head.size for head in heads) or self.public.names("tile/"):
            raise VerificationError("log state: the head is missing, the log is not new", code="rolled_back")

    def _covering(self, size: int) -> State:
        """A committed state of at least this size."""
        state = self._state
        if state is None or size > state.head.size:
            with self._appending() as state:
                pass
        if size > state.head.size:
            raise MalformedError(
                f"log: expected a size or index within the {state.head.size} entries there are",
                size=state.head.size,
            )
        return state


def _holding(lines: Sequence[SignatureLine], note: Note, policy: policies.Policy) -> Iterator[SignatureLine]:
    """The lines that hold. One that does not would make readers refuse the checkpoint with all the others."""
    keys = {(witness.key.name, witness.key.key_id): witness.key for witness in policy.witnesses}
    for line in lines:
        key = keys.get((line.name, line.key_id))
        if key is not None:
            with suppress(VerificationError):
                verify_cosignature(key, line, note.text)
                yield line
