"""A brute-force attacker: has every byte that an erasure left, and every key in it, and confirms guesses by hashes.

Every place of every file where a hash could begin is known by its next eight bytes, and so is everything that stands
there as hexadecimal, base64 or base32. A guess goes into each natural construction, plain, with each secret that is
left, and as the product itself would make it; a hash that is found in no place confirms nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw
import cbor2
from erasing import files_of

from memory import canon
from memory.event import content_hash, encode_content
from memory.rows import TenantRow
from memory.scope import Scope, make_scope
from memory.vault import Vault
from tlog import cbor

PREFIX = 8
_TOKENS = (
    (re.compile(rb"[0-9a-fA-F]{16,}"), lambda token: bytes.fromhex(token[: len(token) // 2 * 2].decode())),
    (re.compile(rb"[A-Za-z0-9+/_-]{11,}={0,2}"), lambda token: _base64(token)),
    (re.compile(rb"[A-Za-z2-7]{13,}"), lambda token: _base32(token)),
)
FIRST = "Ada Ben Cleo Dana Eve Fox Gus Hal Ida Jon Kai Lea Max Nia Oda Pia Rex Sam Tea Uma"
LAST = (
    "Ash Birch Cole Drew Ellis Frost Gray Hart Ives James Kent Lowe Moss Nash Orr Pike Reed Scully Todd Voss"
)
SALTS = (b"", b"\x00" * 16, b"\x00" * 32)


def _base64(token: bytes) -> bytes:
    plain = token.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    return base64.b64decode(plain[: len(plain) // 4 * 4])


def _base32(token: bytes) -> bytes:
    return base64.b32decode(token[: len(token) // 8 * 8].upper())


class Remains:
    """All that is left: the home, and copies that lie elsewhere."""

    def __init__(self, home: Path, *others: Path) -> None:
        self.home = home
        files = [*files_of(home).values(), *(path.read_bytes() for path in others)]
        self._places: set[bytes] = set()
        self.whole = b"\n".join(files)
        for data in files:
            self._add(data)
            for pattern, decode in _TOKENS:
                for token in set(pattern.findall(data)):
                    # A token is found where its alphabet goes on, so the hash may begin at any of its first letters.
                    for skip in range(8 if len(token) < 200 else 1):
                        self._add(decode(token[skip:]))
        self.secrets = tuple(self._secrets())

    def _add(self, data: bytes) -> None:
        self._places.update(data[at : at + PREFIX] for at in range(len(data) - PREFIX + 1))

    def __contains__(self, tag: bytes) -> bool:
        """Whether a hash, or as much of it as 64 bits, stands anywhere."""
        return tag[:PREFIX] in self._places

    def _secrets(self) -> Iterator[bytes]:
        """Everything of 16 or 32 bytes by itself: in key files, in columns, in strings of bytes in documents there."""
        seen: set[bytes] = set()
        for one in self._strings():
            if len(one) in (16, 32) and one not in seen:
                seen.add(one)
                yield one

    def _strings(self) -> Iterator[bytes]:
        for path in sorted((self.home / "keys").rglob("*")):
            if path.is_file():
                data = path.read_bytes()
                yield from (data, data.strip())
                for token in re.findall(rb"[A-Za-z0-9+/=]{24,}", data):
                    decoded = _base64(token)
                    yield from (decoded, decoded[-32:])
        connection = apsw.Connection(str(self.home / "store.db"))
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        for (table,) in connection.execute(tables).fetchall():
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    if isinstance(value, bytes):
                        yield value
                        yield from _inside(value)
        connection.close()

    def scopes(self, agents: Iterable[str]) -> Iterator[Scope]:
        """The scope of each of these agents under each tenant key that is left."""
        vault = Vault(self.home / "keys")
        for path in sorted((self.home / "keys" / "guard").glob("*.key")):
            for agent in agents:
                yield make_scope(vault, TenantRow(0, bytes.fromhex(path.stem), ""), agent)


def _inside(data: bytes) -> Iterator[bytes]:
    """The strings of bytes in a CBOR document, however deep, also where one of them is a document."""
    try:
        document = cbor2.loads(data)
    except (cbor2.CBORError, ValueError, EOFError, TypeError):
        return
    waiting: list[Any] = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, cbor2.CBORTag):
            waiting.append(one.value)
        elif isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            waiting += one
        elif isinstance(one, bytes):
            yield one
            if len(one) > 32:
                yield from _inside(one)


# Constructions


def plain(guess: str) -> Iterator[bytes]:
    """Hashes without a secret, of a guess as it is and in the forms that are compared."""
    for text in {guess, canon.canonical_text(guess), guess.replace(" ", "")}:
        for data in (text.encode(), b"\x81" + cbor2.dumps(text), cbor2.dumps(text)):
            for salt in SALTS:
                yield hashlib.sha256(salt + data).digest()
            yield hashlib.sha1(data).digest()
            yield hashlib.md5(data).digest()


def keyed(secret: bytes, guess: str) -> Iterator[bytes]:
    """Hashes with a secret before it, behind it or as a key."""
    data = guess.encode()
    yield hmac.digest(secret, data, "sha256")
    yield hashlib.sha256(secret + data).digest()
    yield hashlib.sha256(data + secret).digest()
    yield hashlib.sha256(cbor.encode([secret, guess])).digest()
    yield hashlib.blake2b(data, key=secret, digest_size=32).digest()


def tags(scope: Scope, guess: str) -> Iterator[bytes]:
    """What the product would make of the guess as a key, a subject, a value, a text, a word or a name."""
    yield scope.key_tag(guess)
    yield scope.subject_tag(guess)
    yield scope.text_tag(guess)
    for form in canon.value_forms(guess):
        yield scope.value_tag(form)
    yield from (scope.word_tag(word) for word in canon.key_words(guess))
    vault, number = scope.vault, scope.tenant.number
    yield vault.tag(number, "agent", guess)
    yield vault.index_tag("tenant", guess)


def content_hashes(content: dict[str, Any], salts: Iterable[bytes]) -> Iterator[bytes]:
    """What is kept of a content for good, for somebody who guesses all of it but the salt."""
    encoded = encode_content(content)
    yield from (content_hash(encoded, salt) for salt in salts if len(salt) == 32)


def numbers(prefix: str) -> Iterator[str]:
    """All numbers of ten digits that begin so."""
    rest = 10 - len(prefix)
    yield from (f"{prefix}{number:0{rest}}" for number in range(10**rest))


def birth_dates() -> Iterator[str]:
    """All days of a hundred years."""
    import datetime

    day = datetime.date(1925, 1, 1)
    while day.year < 2025:
        yield day.isoformat()
        day += datetime.timedelta(days=1)


def names() -> Iterator[str]:
    """Ten thousand names of people."""
    first = [f"{one}{end}" for one in FIRST.split() for end in ("", "na", "ric", "belle", "ton")]
    last = [f"{one}{end}" for one in LAST.split() for end in ("", "man", "well", "by", "worth")]
    yield from (f"{one} {other}" for one in first for other in last)
