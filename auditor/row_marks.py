"""What an audit that found nothing keeps of the rows of a store, so that a later one knows which of them are the same.

Nothing of it confirms a guess of what is erased: each digest is keyed by the salts of all contents that were there.
An erasure destroys some of these salts, and from then on nobody can make the key again, the auditor neither: whatever
was kept is noise, and everything is looked at anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apsw
import cbor2

from auditor.leaves import Leaves
from auditor.state import load_bytes, save_bytes
from tlog.errors import MalformedError

MAX_BYTES: Final = 1 << 28
DIGEST_BYTES: Final = 16
APPENDED: Final = ("events", "contents", "acts", "ledger", "idempotency")
"""Tables whose old rows stay as they are while nothing but new ones comes."""
FIXED: Final = ("erasures", "grants", "openings", "backups", "conflicts")
"""Tables that are to be the same altogether."""
CHANGING: Final = "facts"
TABLES: Final = (*APPENDED, *FIXED, CHANGING)
BLOCK: Final = 64
"""Facts whose hashes are under one digest."""
KINDS: Final = ("erase", "manifest", "state")
"""Of these kinds, the number of the last statement is kept: a state statement names them."""
_GOING_ON: Final = frozenset({"recorded_at", "state.last"})
_SEALED: Final = b"muniment audit rows\n"


@dataclass(frozen=True, slots=True)
class TableMarks:
    """The leaves of a table under the key, the end of the last but one, the highest number, and a digest over the
    rows after that end."""

    leaves: tuple[bytes, ...]
    ends: tuple[int, ...]
    """Of facts alone, whose old rows may change."""
    overflow: frozenset[bytes]
    after: int
    last: int
    tail: bytes


@dataclass(frozen=True, slots=True)
class RowMarks:
    """What is kept of the rows of a store."""

    last: int
    """The number of the last statement."""
    check: bytes
    """What the key comes to alone: another key is told from this one before anything else is compared."""
    tables: Mapping[str, TableMarks]
    tags: tuple[bytes, ...]
    """Over the hashes of names of each block of facts."""
    settings: bytes
    """Over the settings of the store, but the time and the last state statement."""
    tips: tuple[int, ...]
    """The number of the last statement of each of KINDS; 0 where there is none."""


class Keyed:
    """Digests under the key that the salts of all contents up to a statement make."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.check = self.of(b"key")

    def of(self, data: bytes) -> bytes:
        """The digest of some bytes."""
        return hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=self._key).digest()


def keys_of(connection: apsw.Connection, last: int) -> tuple[Keyed, Keyed]:
    """The key of the salts of all contents up to the statement `last`, and that of all there are."""
    digest = hashlib.sha256(b"muniment audit salts")
    then: bytes | None = None
    for seq, salt in connection.execute("SELECT seq, salt FROM contents ORDER BY seq"):
        if type(salt) is not bytes:
            raise MalformedError("expected contents with salts")
        if then is None and seq > last:
            then = digest.digest()
        digest.update(salt)
    now = digest.digest()
    return Keyed(now if then is None else then), Keyed(now)


def roots_of(connection: apsw.Connection) -> dict[str, int]:
    """The root page of each table of which something is kept."""
    sql = "SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'"
    found = {name: root for name, root in connection.execute(sql) if name in TABLES and type(root) is int}
    if found.keys() != set(TABLES):
        raise MalformedError("expected the tables of a store")
    return found


def tail_of(connection: apsw.Connection, table: str, after: int, last: int) -> bytes:
    """A digest over the rows of a table that come after one number, up to another."""
    digest = hashlib.sha256(table.encode())
    chosen = "rowid > ? AND rowid <= ? ORDER BY rowid"
    # Every type that SQLite has is one of CBOR; a text that is none is bytes to nobody, and an error here.
    for row in connection.execute(f"SELECT rowid, * FROM {table} WHERE {chosen}", (after, last)):
        digest.update(cbor2.dumps(row))
    return digest.digest()


def last_of(connection: apsw.Connection, table: str) -> int:
    """The highest number of a row; 0 where there is none."""
    found: list[Any] = connection.execute(f"SELECT max(rowid) FROM {table}").fetchall()
    return found[0][0] or 0


