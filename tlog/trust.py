"""The trust file: all that a verifier takes on its own authority, and nothing it takes from the evidence.

A TOML file of the caller's:

    version = 1
    policy = '''<C2SP tlog-policy>'''
    merge_delay_seconds = 86400               (optional: how old a pending receipt may get; one day)
    max_checkpoint_age_seconds = 86400        (optional)
    same_operator = ["witness-a"]             (optional: witnesses that the log's operator runs)

    [[key]]
    use = "issuer"                            (or receipt, manifest, report)
    cose_key = "<base64 of a COSE_Key>"
    not_before = 1790000000
    not_after = 1890000000                    (optional)
    issuer = "<iss>"                          (optional)
    until = { "<origin>" = 12 }               (optional: sizes of logs when the key was ended)

    [[root]]
    cose_key = "<base64 of a COSE_Key>"       certifies the keys of a store, in key lists
    store = "<iss>"                           (optional: the only store that it certifies keys of)
    number = 3                                (optional: an older list does not count)

    [[key_list]]
    cose = "<base64 of a key list>"           of one of the roots; newer ones may be handed in later

    [[frozen]]                                a log that was succeeded by another, at its last head
    origin = "<origin>"
    size = 12
    root = "<base64>"

A key that is neither in it nor certified by a root in it proves nothing, an unknown field is an error (a misspelt bound would otherwise be no
bound at all), and with a policy alone nothing is known about what COSE keys signed.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tlog.ascii import MAX_SIZE, decode_base64, decode_hash, encode_base64
from tlog.certificates import (
    MAX_KEYS,
    USES,
    KeyList,
    Logged,
    TrustedKey,
    peek_key_list,
    read_until,
    require_extends,
    verify_key_list,
)
from tlog.checkpoint import Checkpoint
from tlog.cose_keys import CoseKey, decode_key
from tlog.errors import Error, MalformedError, VerificationError
from tlog.policy import Policy, parse_policy

__all__ = [
    "DEFAULT_MERGE_DELAY_SECONDS",
    "MAX_KEYS",
    "MAX_TRUST_BYTES",
    "USES",
    "VERSION",
    "Logged",
    "Trust",
    "TrustedKey",
    "TrustedRoot",
    "checked",
    "format_trust",
    "make_trust",
    "parse_trust",
    "trust_from_policy",
]

VERSION: Final = 1
DEFAULT_MERGE_DELAY_SECONDS: Final = 86400
MAX_TRUST_BYTES: Final = 4 << 20
_MAX_ISSUER_CHARACTERS: Final = 8192
_FIELDS: Final = frozenset(
    (
        "version",
        "policy",
        "merge_delay_seconds",
        "max_checkpoint_age_seconds",
        "same_operator",
        "key",
        "root",
        "key_list",
        "frozen",
    )
)
_KEY_FIELDS: Final = frozenset(("use", "cose_key", "not_before", "not_after", "issuer", "until"))
_ROOT_FIELDS: Final = frozenset(("cose_key", "store", "number"))
_FROZEN_FIELDS: Final = frozenset(("origin", "size", "root"))


@dataclass(frozen=True)
class TrustedRoot:
    """A key that certifies others: those of `store` alone, where set, in lists from `number` on."""

    key: CoseKey
    store: str | None = None
    number: int = 1


@dataclass(frozen=True)
class Trust:
    """A trust file as `parse_trust` and `make_trust` return it."""

    policy: Policy
    keys: tuple[TrustedKey, ...] = ()
    merge_delay_seconds: int = DEFAULT_MERGE_DELAY_SECONDS
    max_checkpoint_age_seconds: int | None = None
    same_operator: tuple[str, ...] = ()
    text: str = field(default="", compare=False)

    def key(self, use: str, kid: bytes, at: int | None = None, issuer: str | None = None) -> CoseKey:
        """The key that `kid` names for this use, at this time in seconds, for this issuer.

        Raises VerificationError with code `key_unknown`, or `key_not_valid` where the key is known, but not
        for that time. Without `at` its validity remains to be checked.
        """
        if use not in USES:
            raise MalformedError("trust: expected a use of issuer, receipt, manifest or report")
        found = [one for one in self.keys if one.use == use and one.kid == kid]
        if issuer is not None:
            found = [one for one in found if one.issuer in (None, issuer)]
        if not found:
            raise VerificationError(f"trust: no {use} key with this kid", code="key_unknown", use=use)
        if at is not None:
            found = [one for one in found if _covers(one, at)]
        if not found:
            raise VerificationError(
                f"trust: the {use} key is not valid at that time", code="key_not_valid", use=use
            )
        return found[0].key


def _covers(key: TrustedKey, at: int) -> bool:
    return key.not_before <= at and (key.not_after is None or at <= key.not_after)


def make_trust(
    policy_text: str,
    keys: tuple[TrustedKey, ...] = (),
    merge_delay_seconds: int = DEFAULT_MERGE_DELAY_SECONDS,
    max_checkpoint_age_seconds: int | None = None,
    same_operator: tuple[str, ...] = (),
) -> Trust:
    """The trust of these parts, once every rule of the format holds."""
    policy = parse_policy(policy_text)
    try:
        policy_text.encode("utf-8")
    except UnicodeEncodeError:
        raise MalformedError("trust: expected a policy in UTF-8") from None
    return parse_trust(
        format_trust(Trust(policy, keys, merge_delay_seconds, max_checkpoint_age_seconds, same_operator))
    )


def trust_from_policy(policy_text: str) -> Trust:
    """The trust of a policy alone: no COSE key is believed."""
    return make_trust(policy_text)


def parse_trust(text: str) -> Trust:
    """The trust written in `text`."""
    if len(text) > MAX_TRUST_BYTES:
        raise MalformedError(f"trust: expected at most {MAX_TRUST_BYTES} characters")
    try:
        fields = tomllib.loads(text)
    except (ValueError, RecursionError):
        # ValueError: also a number of too many digits. The parser's own message would repeat content.
        raise MalformedError("trust: expected a TOML file") from None
    _require_fields(fields, _FIELDS, "trust")
    if _integer(fields, "version") != VERSION:
        raise MalformedError(f"trust: expected version {VERSION}")
    policy = parse_policy(_text(fields, "policy"))
    keys = fields.get("key", [])
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise MalformedError(f"trust: expected at most {MAX_KEYS} tables [[key]]")
    return Trust(
        policy,
        _distinct(tuple(_parse_key(key) for key in keys)),
        _integer({"merge_delay_seconds": DEFAULT_MERGE_DELAY_SECONDS, **fields}, "merge_delay_seconds"),
        _optional_integer(fields, "max_checkpoint_age_seconds"),
        _parse_same_operator(fields.get("same_operator", []), policy),
        text,
    )


def format_trust(trust: Trust) -> str:
    """The text of a trust, which `parse_trust` reads back to an equal one."""
    lines = [
        f"version = {VERSION}",
        f"policy = {_quote(trust.policy.text)}",
        f"merge_delay_seconds = {trust.merge_delay_seconds}",
    ]
    if trust.max_checkpoint_age_seconds is not None:
        lines.append(f"max_checkpoint_age_seconds = {trust.max_checkpoint_age_seconds}")
    if trust.same_operator:
        lines.append(f"same_operator = [{', '.join(_quote(name) for name in trust.same_operator)}]")
    for key in trust.keys:
        lines += ["", "[[key]]", *_format_key(key)]
    return "\n".join(lines) + "\n"


def _format_key(key: TrustedKey) -> list[str]:
    lines = [
        f"use = {_quote(key.use)}",
        f'cose_key = "{encode_base64(key.key.encode())}"',
        f"not_before = {key.not_before}",
    ]
    if key.not_after is not None:
        lines.append(f"not_after = {key.not_after}")
    if key.issuer is not None:
        lines.append(f"issuer = {_quote(key.issuer)}")
    return lines


def _quote(text: str) -> str:
    """`text` as a TOML string; one of several lines keeps them, so that people can read a policy."""
    if "\n" not in text:
        return _escape(text)
    return '"""\n' + "\n".join(_escape(line)[1:-1] for line in text.split("\n")) + '"""'


def _escape(text: str) -> str:
    # JSON escapes what TOML wants escaped, save DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _parse_key(fields: object) -> TrustedKey:
    if not isinstance(fields, dict):
        raise MalformedError("trust: expected tables [[key]]")
    _require_fields(fields, _KEY_FIELDS, "trust key")
    use = _text(fields, "use")
    if use not in USES:
        raise MalformedError("trust key: expected a use of issuer, receipt, manifest or report")
    not_before = _integer(fields, "not_before")
    not_after = _optional_integer(fields, "not_after")
    if not_after is not None and not_after < not_before:
        raise MalformedError("trust key: expected not_after to be no earlier than not_before")
    issuer = _text(fields, "issuer") if "issuer" in fields else None
    if issuer is not None and not 1 <= len(issuer) <= _MAX_ISSUER_CHARACTERS:
        raise MalformedError(f"trust key: expected an issuer of 1 to {_MAX_ISSUER_CHARACTERS} characters")
    key = decode_key(decode_base64(_text(fields, "cose_key"), "trust key: cose_key"))
    return TrustedKey(use, key, not_before, not_after, issuer)


def _distinct(keys: tuple[TrustedKey, ...]) -> tuple[TrustedKey, ...]:
    """`keys`, once no kid names two different keys for one use."""
    known: dict[tuple[str, bytes], CoseKey] = {}
    for one in keys:
        if known.setdefault((one.use, one.kid), one.key) != one.key:
            raise MalformedError("trust key: two keys for the same use have one kid")
    return keys


def _parse_same_operator(names: object, policy: Policy) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise MalformedError("trust: expected same_operator as a list of names")
    known = {witness.name for witness in policy.witnesses}
    if not known.issuperset(names) or len(set(names)) != len(names):
        raise MalformedError("trust: expected same_operator to name witnesses of the policy, each once")
    return tuple(names)


def _require_fields(fields: Mapping[str, object], known: frozenset[str], what: str) -> None:
    if not known.issuperset(fields):
        raise MalformedError(f"{what}: expected only the fields {', '.join(sorted(known))}")


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise MalformedError(f"trust: expected {name} as a text")
    return value


def _optional_integer(fields: Mapping[str, object], name: str) -> int | None:
    return _integer(fields, name) if name in fields else None


def _integer(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= MAX_SIZE:
        raise MalformedError(f"trust: expected {name} as an integer that is not negative")
    return value
