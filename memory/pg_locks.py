"""Advisory locks of the database that several modules know by number."""

from __future__ import annotations

from typing import Final

WRITERS: Final = 0x4D554E49_00000002
"""Shared by each transaction that writes to the store; had alone by what none of them may overlap with."""
ERASURES: Final = 0x4D554E49_00000003
"""Had by the one node that erases."""
