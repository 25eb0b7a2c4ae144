"""Who a witness is: `witness.json`, which `init` writes once and `rotate-key` alone replaces.

It ties name and keys to one database, and says of each key where it lies: in a file of the state, in an
ssh-agent, or behind a command.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from tlog.errors import MalformedError
from tlog.note import SignatureType, VerifierKey, parse_vkey

MARKER = "witness.json"

_DEFAULT_FILES: dict[int, str] = {
    SignatureType.COSIGNATURE_ED25519: "ed25519.key",
    SignatureType.MLDSA44: "mldsa44.key",
}


@dataclass(frozen=True)
class KeySource:
    """Where a key of the witness lies. `arguments`: the file's name, nothing, or the command and its arguments."""

    kind: Literal["file", "agent", "command"]
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Marker:
    """Who this witness is. `database` ties the marker to one database, so no other can take its place.

    `vkeys` are the keys that cosign, all of them each time; `retired` those that did once. A key without a
    source in `sources` lies in the file that `init` has always given to a key of its type.
    """

    name: str
    vkeys: tuple[str, ...]
    database: str
    sources: tuple[tuple[str, KeySource], ...] = ()
    retired: tuple[str, ...] = ()

    def source(self, vkey: str) -> KeySource:
        """Where the key lies."""
        return dict(self.sources).get(vkey) or default_source(parse_vkey(vkey))


def default_source(key: VerifierKey) -> KeySource:
    """The file of a witness's first key of this type."""
    return KeySource("file", (_DEFAULT_FILES[key.kind],))


def format_marker(marker: Marker) -> bytes:
    """The bytes of the file, which `parse_marker` reads back."""
    document: dict[str, Any] = {
        "version": 1,
        "name": marker.name,
        "vkeys": marker.vkeys,
        "database": marker.database,
    }
    if marker.sources:
        document["sources"] = {vkey: [one.kind, *one.arguments] for vkey, one in marker.sources}
    if marker.retired:
        document["retired"] = marker.retired
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


def parse_marker(data: bytes) -> Marker:
    """What the file says."""
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    match document:
        case {"version": 1, "name": str(name), "vkeys": [_, *_] | [] as vkeys, "database": str(database)}:
            return Marker(
                name,
                _vkeys(vkeys),
                database,
                _sources(document.get("sources", {})),
                _vkeys(document.get("retired", [])),
            )
    raise _wrong()


def _vkeys(listed: object) -> tuple[str, ...]:
    if not isinstance(listed, list):
        raise _wrong()
    return tuple(parse_vkey(str(vkey)).vkey for vkey in listed)


def _sources(listed: object) -> tuple[tuple[str, KeySource], ...]:
    if not isinstance(listed, dict):
        raise _wrong()
    return tuple((parse_vkey(vkey).vkey, _source(value)) for vkey, value in listed.items())


def _source(value: object) -> KeySource:
    match value:
        case ["file", str(name)] if "/" not in name and name not in ("", ".", ".."):
            return KeySource("file", (name,))
        case ["agent"]:
            return KeySource("agent")
        case ["command", str(program), *rest] if all(isinstance(word, str) for word in rest):
            return KeySource("command", (program, *map(str, rest)))
    raise _wrong()


def _wrong() -> MalformedError:
    return MalformedError(f"witness: {MARKER} is not what `muniment witness init` wrote")
