"""What a residue scan looks for after an erasure, and which finds it may explain.

Needles are the words of the erased records and the salt of each: a salt is 32 random bytes that stood beside
its content, so a surviving copy of a row shows itself by it even where its words are everywhere. A long text is
looked for in pieces, since a file keeps it in pages. Needles live in memory only, for as long as the erasure.

A word that a kept record also says, or that is one of the store's own words, proves nothing when it is found;
it is counted as shared, unless another tenant alone says it: that count is public, and would tell. So is one too short
for the size of the files: it would turn up in random bytes. Of a record all of whose words are such, the scan says
nothing: that no free byte is left over has to cover it.
"""

from __future__ import annotations

import math
import secrets
import string
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from memory import event, manifest_fields, model, store_mentions
from memory.erase_vectors import vector_needles
from memory.event import decode_content

if TYPE_CHECKING:
    from auditor.residue import Hit
    from memory.erase_selection import Selection
    from memory.store_read import Snapshot
    from memory.wiring import Home

FIELDS: Final = (
    "text",
    "value",
    "key",
    "subject",
    "source",
    "reason",
    "authority",
    "tenant",
    "agent",
    "client",
)
PIECE_CHARACTERS: Final = 64
PIECES: Final = 16
_CANARY_CHARACTERS: Final = 24
_LONG_CHARACTERS: Final = 200
# A needle that random bytes show by chance more often than once in so many scans is too short for them.
_CHANCE: Final = 10_000
_LETTER_ODDS: Final = 128  # a letter in either case, in a random byte
_OWN_FILES: Final = ("config.toml", "policy.txt", "trust.toml", "log/checkpoint")
_OWN_WORDS: Final = (
    "agent answer authenticated body_tag canon canon_version client closed_by commitment content content_hash "
    "declared entry entry_index expires_at flags history home index issuer key keys ledger link log manifest "
    "memory message muniment outcome policy PRIVATE KEY PRIVATE+KEY recorded_at refused retired source store "
    "subject tenant text valid_from valid_from_declared valid_until value witness checkpoint erasures tile "
    "provisional many restatement reaffirmed unguarded application/vnd.muniment.statement+cose c2sp.org"
)
_TEXTS_AT_ONCE: Final = 512
_KEPT_IN: Final = "store.db"
"""Where what is kept may be found: how the names of these files begin."""


@dataclass(frozen=True)
class Needles:
    """Words, salts and vectors of the erased records; `records` are the places in `words` of what each one says."""

    words: tuple[str, ...]
    salts: tuple[bytes, ...]
    records: tuple[tuple[int, ...], ...] = ()

    def __repr__(self) -> str:
        return f"Needles({len(self.words)} words, {len(self.salts)} salts)"

    @property
    def all(self) -> tuple[str | bytes, ...]:
        """Every needle, words first: a hit names one by its place here."""
        return (*self.words, *self.salts)

    def not_covered(self, telling_nothing: Collection[int]) -> int:
        """How many records say nothing but words that prove nothing, which are named by their places."""
        return sum(1 for places in self.records if all(place in telling_nothing for place in places))


def take_needles(view: Snapshot, selection: Selection, names: Sequence[str]) -> Needles:
    """The needles of a selection, read before anything of it is deleted, and the names it was asked for by."""
    words: dict[str, int] = {}
    salts: list[bytes] = []
    records: list[tuple[int, ...]] = []
    for seq in selection.seqs:
        row = view.event_by_seq(seq)
        if row is None or row.content is None or row.content_salt is None:
            continue
        salts.append(row.content_salt)
        said = _words_of(decode_content(row.content), FIELDS)
        records.append(tuple(words.setdefault(word, len(words)) for word in said))
    for name in names:
        for word in _pieces(name):
            words.setdefault(word, len(words))
    return Needles(tuple(words), (*salts, *vector_needles(view, selection.seqs)), tuple(records))


def needles_given(words: Sequence[str]) -> Needles:
    """Words that somebody gave again, taken together as what one record said."""
    pieces = tuple(dict.fromkeys(piece for word in words for piece in _pieces(word)))
    return Needles(pieces, (), (tuple(range(len(pieces))),))


def new_canary() -> str:
    """Letters that nobody has written: a scan that does not find them where they were put has shown nothing."""
    return "".join(secrets.choice(string.ascii_lowercase) for _ in range(_CANARY_CHARACTERS))


def _words_of(content: Mapping[str, Any], fields: Sequence[str]) -> Iterator[str]:
    for name in fields:
        value = content.get(name)
        if isinstance(value, str) and value.strip():
            yield from _pieces(value)


