"""tlog.cbor: one encoding per value, and nothing else decodes."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tlog import cbor
from tlog.errors import MalformedError

LIMIT = 1 << 20

# RFC 8949, appendix A: those examples that are in the deterministic subset.
KNOWN = [
    (0, "00"),
    (23, "17"),
    (24, "1818"),
    (100, "1864"),
    (1000, "1903e8"),
    (1000000, "1a000f4240"),
    (1000000000000, "1b000000e8d4a51000"),
    (18446744073709551615, "1bffffffffffffffff"),
    (-18446744073709551616, "3bffffffffffffffff"),
    (-1, "20"),
    (-10, "29"),
    (-100, "3863"),
    (-1000, "3903e7"),
    (False, "f4"),
    (True, "f5"),
    (None, "f6"),
    (b"", "40"),
    (b"\x01\x02\x03\x04", "4401020304"),
    ("", "60"),
    ("IETF", "6449455446"),
    ('"\\', "62225c"),
    ("\u00fc", "62c3bc"),
    ("\u6c34", "63e6b0b4"),
    ("\U00010151", "64f0908591"),
    ([], "80"),
    ([1, [2, 3], [4, 5]], "8301820203820405"),
    (list(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
    ({}, "a0"),
    ({1: 2, 3: 4}, "a201020304"),
    ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
    (["a", {"b": "c"}], "826161a161626163"),
    ({"a": "A", "b": "B", "c": "C"}, "a3616161416162614261636143"),
]

# What means the same in CBOR, or nothing at all, and is refused.
BAD = {
    "empty": "",
    "one byte in two": "1817",
    "two bytes in four": "1900ff",
    "four bytes in eight": "1a0000ffff",
    "eight bytes for a small number": "1b00000000ffffffff",
    "negative not shortest": "3817",
    "text length not shortest": "780161",
    "byte string length not shortest": "580161",
    "array length not shortest": "98010a",
    "map length not shortest": "b8010101",
    "indefinite byte string": "5f4101ff",
    "indefinite text": "7f6161ff",
    "indefinite array": "9f01ff",
    "indefinite map": "bf0101ff",
    "reserved 28": "1c",
    "reserved 29": "5d",
    "reserved 30": "7e",
    "break alone": "ff",
    "bytes after the value": "0000",
    "duplicate keys": "a201010102",
    "keys out of order": "a203000100",
    "length-first order (RFC 7049)": "a22001190100 01".replace(" ", ""),
    "byte string key": "a1410101",
    "bool key": "a1f501",
    "null key": "a1f601",
    "array key": "a1800 1".replace(" ", ""),
    "float16": "f93c00",
    "float32": "fa3f800000",
    "float64": "fb3ff0000000000000",
    "undefined": "f7",
    "simple 0": "e0",
    "simple 255": "f8ff",
    "true in two bytes": "f815",
    "tag 0": "c06161",
    "tag 2, a bignum": "c24101",
    "tag 28, a shared value": "d81c00",
    "tag 35, a regular expression": "d8236161",
    "tag 55799, self-described": "d9d9f700",
    "truncated head": "19",
    "truncated text": "6261",
    "truncated byte string": "4201",
    "truncated array": "8201",
    "truncated map": "a101",
    "invalid UTF-8": "61ff",
    "overlong UTF-8": "62c080",
    "a surrogate in UTF-8": "63eda080",
    "byte string of 2^62 bytes": "5b4000000000000000",
    "array of 2^62 items": "9b4000000000000000",
    "map of 2^62 items": "bb4000000000000000",
}

keys = st.integers(-(2**64), 2**64 - 1) | st.text(max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=15,
)


@pytest.mark.parametrize(("value", "expected"), KNOWN)
def test_known_answers(value: object, expected: str) -> None:
    data = bytes.fromhex(expected)
    assert cbor.encode(value) == data
    assert cbor.decode(data, max_bytes=LIMIT) == value


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_refuses(data: str) -> None:
    with pytest.raises(MalformedError):
        cbor.decode(bytes.fromhex(data), max_bytes=LIMIT)


def test_map_keys_stand_in_bytewise_order() -> None:
    # RFC 8949, 4.2.1: the order of the encodings, in which a long integer comes before a short text.
    encoded = cbor.encode({"a": 1, -70001: 2, -1: 3, 395: 4, 1: 5})
    assert encoded.hex() == "a5010519018b0420033a0001117002616101"
    assert encoded != cbor2.dumps({"a": 1, -70001: 2, -1: 3, 395: 4, 1: 5}, canonical=True)


def test_tuples_are_arrays() -> None:
    assert cbor.encode((1, ("a",))) == cbor.encode([1, ["a"]])


@pytest.mark.parametrize(
    "value",
    [1.0, float("nan"), {1}, bytearray(b"a"), ..., 2**64, -(2**64) - 1, {True: 1}, {b"a": 1}, "\ud800"],
    ids=repr,
)
def test_encodes_nothing_else(value: object) -> None:
    with pytest.raises(MalformedError):
        cbor.encode(value)
    with pytest.raises(MalformedError):
        cbor.encode({"inside": [value]})
    with pytest.raises(MalformedError):
        cbor.encode({"\ud800": 1})


def _nested(levels: int) -> object:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


def test_depth_is_bounded_both_ways() -> None:
    deepest = cbor.encode(_nested(cbor.MAX_DEPTH))
    assert cbor.decode(deepest, max_bytes=LIMIT) == _nested(cbor.MAX_DEPTH)
    with pytest.raises(MalformedError, match="deeply"):
        cbor.encode(_nested(cbor.MAX_DEPTH + 1))
    with pytest.raises(MalformedError, match="deeply"):
        cbor.decode(b"\x81" + deepest, max_bytes=LIMIT)
    with pytest.raises(MalformedError, match="deeply"):
        cbor.decode(b"\x81" * 500_000 + b"\x00", max_bytes=LIMIT)
    with pytest.raises(MalformedError, match="deeply"):
        cbor.decode(bytes.fromhex("a10181a0"), max_bytes=LIMIT, max_depth=2)


def test_a_cycle_is_refused() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(MalformedError):
        cbor.encode(cycle)


def test_size_is_bounded() -> None:
    assert cbor.decode(b"\x41\x00", max_bytes=2) == b"\x00"
    with pytest.raises(MalformedError, match="at most 1 bytes"):
        cbor.decode(b"\x41\x00", max_bytes=1)


def test_only_bytes_are_decoded() -> None:
    with pytest.raises(MalformedError):
        cbor.decode("00", max_bytes=9)  # type: ignore[arg-type]


def test_a_tag_is_read_only_where_it_is_asked_for() -> None:
    assert cbor.decode_tagged(18, b"\xd2\x80", max_bytes=9) == []
    assert cbor.encode_tagged(18, []) == b"\xd2\x80"
    for other in ("80", "d180", "d81280", "d2d280", "d28000", ""):
        with pytest.raises(MalformedError):
            cbor.decode_tagged(18, bytes.fromhex(other), max_bytes=9)


def test_a_declared_length_is_compared_before_anything_is_read() -> None:
    for data in (
        "5b4000000000000000",
        "7b4000000000000000",
        "9b4000000000000000",
        "bb4000000000000000",
        "4201",
    ):
        with pytest.raises(MalformedError, match="ends inside"):
            cbor.decode(bytes.fromhex(data), max_bytes=LIMIT)


def test_errors_never_repeat_content() -> None:
    secret = "a secret text"
    for data in (
        cbor.encode([secret]) + b"\x00",
        cbor.encode({secret: 1})[:-1],
        b"\x82" + cbor.encode(secret),
    ):
        with pytest.raises(MalformedError) as caught:
            cbor.decode(data, max_bytes=LIMIT)
        assert secret not in str(caught.value)


@given(values)
def test_round_trip(value: object) -> None:
    encoded = cbor.encode(value)
    assert cbor.decode(encoded, max_bytes=LIMIT) == value
    assert cbor2.loads(encoded, allow_indefinite=False, allow_duplicate_keys=False) == value


@given(st.dictionaries(keys, st.integers(0, 9), max_size=8))
def test_order_of_insertion_does_not_matter(value: dict[int | str, int]) -> None:
    encoded = cbor.encode(value)
    assert cbor.encode(dict(reversed(value.items()))) == encoded
    decoded = cbor.decode(encoded, max_bytes=LIMIT)
    assert isinstance(decoded, dict)
    assert [cbor.encode(key) for key in decoded] == sorted(cbor.encode(key) for key in value)


@settings(max_examples=300)
@given(st.binary(max_size=40))
@example(bytes.fromhex("a1f501"))
def test_what_decodes_encodes_to_the_same_bytes(data: bytes) -> None:
    try:
        value = cbor.decode(data, max_bytes=LIMIT)
    except MalformedError:
        return
    assert cbor.encode(value) == data


@settings(max_examples=200)
@given(values, st.data())
def test_a_changed_byte_never_decodes_to_the_same_value(value: object, data: st.DataObject) -> None:
    encoded = bytearray(cbor.encode(value))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        other = cbor.decode(bytes(encoded), max_bytes=LIMIT)
    except MalformedError:
        return
    # Compared by encoding: to Python, True equals 1.
    assert cbor.encode(other) == bytes(encoded) != cbor.encode(value)


@pytest.mark.parametrize("item", [b"\x80", b"\x19\x01\x00", b"\x41a", b"\xa1\x01\x02"])
def test_many_values_are_counted_before_any_is_made(item: bytes) -> None:
    count = 1000
    data = cbor.head(4, count) + count * item
    whole = 1 + count * (3 if item[0] == 0xA1 else 1)
    assert cbor.encode(cbor.decode(data, max_bytes=LIMIT, max_items=whole)) == data
    with pytest.raises(MalformedError, match=f"at most {whole - 1} values"):
        cbor.decode(data, max_bytes=LIMIT, max_items=whole - 1)
    # What is one value is one, however long it is.
    assert cbor.decode(cbor.encode(bytes(5000)), max_bytes=LIMIT, max_items=1) == bytes(5000)
