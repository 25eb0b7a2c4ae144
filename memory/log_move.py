"""What the logs of a home keep to themselves, moved from its folders to the database of its store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from memory.chain import log_number, origin_of
from memory.config import Config
from memory.home_names import private_log, public_log
from memory.log_places import private_of
from tlog.errors import RefusedError
from tlog.log import Log
from tlog.log_settings import LogSettings
from tlog.staging import HEAD, STAGING, parse_head
from tlog.storage import DirectoryStorage


def copy_private(folder: Path, config: Config, database: str) -> None:
    """Returns once the database has what the logs of a home keep to themselves in its folders, the head last.

    RefusedError with code `database_in_use` if it knows a head of one of them that the log in the folder does not
    extend; one that it extends is of a move that was cut short.
    """
    moved = replace(config, database=database)
    for number in range(1, log_number(config) + 1):
        source = DirectoryStorage(folder / private_log(number))
        origin = origin_of(config, number)
        target = private_of(folder, moved, number, origin)
        log = Log(DirectoryStorage(folder / public_log(number)), source, LogSettings(origin, ()))
        stood = parse_head(target.read(HEAD), origin)
        if stood.size > log.head().size or log.root_at(stood.size) != stood.root:
            raise RefusedError("the database has another log of this home already", code="database_in_use")
        log.close()
        with source.lock("append"), target.lock("append"):
            head = source.read(HEAD)
            for name in _state_files(source):
                target.replace(name, source.read(name) or b"")
            if head is not None:
                target.replace(HEAD, head)


def remove_files(folder: Path, config: Config) -> None:
    """Returns once no folder of the home has a state of a log that the database has now."""
    for number in range(1, log_number(config) + 1):
        source = DirectoryStorage(folder / private_log(number))
        source.remove([*_state_files(source), HEAD])


def _state_files(source: DirectoryStorage) -> list[str]:
    """The private files of a log but its head; what is known of witnesses, and indexes, are of each node."""
    names = (name for name in source.names("") if "/" not in name or name.startswith(STAGING))
    return [name for name in names if ".sqlite" not in name and name != HEAD]
