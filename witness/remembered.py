"""What a log remembers of its witnesses from one publication to the next, and the lies it caught them in.

For each witness the size it was last heard at, which saves the conflict that a guess would cost, and the last
head it cosigned. A cosignature is a promise about all earlier ones: of two that cannot both be true, both notes
are kept, and convict the witness's key wherever they are shown. What a witness says unsigned convicts nobody;
that is kept as well, for people to look into.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal, TypeVar

from tlog.ascii import MAX_SIZE
from tlog.checkpoint import parse_checkpoint
from tlog.cosignature import Cosignature, verify_cosignature
from tlog.errors import Error, MalformedError
from tlog.note import Note, VerifierKey, format_note, known_lines, parse_note
from tlog.storage import Storage
from witness.wire import origin_digest

MAX_LIES: Final = 50  # of one kind, told by one witness

Kind = Literal["two_roots", "went_back", "forgot", "not_verified", "misdated"]

N = TypeVar("N", int, str)

_LIES: Final = "lies/"
_LOCK: Final = "remembered"
_GROUP_DIGITS: Final = 16


@dataclass(frozen=True)
class Lie:
    """What a witness cannot have meant honestly; `proven` if two cosigned notes convict its key.

    `two_roots`: it cosigned two roots of one size. `went_back`: it cosigned a smaller head later than a larger
    one. `forgot`: it says that its last head is smaller than one it cosigned. `not_verified`: it answered with
    a line of its own key that does not hold. `misdated`: with a time that was not that of the question, by our
    clock. `earlier` is the note, cosigned for the first three, that the later answer contradicts or was asked to
    cosign, `heard_at` the time of our clock.
    """

    kind: Kind
    names: tuple[str, ...]
    url: str
    earlier: bytes
    later: bytes
    heard_at: int = 0

    @property
    def proven(self) -> bool:
        """Whether the two by themselves convict the witness's key."""
        return self.kind in ("two_roots", "went_back")


@dataclass(frozen=True)
class Known:
    """What is known of the witnesses of one log: sizes by URL, the last cosigned note by vkey."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


class Remembered:
    """The memory, kept in a log's private storage. A publication may use it while an earlier one still listens."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def load(self, origin: str) -> Known:
        """What is known for a log. What can't be read is forgotten: it costs a conflict and no more."""
        data = self._storage.read(_path(origin))
        try:
            return _parse(data) if data else Known()
        except MalformedError:
            return Known()

    def save(self, origin: str, before: Known, after: Known) -> None:
        """Returns once what is new in `after` is kept, beside what others have learnt since `before`."""
        if after == before:
            return
        with self._storage.lock(_LOCK):
            now = self.load(origin)
            sizes, notes = dict(now.sizes), dict(now.notes)
            sizes.update(_news(before.sizes, after.sizes))
            for vkey, note in _news(before.notes, after.notes).items():
                # Of two rounds that overlapped, the one with the larger head says more about what comes next.
                if notes.get(vkey) == before.notes.get(vkey) or _size(note) > _size(notes[vkey]):
                    notes[vkey] = note
            if (sizes, notes) != (now.sizes, now.notes):
                document = {"version": 1, "sizes": sizes, "notes": notes}
                self._storage.replace(_path(origin), json.dumps(document, ensure_ascii=False).encode())

    def keep(self, lie: Lie) -> None:
        """Returns once the evidence is kept, the same lie once, and of each kind and witness a limited number.

        The first proofs stay, for one is enough. Of what proves nothing the newest stay: it is what people look
        into, and whoever makes up more of it drives out only its own.
        """
        group = sha256(f"{lie.kind} {lie.url}".encode()).hexdigest()[:_GROUP_DIGITS]
        content = sha256(b"%d %b%b" % (len(lie.earlier), lie.earlier, lie.later)).hexdigest()
        path = f"{_LIES}{group}{content[_GROUP_DIGITS:]}.json"
        with self._storage.lock(_LOCK):
            kept = self._storage.names(f"{_LIES}{group}")
            if path in kept or (lie.proven and len(kept) >= MAX_LIES):
                return
            numbered = sorted((self._number(name), name) for name in kept)
            document = {
                "version": 1,
                "number": numbered[-1][0] + 1 if numbered else 1,
                "heard_at": lie.heard_at,
                "kind": lie.kind,
                "names": lie.names,
                "url": lie.url,
                "earlier": lie.earlier.decode("utf-8", "backslashreplace"),
                "later": lie.later.decode("utf-8", "backslashreplace"),
            }
            self._storage.create(path, json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n")
            self._storage.remove(name for _, name in numbered[: max(0, len(numbered) + 1 - MAX_LIES)])

    def lies(self) -> tuple[dict[str, Any], ...]:
        """The evidence kept, as documents."""
        found = (self._storage.read(path) for path in self._storage.names(_LIES))
        return tuple(json.loads(data) for data in found if data)

    def _number(self, path: str) -> int:
        """Which of its witness and kind it was; 0 for a file that cannot be read, which goes first."""
        try:
            document = json.loads(self._storage.read(path) or b"")
        except ValueError:
            return 0
        number = document.get("number") if isinstance(document, dict) else None
        return number if type(number) is int and number > 0 else 0


def find_lie(earlier: bytes | None, cosignature: Cosignature, note: Note) -> tuple[Kind, bytes, bytes] | None:
    """The contradiction between the last note that a key cosigned and one it cosigned now, if there is one.

    `earlier` is believed only as far as the key's own line in it holds.
    """
    key = cosignature.key
    now = format_note(Note(note.text, (*note.signatures, cosignature.line)))
    before = _cosigned(earlier, key)
    if earlier is None or before is None:
        return None
    old, new = parse_checkpoint(parse_note(earlier).text), parse_checkpoint(note.text)
    if old.origin != new.origin:
        return None
    if old.size == new.size and old.root != new.root:
        return "two_roots", earlier, now
    if old.size > new.size and before.timestamp < cosignature.timestamp:
        return "went_back", earlier, now
    return None


def cosigned_note(note: Note, cosignatures: Sequence[Cosignature]) -> str:
    """The note with the log's lines and these, as it is kept."""
    return format_note(Note(note.text, (*note.signatures, *(one.line for one in cosignatures)))).decode()


def _cosigned(data: bytes | None, key: VerifierKey) -> Cosignature | None:
    if data is None:
        return None
    try:
        note = parse_note(data)
        lines = known_lines(note, [key])
        return verify_cosignature(key, lines[0].line, note.text) if lines else None
    except Error:
        return None


def _news(before: Mapping[str, N], after: Mapping[str, N]) -> dict[str, N]:
    return {key: value for key, value in after.items() if before.get(key) != value}


def _size(note: str) -> int:
    return parse_checkpoint(parse_note(note.encode()).text).size


def _path(origin: str) -> str:
    return f"{origin_digest(origin).hex()}.json"


def _parse(data: bytes) -> Known:
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    match document:
        case {"version": 1, "sizes": dict(sizes), "notes": dict(notes)} if all(
            type(size) is int and 0 <= size <= MAX_SIZE for size in sizes.values()
        ) and all(isinstance(note, str) for note in notes.values()):
            for note in notes.values():
                parse_checkpoint(parse_note(note.encode("utf-8", "surrogatepass")).text)
            return Known(sizes, notes)
    raise MalformedError("remembered witnesses: expected what was written here")
