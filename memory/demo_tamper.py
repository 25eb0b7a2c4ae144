"""One changed byte in a copy of a home: what an audit has to find."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tlog.errors import UnavailableError

# A value of the team's week that no later step corrects or erases.
TARGET: Final = b"Source Sans"


def change_store_byte(home: Path) -> str:
    """Changes a letter of a remembered value where it lies in the store; says where."""
    store = home / "store.db"
    data = bytearray(store.read_bytes())
    at = data.find(TARGET)
    if at < 0:
        raise UnavailableError("the demo's facts do not hold the value that this step changes")
    data[at] ^= 0x01
    store.write_bytes(data)
    return f"store.db, byte {at}"


def change_log_byte(home: Path) -> str:
    """Changes a byte in the middle of the first bundle of log entries; says where."""
    entries = home / "log" / "tile" / "entries"
    bundle = min(path for path in entries.rglob("*") if path.is_file())
    data = bytearray(bundle.read_bytes())
    at = len(data) // 2
    data[at] ^= 0x01
    bundle.write_bytes(data)
    return f"{bundle.relative_to(home)}, byte {at}"
