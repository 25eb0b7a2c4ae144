"""C2SP tlog-policy: which logs are believed, and which witnesses have to have cosigned.

A policy is read as octets: bytes above 0x7F are opaque, so two names are one only if their bytes are. Where
they are not UTF-8 they are kept as surrogate escapes, and written back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from tlog.ascii import parse_decimal
from tlog.checkpoint import Checkpoint, parse_checkpoint, verify_log_lines
from tlog.cosignature import Cosignature, verify_cosignature
from tlog.errors import MalformedError, VerificationError
from tlog.note import Note, SignatureType, VerifierKey, known_lines, parse_note, parse_vkey

MAX_POLICY_BYTES = 1 << 20
MAX_ENTRIES = 256  # logs, witnesses or groups, each
NONE = "none"

_FORBIDDEN = re.compile(rb"[^\x09\x0a\x20-\x7e\x80-\xff]")
_SPACES = re.compile("[ \t]+")
_LOG_KINDS = (SignatureType.ED25519, SignatureType.ECDSA, SignatureType.MLDSA44)
_WITNESS_KINDS = (SignatureType.COSIGNATURE_ED25519, SignatureType.MLDSA44)


@dataclass(frozen=True)
class LogEntry:
    """A log whose checkpoints are believed; the key's name is the log's origin."""

    key: VerifierKey
    url: str | None = None


@dataclass(frozen=True)
class WitnessEntry:
    """A witness, under the name that only this policy calls it by."""

    name: str
    key: VerifierKey
    url: str | None = None


@dataclass(frozen=True)
class GroupEntry:
    """Members of which at least `threshold` have to have cosigned."""

    name: str
    threshold: int
    members: tuple[str, ...]


@dataclass(frozen=True)
class Policy:
    """A policy as `parse_policy` and `make_policy` return it: every rule of the format holds.

    `quorum` names a witness or a group; None asks for no cosignature.
    """

    logs: tuple[LogEntry, ...]
    witnesses: tuple[WitnessEntry, ...]
    groups: tuple[GroupEntry, ...]
    quorum: str | None
    text: str = field(compare=False)


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """A checkpoint that satisfies a policy.

    `cosignatures` are all those of the policy's witnesses, `witnesses` the policy's names of who made them.
    """

    checkpoint: Checkpoint
    note: Note
    log_key: VerifierKey
    cosignatures: tuple[Cosignature, ...]
    witnesses: tuple[str, ...]


# Reading and writing


def parse_policy(text: bytes | str) -> Policy:
    """The policy written in `text`. tlog-policy, Policy file syntax and structure."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    if len(data) > MAX_POLICY_BYTES:
        raise MalformedError(f"policy: expected at most {MAX_POLICY_BYTES} bytes", code="too_large")
    if _FORBIDDEN.search(data):
        raise MalformedError("policy: expected no control characters but tab and newline (not CR)")
    whole = data.decode("utf-8", "surrogateescape")
    *lines, rest = whole.split("\n")
    if rest:  # a cut file could ask for less than the whole one
        raise MalformedError("policy: expected a newline at the end of the last line")
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        fields = _SPACES.sub(" ", line.strip(" \t")).split(" ")
        if fields == [""] or fields[0].startswith("#"):
            continue
        try:
            reader.read_line(fields[0], fields[1:])
        except MalformedError as error:
            raise MalformedError(f"policy line {number}: {error.message}", line=number) from None
    return reader.policy(whole)


def make_policy(
    logs: Sequence[LogEntry],
    witnesses: Sequence[WitnessEntry],
    groups: Sequence[GroupEntry],
    quorum: str | None,
) -> Policy:
    """The policy of these parts, once every rule of the format holds."""
    parts = Policy(tuple(logs), tuple(witnesses), tuple(groups), quorum, "")
    policy = parse_policy(format_policy(parts))
    if policy != parts:  # a name or URL with a space or newline in it would read as something else
        raise MalformedError("policy: expected names and URLs without spaces and newlines")
    return policy


def format_policy(policy: Policy) -> str:
    """The text of a policy without comments, which `parse_policy` reads back to an equal one."""
    lines = [f"log {log.key.vkey} {log.url or ''}" for log in policy.logs]
    lines += [f"witness {one.name} {one.key.vkey} {one.url or ''}" for one in policy.witnesses]
    lines += [f"group {group.name} {group.threshold} {' '.join(group.members)}" for group in policy.groups]
    lines += [f"quorum {policy.quorum or NONE}"]
    return "".join(f"{line.rstrip(' ')}\n" for line in lines)


