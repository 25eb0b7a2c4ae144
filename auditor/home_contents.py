"""Files of a home that have a name of theirs, and hold what such a file never holds.

A known name proves nothing: a text may lie in a lock, in a cache, in a key that is not in use yet. So each kind of file
is read in its form. Keys are looked at for their shape alone, and nothing of them is kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import apsw

from tlog.certificates import decode_key_list
from tlog.checkpoint import parse_checkpoint
from tlog.cose import decode_sign1
from tlog.cose_keys import decode_key
from tlog.errors import Error, MalformedError
from tlog.note import parse_note
from tlog.registration_log import parse_policy_entry
from tlog.staging import parse_segment
from tlog.tile import decode_bundle

_MAX_BYTES: Final = 64 * 1024 * 1024
_SECRET_BYTES: Final = 32
_WAL_INDEX_BYTES: Final = 32768
_WAL_INDEX_VERSION: Final = (3007000).to_bytes(4, "little")
_SEALED: Final = b"muniment-sealed/1\n"
_SEALED_LEAST: Final = 12 + 16
# So many in a row are in one file of ten thousand of the longest, if it is ciphertext.
_PRINTABLE: Final = re.compile(rb"[ -~]{28}")
_LOCKS: Final = frozenset(
    {"append", "publish", "outbox", "swap", "gc", "home", "erase", "keys", "succeed"}
    | {"registration", "entry-ids", "remembered"}
)
_PEM: Final = re.compile(
    rb"-----BEGIN (?:EC |)PRIVATE KEY-----\n(?:[A-Za-z0-9+/=]{1,64}\n){1,200}-----END (?:EC |)PRIVATE KEY-----\n?"
)
_LOG_KEY: Final = re.compile(rb"PRIVATE\+KEY\+[!-*,-~]{1,255}\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{40,100}\n?")
_KEY_VERSIONS: Final = frozenset({b"\x02\x01\x00", b"\x02\x01\x01"})
_ADDRESS: Final = re.compile(r"https?://[!-~]{1,2000}")
_VKEY: Final = re.compile(r"[!-*,-~]{1,255}\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{40,4000}")
_LIE: Final = frozenset({"version", "number", "heard_at", "kind", "names", "url", "earlier", "later"})
_LIES: Final = frozenset({"two_roots", "went_back", "forgot", "not_verified", "misdated"})
_SLOT_BYTES, _MARK_BYTES = 80, 4
_INDEX: Final = frozenset({"known", "settled", "filter", "indexed"})
_TABLES: Final = {"identities.sqlite": _INDEX, "entry-ids.sqlite": _INDEX}
Judge = Callable[[str, bytes], bool]


def holds_its_kind(home: Path, path: str) -> bool:
    """Whether a file of a home holds what the name says; true of a kind that other checks read, or if it is gone."""
    for pattern, judge in _KINDS:
        if pattern.fullmatch(path):
            try:
                return judge(path, read_plain(home / path))
            except FileNotFoundError:
                return True
            except (Error, ValueError, OSError, RecursionError, AttributeError, TypeError, IndexError):
                return False
    if path.rpartition("/")[2] in _TABLES:
        return _is_cache(home / path)
    return True


def guard_key_number(path: str) -> str | None:
    """The number of the tenant whose hashes a key is of, in hexadecimal."""
    match = re.fullmatch(r"keys/guard/([0-9a-f]{32})\.key", path)
    return match[1] if match else None


def widths_beyond(path: str, size: int) -> bool:
    """Whether it is a tile or bundle of entries that a log of this size does not have."""
    match = re.search(r"tile/([0-9]+|entries)/((?:x[0-9]{3}/)*[0-9]{3})(?:\.p/([0-9]+))?\Z", path)
    if match is None:
        return False
    level = 0 if match[1] == "entries" else int(match[1])
    index = int(match[2].replace("x", "").replace("/", ""))
    hashes = size >> 8 * level if level < 8 else 0
    return index * 256 + int(match[3] or 256) > hashes


def read_plain(path: Path) -> bytes:
    """The bytes of a file that is one, and no link, pipe or device; OSError or MalformedError otherwise."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_size > _MAX_BYTES:
            raise MalformedError("expected a smaller file in a home")
        return file.read(_MAX_BYTES + 1)


