"""Settings of a home that lower what it promises: a guard that is off, a policy that asks less than the caller's.

The settings are the home's own word and prove nothing; they tell what will be accepted from now on. What was written
while the guard was off says so in its own signed content, and is counted from there.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Final

from auditor.evidence import Asked
from auditor.findings import Finding, Note, Outcome
from auditor.state import load_bytes, save_bytes
from tlog.errors import Error
from tlog.policy import Policy, parse_policy, satisfied_by
from tlog.trust import parse_trust

CONFIG: Final = "config.toml"
POLICY: Final = "policy.txt"
TRUST: Final = "trust.toml"
KEYS: Final = "keys"
_MAX_BYTES: Final = 1 << 20
_SETTINGS: Final = frozenset(
    {
        "version",
        "origin",
        "issuer",
        "subject",
        "created_at",
        "guard",
        "merge_delay_seconds",
        "max_checkpoint_age_seconds",
        "same_operator",
        "identity",
        "authority",
        "instruction_shaped",
        "unknown_tenants",
        "mirror",
        "root",
        "frozen",
        "retention",
        "withheld_retention",
        "systems",
        "semantic",
        "semantic_url",
        "semantic_model",
        "database",
        "database_copies",
        "database_checker",
        "log_storage",
    }
)
"""Those of docs/formats/home.md."""
_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "guard": frozenset({"on", "off"}),
    "identity": frozenset({"reported", "bound", "authenticated"}),
    "instruction_shaped": frozenset({"serve", "hold"}),
    "unknown_tenants": frozenset({"create", "refuse"}),
}
_NUMBERS: Final = ("version", "created_at", "merge_delay_seconds", "max_checkpoint_age_seconds")
_OWN_NAMES: Final = frozenset({"origin", "issuer", "subject"})
_MAX_WITNESSES: Final = 12


def check_settings(home: Path, asked: Asked, state: Path | None) -> Outcome:
    """What the settings of a home lower, and what of its policy is other than the caller's, or than it was."""
    config, data = settings_of(home), _read(home / POLICY)
    findings = list(_check_missing(home, config))
    not_checked: list[Note] = []
    unknown = set() if config is None else config.keys() - _SETTINGS
    if unknown:
        what = "The settings have one that no home has: content could stand there."
        findings.append(Finding("RESIDUE_FILE", CONFIG, what, {"settings": len(unknown)}))
    wrong = 0 if config is None else _count_wrong(config)
    if wrong:
        what = "A setting has a value that it can't have: content could stand there."
        findings.append(Finding("RESIDUE_FILE", CONFIG, what, {"settings": wrong}))
    findings += _check_trust(home)
    remarks = sum(map(_count_remarks, (home / name for name in (CONFIG, POLICY, TRUST))))
    if remarks:
        text = (
            "lines of settings, policy and trust that are remarks: what people wrote there was not looked at"
        )
        not_checked.append(Note("remarks", text, remarks))
    checked: list[Note] = []
    if config is None:
        not_checked.append(Note("settings", "no settings of a home are there to be read"))
    elif config.get("guard", "on") != "on":
        what = "The guard is switched off: a retired value that comes back is stored, and not refused."
        findings.append(Finding("GUARD_OFF", CONFIG, what))
    else:
        checked.append(Note("guard", "switched on in the settings of the home", 1))
    if data is None:
        return Outcome(tuple(findings), tuple(checked), tuple(not_checked))
    try:
        policy = parse_policy(data)
    except Error:
        what = "The policy of the home is none that can be read."
        findings.append(Finding("POLICY_CHANGED", POLICY, what))
        return Outcome(tuple(findings), tuple(checked), tuple(not_checked))
    if is_weaker(policy, asked.trust.policy):
        what = "The home's policy is content with fewer or other witnesses than the caller's."
        findings.append(Finding("POLICY_CHANGED", POLICY, what))
    if state is not None and config is not None:
        findings += _changed(state, config, policy)
    checked.append(Note("policy", "policy of the home compared with the caller's", 1))
    return Outcome(tuple(findings), tuple(checked), tuple(not_checked))


