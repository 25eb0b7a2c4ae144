"""The byte strings that a searched text may have become on its way into a file.

A scan that knows only the text itself misses most copies: another case, another normal form, a UTF-16 file, a
JSON or URL escape, hexadecimal, base64 at any of its three alignments, lines broken within it. Each of those is one
`Encoding`. Not covered, and said so in reports: encryption, pictures, paraphrases; what is packed is opened elsewhere.
"""

from __future__ import annotations

import base64
import contextlib
import html
import json
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

View = Literal["exact", "folded", "spaced", "joined"]
"""How bytes are looked at: as they are; in lower case; so with each run of white space as one space; as they
are, without white space."""

DROPPED: Final = b" \t\n\v\f\r="
"""Bytes that are left out of what is looked at, since lines are broken with them (auditor.patterns)."""
ACROSS_PAGES: Final = "across pages, "
"""In front of the form of what begins in one page of a SQLite file and ends in another."""
SHORTEST_NEEDLE: Final = 4
"""Characters (or bytes) below which a text is reported as not searchable: it would be found everywhere."""
_SHORTEST_LEFT: Final = 2
_SHORTEST_BASE64: Final = 5
_SHORTEST_JOINED: Final = 12
"""Without white space, other words make long runs of letters, too."""
_LONGEST_WIDE: Final = 200
"""Of a longer text, forms of several bytes a letter are looked for by their beginning."""
_SHORTEST_DIGITS: Final = 7
_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SEPARATORS: Final = frozenset(" \t\u00a0\u202f-\u2010\u2011\u2012\u2013.,/()+")


@dataclass(frozen=True, slots=True)
class Encoding:
    """One form to look for, in bytes looked at in one way; where those are folded, the data is so, too."""

    name: str
    data: bytes
    view: View
    core: bytes = b""
    """What two forms share that find the same in two ways of looking: there it counts once."""


def encodings_of(needle: str | bytes) -> tuple[Encoding, ...]:
    """The forms a needle is searched in, each once; empty if it is too short to mean anything."""
    if isinstance(needle, bytes):
        tells = len(needle) >= SHORTEST_NEEDLE and _tells(needle)
        return _distinct(_forms_of_bytes("bytes", needle)) if tells else ()
    if len(needle.strip()) < SHORTEST_NEEDLE or not _tells(_utf8(needle)):
        return ()
    return _distinct(_forms_of_text(needle))


def is_plain(encoding_name: str) -> bool:
    """True for a form that a person reads as the text itself: the rest is reported as encoded."""
    return encoding_name.removeprefix(ACROSS_PAGES) in {"utf-8", "bytes"}


def _tells(data: bytes) -> bool:
    """Whether there is enough in it besides white space and signs of equality to be looked for."""
    return len(data.translate(None, DROPPED)) >= _SHORTEST_LEFT


def _forms_of_text(needle: str) -> Iterable[Encoding]:
    variants = _variants(needle)
    for text in variants:
        yield _folded("utf-8", _utf8(text))
    for text in variants:
        yield _folded("utf-16le", text.encode("utf-16-le", "surrogatepass"))
        yield _folded("utf-16be", text.encode("utf-16-be", "surrogatepass"))
        for name, escape in _ESCAPES:
            yield _folded(name, _utf8(escape(text)))
        yield from _forms_of_bytes("utf-8", _utf8(text))
    yield from _forms_in_lines(variants)
    for text in dict.fromkeys((needle[:_LONGEST_WIDE], unicodedata.normalize("NFC", needle)[:_LONGEST_WIDE])):
        yield from _wide_forms(text)
    bare = _without_separators(needle)
    if bare is not None:
        yield _folded("separators removed", _utf8(bare))


def _forms_of_bytes(name: str, data: bytes) -> Iterable[Encoding]:
    if name == "bytes":
        yield Encoding("bytes", data, "exact", data)
    digits = data.hex().encode("ascii")
    yield _folded("hex", digits)
    if len(digits) >= _SHORTEST_JOINED:
        for each in (digits, digits.upper()):
            yield Encoding("hex, with white space", each, "joined", digits)
    yield from _base64_forms("base64", data)


def _base64_forms(name: str, data: bytes) -> Iterable[Encoding]:
    for alignment in range(3):
        for core in _base64_cores(data, alignment):
            yield Encoding(f"{name}, alignment {alignment}", core, "exact", core)
            if len(core) >= _SHORTEST_JOINED:
                yield Encoding(f"{name} in lines, alignment {alignment}", core, "joined", core)


