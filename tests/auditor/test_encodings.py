"""Every form in which a text may lie in a file is among the forms that are searched."""

from __future__ import annotations

import base64
import html
import json
import unicodedata
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from auditor.encodings import DROPPED, SHORTEST_NEEDLE, encodings_of, is_plain

NAME = "Ána Müller-Berg"


def found(needle: str | bytes, data: bytes) -> set[str]:
    """The names of the forms that are in `data`, searched as the scanner does."""
    lowered = data.lower()
    return {
        form.name
        for form in encodings_of(needle)
        if form.view in ("exact", "folded") and form.data in (lowered if form.view == "folded" else data)
    }


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("utf-8", NAME.encode()),
        ("utf-8", NAME.upper().encode()),
        ("utf-8", NAME.lower().encode()),
        ("utf-8", "áNA MüLLeR-bERG".encode()),
        ("utf-8", unicodedata.normalize("NFD", NAME).encode()),
        ("utf-16le", NAME.encode("utf-16-le")),
        ("utf-16be", NAME.encode("utf-16-be")),
        ("json", json.dumps(NAME).encode()),
        ("json", json.dumps(NAME).upper().encode()),
        ("html", html.escape(NAME).encode("ascii", "xmlcharrefreplace")),
        ("html", b"&#xC1;na M&#xFC;ller-Berg"),
        ("percent", quote(NAME).encode()),
        ("percent", quote_plus(NAME).encode()),
        ("percent", quote(NAME).lower().encode()),
        ("hex", NAME.encode().hex().encode()),
        ("hex", NAME.encode().hex().upper().encode()),
    ],
)
def test_finds_the_form(form: str, data: bytes) -> None:
    assert form in found(NAME, b"<" + data + b">")


@pytest.mark.parametrize("before", [b"", b"x", b"xy", b"xyz"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_finds_base64_at_every_alignment(before: bytes, encode: object) -> None:
    data = encode(before + NAME.encode() + b"?>~")  # type: ignore[operator]
    assert f"base64, alignment {len(before) % 3}" in found(NAME, data)


@pytest.mark.parametrize(
    ("needle", "data"),
    [
        ("+49 170 / 123-4567", b"491701234567"),
        ("DE89 3704 0044 0532 0130 00", b"de89370400440532013000"),
        ("4111-1111-1111-1111", b"4111111111111111"),
    ],
)
def test_finds_a_number_without_its_separators(needle: str, data: bytes) -> None:
    assert "separators removed" in found(needle, data)


@pytest.mark.parametrize("needle", ["at 10:30 on 2026-01-05 we met", "Anna Berg", "v1.2.3"])
def test_other_texts_are_not_taken_for_numbers(needle: str) -> None:
    assert not any(form.name == "separators removed" for form in encodings_of(needle))


@pytest.mark.parametrize("needle", ["", "   ", "abc", " ab ", "0===", b"", b"abc"])
def test_a_short_needle_is_not_searchable(needle: str | bytes) -> None:
    assert encodings_of(needle) == ()


def test_bytes_are_searched_as_they_are_and_encoded() -> None:
    salt = bytes(range(200, 232))
    assert found(salt, b"-" + salt) == {"bytes"}
    assert found(salt, salt.hex().upper().encode()) == {"hex"}
    assert found(salt, base64.b64encode(salt)) == {"base64, alignment 0"}
    # Bytes are exact: lower-casing them would find what is not there.
    assert found(b"\x00ABCD\x00", b"\x00abcd\x00") == set()


def test_a_lone_surrogate_is_searched_like_any_text() -> None:
    assert "utf-8" in found("abc\ud800def", "abc\ud800def".encode("utf-8", "surrogatepass"))


def is_long_enough(text: str) -> bool:
    """Whether there are four characters, and two bytes of other than white space and signs of equality."""
    told = text.encode("utf-8", "surrogatepass").translate(None, DROPPED)
    return len(text.strip()) >= SHORTEST_NEEDLE and len(told) >= 2


@given(st.text(min_size=SHORTEST_NEEDLE, max_size=30).filter(is_long_enough))
@example("00==")
@settings(max_examples=200, deadline=None)
def test_each_text_is_found_in_each_plain_encoding(text: str) -> None:
    assert "utf-8" in found(text, text.encode("utf-8", "surrogatepass"))
    assert found(text, text.encode("utf-16-le", "surrogatepass"))
    assert found(text, json.dumps(text).encode())
    assert found(text, quote(text.encode("utf-8", "surrogatepass"), safe="").encode())


@given(st.binary(min_size=6, max_size=40), st.binary(max_size=5), st.binary(max_size=5))
@settings(max_examples=200, deadline=None)
def test_each_bytes_are_found_in_base64_wherever_they_stand(data: bytes, before: bytes, after: bytes) -> None:
    assert found(data, base64.b64encode(before + data + after))


def test_each_form_comes_once() -> None:
    forms = [(form.data, form.view) for form in encodings_of(NAME)]
    assert len(forms) == len(set(forms))


def test_only_the_text_itself_is_plain() -> None:
    assert is_plain("utf-8")
    assert not is_plain("hex")
    assert not is_plain("compressed, utf-8")
