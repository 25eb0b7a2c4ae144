"""The logs of a home, one after the other, as one row of positions.

A statement's place in the store is a position: its index in its log, after all entries of the logs before. A
log that another has taken the place of is frozen, so a position never changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory.config import Config
from tlog.ascii import decode_hash, encode_base64, parse_decimal
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from tlog.checkpoint import Checkpoint


@dataclass(frozen=True)
class FrozenLog:
    """A log that ended: its key as text, and the head that it ended with."""

    vkey: str
    size: int
    root: bytes

    @property
    def origin(self) -> str:
        """What it called itself."""
        return self.vkey.partition("+")[0]

    @property
    def line(self) -> str:
        """How the configuration writes it down."""
        return f"{self.vkey} {self.size} {encode_base64(self.root)}"

    @property
    def end(self) -> Checkpoint:
        """Its last head."""
        from tlog.checkpoint import Checkpoint

        return Checkpoint(self.origin, self.size, self.root)


@dataclass(frozen=True)
class Place:
    """An entry: the number of its log in the home, from 1, and its index there."""

    log: int
    index: int


def frozen_logs(config: Config) -> tuple[FrozenLog, ...]:
    """The logs that ended, the oldest first."""
    return tuple(_parse(line) for line in config.frozen)


def _parse(line: str) -> FrozenLog:
    fields = line.rsplit(" ", 2)  # an origin may have spaces
    if len(fields) != 3:
        raise MalformedError("config.toml: expected frozen to have a vkey, a size and a root in each line")
    vkey, size, root = fields
    return FrozenLog(
        vkey, parse_decimal(size, "config.toml: frozen"), decode_hash(root, "config.toml: frozen")
    )


def log_number(config: Config) -> int:
    """The number of the log that grows."""
    return len(config.frozen) + 1


def first_position(config: Config) -> int:
    """The position of the first entry of the log that grows."""
    return sum(log.size for log in frozen_logs(config)) if config.frozen else 0


def locate(config: Config, position: int) -> Place:
    """The log and the index of a position."""
    start = 0
    for number, log in enumerate(frozen_logs(config), 1):
        if position < start + log.size:
            return Place(number, position - start)
        start += log.size
    return Place(log_number(config), position - start)


def origin_of(config: Config, number: int) -> str:
    """What the log of this number calls itself."""
    logs = frozen_logs(config)
    return logs[number - 1].origin if number <= len(logs) else config.origin
