"""Whether an identity index is what was written into it: what it says of itself, and what its tables add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from tlog.ascii import HASH_BYTES
from tlog.staging import EMPTY_HEAD, Head

if TYPE_CHECKING:
    import apsw

FILTER_BYTES: Final = 1 << 21  # a bit for each beginning of 24 bits
_META: Final = "SELECT size, root, settled, cleared, known, sums FROM indexed"
# Of two numbers each, so that no column of a sum exceeds 64 bits; any one altered bit changes one of them.
_SUMS: Final = """
SELECT json_array(count(*), coalesce(sum(key & 0xffffffff), 0), coalesce(sum(key >> 32), 0),
                  coalesce(sum(entry_index), 0)) FROM settled
"""
NO_SUMS: Final = "[0,0,0,0]"
NOTHING: Final = b""


class DamagedError(Exception):
    """The file says something that this module never writes."""


@dataclass(frozen=True)
class Meta:
    """What the index says of itself: how far it goes, and what its tables add up to."""

    size: int
    root: bytes
    settled: int
    cleared: int
    known: bytes
    sums: str

    @property
    def head(self) -> Head:
        """The head up to which the index is complete."""
        return Head(self.size, self.root)


_EMPTY: Final = Meta(0, EMPTY_HEAD.root, 0, 0, NOTHING, NO_SUMS)


def read_meta(database: apsw.Connection) -> Meta:
    """What the index says of itself; DamagedError if that is nothing it would say."""
    return parse_meta(list(database.execute(_META)))


def parse_meta(rows: Sequence[Sequence[object]]) -> Meta:
    """The one row of it, or what holds before there is one."""
    if not rows:
        return _EMPTY
    size, root, settled, cleared, known, sums = rows[0]
    if not (isinstance(size, int) and isinstance(settled, int) and isinstance(cleared, int)):
        raise DamagedError
    if not (isinstance(root, bytes) and isinstance(known, bytes) and isinstance(sums, str)):
        raise DamagedError
    if not 0 <= settled <= size or len(root) != HASH_BYTES:
        raise DamagedError
    return Meta(size, root, settled, cleared, known, sums)


def require_sound(database: apsw.Connection, meta: Meta) -> None:
    """Returns if the three tables add up to what was written into them."""
    digest, size = NOTHING, 0
    for first, identities in database.execute("SELECT first, identities FROM known ORDER BY first"):
        require_rows(identities)
        if first != size:
            raise DamagedError
        size += len(identities) // HASH_BYTES
        digest = chained(digest, identities)
    filters = list(database.execute("SELECT bits, digest FROM filter"))
    if (digest, size, read_sums(database)) != (meta.known, meta.size, meta.sums) or bool(filters) != (
        meta.settled > 0
    ):
        raise DamagedError
    for bits, of_bits in filters:
        if len(bits) != FILTER_BYTES or sha256(bits).digest() != of_bits:
            raise DamagedError


def require_rows(identities: object) -> None:
    """Returns if a value of `known` is some whole identities."""
    if not isinstance(identities, bytes) or not identities or len(identities) % HASH_BYTES:
        raise DamagedError


def chained(digest: bytes, row: bytes) -> bytes:
    """The digest of the rows of `known` once this one is among them."""
    return sha256(digest + row).digest()


def read_sums(database: apsw.Connection) -> str:
    """What the rows of `settled` add up to."""
    ((sums,),) = list(database.execute(_SUMS))
    return str(sums)