def _forms_in_lines(variants: Iterable[str]) -> Iterable[Encoding]:
    """The text with other white space between its words, and where a line of a mail was broken."""
    for text in variants:
        data = _utf8(" ".join(text.split())).lower()
        yield Encoding("utf-8, other white space", data, "spaced", data)
    for text in variants:
        data = _quoted_printable(" ".join(text.split())).lower()
        yield Encoding("quoted-printable", data, "spaced", data)


def _wide_forms(text: str) -> Iterable[Encoding]:
    for name in ("utf-32-le", "utf-32-be"):
        yield _folded(name.replace("32-", "32"), text.encode(name, "surrogatepass"))
    for name in ("utf-16-le", "utf-16-be"):
        data = text.encode(name, "surrogatepass")
        yield _folded("hex of utf-16", data.hex().encode("ascii"))
        yield from _base64_forms("base64 of utf-16", data)
    with contextlib.suppress(UnicodeEncodeError):
        yield _folded("latin-1", text.encode("latin-1"))


def _variants(needle: str) -> tuple[str, ...]:
    """The text in the cases and normal forms that programs store, each once, the given one first."""
    bases = [needle, " ".join(needle.split())]
    texts: dict[str, None] = {}
    for base in bases:
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            normal = unicodedata.normalize(form, base)
            for text in (base, normal, normal.lower(), normal.upper(), normal.title(), normal.casefold()):
                texts[text] = None
    return tuple(texts)


def _json_escape(text: str) -> str:
    return json.dumps(text)[1:-1]


def _json_quote_only(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _html_numeric(text: str) -> str:
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode("ascii")


def _html_hexadecimal(text: str) -> str:
    return "".join(c if c.isascii() else f"&#x{ord(c):x};" for c in html.escape(text))


def _percent(text: str) -> str:
    return _escaped(text, _UNRESERVED)


def _percent_component(text: str) -> str:
    # What ECMAScript's encodeURIComponent leaves as it is.
    return _escaped(text, _UNRESERVED | frozenset(b"!'()*"))


def _percent_form(text: str) -> str:
    return _escaped(text, _UNRESERVED).replace("%20", "+")


def _escaped(text: str, plain: frozenset[int]) -> str:
    return "".join(chr(byte) if byte in plain else f"%{byte:02x}" for byte in _utf8(text))


# Forms that equal the text itself fall out as duplicates of its UTF-8.
_ESCAPES: Final[tuple[tuple[str, Callable[[str], str]], ...]] = (
    ("json", _json_escape),
    ("json", _json_quote_only),
    ("html", html.escape),
    ("html", _html_numeric),
    ("html", _html_hexadecimal),
    ("percent", _percent),
    ("percent", _percent_component),
    ("percent", _percent_form),
)


def _base64_cores(data: bytes, alignment: int) -> Iterable[bytes]:
    """The characters that every base64 text holding `data` at this alignment shares, in both alphabets."""
    padded = bytes(alignment) + data
    first = -(-alignment * 8 // 6)
    end = len(padded) * 8 // 6
    if end - first >= _SHORTEST_BASE64:
        yield base64.b64encode(padded)[first:end]
        yield base64.urlsafe_b64encode(padded)[first:end]


def _without_separators(needle: str) -> str | None:
    """A telephone, card or account number as its bare characters; None for any other text."""
    bare = "".join(c for c in needle if c not in _SEPARATORS)
    digits = sum(c.isdigit() for c in bare)
    looks_like_number = bare.isalnum() and digits >= max(_SHORTEST_DIGITS, len(bare) // 2)
    return bare if looks_like_number and bare != needle else None


def _quoted_printable(text: str) -> bytes:
    """As a mail writes it, lines not broken: what is no printable ASCII, and the sign of equality, in two digits."""
    return b"".join(
        bytes([byte]) if 32 <= byte < 127 and byte != ord("=") else b"=%02x" % byte for byte in _utf8(text)
    )


def _folded(name: str, data: bytes) -> Encoding:
    return Encoding(name, data.lower(), "folded", data.lower())


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _distinct(forms: Iterable[Encoding]) -> tuple[Encoding, ...]:
    seen: dict[tuple[bytes, str], Encoding] = {}
    for form in forms:
        seen.setdefault((form.data, form.view), form)
    return tuple(seen.values())
