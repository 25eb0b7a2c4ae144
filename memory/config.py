"""The settings of a home, in its `config.toml`; none of them says anything about anybody.

Origin, issuer and subject are random unless the owner names them: they are in every entry and receipt. What
is not understood is an error, since a misspelt setting would otherwise be a default that nobody chose.
"""

from __future__ import annotations

import json
import re
import secrets
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from memory.model import IDENTITIES, SHAPES, UNKNOWN_TENANTS
from tlog.errors import MalformedError

Guard = Literal["on", "off"]

VERSION: Final = 1
MAX_CONFIG_BYTES: Final = 64 * 1024
GUARDS: Final = ("on", "off")
SEMANTICS: Final = ("off", "wordllama", "endpoint")
DEFAULT_GUARD: Final = "on"
DEFAULT_MERGE_DELAY_SECONDS: Final = 86_400
DEFAULT_WITHHELD_RETENTION: Final = "30d"
_PASSWORD: Final = re.compile(r"(?:password|secret)\s*=|://[^/@]*:[^/@]*@", re.IGNORECASE)
_MAX_SECONDS: Final = 1 << 40
_MAX_NAME_CHARACTERS: Final = 255
# Settings without which a file says the same.
_LEFT_OUT: Final[Mapping[str, object]] = {
    "frozen": (),
    "identity": "reported",
    "authority": (),
    "instruction_shaped": "serve",
    "unknown_tenants": "create",
    "retention": (),
    "withheld_retention": "30d",
    "systems": (),
    "semantic": "off",
}


@dataclass(frozen=True)
class Config:
    """The settings of one home. `created_at`, in whole seconds, is when its first keys begin to be valid.

    `root` is the COSE_Key, in base64, of the root that certifies its keys. `frozen` has a line for each log that
    another has taken the place of, the oldest first: vkey, size and root. `identity`, `authority` and
    `instruction_shaped` are the terms of `memory.admission`, `unknown_tenants` those of `memory.scope`; `retention`
    and `withheld_retention` are those of `memory.retention_rules`, `systems` the lines of `memory.erase_systems`.
    `semantic`, with its url and model, is what `memory.semantic` makes vectors with. `database` is the PostgreSQL
    database that has the store (memory.engines); without it that is a file of the home. `log_storage` is the bucket
    that has the log (memory.log_places). `database_checker` is a connection to the database whose role may look at
    pages and at the write-ahead log: what erasures are verified by (memory.pg_look).
    """

    origin: str
    issuer: str
    subject: str
    created_at: int
    guard: Guard = DEFAULT_GUARD
    merge_delay_seconds: int = DEFAULT_MERGE_DELAY_SECONDS
    max_checkpoint_age_seconds: int | None = None
    same_operator: tuple[str, ...] = ()
    mirror: str | None = None
    root: str | None = None
    frozen: tuple[str, ...] = ()
    identity: str = "reported"
    authority: tuple[str, ...] = ()
    instruction_shaped: str = "serve"
    unknown_tenants: str = "create"
    retention: tuple[str, ...] = ()
    withheld_retention: str = DEFAULT_WITHHELD_RETENTION
    systems: tuple[str, ...] = ()
    semantic: str = "off"
    semantic_url: str | None = None
    semantic_model: str | None = None
    database: str | None = None
    log_storage: str | None = None
    database_copies: str | None = None
    database_checker: str | None = None


def new_config(origin: str, guard: Guard, created_at: int) -> Config:
    """The settings of a new home, issuer and subject random."""
    return Config(origin, _random_name(), _random_name(), created_at, guard)


def random_origin() -> str:
    """An origin that says nothing about whose log it is."""
    return f"muniment/{secrets.token_hex(16)}"


def resolve_setting(
    name: str, argument: str | None, configured: str | None, default: str, allowed: Sequence[str]
) -> str:
    """The setting that holds: the argument before the configuration before the default.

    Each that is given must be one of `allowed`, also where another one wins: an error is never hidden.
    """
    for given in (argument, configured, default):
        if given is not None and given not in allowed:
            raise MalformedError(f"expected {name} to be {' or '.join(allowed)}", setting=name)
    return next(given for given in (argument, configured, default) if given is not None)


def resolve_guard(argument: str | None, configured: str | None) -> Guard:
    """Whether the guard is on: argument before configuration before default."""
    resolved = resolve_setting("guard", argument, configured, DEFAULT_GUARD, GUARDS)
    return "on" if resolved == "on" else "off"