def _check_missing(home: Path, config: Mapping[str, Any] | None) -> Iterator[Finding]:
    """A home has settings, a policy and a trust file; a folder without keys is a copy of some of it, and may not."""
    if config is None and (home / CONFIG).exists():
        what = "The settings of the home are none that can be read: content could stand there."
        yield Finding("RESIDUE_FILE", CONFIG, what)
    for name in (CONFIG, POLICY, TRUST):
        if (home / KEYS).is_dir() and not (home / name).exists():
            what = "The home has keys, and not the file by which it says what it promises."
            yield Finding("POLICY_CHANGED", name, what)
    lacking = frozenset() if config is None else _OWN_NAMES - config.keys()
    if (home / KEYS).is_dir() and lacking:
        what = "The settings lack a name that each home has for itself: they were emptied, or are another's."
        yield Finding("POLICY_CHANGED", CONFIG, what, {"settings": len(lacking)})


def _count_wrong(config: Mapping[str, Any]) -> int:
    """How many settings of a word of a list, or of a number, are none."""
    words = sum(name in config and config[name] not in known for name, known in _WORDS.items())
    return words + sum(name in config and type(config[name]) is not int for name in _NUMBERS)


def _check_trust(home: Path) -> Iterator[Finding]:
    """The trust file that the home hands out is one."""
    data = _read(home / TRUST)
    if data is None:
        return
    try:
        parse_trust(data.decode("utf-8", "surrogateescape"))
    except Error:
        what = "The trust file of the home is none that can be read: content could stand there."
        yield Finding("RESIDUE_FILE", TRUST, what)


def is_weaker(policy: Policy, trusted: Policy) -> bool:
    """Whether there are cosignatures with which a policy is satisfied, and one that is trusted is not."""
    names = {one.key.vkey.split("+", 2)[2]: one.name for one in trusted.witnesses}
    theirs = [(one.name, names.get(one.key.vkey.split("+", 2)[2])) for one in policy.witnesses]
    if len(theirs) > _MAX_WITNESSES:
        # Too many to try every choice of them: that all together are not enough is all that can be told.
        choices: Any = [theirs, []]
    else:
        choices = chain.from_iterable(combinations(theirs, n) for n in range(len(theirs) + 1))
    for choice in choices:
        known = [name for _, name in choice if name is not None]
        if satisfied_by(policy, [name for name, _ in choice]) and not satisfied_by(trusted, known):
            return True
    return False


def _changed(state: Path, config: dict[str, Any], policy: Policy) -> list[Finding]:
    """A finding if an earlier audit saw another policy; this one is remembered from then on."""
    origin = str(config.get("origin", ""))
    path = state / f"{hashlib.sha256(origin.encode()).hexdigest()}.policy"
    digest = hashlib.sha256(policy.text.encode("utf-8", "surrogateescape")).hexdigest().encode()
    seen = load_bytes(path)
    save_bytes(path, digest)
    if seen is None or seen == digest:
        return []
    what = "The policy of the home is another than an earlier audit saw."
    evidence = {"seen": seen.decode("ascii", "replace")[:64], "now": digest.decode()}
    return [Finding("POLICY_CHANGED", POLICY, what, evidence)]


def _count_remarks(path: Path) -> int:
    """Lines that say something to people alone."""
    lines = (_read(path) or b"").splitlines()
    return sum(b"#" in line and line.partition(b"#")[2].strip() != b"" and _is_remark(line) for line in lines)


def _is_remark(line: bytes) -> bool:
    before = line.partition(b"#")[0]
    return before.count(b'"') % 2 == 0 and before.count(b"'") % 2 == 0


def settings_of(home: Path) -> dict[str, Any] | None:
    """What the settings of a home say; None where they can't be read."""
    data = _read(home / CONFIG)
    try:
        return None if data is None else tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def place_in_settings(home: Path, name: str) -> str | None:
    """Where the settings of a home say that something is; None if they say nothing of it."""
    found = (settings_of(home) or {}).get(name)
    return found if isinstance(found, str) else None


def _read(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_MAX_BYTES)