def _is_lock(path: str, data: bytes) -> bool:
    return not data and path.rpartition("/")[2] in _LOCKS


def _is_pem(_: str, data: bytes) -> bool:
    """Whether it is a private key by its shape: one DER sequence, as long as it says, that begins with its version."""
    if _PEM.fullmatch(data) is None:
        return False
    der = base64.b64decode(b"".join(data.split(b"\n")[1:-1]).partition(b"-")[0])
    size, start = (
        (der[1], 2) if der[1] < 0x80 else (int.from_bytes(der[2 : 2 + der[1] - 0x80], "big"), der[1] - 0x7E)
    )
    return der[0] == 0x30 and len(der) == start + size and der[start : start + 3] in _KEY_VERSIONS


def _is_log_key(_: str, data: bytes) -> bool:
    return _LOG_KEY.fullmatch(data) is not None


def _is_secret(_: str, data: bytes) -> bool:
    """As many bytes as a secret has, and no text: random ones are all of ASCII's letters once in 10**13 homes."""
    return len(data) == _SECRET_BYTES and not (data.isascii() and data.decode().isprintable())


def _is_key_list(_: str, data: bytes) -> bool:
    decode_key_list(data)
    return True


def _is_certified(_: str, data: bytes) -> bool:
    decode_sign1(data, max_bytes=_MAX_BYTES)
    return True


def _is_of_its_name(path: str, data: bytes) -> bool:
    """What an entry of the log commits to by its digest."""
    return hashlib.sha256(data).hexdigest() == Path(path).stem


def _is_public_key(path: str, data: bytes) -> bool:
    """A COSE_Key under its own name."""
    return decode_key(data).key_id.hex() == Path(path).stem


def _is_head(_: str, data: bytes) -> bool:
    """Origin, size and root, as a log notes a head for itself."""
    return not parse_checkpoint(data.decode("ascii")).extensions


def _is_policy_entry(_: str, data: bytes) -> bool:
    return parse_policy_entry(data) is not None


def _is_memory_of_witnesses(_: str, data: bytes) -> bool:
    """Sizes by address, and the last note that each key cosigned."""
    said = json.loads(data)
    if said.keys() != {"version", "sizes", "notes"} or said["version"] != 1:
        return False
    for note in said["notes"].values():
        parse_checkpoint(parse_note(note.encode()).text)
    return (
        all(_ADDRESS.fullmatch(one) for one in said["sizes"])
        and all(type(size) is int for size in said["sizes"].values())
        and all(_VKEY.fullmatch(one) for one in said["notes"])
    )


def _is_lie(_: str, data: bytes) -> bool:
    """What a witness answered, beside what it had said before."""
    said = json.loads(data)
    if said.keys() != _LIE or said["version"] != 1 or said["kind"] not in _LIES:
        return False
    numbers = (said["number"], said["heard_at"])
    return all(type(one) is int for one in numbers) and _ADDRESS.fullmatch(said["url"]) is not None


def _are_slots(_: str, data: bytes) -> bool:
    """Keys of backups in places of one size: each is zero, or a key with its mark (docs/formats/backup.md)."""
    if len(data) % _SLOT_BYTES:
        return False
    slots = (data[at : at + _SLOT_BYTES] for at in range(0, len(data), _SLOT_BYTES))
    return all(
        not any(slot) or hashlib.sha256(slot[:-_MARK_BYTES]).digest()[:_MARK_BYTES] == slot[-_MARK_BYTES:]
        for slot in slots
    )


def _is_segment(path: str, data: bytes) -> bool:
    segment = parse_segment("staging/" + path.rpartition("/")[2])
    if segment is None:
        return False
    decode_bundle(data, segment.new.size - segment.old.size)
    return True