def parse_config(data: bytes) -> Config:
    """The settings in a configuration file."""
    if len(data) > MAX_CONFIG_BYTES:
        raise MalformedError(f"config.toml: expected at most {MAX_CONFIG_BYTES} bytes")
    try:
        fields = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):  # ValueError: also a number of too many digits
        raise MalformedError("config.toml: expected a TOML file") from None
    known = {"version", *Config.__dataclass_fields__}
    if not fields.keys() <= known:
        raise MalformedError(f"config.toml: expected only the settings {', '.join(sorted(known))}")
    if fields.get("version") != VERSION:
        raise MalformedError(f"config.toml: expected version {VERSION}")
    return Config(
        origin=_name(fields, "origin"),
        issuer=_name(fields, "issuer"),
        subject=_name(fields, "subject"),
        created_at=_seconds(fields, "created_at"),
        guard=resolve_guard(None, fields.get("guard")),
        merge_delay_seconds=_seconds(fields, "merge_delay_seconds", DEFAULT_MERGE_DELAY_SECONDS),
        max_checkpoint_age_seconds=(
            _seconds(fields, "max_checkpoint_age_seconds") if "max_checkpoint_age_seconds" in fields else None
        ),
        same_operator=_texts(fields, "same_operator"),
        mirror=_text(fields, "mirror", 4096) if "mirror" in fields else None,
        root=_text(fields, "root", 8192) if "root" in fields else None,
        frozen=_texts(fields, "frozen"),
        identity=resolve_setting("identity", None, fields.get("identity"), "reported", IDENTITIES),
        authority=_names(fields, "authority"),
        instruction_shaped=resolve_setting(
            "instruction_shaped", None, fields.get("instruction_shaped"), "serve", SHAPES
        ),
        unknown_tenants=resolve_setting(
            "unknown_tenants", None, fields.get("unknown_tenants"), "create", UNKNOWN_TENANTS
        ),
        retention=_texts(fields, "retention"),
        withheld_retention=(
            _text(fields, "withheld_retention", 32)
            if "withheld_retention" in fields
            else DEFAULT_WITHHELD_RETENTION
        ),
        systems=_texts(fields, "systems"),
        semantic=resolve_setting("semantic", None, fields.get("semantic"), "off", SEMANTICS),
        semantic_url=_text(fields, "semantic_url", 4096) if "semantic_url" in fields else None,
        semantic_model=_text(fields, "semantic_model", 255) if "semantic_model" in fields else None,
        database=_database(fields, "database"),
        database_checker=_database(fields, "database_checker"),
        log_storage=_text(fields, "log_storage", 1024) if "log_storage" in fields else None,
        database_copies=_text(fields, "database_copies", 32) if "database_copies" in fields else None,
    )


def format_config(config: Config) -> bytes:
    """The configuration file, which `parse_config` reads back to an equal one."""
    values: dict[str, Any] = {"version": VERSION} | {
        name: getattr(config, name) for name in Config.__dataclass_fields__
    }
    lines = [
        f"{name} = {_format(value)}"
        for name, value in values.items()
        if value is not None and value != _LEFT_OUT.get(name)
    ]
    return ("\n".join(lines) + "\n").encode("utf-8")


def _format(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_format(one) for one in value)}]"
    # JSON escapes what TOML wants escaped, save DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _random_name() -> str:
    return f"urn:uuid:{uuid.uuid4()}"


def _name(fields: Mapping[str, Any], name: str) -> str:
    return _text(fields, name, _MAX_NAME_CHARACTERS)


def _text(fields: Mapping[str, Any], name: str, at_most: int) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= at_most:
        raise MalformedError(f"config.toml: expected {name} as a text of 1 to {at_most} characters")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise MalformedError(f"config.toml: expected {name} as a list of texts")
    return tuple(value)


def _database(fields: Mapping[str, Any], name: str) -> str | None:
    if name not in fields:
        return None
    found = _text(fields, name, 4096)
    require_no_password(found)
    return found


def require_no_password(database: str) -> None:
    """Returns if the settings of a connection have no password in them: it would go wherever the settings go."""
    from urllib.parse import unquote

    # Of an address libpq reads the names of settings, too, with what is escaped in them put back.
    if any(map(_PASSWORD.search, (database, unquote(database)))):
        raise MalformedError(
            "expected a database without its password: PGPASSFILE, PGSERVICEFILE or PGPASSWORD has that",
            code="password_in_settings",
        )


def _names(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Names of clients, each once: one that stands twice has no one place."""
    names = _texts(fields, name)
    if len(set(names)) != len(names) or not all(0 < len(one) <= _MAX_NAME_CHARACTERS + 1 for one in names):
        raise MalformedError(f"config.toml: expected {name} as a list of different names of clients")
    return names


def _seconds(fields: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not 0 <= value <= _MAX_SECONDS:
        raise MalformedError(f"config.toml: expected {name} as a whole number of seconds")
    return value