class _Reader:
    """What the lines so far have defined."""

    def __init__(self) -> None:
        self.logs: list[LogEntry] = []
        self.witnesses: dict[str, WitnessEntry] = {}
        self.groups: dict[str, GroupEntry] = {}
        self.members: set[str] = set()
        self.quorums: list[str | None] = []

    def read_line(self, keyword: str, fields: list[str]) -> None:
        readers: dict[str, Callable[[list[str]], None]] = {
            "log": self._read_log,
            "witness": self._read_witness,
            "group": self._read_group,
            "quorum": self._read_quorum,
        }
        if keyword not in readers:
            raise MalformedError("expected log, witness, group, quorum or a comment")
        readers[keyword](fields)
        if max(len(self.logs), len(self.witnesses), len(self.groups)) > MAX_ENTRIES:
            raise MalformedError(
                f"expected at most {MAX_ENTRIES} logs, witnesses or groups", code="too_large"
            )

    def policy(self, text: str) -> Policy:
        if len(self.quorums) != 1:
            raise MalformedError("policy: expected exactly one quorum line")
        witnesses, groups = tuple(self.witnesses.values()), tuple(self.groups.values())
        return Policy(tuple(self.logs), witnesses, groups, self.quorums[0], text)

    def _read_log(self, fields: list[str]) -> None:
        if not 1 <= len(fields) <= 2:
            raise MalformedError("expected log VKEY [URL]")
        key = _parse_key(fields[0], _LOG_KINDS, "a log's key of type 1, 2 or 6")
        _require_new_key(key, [log.key for log in self.logs])
        self.logs.append(LogEntry(key, *fields[1:]))

    def _read_witness(self, fields: list[str]) -> None:
        if not 2 <= len(fields) <= 3:
            raise MalformedError("expected witness NAME VKEY [URL]")
        name = self._new_name(fields[0])
        key = _parse_key(fields[1], _WITNESS_KINDS, "a witness's key of type 4 or 6")
        _require_new_key(key, [witness.key for witness in self.witnesses.values()])
        self.witnesses[name] = WitnessEntry(name, key, *fields[2:])

    def _read_group(self, fields: list[str]) -> None:
        if len(fields) < 3:
            raise MalformedError("expected group NAME all|any|NUMBER MEMBER...")
        name, rule, *members = fields
        self._new_name(name)
        for member in members:
            self._require_defined(member)
            if member in self.members:
                raise MalformedError("expected each name to be a member once, and of one group only")
            self.members.add(member)
        thresholds = {"all": len(members), "any": 1}
        threshold = thresholds[rule] if rule in thresholds else parse_decimal(rule, "threshold")
        if not 1 <= threshold <= len(members):
            raise MalformedError("expected a threshold from 1 to the number of members")
        self.groups[name] = GroupEntry(name, threshold, tuple(members))

    def _read_quorum(self, fields: list[str]) -> None:
        if len(fields) != 1:
            raise MalformedError("expected quorum NAME or quorum none")
        if fields[0] != NONE:
            self._require_defined(fields[0])
        self.quorums.append(None if fields[0] == NONE else fields[0])

    def _new_name(self, name: str) -> str:
        if name == NONE or name in self.witnesses or name in self.groups:
            raise MalformedError("expected a name that is not yet taken, and not none")
        return name

    def _require_defined(self, name: str) -> None:
        if name not in self.witnesses and name not in self.groups:
            raise MalformedError("expected the name of a witness or group of an earlier line")


def _parse_key(text: str, kinds: Sequence[SignatureType], expected: str) -> VerifierKey:
    key = parse_vkey(text)
    if key.kind not in kinds:
        raise MalformedError(f"expected {expected}")
    return key


def _require_new_key(key: VerifierKey, others: Sequence[VerifierKey]) -> None:
    # One key under two names would be one witness that counts twice. tlog-policy, Public key representation.
    if any(key.public_key == other.public_key for other in others):
        raise MalformedError("expected a public key that no earlier line has, under whatever name")
    if any((key.name, key.key_id) == (other.name, other.key_id) for other in others):
        raise MalformedError("expected a key name and id that no earlier line has")


# Judging


def satisfied_by(policy: Policy, names: Collection[str]) -> bool:
    """Whether the quorum holds when the witnesses of these names, as the policy calls them, have cosigned."""
    if policy.quorum is None:
        return True
    holding = {witness.name for witness in policy.witnesses} & set(names)
    for group in policy.groups:  # members are defined before their group
        if len(holding.intersection(group.members)) >= group.threshold:
            holding.add(group.name)
    return policy.quorum in holding


def verify_checkpoint(policy: Policy, data: bytes, origin: str | None = None) -> VerifiedCheckpoint:
    """The checkpoint in a signed note, once a log of the policy signed it and the quorum cosigned it.

    With `origin` only that log will do. Raises VerificationError with code `origin`, `log_signature`,
    `empty_root`, `cosignature` (a line of one of the policy's witnesses fails or comes twice) or
    `quorum_not_met`.
    """
    note = parse_note(data)
    checkpoint = parse_checkpoint(note.text)
    if origin is not None and checkpoint.origin != origin:
        raise VerificationError("checkpoint: is of another origin than the one expected", code="origin")
    log_keys = [log.key for log in policy.logs if log.key.name == checkpoint.origin]
    if not log_keys:
        raise VerificationError("checkpoint: is of a log that the policy does not list", code="origin")
    log_lines = verify_log_lines(note, checkpoint, log_keys)
    cosignatures = verify_cosignatures(policy, note)
    by_key = {witness.key: witness.name for witness in policy.witnesses}
    names = tuple(by_key[cosignature.key] for cosignature in cosignatures)
    if not satisfied_by(policy, names):
        raise VerificationError(
            "checkpoint: the cosignatures do not make the policy's quorum",
            code="quorum_not_met",
            cosigned=len(names),
        )
    return VerifiedCheckpoint(checkpoint, note, log_lines[0].key, cosignatures, names)


def seen_at(policy: Policy, verified: VerifiedCheckpoint) -> int | None:
    """When, in seconds, the quorum had seen a checkpoint; None where no witness of the policy dates it.

    The time of the witness that completed the quorum: fewer than a quorum cannot date a checkpoint back.
    """
    dated = sorted(
        (one.timestamp, name) for one, name in zip(verified.cosignatures, verified.witnesses, strict=True)
    )
    for count, (timestamp, _) in enumerate(dated, 1):
        if satisfied_by(policy, {name for _, name in dated[:count]}):
            return timestamp
    return None


def verify_cosignatures(policy: Policy, note: Note) -> tuple[Cosignature, ...]:
    """The cosignatures of a checkpoint by witnesses of the policy, few or many, each verified."""
    try:
        lines = known_lines(note, [witness.key for witness in policy.witnesses])
    except VerificationError as error:
        raise VerificationError(error.message, code="cosignature") from None
    return tuple(verify_cosignature(line.key, line.line, note.text) for line in lines)