def _pieces(text: str) -> Iterator[str]:
    if len(text) <= _LONG_CHARACTERS:
        yield text
        return
    last = len(text) - PIECE_CHARACTERS
    for number in range(PIECES):
        at = last * number // (PIECES - 1)
        yield text[at : at + PIECE_CHARACTERS]


def shortest_bytes(size_bytes: int) -> int:
    """The length from which a needle does not turn up by chance in so many random bytes."""
    return max(5, math.ceil(math.log(max(size_bytes, 1) * _CHANCE, _LETTER_ODDS)))


def too_short(needle: str | bytes, size_bytes: int) -> bool:
    """Whether finding this needle in so many bytes would mean nothing."""
    data = needle.strip().encode("utf-8", "surrogatepass") if isinstance(needle, str) else needle
    return len(data) < shortest_bytes(size_bytes)


class Explained:
    """Tells which hits kept content or the store's own words explain. Make it late: it reads what is kept.

    It reads until each hit of `found` is explained that something kept may explain, and holds a small part of it at a
    time. What the tenant of the erasure keeps is read first.
    """

    def __init__(
        self, home: Home, view: Snapshot, found: Iterable[tuple[str | bytes, Hit]], tenant_id: int
    ) -> None:
        hits = [(_forms(needle, hit), hit) for needle, hit in found]
        self._own = _said([forms for forms, _ in hits], _own_texts(home))
        # A form that no hit asks for may be said nowhere, and everything would be read for it.
        wanted = [
            forms for forms, hit in hits if forms.isdisjoint(self._own) and hit.file.startswith(_KEPT_IN)
        ]
        self._of_tenant = _said(wanted, _kept_texts(view, [tenant_id]))
        rest = [forms for forms in wanted if forms.isdisjoint(self._of_tenant)]
        others = [one for one in store_mentions.tenants(view) if one != tenant_id]
        self._kept = self._of_tenant | _said(rest, _kept_texts(view, others))

    def tells_of_others(self, needle: str | bytes) -> bool:
        """Whether to say that this is explained says what another tenant keeps: then nobody is told."""
        return isinstance(needle, str) and _bare_forms(needle).isdisjoint(self._own | self._of_tenant)

    def __call__(self, needle: str | bytes, hit: Hit) -> bool:
        """Whether the hit says nothing about the erased records. A salt is never explained."""
        forms = _forms(needle, hit)
        if not forms.isdisjoint(self._own):
            return True
        # Kept records stand in the store alone: the same words in another file are a finding.
        return hit.file.startswith(_KEPT_IN) and not forms.isdisjoint(self._kept)


def _forms(needle: str | bytes, hit: Hit) -> set[str]:
    """What has to be said somewhere to explain the hit; empty for a salt, which nothing explains."""
    if isinstance(needle, bytes):
        return set()
    forms = {_normal(needle)}
    if "separators removed" in hit.encoding:
        forms.add("".join(c for c in _normal(needle) if c.isalnum()))
    return forms - {""}


def _said(wanted: Iterable[Set[str]], texts: Iterable[str]) -> set[str]:
    """Forms that a text has in it; the texts are read until there is one of each set that is not empty."""
    left = {frozenset(forms) for forms in wanted if forms}
    found: set[str] = set()
    texts = iter(texts)
    while left and (part := list(islice(texts, _TEXTS_AT_ONCE))):
        said = _normal("\n".join(part))
        found.update(form for forms in left for form in forms if form in said)
        left = {forms for forms in left if forms.isdisjoint(found)}
    return found


def _own_texts(home: Home) -> Iterator[str]:
    yield resources.files("memory").joinpath("schema.sql").read_text("utf-8")
    yield _OWN_WORDS
    for words in (event.KINDS, event.ACTS, event.DETAILS, model.SCOPES, *_manifest_words()):
        yield "\n".join(words)
    for name in _OWN_FILES:
        data = home.files.read(name)
        if data is not None:
            yield data.decode("utf-8", "replace")


def _manifest_words() -> Iterable[Iterable[str]]:
    return (value for value in vars(manifest_fields).values() if isinstance(value, frozenset))


def _bare_forms(needle: str) -> set[str]:
    normal = _normal(needle)
    return {normal, "".join(c for c in normal if c.isalnum())} - {""}


def _kept_texts(view: Snapshot, tenant_ids: Iterable[int]) -> Iterator[str]:
    for tenant_id in tenant_ids:
        yield view.tenant_by_id(tenant_id).name
        for content in store_mentions.contents(view, tenant_id):
            for value in content.values():
                if isinstance(value, str):
                    yield value


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
