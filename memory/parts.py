"""What the facade and the modules behind it work with: one value, composed in `wiring` and passed down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.config import Guard
    from memory.store import Store
    from memory.vault import Vault
    from memory.wiring import Home


@dataclass(frozen=True)
class Parts:
    """An open home, in pieces. `sign_entry` makes the signed statement of a commitment; `clock` gives µs."""

    store: Store
    vault: Vault
    sign_entry: Callable[[bytes], bytes]
    guard: Guard
    issuer: str
    subject: str
    home: Home
    clock: Callable[[], int]
