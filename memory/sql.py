"""What the modules of the store ask of a connection: the little that both engines give."""

from __future__ import annotations

from typing import Any, Protocol


class Rows(Protocol):
    """The rows of a statement."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All that are left."""

    def __iter__(self) -> Any: ...


class Connection(Protocol):
    """A connection with a transaction open. Placeholders are `?`, or `?1` where a value stands more than once."""

    def execute(self, statement: str, values: Any = None, /) -> Rows:
        """Runs one statement."""

    def executemany(self, statement: str, values: Any, /) -> Any:
        """Runs one statement for each of many values."""

    def changes(self) -> int:
        """How many rows the last statement changed."""
