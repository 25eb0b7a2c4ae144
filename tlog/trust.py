"""The trust file: all that a verifier takes on its own authority, and nothing it takes from the evidence.

A TOML file of the caller's:

    version = 1
    policy = '''<C2SP tlog-policy>'''
    merge_delay_seconds = 86400               (optional: how old a pending receipt may get; one day)
    max_checkpoint_age_seconds = 86400        (optional)
    same_operator = ["witness-a"]             (optional: witnesses that the log's operator runs)

    [[key]]
    use = "issuer"                            (or receipt, manifest, report, registration)
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

A key that is neither in it nor certified by a root in it proves nothing, an unknown field is an error (a misspelt
bound would otherwise be no bound at all), and with a policy alone nothing is known about what COSE keys signed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from tlog.ascii import MAX_SIZE, decode_base64, decode_hash
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
from tlog.trust_text import VERSION, format_trust

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

DEFAULT_MERGE_DELAY_SECONDS: Final = 86400
MAX_TRUST_BYTES: Final = 1 << 20
_MAX_ISSUER_CHARACTERS: Final = 8192
_MAX_TABLES: Final = 64
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
    """A trust file as `parse_trust` and `make_trust` return it.

    `keys` are those that the caller wrote down, `key_lists` what the roots certified besides.
    """

    policy: Policy
    keys: tuple[TrustedKey, ...] = ()
    merge_delay_seconds: int = DEFAULT_MERGE_DELAY_SECONDS
    max_checkpoint_age_seconds: int | None = None
    same_operator: tuple[str, ...] = ()
    text: str = field(default="", compare=False)
    roots: tuple[TrustedRoot, ...] = ()
    key_lists: tuple[bytes, ...] = ()
    frozen: tuple[Checkpoint, ...] = ()

    def key(
        self,
        use: str,
        kid: bytes,
        at: int | None = None,
        issuer: str | None = None,
        logged: Logged | None = None,
    ) -> CoseKey:
        """The key that `kid` names for this use, at this time in seconds, for this issuer.

        Raises VerificationError with code `key_unknown`, or `key_not_valid` where the key is known, but not
        for that time, nor for a tree as large as `logged`. Without `at` its validity remains to be checked.
        """
        if use not in USES:
            raise MalformedError("trust: expected a use of issuer, receipt, manifest, report or registration")
        found = [one for one in self._all_keys if one.use == use and one.kid == kid]
        if issuer is not None:
            found = [one for one in found if one.issuer in (None, issuer)]
        if not found:
            raise VerificationError(f"trust: no {use} key with this kid", code="key_unknown", use=use)
        if at is not None:
            found = [one for one in found if one.counts(at, logged)]
        if not found:
            raise VerificationError(
                f"trust: the {use} key is not valid at that time", code="key_not_valid", use=use
            )
        return found[0].key

    def has(self, use: str) -> bool:
        """Whether any key is trusted for this use."""
        return any(one.use == use for one in self._all_keys)

    def keys_for(self, use: str) -> tuple[TrustedKey, ...]:
        """Every key of this use, with the times in which it counts."""
        return tuple(one for one in self._all_keys if one.use == use)

    @cached_property
    def _all_keys(self) -> tuple[TrustedKey, ...]:
        certified = (key for data in self.key_lists for key in self._certified(data).keys)
        return (*self.keys, *certified)

    def _certified(self, data: bytes) -> KeyList:
        """The keys of a list that a root of this trust may certify, and did."""
        kid, said = peek_key_list(data)
        root = next((one for one in self.roots if one.key.key_id == kid), None)
        if root is None or root.store not in (None, said.store):
            raise VerificationError("key list: no root of the trust file certifies it", code="key_unknown")
        key_list = verify_key_list(data, root.key)
        if key_list.number < root.number:
            raise VerificationError(
                "key list: is older than the trust file asks for", code="rolled_back", number=key_list.number
            )
        for key in key_list.keys:
            # Or else a root could speak for stores that it was not trusted with.
            if key.use != "receipt" and root.store is not None and key.issuer != root.store:
                raise VerificationError("key list: certifies a key for another issuer", code="key_list")
        return key_list

    def with_key_list(self, data: bytes) -> Trust:
        """This trust, with the newer key list that came with the evidence believed.

        Raises VerificationError with code `key_unknown` unless a root of this trust certified it,
        `rolled_back` if it is older than what is known, and `key_list` if it does not continue that.
        """
        new = self._certified(data)
        kid, _ = peek_key_list(data)
        kept = []
        for known in self.key_lists:
            if (peek_key_list(known)[0], self._certified(known).store) != (kid, new.store):
                kept.append(known)
                continue
            require_extends(new, self._certified(known))
        return checked(replace(self, key_lists=(*kept, data)))

    def check_frozen(self, checkpoint: Checkpoint) -> None:
        """Returns unless the checkpoint is of a log that ended, and goes beyond its end or contradicts it."""
        for end in self.frozen:
            beyond = checkpoint.size > end.size or (
                checkpoint.size == end.size and checkpoint.root != end.root
            )
            if checkpoint.origin == end.origin and beyond:
                raise VerificationError(
                    "checkpoint: the log was frozen at another head than this", code="frozen", size=end.size
                )


def make_trust(
    policy_text: str,
    keys: tuple[TrustedKey, ...] = (),
    merge_delay_seconds: int = DEFAULT_MERGE_DELAY_SECONDS,
    max_checkpoint_age_seconds: int | None = None,
    same_operator: tuple[str, ...] = (),
) -> Trust:
    """The trust of these parts, once every rule of the format holds."""
    return checked(
        Trust(parse_policy(policy_text), keys, merge_delay_seconds, max_checkpoint_age_seconds, same_operator)
    )


def checked(trust: Trust) -> Trust:
    """The same trust with its text, once every rule of the format holds."""
    try:
        trust.policy.text.encode("utf-8")
    except UnicodeEncodeError:
        raise MalformedError("trust: expected a policy in UTF-8") from None
    return parse_trust(format_trust(trust))


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
    trust = Trust(
        policy,
        _distinct(tuple(_parse_key(key) for key in _tables(fields, "key", MAX_KEYS))),
        _integer({"merge_delay_seconds": DEFAULT_MERGE_DELAY_SECONDS, **fields}, "merge_delay_seconds"),
        _optional_integer(fields, "max_checkpoint_age_seconds"),
        _parse_same_operator(fields.get("same_operator", []), policy),
        text,
        tuple(_parse_root(root) for root in _tables(fields, "root", _MAX_TABLES)),
        tuple(_parse_key_list(one) for one in _tables(fields, "key_list", _MAX_TABLES)),
        tuple(_parse_frozen(one) for one in _tables(fields, "frozen", _MAX_TABLES)),
    )
    _require_certified(trust)
    return trust


def _require_certified(trust: Trust) -> None:
    """Returns if each root stands once, and each list is certified by one of them and is the only one of its store."""
    if len({root.key.key_id for root in trust.roots}) != len(trust.roots):
        raise MalformedError("trust: expected each root once")
    lists = set()
    for data in trust.key_lists:
        try:
            lists.add((peek_key_list(data)[0], trust._certified(data).store))
        except Error as error:
            raise MalformedError(f"trust: {error.message}") from None
    if len(lists) != len(trust.key_lists):
        raise MalformedError("trust: expected one key list of each root and store")


def _parse_key(fields: Mapping[str, object]) -> TrustedKey:
    _require_fields(fields, _KEY_FIELDS, "trust key")
    use = _text(fields, "use")
    if use not in USES:
        raise MalformedError("trust key: expected a use of issuer, receipt, manifest, report or registration")
    not_before = _integer(fields, "not_before")
    not_after = _optional_integer(fields, "not_after")
    if not_after is not None and not_after < not_before:
        raise MalformedError("trust key: expected not_after to be no earlier than not_before")
    issuer = _text(fields, "issuer") if "issuer" in fields else None
    if issuer is not None and not 1 <= len(issuer) <= _MAX_ISSUER_CHARACTERS:
        raise MalformedError(f"trust key: expected an issuer of 1 to {_MAX_ISSUER_CHARACTERS} characters")
    until = read_until(fields["until"]) if "until" in fields else ()
    if until and not_after is None:
        raise MalformedError("trust key: expected until only where a key has ended")
    return TrustedKey(use, _parse_cose_key(fields), not_before, not_after, issuer, until)


def _parse_cose_key(fields: Mapping[str, object]) -> CoseKey:
    return decode_key(decode_base64(_text(fields, "cose_key"), "trust: cose_key"))


def _parse_root(fields: Mapping[str, object]) -> TrustedRoot:
    _require_fields(fields, _ROOT_FIELDS, "trust root")
    store = _text(fields, "store") if "store" in fields else None
    number = _integer({"number": 1, **fields}, "number")
    return TrustedRoot(_parse_cose_key(fields), store, number)


def _parse_key_list(fields: Mapping[str, object]) -> bytes:
    _require_fields(fields, frozenset(("cose",)), "trust key_list")
    return decode_base64(_text(fields, "cose"), "trust: cose")


def _parse_frozen(fields: Mapping[str, object]) -> Checkpoint:
    _require_fields(fields, _FROZEN_FIELDS, "trust frozen")
    root = decode_hash(_text(fields, "root"), "trust: root")
    return Checkpoint(_text(fields, "origin"), _integer(fields, "size"), root)


def _tables(fields: Mapping[str, object], name: str, at_most: int) -> list[dict[str, object]]:
    tables = fields.get(name, [])
    if not isinstance(tables, list) or len(tables) > at_most:
        raise MalformedError(f"trust: expected at most {at_most} tables [[{name}]]")
    if not all(isinstance(table, dict) for table in tables):
        raise MalformedError(f"trust: expected tables [[{name}]]")
    return tables


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
