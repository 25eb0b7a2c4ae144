"""The keys of tenants where many nodes share one database: in a small table, wrapped under the key of the home.

Every node has the same files in keys/. The key that names are found by, and the one that wraps the others, are such
files; the keys of tenants are made by whichever node needs one first, so they are rows.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memory.pg_seal import KEY_BYTES, new_key, place_of, seal, unseal
from memory.vault import Vault, prepare_key
from tlog.errors import Error, UnavailableError
from tlog.keys import load_secret, make_secret

if TYPE_CHECKING:
    import psycopg

    from memory.vault import Key

SEAL_KEY: Final = "seal.key"
_USE: Final = "tenant"


class PgVault(Vault):
    """Keyed hashes, and the keys that contents are sealed under."""

    def __init__(self, folder: Path, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        super().__init__(folder)
        self._connect = connect
        self._home_key: bytes | None = None
        self._sealing: dict[bytes, bytes] = {}
        self._numbers: dict[int, bytes] = {}

    @property
    def home_key(self) -> bytes:
        """The key that wraps the others and the names of tenants."""
        if self._home_key is None:
            self._home_key = load_secret(self._folder / SEAL_KEY)
        return self._home_key

    def make_home_key(self) -> None:
        """Returns once there is a key of the home, made if there was none."""
        make_secret(self._folder / SEAL_KEY)

    def proof(self) -> bytes:
        """What tells this key of the home from another, and nothing else of it."""
        return hmac.digest(self.home_key, b"muniment home", "sha256")

    def note_tenant(self, tenant_id: int, number: bytes) -> None:
        """Has the number of a tenant known by that of its row."""
        self._numbers[tenant_id] = number

    def note_keys(self, tenant_id: int, number: bytes, keys: bytes | None) -> None:
        """Has the keys of a tenant known that a transaction puts there; without any they are made when needed."""
        self.note_tenant(tenant_id, number)
        if keys is not None:
            with self._lock:
                self._keys[number] = prepare_key(keys[:KEY_BYTES])
                self._sealing[number] = keys[KEY_BYTES:]

    def keys_of(self, number: bytes) -> bytes | None:
        """The keys of a tenant as the database has them; None if it has none."""
        wrapped = self._row(number)
        return None if wrapped is None else unseal(self.home_key, wrapped, place_of(_USE, number))

    def sealing_key(self, tenant_id: int, *, make: bool = False) -> bytes:
        """The key of a tenant that its contents hang on; made where there is none, if that is asked for."""
        number = self._numbers.get(tenant_id)
        if number is None:
            number = self._number_of(tenant_id)
            self._numbers[tenant_id] = number
        if number not in self._sealing:
            self._load(number, make=make)
        return self._sealing[number]

    def look_again(self, tenant_id: int) -> bytes:
        """The same, read anew: another node may have destroyed it, and made another since."""
        self._sealing.pop(self._numbers[tenant_id], None)
        return self.sealing_key(tenant_id)

    def has_tenant_key(self, tenant_number: bytes) -> bool:
        """Whether the keys of a tenant are there."""
        return tenant_number in self._keys or self._row(tenant_number) is not None

    def destroy_tenant_key(self, tenant_number: bytes) -> bool:
        """Whether the keys of a tenant are gone: others are in their place, and the table is written anew.

        What is left of such a tenant is free of content, as the time of an erasure is: that hangs on the new key.
        """
        from memory.pg_connection import translated

        try:
            with translated():
                connection = self._connect()
                try:
                    self._replace(connection, tenant_number)
                    connection.execute("VACUUM (FULL) tenant_keys")
                finally:
                    connection.close()
        except Error:
            return False
        with self._lock:
            self._keys.pop(tenant_number, None)
            self._sealing.pop(tenant_number, None)
            self._names.clear()
            self._begun.clear()
        return True

    def _replace(self, connection: psycopg.Connection[Any], number: bytes) -> None:
        row = self._row(number)
        if row is None:
            return
        old = unseal(self.home_key, row, place_of(_USE, number))[KEY_BYTES:]
        new = new_key()
        with connection.transaction():
            found = connection.execute(
                "SELECT id FROM tenants WHERE number = %s FOR UPDATE", (number,)
            ).fetchone()
            if found is not None:
                connection.execute("SELECT set_config('muniment.tenant', %s, true)", (str(found[0]),))
                rewrap(connection, found[0], old, new)
            connection.execute(
                "UPDATE tenant_keys SET wrapped = %s WHERE number = %s",
                (seal(self.home_key, new_key() + new, place_of(_USE, number)), number),
            )

    def _tenant_key(self, tenant_number: bytes) -> Key:
        known = self._keys.get(tenant_number)
        if known is None:
            self._load(tenant_number, make=True)
            known = self._keys[tenant_number]
        return known

    def _load(self, number: bytes, *, make: bool) -> None:
        wrapped = self._row(number)
        if wrapped is None and make:
            wrapped = self._make(number)
        if wrapped is None:
            raise UnavailableError(
                "the key of a tenant is not in the database: put that back from a backup", code="key_mismatch"
            )
        keys = unseal(self.home_key, wrapped, place_of(_USE, number))
        with self._lock:
            self._keys[number] = prepare_key(keys[:KEY_BYTES])
            self._sealing[number] = keys[KEY_BYTES:]

    def _make(self, number: bytes) -> bytes | None:
        """The keys of a new tenant, durable before anything is tagged with them; those of whoever was faster."""
        wrapped = seal(self.home_key, new_key() + new_key(), place_of(_USE, number))
        self._ask(
            "INSERT INTO tenant_keys (number, wrapped) VALUES (%s, %s) ON CONFLICT (number) DO NOTHING"
            " RETURNING number",
            (number, wrapped),
        )
        return self._row(number)

    def _row(self, number: bytes) -> bytes | None:
        row = self._ask("SELECT wrapped FROM tenant_keys WHERE number = %s", (number,))
        return None if row is None else row[0]

    def _number_of(self, tenant_id: int) -> bytes:
        row = self._ask("SELECT number FROM tenants WHERE id = %s", (tenant_id,))
        if row is None:
            raise LookupError("a row names a tenant that the store does not have")
        return bytes(row[0])

    def _ask(self, sql: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        from memory.pg_connection import translated

        with translated():
            connection = self._connect()
            try:
                return connection.execute(sql, values).fetchone()
            finally:
                connection.close()


def rewrap(connection: psycopg.Connection[Any], tenant_id: int, old: bytes, new: bytes) -> None:
    """Has what hangs on the old key of a tenant hang on the new one."""
    for subject, wrapped in connection.execute(
        "SELECT subject, wrapped FROM subject_keys WHERE tenant = %s", (tenant_id,)
    ).fetchall():
        place = place_of("subject", tenant_id)
        connection.execute(
            "UPDATE subject_keys SET wrapped = %s WHERE tenant = %s AND subject = %s",
            (seal(new, unseal(old, wrapped, place), place), tenant_id, subject),
        )
    for seq, wrapped in connection.execute(
        "SELECT seq, wrapped FROM content_keys WHERE tenant = %s AND subject IS NULL", (tenant_id,)
    ).fetchall():
        place = place_of("record", tenant_id, seq)
        connection.execute(
            "UPDATE content_keys SET wrapped = %s WHERE tenant = %s AND seq = %s",
            (seal(new, unseal(old, wrapped, place), place), tenant_id, seq),
        )
