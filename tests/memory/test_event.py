"""Contents are read and written fast, and exactly as the strict decoder and the one encoder do."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import cbor2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory import event, event_written
from tlog import cbor
from tlog.errors import MalformedError

WRITTEN = {
    "tenant": "acme",
    "agent": "ops",
    "client": "desk",
    "key": "svc/region",
    "value": "eu-west-1",
    "text": "the service runs in eu-west-1",
    "valid_from": 1_900_000_000_000_000,
    "recorded_at": 1_900_000_000_000_001,
    "flags": ["many", "provisional"],
    "canon": 1,
}
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 65), 1 << 65)
    | st.text(max_size=30)
    | st.binary(max_size=30)
)
VALUES = st.recursive(
    PLAIN | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(-5, 300), inner, max_size=4)
        | st.builds(cbor2.CBORTag, st.sampled_from((1, 2, 3, 4, 5, 30, 35, 100, 258, 7777, 55799)), inner)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(sorted(WRITTEN)) | st.text(max_size=4) | st.integers(0, 30)


def strictly(data: bytes) -> dict[str, Any]:
    """What the strict decoder makes of a content."""
    content: Any = cbor.decode(data, max_bytes=event.MAX_CONTENT_BYTES)
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise MalformedError("expected a map with text keys")
    return content


def outcome(act: Any, *arguments: Any) -> Any:
    try:
        return act(*arguments)
    except MalformedError:
        return "malformed"


def same(left: Any, right: Any) -> bool:
    """Equal in value, type and order: 1, 1.0 and True are three."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@given(content=st.dictionaries(NAMES, VALUES, max_size=8))
@example(content=WRITTEN)
@example(content={"b": 1, "aa": 2, "a": 3, "é": 4, "ab": 5})
@example(content={"a": "\ud800"})
@example(content={"a": ["\ud800"], "b": 1 << 64})
@example(content={"flags": ("a", "b")})
@example(content={"b": 1 << 64})
@example(content={"b": -(1 << 64) - 1})
@example(content={"b": -(1 << 64), "c": (1 << 64) - 1})
def test_what_is_written_is_what_the_encoder_writes(content: dict[Any, Any]) -> None:
    given = {name: value for name, value in content.items() if value is not None}
    assert outcome(event.encode_content, content) == outcome(cbor.encode, given)


@settings(max_examples=300)
@given(
    content=st.dictionaries(NAMES, VALUES, max_size=8) | VALUES,
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    cut=st.integers(-3, 3),
    canonical=st.booleans(),
)
@example(content=WRITTEN, changes=[], cut=0, canonical=True)
@example(content={"a": cbor2.CBORTag(2, b"\x01" * 9)}, changes=[], cut=0, canonical=True)
@example(content={"a": 1.0, "b": {}}, changes=[], cut=0, canonical=True)
def test_what_is_read_is_what_the_strict_decoder_reads(
    content: Any, changes: list[tuple[int, int]], cut: int, canonical: bool
) -> None:
    data = bytearray(cbor2.dumps(content, canonical=canonical))
    for place, byte in changes:
        data[place % len(data)] = byte
    given = bytes(data[: len(data) + cut] if cut < 0 else data + bytes(cut))
    assert same(outcome(event.decode_content, given), outcome(strictly, given))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_the_strict_decoder_reads_them(data: bytes) -> None:
    for whole in (data, b"\xa1\x61a" + data, b"\xbf\x61a" + data + b"\xff"):
        assert same(outcome(event.decode_content, whole), outcome(strictly, whole))


@pytest.mark.parametrize(
    "data",
    [
        b"\xa2\x62aa\x01\x61b\x02",  # keys out of order
        b"\xa2\x61a\x01\x61a\x02",  # a key twice
        b"\xa1\x61a\x18\x01",  # not the shortest form
        b"\xa1\x78\x01a\x01",
        b"\xbf\x61a\x01\xff",  # an indefinite length
        b"\xa1\x61a\xc1\x01",  # a tag
        b"\xa1\x61a\xc2\x49" + b"\x01" * 9,  # an integer beyond 64 bits
        b"\xa1\x61a\xf9\x3c\x00",  # a float
        b"\xa1\x61a\xf7",  # undefined
        b"\xa1\x61a\x61\xff",  # no UTF-8
        b"\xa1\x01\x01",  # a key that is no text
        b"\xa1\x61a\x01\x00",  # bytes after the value
        b"\xa1\x61a",  # cut
        b"\x81\x01",  # no map
        b"",
        b"\xa1\x61a" + b"\x81" * 17 + b"\x01",  # too deep
    ],
)
def test_rejects_what_is_not_deterministic(data: bytes) -> None:
    with pytest.raises(MalformedError):
        event.decode_content(data)


