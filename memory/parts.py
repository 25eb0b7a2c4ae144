"""What the facade and the modules behind it work with: one value, composed in `wiring` and passed down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.config import Config, Guard
    from memory.retention_rules import Rules
    from memory.rows import FactRow
    from memory.store import Store
    from memory.store_read import Keeps
    from memory.store_write import SignEntry
    from memory.vault import Vault
    from memory.wiring import Home


@dataclass(frozen=True)
class Parts:
    """An open home, in pieces. `signer` gives what signs with the key that the home has now; `clock` gives µs."""

    store: Store
    vault: Vault
    signer: Callable[[], SignEntry]
    guard: Guard
    issuer: str
    subject: str
    home: Home
    clock: Callable[[], int]

    def __post_init__(self) -> None:
        self.store.keeps_now = self._keeps_now

    @property
    def sign_entry(self) -> SignEntry:
        """What makes the signed statement of a commitment."""
        return self.signer()

    def terms(self) -> Config:
        """The settings as they are now."""
        return self.home.config

    def _keeps_now(self) -> Keeps:
        """Which facts are within their retention, by the settings and the clock when it is first asked."""
        asked: list[tuple[Rules, int]] = []

        def keeps(fact: FactRow) -> bool:
            if not asked:
                from memory.retention_rules import rules_of

                asked.append((rules_of(self.home.config), self.clock()))
            rules, now = asked[0]
            return not rules.has_ended(fact.status, fact.content, now)

        return keeps
