"""The one deterministic CBOR encoder and the one strict, bounded decoder.

What is hashed or signed has exactly one encoding: RFC 8949, 4.2.1 (core deterministic encoding), cut down to
integers of 64 bits, text, byte strings, arrays, maps with integer or text keys, true, false and null. There
are no floating point numbers, and no tag but the one a caller asks for by number. Map keys stand in bytewise
order of their encodings; cbor2's `canonical=True` is not used because it sorts by length first (RFC 7049).

The decoder accepts what the encoder writes and nothing else, so a decoded value always encodes to the very
bytes it was read from, and one signature cannot be shown under two encodings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import cbor2

from tlog.errors import MalformedError

Value = int | str | bytes | bool | None | list["Value"] | dict[int | str, "Value"]
"""What `decode` returns: plain values in plain lists and dicts."""

MAX_DEPTH: Final = 16
MAX_ITEMS: Final = 1 << 21
"""Values in one message: a hundred megabytes of empty arrays would be gigabytes of lists."""
_WORD: Final = 1 << 64
# The smallest argument that may stand in 1, 2, 4 or 8 bytes: anything less has a shorter form.
_SHORTEST: Final = (24, 1 << 8, 1 << 16, 1 << 32)
_SIMPLE: Final[Mapping[int, bool | None]] = {0xF4: False, 0xF5: True, 0xF6: None}


def encode(value: object) -> bytes:
    """The deterministic encoding of `value`. Tuples are written as arrays.

    Raises MalformedError for a float, an integer beyond 64 bits, another type, or nesting past MAX_DEPTH.
    """
    ordered = _ordered(value, MAX_DEPTH)
    try:
        return cbor2.dumps(ordered)
    except (UnicodeEncodeError, cbor2.CBOREncodeError):
        raise MalformedError("a text to encode is not valid Unicode") from None


def encode_tagged(tag: int, value: object) -> bytes:
    """The deterministic encoding of `value` under one tag number."""
    return head(6, tag) + encode(value)


def head(major: int, argument: int) -> bytes:
    """The shortest head of a major type with this argument (RFC 8949, 3)."""
    if argument < 24:
        return bytes((major << 5 | argument,))
    if argument < 1 << 8:
        return bytes((major << 5 | 24, argument))
    if argument < 1 << 16:
        return bytes((major << 5 | 25,)) + argument.to_bytes(2, "big")
    if argument < 1 << 32:
        return bytes((major << 5 | 26,)) + argument.to_bytes(4, "big")
    return bytes((major << 5 | 27,)) + argument.to_bytes(8, "big")


def byte_string(data: bytes) -> bytes:
    """The encoding of one byte string, for messages of fixed shape that are put together by hand."""
    return head(2, len(data)) + data


def decode(data: bytes, *, max_bytes: int, max_depth: int = MAX_DEPTH, max_items: int = MAX_ITEMS) -> Value:
    """The one value that `data` encodes deterministically; arrays come back as lists, maps as dicts.

    Raises MalformedError for more than `max_bytes` or `max_items` values, bytes after the value, any encoding that
    `encode` would not have written, duplicate or unsorted keys, tags, floats, and nesting past `max_depth`.
    """
    _require_size(data, max_bytes, max_items)
    return _whole(data, 0, max_depth)


def decode_tagged(tag: int, data: bytes, *, max_bytes: int, max_depth: int = MAX_DEPTH) -> Value:
    """The one value that `data` holds under this tag number, as strictly as `decode`."""
    _require_size(data, max_bytes)
    expected = head(6, tag)
    if not data.startswith(expected):
        raise MalformedError(f"CBOR: expected tag {tag} in its shortest form")
    return _whole(data, len(expected), max_depth)


def _require_size(data: bytes, max_bytes: int, max_items: int = MAX_ITEMS) -> None:
    if type(data) is not bytes:
        raise MalformedError("CBOR: expected bytes")
    if len(data) > max_bytes:
        raise MalformedError(f"CBOR: expected at most {max_bytes} bytes", size_bytes=len(data))
    if len(data) > max_items:
        _require_few(data, max_items)


def _require_few(data: bytes, max_items: int) -> None:
    """Returns unless large data is of too many values, told by their heads alone: nothing is made of them yet."""
    at = count = 0
    while at < len(data):
        major, info = data[at] >> 5, data[at] & 31
        if info > 27:
            return  # none that this decoder reads on from
        width = 0 if info < 24 else 1 << info - 24
        argument = int.from_bytes(data[at + 1 : at + 1 + width], "big") if width else info
        at += 1 + width + (argument if major in (2, 3) else 0)
        count += 1
        if count > max_items:
            raise MalformedError(f"CBOR: expected at most {max_items} values")


def _whole(data: bytes, at: int, max_depth: int) -> Value:
    try:
        value, end = _item(data, at, max_depth)
    except IndexError:
        raise MalformedError("CBOR: the data ends inside a value") from None
    if end != len(data):
        raise MalformedError(f"CBOR: {len(data) - end} bytes follow the value")
    return value


def _item(data: bytes, at: int, depth: int) -> tuple[Value, int]:
    """The value at `at` and the offset behind it; IndexError where the data ends early."""
    first = data[at]
    major = first >> 5
    if major == 7:
        if first not in _SIMPLE:
            raise MalformedError(f"CBOR: expected true, false or null at byte {at}, no float")
        return _SIMPLE[first], at + 1
    argument, at = _argument(data, at)
    if major == 0:
        return argument, at
    if major == 1:
        return -1 - argument, at
    if major == 2:
        return _span(data, at, argument), at + argument
    if major == 3:
        return _text(data, at, argument), at + argument
    if major == 6:
        raise MalformedError(f"CBOR: tag {argument} is not allowed here")
    if depth == 0:
        raise MalformedError("CBOR: nested too deeply")
    if major == 4:
        return _array(data, at, argument, depth - 1)
    return _map(data, at, argument, depth - 1)


def _argument(data: bytes, at: int) -> tuple[int, int]:
    info = data[at] & 31
    if info < 24:
        return info, at + 1
    if info > 27:
        # RFC 8949, 4.2.1: no indefinite lengths; 28 to 30 are reserved.
        raise MalformedError(f"CBOR: indefinite or reserved length at byte {at}")
    end = at + 1 + (1 << info - 24)
    if end > len(data):
        raise IndexError
    argument = int.from_bytes(data[at + 1 : end], "big")
    if argument < _SHORTEST[info - 24]:
        raise MalformedError(f"CBOR: not the shortest form at byte {at}")
    return argument, end


def _span(data: bytes, at: int, size: int) -> bytes:
    # Compared before anything is sliced: a declared length never causes an allocation.
    if size > len(data) - at:
        raise IndexError
    return data[at : at + size]


def _text(data: bytes, at: int, size: int) -> str:
    try:
        return _span(data, at, size).decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedError(f"CBOR: a text at byte {at} is not UTF-8") from None


def _array(data: bytes, at: int, count: int, depth: int) -> tuple[list[Value], int]:
    if count > len(data) - at:
        raise IndexError
    items: list[Value] = []
    for _ in range(count):
        item, at = _item(data, at, depth)
        items.append(item)
    return items, at


def _map(data: bytes, at: int, count: int, depth: int) -> tuple[dict[int | str, Value], int]:
    if 2 * count > len(data) - at:
        raise IndexError
    entries: dict[int | str, Value] = {}
    previous = b""
    for _ in range(count):
        start = at
        if data[at] >> 5 not in (0, 1, 3):
            # A bool or float key would equal an integer one in Python and shadow it.
            raise MalformedError(f"CBOR: expected an integer or text key at byte {at}")
        key, at = _item(data, at, depth)
        encoded = data[start:at]
        if encoded <= previous:
            raise MalformedError(f"CBOR: a key at byte {start} is repeated or out of bytewise order")
        previous = encoded
        assert isinstance(key, int | str)
        entries[key], at = _item(data, at, depth)
    return entries, at


def _ordered(value: object, depth: int) -> object:
    """`value` with every map in bytewise order of its encoded keys, every type and range checked."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bool or value is None:
        return value
    if kind is int:
        assert isinstance(value, int)
        if not -_WORD <= value < _WORD:
            raise MalformedError("CBOR: an integer to encode does not fit in 64 bits")
        return value
    if kind is list or kind is tuple:
        assert isinstance(value, Sequence)
        return [_ordered(item, _deeper(depth)) for item in value]
    if kind is dict:
        assert isinstance(value, dict)
        below = _deeper(depth)
        return {key: _ordered(value[key], below) for key in sorted(value, key=_key_order)}
    raise MalformedError(f"CBOR: no encoding for a value of type {kind.__name__}")


def _deeper(depth: int) -> int:
    if depth == 0:
        raise MalformedError("CBOR: nested too deeply to encode")
    return depth - 1


def _key_order(key: object) -> tuple[int, int, bytes]:
    """A sort key that puts map keys in bytewise order of their encodings (RFC 8949, 4.2.1).

    Within one major type the head grows with its argument, so type, argument, then bytes is that order.
    """
    if type(key) is int:
        return (0, key, b"") if key >= 0 else (1, -1 - key, b"")
    if type(key) is str:
        try:
            text = key.encode("utf-8")
        except UnicodeEncodeError:
            raise MalformedError("a text to encode is not valid Unicode") from None
        return 3, len(text), text
    raise MalformedError(f"CBOR: expected an integer or text key, got {type(key).__name__}")