def test_rejects_more_than_a_content_may_have() -> None:
    data = event.encode_content({"text": "x" * event.MAX_CONTENT_BYTES})
    with pytest.raises(MalformedError, match="at most"):
        event.decode_content(data)


def test_gives_a_map_of_its_own() -> None:
    data = event.encode_content(WRITTEN)
    first = event.decode_content(data)
    assert list(first) == sorted(WRITTEN, key=lambda name: (len(name), name))
    first["text"] = "changed"
    assert event.decode_content(data)["text"] == WRITTEN["text"]


def test_a_commitment_is_of_the_arrays_that_the_page_says() -> None:
    """The messages are put together by hand; here by the encoder."""
    link, link_salt, content, content_salt = b"\xa0", b"l" * 32, event.encode_content(WRITTEN), b"c" * 32

    def hashed(tag: str, salt: bytes, item: Any) -> bytes:
        return hashlib.sha256(cbor.encode([tag, salt, item])).digest()

    made = event.commit(link, link_salt, content, content_salt)
    link_digest, content_digest = hashed("link", link_salt, {}), hashed("content", content_salt, WRITTEN)
    assert (made.link_hash, made.content_hash) == (link_digest, content_digest)
    assert made.commitment == hashlib.sha256(cbor.encode([1, link_digest, content_digest])).digest()


# Links: those of most writes are put together, and read by a pattern


def by_the_rules(data: bytes) -> event.Link:
    """What the strict decoder and the one encoder make of a link."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_written, "_PATTERN", re.compile(b"(?!)"))
        patch.setattr(event_written, "_TOLD", {})
        return event.decode_link(data)


LINKS = st.builds(
    event.Link,
    kind=st.sampled_from(("write", "retract")),
    seq=st.integers(1, 1 << 40) | st.integers(1, 300),
    tenant=st.binary(min_size=16, max_size=16),
    tenant_seq=st.integers(1, 1 << 33) | st.sampled_from((23, 24, 255, 256, 65535, 65536)),
    acts=st.dictionaries(
        st.sampled_from(("retires", "confirms")),
        st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=2).map(tuple),
        max_size=2,
    ),
    details=st.fixed_dictionaries(
        {"outcome": st.sampled_from(("stored", "superseded", "history", "held", "refused"))},
        optional={"reason": st.just("retired")},
    ),
)


@given(LINKS)
def test_a_link_is_written_as_the_one_encoder_writes_it_and_read_so(link: event.Link) -> None:
    data = link.encode()
    acts = {name: list(targets) for name, targets in link.acts.items()}
    numbers = {"kind": link.kind, "seq": link.seq, "tenant": link.tenant, "tenant_seq": link.tenant_seq}
    assert data == cbor.encode({**numbers, **link.details, **({"acts": acts} if acts else {})})
    assert event.decode_link(data) == by_the_rules(data) == link


@given(LINKS, st.integers(0, 200), st.binary(max_size=2), st.integers(0, 3))
def test_a_link_with_a_change_is_read_as_the_strict_decoder_reads_it(
    link: event.Link, at: int, put: bytes, instead_of: int
) -> None:
    data = link.encode()
    changed = data[: at % len(data)] + put + data[at % len(data) + instead_of :]
    assert outcome(event.decode_link, changed) == outcome(by_the_rules, changed)


def test_the_link_of_a_plain_write_needs_no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    link = event.Link("write", 300, b"t" * 16, 24, {"retires": (b"c" * 32,)}, {"outcome": "superseded"})
    data = link.encode()
    monkeypatch.setattr(event.cbor, "decode", None)
    assert event.decode_link(data) == link


@pytest.mark.parametrize(
    "parts",
    [
        {"seq": 0},
        {"tenant_seq": 0},
        {"seq": True},
        {"seq": 1 << 64},
        {"tenant": b"t" * 15},
        {"tenant": "t" * 16},
        {"details": {"color": "stored"}},
    ],
)
def test_the_link_of_a_plain_write_is_checked_like_any_other(parts: dict[str, Any]) -> None:
    link = event.Link("write", 300, b"t" * 16, 24, {}, {"outcome": "stored"})
    with pytest.raises(MalformedError):
        link._replace(**parts).encode()


@pytest.mark.parametrize(
    "number", ["00", "1805", "1817", "190005", "1900ff", "1a00000005", "1a0000ffff", "1b0000000000000005"]
)
@pytest.mark.parametrize("name", ["seq", "tenant_seq"])
def test_a_number_of_a_link_has_its_one_form(name: str, number: str) -> None:
    link = event.Link("write", 5, b"t" * 16, 5, {}, {"outcome": "stored"})
    data = link.encode().replace(cbor.encode(name) + b"\x05", cbor.encode(name) + bytes.fromhex(number))
    with pytest.raises(MalformedError):
        event.decode_link(data)
