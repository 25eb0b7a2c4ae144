"""Other systems that hold what a home holds: told to erase, and counted by somebody else.

A line of the settings declares one: its kind, the command of its adapter, and behind a bar the command of whoever
counts what is left. A system may not vouch for itself: without a second command it is `not_verified`, and an
erasure is complete only once each is verified.

    systems = ["cache /usr/bin/flush-cache | /usr/bin/count-in-cache --host c1", "processor /opt/notify"]

A command gets `erase`, `count` or `scan` as its last argument and one JSON document on standard input, so nothing of
content is in an argument list; it answers with one JSON object, and with exit code 0:

    erase → {"before": n, "erased": n}      count → {"count": n}      scan → {"found": n}, or {} where it can't

A counter that counts by the ids of the records says for how many it looked: {"count": n, "ids": n}. Once the words are
gone and were given again, that alone verifies a system. A name behind the kind, as in `cache:sessions`, is what a
system stays the same by while its commands change; without one, it is the command of its adapter.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory.erase_checks import Check, check
from memory.manifest_fields import KINDS
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.erase_selection import Selection
    from memory.wiring import Home

TIMEOUT_SECONDS: Final = 60.0
MAX_SYSTEMS: Final = 64
MAX_ANSWER_BYTES: Final = 64 * 1024
REFERENCE_BYTES: Final = 16
_OURS: Final = frozenset({"store", "index", "ledger", "wal", "log", "backup"})
_BAR: Final = "|"
_MAX_COUNT: Final = 1 << 62


@dataclass(frozen=True)
class Adapter:
    """A declared system. `counter` is empty where nobody else counts; `reference` is what manifests call it."""

    kind: str
    command: tuple[str, ...]
    counter: tuple[str, ...]
    reference: bytes


@dataclass(frozen=True)
class Order:
    """What other systems are told to erase. It is content, and stays in memory and in pipes.

    `ids_to_count` is how many ids a counter has to have looked for, where the words may be others.
    """

    request: bytes
    words: dict[str, list[str]]
    ids_to_count: int = 0

    def __repr__(self) -> str:
        return f"Order({self.request.hex()})"


class _NotReachableError(Exception):
    """The command could not be run, or did not answer in time."""


class _FailedError(Exception):
    """The command answered that it failed, or nothing that can be understood."""


def parse_systems(lines: Sequence[str], home_name: str) -> tuple[Adapter, ...]:
    """The systems that the settings declare; MalformedError for a line that declares none."""
    if len(lines) > MAX_SYSTEMS:
        raise MalformedError(f"config.toml: expected at most {MAX_SYSTEMS} systems")
    return tuple(_parse(line, home_name) for line in lines)


def make_order(request: bytes, selection: Selection, names: Iterable[str]) -> Order:
    """What a selection says, field by field, before it is erased."""
    facts = (*selection.facts, *selection.copies)
    words: dict[str, list[str]] = {"ids": [fact.id for fact in facts], "names": list(names)}
    for field in ("subject", "key", "value", "text"):
        said = (fact.content.get(field) for fact in facts)
        words[f"{field}s"] = list(dict.fromkeys(one for one in said if isinstance(one, str) and one))
    return Order(request, words)


def order_of_words(request: bytes, words: Sequence[str], ids: Sequence[str]) -> Order:
    """The same of words that somebody gave again, and of the ids, which are known."""
    return Order(request, {"ids": list(ids), "names": list(words)}, len(ids))


def erase_elsewhere(
    home: Home, order: Order, before: Sequence[dict[str, Any]] = ()
) -> tuple[list[dict[str, Any]], tuple[Check, ...]]:
    """Each declared system as a manifest tells of it, and the check of those that somebody else counted.

    `before` is what an earlier manifest of the request tells of systems: one that was verified is, and one that was
    not and is not declared any more still is not.
    """
    known = {system["system"]: system for system in before}
    asked = {one.reference: one for one in parse_systems(home.config.systems, home.config.issuer)}
    if not asked and not known:
        return [], ()
    systems, left, counted = [], 0, 0
    for reference in dict.fromkeys((*known, *asked)):
        system, remaining = _again(known.get(reference), asked.get(reference), order)
        systems.append(system)
        if remaining is not None:
            counted, left = counted + 1, left + remaining
    counts = {"systems_counted": counted, "systems_not_counted": len(systems) - counted, "remaining": left}
    result = "found" if left else "clean" if counted == len(systems) else "not_run"
    why = {reason for system in systems for reason in system.get("why", ())}
    return systems, (check("independent_count", result, counts, sorted(why) if result != "clean" else ()),)


def not_asked(home: Home) -> list[dict[str, Any]]:
    """The declared systems after a crash: what they would have been told is lost until it is given again."""
    return [
        _described(adapter) | {"erased": 0, "result": "inconclusive", "why": ["crash_before_scan"]}
        for adapter in parse_systems(home.config.systems, home.config.issuer)
    ]


def _again(
    before: dict[str, Any] | None, adapter: Adapter | None, order: Order
) -> tuple[dict[str, Any], int | None]:
    """What became of a system by now."""
    if before is not None and before["result"] == "verified":
        return before, 0
    if adapter is not None:
        return _erase(adapter, order)
    assert before is not None  # it is known by one of the two
    if before["result"] == "inconclusive":
        return before | {"result": "not_verified", "why": ["system_not_verified"]}, None
    return before, None


def _erase(adapter: Adapter, order: Order) -> tuple[dict[str, Any], int | None]:
    """What became of one system, and how much somebody else still counts in it; None if nobody could."""
    described = _described(adapter)
    try:
        told = _ask(adapter.command, "erase", order)
        before, erased = _number(told, "before"), _number(told, "erased")
    except _NotReachableError:
        return described | {"erased": 0, "result": "not_reachable", "why": ["system_not_reachable"]}, None
    except _FailedError:
        return described | {"erased": 0, "result": "failed", "why": ["system_failed"]}, None
    described |= {"before": before, "erased": erased}
    if not adapter.counter:
        return described | {"result": "not_verified", "why": ["system_not_verified"]}, None
    try:
        said = _ask(adapter.counter, "count", order)
        left, looked_for = _number(said, "count"), _number({"ids": 0} | said, "ids")
        scanned = _ask(adapter.counter, "scan", order)
        left += _number(scanned, "found") if scanned else 0
    except (_NotReachableError, _FailedError):
        return described | {"result": "not_verified", "why": ["system_not_verified"]}, None
    if left:
        return described | {"result": "failed", "why": ["system_failed"]}, left
    if looked_for < order.ids_to_count:
        return described | {"result": "not_verified", "why": ["needles_unconfirmed"]}, None
    return described | {"result": "verified"}, 0


def _described(adapter: Adapter) -> dict[str, Any]:
    return {"kind": adapter.kind, "method": "external", "system": adapter.reference}


def _ask(command: Sequence[str], what: str, order: Order) -> dict[str, Any]:
    """What a command answers. Nothing that it prints beside that is kept: it may have content in it."""
    document = json.dumps({"op": what, "request": order.request.hex(), **order.words})
    try:
        done = subprocess.run(
            [*command, what],
            input=document.encode("utf-8"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise _NotReachableError from None
    if done.returncode == 3:
        raise _NotReachableError
    try:
        answer = json.loads(done.stdout[:MAX_ANSWER_BYTES]) if done.returncode == 0 else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _FailedError
    return answer


def _number(answer: dict[str, Any], name: str) -> int:
    value = answer.get(name)
    if type(value) is not int or not 0 <= value < _MAX_COUNT:
        raise _FailedError
    return value


def _parse(line: str, home_name: str) -> Adapter:
    try:
        named, *words = shlex.split(line)
    except ValueError:
        raise _malformed() from None
    kind, _, name = named.partition(":")
    at = words.index(_BAR) if _BAR in words else len(words)
    command, counter = tuple(words[:at]), tuple(words[at + 1 :])
    if kind not in KINDS - _OURS or not command or (at < len(words) and not counter):
        raise _malformed()
    if counter[:1] == command[:1]:
        raise MalformedError("config.toml: expected a system to be counted by another program than its own")
    # The same for as long as that is: nobody learns from it what the system is, or whose.
    stays = named if name else shlex.join((kind, *command))
    reference = hashlib.sha256(f"{home_name}\n{stays}".encode()).digest()[:REFERENCE_BYTES]
    return Adapter(kind, command, counter, reference)


def _malformed() -> MalformedError:
    kinds = ", ".join(sorted(KINDS - _OURS))
    return MalformedError(
        f"config.toml: expected each of systems as a kind ({kinds}), a command, and behind a | the command that counts"
    )
