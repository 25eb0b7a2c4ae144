"""A connection of a shared transaction, on which the statements of its writes are signed and inserted at once.

What runs once for each of sixteen writes, between all else that a write does, finds the caches of the processor full of
that. So signatures are made one after the other, and rows inserted table by table. Nobody sees a row too late: before
anything else is asked of the connection, what waits is inserted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory.sql import NEW_CONTENT, NEW_EVENT, NEW_FACT, NEW_WORDS

if TYPE_CHECKING:
    import apsw

    from memory.rows import EventRow, NewFact
    from memory.search import Document
    from memory.sql import Rows
    from memory.store_write import SignEntry

UNSIGNED = b""
"""The entry of a statement that waits to be signed."""


class LateRows:
    """The connection, as memory.sql has it, and the rows that wait for what is asked of it next."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._waits = False
        self._events: list[tuple[Any, ...]] = []
        self._signs: list[SignEntry] = []
        self._contents: list[tuple[Any, ...]] = []
        self._facts: list[tuple[Any, ...]] = []
        self._words: list[tuple[Any, ...]] = []
        self._keys: set[tuple[int, bytes | None]] = set()
        self._came = 0
        self._counted = 0

    def add_statement(self, made: EventRow, sign: SignEntry) -> None:
        """A statement that is to be signed by this, with what an erasure destroys of it."""
        self._waits = True
        self._came += 1
        self._events.append(made[:7])
        self._signs.append(sign)
        self._contents.append((made[0], made[9], made[10]))

    def add_fact(self, made: EventRow, fact: NewFact) -> None:
        """The row of a write in the cache of the fold."""
        self._waits = True
        self._facts.append((made.seq, made.tenant_id, *fact))
        self._keys.add((made.tenant_id, fact.key_tag))

    def add_words(self, seq: int, document: Document) -> None:
        """The words of a fact."""
        self._waits = True
        self._words.append((seq, *document))

    def waits_for(self, tenant_id: int, key_tag: bytes) -> bool:
        """Whether a fact of this key is not inserted yet."""
        return (tenant_id, key_tag) in self._keys

    def settle(self) -> None:
        """Signs and inserts what waits: statements before what refers to them."""
        if not self._waits:
            return
        before = self.connection.total_changes()
        signed = [(*row, sign(row[3])) for row, sign in zip(self._events, self._signs, strict=True)]
        for statement, rows in (
            (NEW_EVENT, signed),
            (NEW_CONTENT, self._contents),
            (NEW_FACT, self._facts),
            (NEW_WORDS, self._words),
        ):
            if rows:
                self.connection.executemany(statement, rows)
        for waiting in (self._events, self._signs, self._contents, self._facts, self._words, self._keys):
            waiting.clear()
        self._waits = False
        self._counted += self.connection.total_changes() - before

    # As memory.sql.Connection

    def execute(self, statement: str, values: Any = None, /) -> Rows:
        """Runs one statement."""
        self.settle()
        return self.connection.execute(statement, values)

    def executemany(self, statement: str, values: Any, /) -> Any:
        """Runs one statement for each of many values."""
        self.settle()
        return self.connection.executemany(statement, values)

    def changes(self) -> int:
        """How many rows the last statement changed."""
        return self.connection.changes()

    def total_changes(self) -> int:
        """How many rows were changed: a statement that waits counts from when it came, and not once more."""
        return self.connection.total_changes() - self._counted + self._came
