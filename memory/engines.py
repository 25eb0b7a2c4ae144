"""The store that the settings of a home ask for: its own file, or a database that many nodes share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memory.home_names import KEYS, STORE
from tlog.errors import UnavailableError

if TYPE_CHECKING:
    from memory.store import Store


def open_engine(home: Path, database: str | None) -> Store:
    """The store of a home, opened; `database` are the settings of the connection, None for the file store.db."""
    if database is not None:
        require_postgres()
        from memory.pg_store import open_pg_store

        if (home / STORE).exists():
            raise UnavailableError(
                "a move of the store to the database was cut short: muniment migrate goes on with it",
                code="store_left",
            )
        return open_pg_store(database, home / KEYS)
    from memory.layout import make_private_file, require_store
    from memory.store import open_store
    from memory.vault import Vault

    require_store(home)
    make_private_file(home / STORE)
    return open_store(home / STORE, Vault(home / KEYS))


def require_postgres() -> None:
    """Returns if the client of PostgreSQL is installed; UnavailableError with code `extra_missing` if not."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise UnavailableError(
            "a store on PostgreSQL needs the extra: pip install 'muniment[postgres]'", code="extra_missing"
        ) from None


def engine_of(database: str | None) -> str:
    """What keeps the store of a home with these settings: what a backup is put back into."""
    return "sqlite" if database is None else "postgres"