def mark_table(connection: apsw.Connection, table: str, leaves: Leaves, keyed: Keyed) -> TableMarks:
    """What is kept of one table."""
    after = leaves.ends[-2] if len(leaves.ends) > 1 else 0
    last = last_of(connection, table)
    return TableMarks(
        tuple(map(keyed.of, leaves.digests)),
        leaves.ends if table == CHANGING else (),
        frozenset(map(keyed.of, leaves.overflow)),
        after,
        last,
        keyed.of(tail_of(connection, table, after, last)),
    )


def settings_of(meta: Mapping[str, Any]) -> bytes:
    """The settings of a store, but those that go on with each statement, as bytes."""
    return cbor2.dumps(sorted((name, value) for name, value in meta.items() if name not in _GOING_ON))


class Tags:
    """Digests over the hashes of names that facts are filed under, block by block as the facts are read."""

    def __init__(self, last: int) -> None:
        self.then: list[bytes] = []
        """Of the facts up to the statement `last`."""
        self.now: list[bytes] = []
        self._last = last
        self._block: list[tuple[Any, ...]] = []
        self._number = 0

    def take(self, seq: int, tags: tuple[Any, ...]) -> None:
        """The next fact: the numbers go up."""
        while seq // BLOCK > self._number:
            self._end()
        self._block.append((seq, *tags))

    def end(self, last: int) -> None:
        """No more facts come: the last statement is `last`."""
        while self._number <= last // BLOCK:
            self._end()

    def _end(self) -> None:
        first = self._number * BLOCK
        digest = hashlib.sha256(cbor2.dumps(self._block)).digest()
        self.now.append(digest)
        if first + BLOCK <= self._last + 1:
            self.then.append(digest)
        elif first <= self._last:
            self.then.append(
                hashlib.sha256(cbor2.dumps([one for one in self._block if one[0] <= self._last])).digest()
            )
        self._number += 1
        self._block = []


def encode(marks: RowMarks, mark: str) -> bytes:
    """The bytes that are kept, under the mark of the evidence that the rows were found in (`auditor.unchanged`)."""
    tables = {
        name: [
            b"".join(one.leaves),
            _steps(one.ends),
            b"".join(sorted(one.overflow)),
            one.after,
            one.last,
            one.tail,
        ]
        for name, one in marks.tables.items()
    }
    fields = [mark, marks.last, marks.check, tables, b"".join(marks.tags)]
    data = cbor2.dumps([*fields, marks.settings, list(marks.tips)], canonical=True)
    return data + hashlib.sha256(_SEALED + data).digest()


def decode(data: bytes, mark: str) -> RowMarks | None:
    """What was kept under this mark, if it was; ValueError, TypeError or the like where it is damaged."""
    body, seal = data[:-32], data[-32:]
    if hashlib.sha256(_SEALED + body).digest() != seal:
        raise ValueError
    kept, last, check, tables, tags, settings, tips = cbor2.loads(body)
    if kept != mark:
        return None
    return RowMarks(
        last,
        check,
        {name: _table(*one) for name, one in tables.items()},
        _digests(tags),
        settings,
        tuple(tips),
    )


def load_marks(folder: Path, origin: str, mark: str) -> RowMarks | None:
    """What the last audit that found nothing kept of the rows; None where there is nothing that can be read."""
    data = load_bytes(_path(folder, origin), MAX_BYTES)
    try:
        return None if data is None else decode(data, mark)
    except (ValueError, TypeError, EOFError, ArithmeticError):
        return None


def keep_marks(folder: Path, origin: str, data: bytes) -> None:
    """Keeps them for a later audit."""
    save_bytes(_path(folder, origin), data)


def _table(
    leaves: bytes, steps: Sequence[int], overflow: bytes, after: int, last: int, tail: bytes
) -> TableMarks:
    ends, end = [], 0
    for step in steps:
        end += step
        ends.append(end)
    return TableMarks(_digests(leaves), tuple(ends), frozenset(_digests(overflow)), after, last, tail)


def _steps(ends: Iterable[int]) -> list[int]:
    steps, before = [], 0
    for end in ends:
        steps.append(end - before)
        before = end
    return steps


def _digests(data: bytes) -> tuple[bytes, ...]:
    return tuple(_parts(data))


def _parts(data: bytes) -> Iterator[bytes]:
    if len(data) % DIGEST_BYTES:
        raise ValueError
    for start in range(0, len(data), DIGEST_BYTES):
        yield data[start : start + DIGEST_BYTES]


def _path(folder: Path, origin: str) -> Path:
    return folder / f"{hashlib.sha256(origin.encode()).hexdigest()}.rows"
