"""What the modules of the store ask of a connection: the little that both engines give. And the rows of a write."""

from __future__ import annotations

from typing import Any, Final, Protocol

NEW_EVENT: Final = """
    INSERT INTO events (seq, tenant, tenant_seq, commitment, link, link_salt, content_hash, entry)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
NEW_CONTENT: Final = "INSERT INTO contents (seq, content, salt) VALUES (?, ?, ?)"
NEW_FACT: Final = """
    INSERT INTO facts (seq, tenant, agent_tag, key_tag, subject_tag, text_tag, status, valid_from, declared,
                       valid_until, recorded_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
NEW_WORDS: Final = "INSERT INTO search (rowid, key, value, body) VALUES (?, ?, ?, ?)"


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
