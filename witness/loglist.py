"""The witness network's list of logs: which logs to know, and how much each may ask. No IO.

witness-network, log-list-format. One departure: a list with a fault in it is refused whole, so that a witness
knows either all logs of a list or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tlog.ascii import parse_decimal
from tlog.checkpoint import Checkpoint
from tlog.errors import MalformedError
from tlog.merkle import EMPTY_ROOT
from tlog.note import SignatureType, VerifierKey, parse_vkey

HEADER = "logs/v0"
MAX_LIST_BYTES = 64 << 20  # 40,000 logs, as the largest list is named after, take about 10 MB
MAX_LOGS = 100_000
MAX_REQUESTS_PER_DAY = 2**31 - 1
MAX_CONTACT_BYTES = 4096

_ORDER = {"vkey": ("origin", "qpd"), "origin": ("qpd",), "qpd": ("contact",), "contact": ("vkey",)}


@dataclass(frozen=True)
class ListedLog:
    """A log of the list."""

    origin: str
    key: VerifierKey
    requests_per_day: int
    contact: str


def parse_log_list(data: bytes) -> tuple[ListedLog, ...]:
    """The logs of a list, each origin once."""
    if len(data) > MAX_LIST_BYTES:
        raise MalformedError(f"log list: expected at most {MAX_LIST_BYTES} bytes", code="too_large")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedError("log list: expected UTF-8") from None
    if text and not text.endswith("\n"):  # a list cut short would look like a shorter list
        raise MalformedError("log list: expected a newline at the end of the last line")
    lines = _lines(text)
    number, header = next(lines, (1, ""))
    if header != HEADER:
        raise _wrong(number, f"expected {HEADER} before any log")
    logs = tuple(_logs(lines))
    if len({log.origin for log in logs}) != len(logs):
        raise MalformedError("log list: expected each origin once")
    return logs


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip(" \t\r")
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _logs(lines: Iterable[tuple[int, str]]) -> Iterator[ListedLog]:
    fields: dict[str, str] = {}
    last, number, count = "contact", 0, 0
    for number, line in lines:
        name, _, value = line.partition(" ")
        if name not in _ORDER[last] or not value:
            raise _wrong(number, f"expected {' or '.join(_ORDER[last])} and a value")
        fields[name] = value
        last = name
        if name == "contact":
            count += 1
            if count > MAX_LOGS:
                raise MalformedError(f"log list: expected at most {MAX_LOGS} logs", code="too_large")
            try:
                yield _listed(fields)
            except MalformedError as error:
                raise _wrong(number, f"the log that ends here: {error.message}") from None
            fields = {}
    if last != "contact":
        raise _wrong(number, "the last log is not complete")


def _listed(fields: dict[str, str]) -> ListedLog:
    key = parse_vkey(fields["vkey"])
    if key.kind != SignatureType.ED25519:
        raise MalformedError("expected a vkey of type 1 (Ed25519)")
    origin = fields.get("origin", key.name)
    Checkpoint(origin, 0, EMPTY_ROOT)  # an origin that no checkpoint can have is refused here
    requests = parse_decimal(fields["qpd"], "qpd")
    if not 1 <= requests <= MAX_REQUESTS_PER_DAY:
        raise MalformedError("expected a qpd from 1 to 2^31-1")
    if len(fields["contact"].encode()) > MAX_CONTACT_BYTES:
        raise MalformedError(f"expected a contact of at most {MAX_CONTACT_BYTES} bytes")
    return ListedLog(origin, key, requests, fields["contact"])


def _wrong(line: int, what: str) -> MalformedError:
    return MalformedError(f"log list, line {line}: {what}", line=line)
