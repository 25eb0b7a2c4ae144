"""The keys that a log's receipts were ever signed with, as SCRAPI serves them.

    public  scitt-keys/KID.cose    one COSE_Key for each, its kid in hexadecimal

The key in use is put there before the first receipt is signed with it and stays when another takes its place,
so that every receipt stays verifiable.
"""

from __future__ import annotations

from typing import Final

from tlog.cose_keys import CoseKey, decode_key
from tlog.errors import VerificationError
from tlog.locator import names_of_key
from tlog.storage import Storage

FOLDER: Final = "scitt-keys/"


class ReceiptKeys:
    """The key in use and the retired ones, in memory."""

    def __init__(self, current: CoseKey, retired: tuple[CoseKey, ...] = ()) -> None:
        self.all = (current, *(key for key in retired if key.key_id != current.key_id))
        self._by_name: dict[str, CoseKey] = {}
        # The key in use first: where a retired kid spells another's name, the newer key is the one meant.
        for key in self.all:
            for name in names_of_key(key.key_id):
                self._by_name.setdefault(name, key)

    def find(self, name: str) -> CoseKey | None:
        """The key that a path segment names, by base64url or by its plain kid."""
        return self._by_name.get(name)


def load_receipt_keys(public: Storage, current: CoseKey) -> ReceiptKeys:
    """The keys of a log, `current` durably among them."""
    public.create(f"{FOLDER}{current.key_id.hex()}.cose", current.encode())
    keys = []
    for path in public.names(FOLDER):
        key = decode_key(public.read(path) or b"")
        if path != f"{FOLDER}{key.key_id.hex()}.cose":
            raise VerificationError("receipt keys: a file holds another key than its name says", code="key")
        keys.append(key)
    return ReceiptKeys(current, tuple(keys))