def _is_sealed(_: str, data: bytes) -> bool:
    """Its first line, and then what only chance could tell from ciphertext: no text stands in it, nothing repeats."""
    body = data.removeprefix(_SEALED)
    plain = _PRINTABLE.search(body) is not None or len(zlib.compress(body, 9)) < len(body) * 0.97
    return data.startswith(_SEALED) and len(body) >= _SEALED_LEAST and not plain


def _is_wal_index(_: str, data: bytes) -> bool:
    """Its first words are a version of SQLite's, or it was not begun; what follows are numbers of pages and hashes."""
    begun = data[:4] == _WAL_INDEX_VERSION and data[:48] == data[48:96]
    return len(data) % _WAL_INDEX_BYTES == 0 and (begun or data[:4] == bytes(4))


def _is_number(_: str, data: bytes) -> bool:
    return re.fullmatch(rb"[0-9]{1,19}\n?", data) is not None


def _is_cache(path: Path) -> bool:
    """Whether a cache of a log is a database of its own tables and no others, without anything behind its last page."""
    wanted = _TABLES[path.name]
    connection = None
    try:
        if path.stat().st_size % 512:
            return False
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size:
            return True  # in use: what it holds is not all in this file
        connection = apsw.Connection(f"file:{_escaped(path)}?mode=ro&immutable=1", flags=_READ)
        names = {
            str(name)
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE sql IS NOT NULL")
        }
        numbers: list[int] = []
        for pragma in ("page_count", "page_size"):
            numbers += [int(str(one)) for (one,) in connection.execute(f"PRAGMA {pragma}")]
        whole = names <= wanted and path.stat().st_size == numbers[0] * numbers[1]
        return whole and not any(_has_text(connection, name) for name in names)
    except FileNotFoundError:
        return True
    except (apsw.Error, UnicodeDecodeError, IndexError):
        return path.stat().st_size == 0
    finally:
        if connection is not None:
            connection.close()


def _has_text(connection: apsw.Connection, table: str) -> bool:
    """Whether a table of a cache has a text in it, but for the sums of one that are an array of numbers."""
    rows = connection.execute(f'SELECT * FROM "{table}"')
    return any(isinstance(value, str) and not _SUMS.fullmatch(value) for row in rows for value in row)


_SUMS: Final = re.compile(r"\[[0-9,]{0,400}\]")
_READ: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


_KINDS: Final[Collection[tuple[re.Pattern[str], Judge]]] = tuple(
    (re.compile(pattern), judge)
    for pattern, judge in (
        (r"(?:.*/)?\.locks/[^/]*", _is_lock),
        (r"keys/log(?:-[0-9]+)?\.key", _is_log_key),
        (r"keys/(?:issuer|receipt|manifest|registration)(?:\.next)?\.key", _is_pem),
        (r"keys/index\.key|keys/(?:guard|backup/subjects)/[^/]*\.key", _is_secret),
        (r"keys\.cbor", _is_key_list),
        (r"(?:log[^/]*/)?keys\.cose", _is_certified),
        (r"log[^/]*/scitt-keys/[^/]*", _is_public_key),
        (r"log[^/]*/registration/[^/]*", _is_of_its_name),
        (r"log[^/]*/sealed/[^/]*", _is_sealed),
        (r"log-state[^/]*/staging/[^/]*", _is_segment),
        (r"log-state[^/]*/(?:integrated|pruned)", _is_number),
        (r"log-state[^/]*/(?:head|signed|frozen)", _is_head),
        (r"log-state[^/]*/registration", _is_policy_entry),
        (r"log-state[^/]*/witnesses/[^/]*\.json", _is_memory_of_witnesses),
        (r"log-state[^/]*/witnesses/lies/[^/]*\.json", _is_lie),
        (r"keys/backup/[^/]*\.keys", _are_slots),
        (r"store\.db-shm", _is_wal_index),
    )
)
