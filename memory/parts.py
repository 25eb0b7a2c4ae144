"""What the facade and the modules behind it work with: one value, composed in `wiring` and passed down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.config import Guard
    from memory.retention_rules import Rules
    from memory.rows import FactRow
    from memory.store import Store
    from memory.store_read import Keeps
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

    def __post_init__(self) -> None:
        self.store.keeps_now = self._keeps_now

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
