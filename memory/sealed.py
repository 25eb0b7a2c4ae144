"""What a backup lacks and a restore needs, sealed beside the tiles: links of erased statements, and kept hashes.

What was written after a backup and erased since is in no backup, and in the log as a commitment alone. Its link, which
says nothing about anybody, tells what it did to others: without it an older value would come back with the restore.
The hashes of retired values that an erasure kept are sealed once more, each under its key of backups, so they end
where those in backups do. State statements are sealed as well. Nothing is sealed before there is a backup.

    sealed/NAME.sealed    MAGIC, a nonce of 12 bytes, AES-256-GCM of dCBOR([[statement, …], [[row, secret], …]])

NAME is a keyed hash of a commitment, and so are the key and the nonce of what they are for: who has the folder alone
learns from it neither which entry of the log this is about, nor what kind it is of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory import event, store_backup
from memory.times import whole_hour
from tlog import cbor
from tlog.errors import MalformedError, VerificationError

if TYPE_CHECKING:
    from memory.rows import EventRow
    from memory.store_write import Txn
    from memory.vault import Vault
    from memory.wiring import Home

FOLDER: Final = "sealed"
MAGIC: Final = b"muniment-sealed/1\n"
MAX_SEALED_BYTES: Final = 80 << 20
_NONCE_BYTES: Final = 12
_REFERENCE_BYTES: Final = 16


class SealedStatement(NamedTuple):
    """A statement without its content, and the hour that it was recorded in."""

    link: bytes
    link_salt: bytes
    content_hash: bytes
    hour: int

    @property
    def commitment(self) -> bytes:
        """C, which has to be in the log or among the targets of a tombstone: that is what vouches for it."""
        return event.commitment(event.link_hash(self.link, self.link_salt), self.content_hash)


@dataclass(frozen=True)
class Sealed:
    """What is in one file: statements, and rows of the value ledger, each still under its own key."""

    statements: tuple[SealedStatement, ...] = ()
    ledger: tuple[tuple[int, bytes], ...] = ()


def path_of(vault: Vault, commitment: bytes) -> str:
    """Where what is sealed for a statement lies among the public files of the log."""
    return f"{FOLDER}/{vault.index_tag('sealed', commitment).hex()}.sealed"


def seal_erased(
    home: Home, vault: Vault, txn: Txn, tombstone: EventRow, seqs: Iterable[int], entries: Collection[int]
) -> None:
    """Seals what no backup has of the statements that a tombstone erases, before it does; and the entries it keeps."""
    oldest = store_backup.oldest_end(txn.view)
    if oldest is None:
        return
    rows = (txn.view.event_by_seq(seq) for seq in seqs if seq > oldest)
    statements = [_statement(row) for row in rows if row is not None and row.content is not None]
    if statements or entries:
        secrets = _seal_entries(home, txn, tombstone.commitment, entries)
        _write(home, vault, tombstone.commitment, statements, secrets)


def seal_statement(home: Home, vault: Vault, txn: Txn, made: EventRow) -> None:
    """Seals a statement about the store as a whole, which no backup made before it has."""
    if store_backup.oldest_end(txn.view) is not None:
        _write(home, vault, made.commitment, [_statement(made)], [])


def open_sealed(vault: Vault, commitment: bytes, data: bytes) -> Sealed:
    """What is sealed in a file; VerificationError if it is not what was sealed under this name."""
    from cryptography.exceptions import InvalidTag

    if not data.startswith(MAGIC) or len(data) > MAX_SEALED_BYTES:
        raise MalformedError("expected a sealed file of this version")
    nonce, body = data[len(MAGIC) :][:_NONCE_BYTES], data[len(MAGIC) + _NONCE_BYTES :]
    try:
        plain = _cipher(vault).decrypt(nonce, body, commitment)
    except (InvalidTag, ValueError):
        raise VerificationError("a sealed file is not what was sealed", code="sealed") from None
    statements, ledger = _two_lists(cbor.decode(plain, max_bytes=MAX_SEALED_BYTES))
    return Sealed(
        tuple(SealedStatement(*one) for one in statements), tuple((one[0], one[1]) for one in ledger)
    )


def open_entry(home: Home, commitment: bytes, row_id: int, secret: bytes) -> dict[str, Any] | None:
    """A row of the value ledger that an erasure kept; None once its key is destroyed."""
    from memory.backup_format import decrypt
    from memory.backup_keys import ring_of

    key = ring_of(home).key("ledger", row_id)
    if key is None:
        return None
    row = decrypt(key, commitment[:_REFERENCE_BYTES], "ledger", row_id, secret)
    return row if isinstance(row, dict) else None


def _statement(row: EventRow) -> SealedStatement:
    assert row.content is not None  # it is about to be erased, or was just made
    recorded_at = event.decode_content(row.content)["recorded_at"]
    return SealedStatement(row.link, row.link_salt, row.content_hash, whole_hour(recorded_at))


def _seal_entries(
    home: Home, txn: Txn, commitment: bytes, entries: Collection[int]
) -> list[tuple[int, bytes]]:
    from memory.backup_format import encrypt
    from memory.backup_keys import ring_of

    ring = ring_of(home)
    wanted = set(entries)
    rows = (
        [row for row in store_backup.whole_rows(txn.view, "ledger") if row["id"] in wanted] if wanted else []
    )
    number = commitment[:_REFERENCE_BYTES]
    secrets = [
        (row["id"], encrypt(ring.make("ledger", row["id"]), number, "ledger", row["id"], row)) for row in rows
    ]
    # The key before what it opens: what no key is there for is lost.
    ring.flush()
    return secrets


def _write(
    home: Home,
    vault: Vault,
    commitment: bytes,
    statements: Iterable[SealedStatement],
    secrets: Iterable[tuple[int, bytes]],
) -> None:
    plain = cbor.encode([[list(one) for one in statements], [list(one) for one in secrets]])
    # Made from what it hides, so that the same is sealed to the same bytes, and two never share a nonce.
    nonce = vault.index_tag("sealed-nonce", commitment, plain)[:_NONCE_BYTES]
    data = MAGIC + nonce + _cipher(vault).encrypt(nonce, plain, commitment)
    home.create_public_file(path_of(vault, commitment), data)


def _cipher(vault: Vault) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(vault.index_tag("sealed-key"))


def _two_lists(value: object) -> tuple[list[Any], list[Any]]:
    if not isinstance(value, list) or len(value) != 2:
        raise MalformedError("expected what is sealed to be two lists")
    statements, ledger = value
    if not isinstance(statements, list) or not isinstance(ledger, list):
        raise MalformedError("expected what is sealed to be two lists")
    return statements, ledger
