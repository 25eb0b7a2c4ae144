"""What the records of each key say at a time: what one of them still says is not retired when another is ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from auditor.evidence import Statement

_CURRENT: Final = frozenset({"active", "conflict"})
Slot = tuple[int, Any, Any]
"""Tenant, agent and key."""


class Standing:
    """The current records of each key, as far as their contents are there."""

    def __init__(self, by_commitment: Mapping[bytes, Statement]) -> None:
        self._by_commitment = by_commitment
        self._said: dict[Slot, dict[bytes, tuple[object, object]]] = {}

    def take(self, statuses: Iterable[tuple[bytes, str]]) -> None:
        """What a statement has made of these writes, by their commitments."""
        for commitment, status in statuses:
            statement = self._by_commitment.get(commitment)
            content = None if statement is None else statement.content
            key = None if content is None else content.get("key")
            if statement is None or content is None or key is None:
                continue
            slot = (statement.row.tenant_id, content.get("agent"), key)
            members = self._said.get(slot)
            if members is None:
                members = self._said[slot] = {}
            if status in _CURRENT:
                value = content.get("value")
                told = content.get("text") if value is None else value
                members[commitment] = (told, content.get("valid_until"))
            else:
                members.pop(commitment, None)

    def is_said(self, slot: Slot, value: str, ended: Collection[bytes], at: int | None) -> bool:
        """Whether a record of the key that is not among those ended still says the value at that time."""
        for commitment, (told, until) in self._said.get(slot, {}).items():
            open_still = not isinstance(until, int) or at is None or until > at
            if told == value and open_still and commitment not in ended:
                return True
        return False
