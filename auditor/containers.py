"""What is packed within bytes, opened: gzip, zlib, zstd, zip, bzip2, xz and lzma, wherever they begin.

A zip is read by the headers in front of its members, not by the list at its end, which may leave one out. What is
known to be packed and is not opened (7z, rar, lz4, lzip, lzo, snappy, compress, an encrypted zip, what goes on past a
bound or is damaged) is told, for who searches it has not searched that.
"""

from __future__ import annotations

import bz2
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

MAX_STREAM_BYTES: Final = 32 * 1024 * 1024
"""How much of one packed stream is looked at."""
MAX_OPENED_BYTES: Final = 256 * 1024 * 1024
"""How much is unpacked for one file, so that a bomb costs a bounded time."""
MAX_DEPTH: Final = 4
"""How many packings around each other are opened."""
_MEMORY_BYTES: Final = 128 * 1024 * 1024
_PIECE_BYTES: Final = 1024 * 1024
_PROBE_BYTES: Final = 4096
_SURE_BYTES: Final = 4096
"""What came out of a stream of few marks before it broke: from here on it was one, and is damaged."""
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_STARTS: Final = {
    b"\x1f\x8b\x08": re.compile(rb"...[\x00-\x1f]", re.DOTALL),
    b"PK\x03\x04": re.compile(rb"....[\x0a-\x3f]\x00", re.DOTALL),
    b"BZh": re.compile(rb"...[1-9]1AY&SY"),
    b"\xfd7zXZ\x00": None,
    _ZSTD: None,
    b"7z\xbc\xaf\x27\x1c": None,
    b"Rar!\x1a\x07": None,
    b"\x04\x22\x4d\x18": re.compile(rb"....[\x40-\x7f]", re.DOTALL),
    b"\x02\x21\x4c\x18": None,
    b"LZIP\x01": None,
    b"\x89LZO\x00\x0d\x0a\x1a\x0a": None,
    b"\xff\x06\x00\x00sNaPpY": None,
    b"MSCF\x00\x00\x00\x00": None,
}
"""What something packed begins with, and how that goes on where the beginning alone is too short."""
_ZLIB: Final = tuple(
    bytes((method, flags))
    for method in range(0x08, 0x88, 0x10)
    for flags in range(256)
    if not flags & 0x20 and (method << 8 | flags) % 31 == 0
)
"""The two bytes in front of a zlib stream, for each size of its window."""
START_BYTES: Final = 16
"""How many bytes tell whether something packed may begin."""
_AT_FRONT: Final = re.compile(rb"\x1f[\x9d\xa0]|\x5d\x00\x00")
"""Beginnings that are too short to be looked for anywhere but in front."""
_CLOSED: Final = (
    *(
        b"7z\xbc\xaf",
        b"Rar!",
        b"\x04\x22\x4d\x18",
        b"\x02\x21\x4c\x18",
        b"LZIP",
        b"\x89LZO",
        b"\xff\x06",
        b"MSCF",
    ),
    *(b"\x1f\x9d", b"\x1f\xa0"),
)
_ZIP: Final = b"PK\x03\x04"
_ZIP_HEADER_BYTES: Final = 30
_STORED, _DEFLATED, _BZIP2, _LZMA = 0, 8, 12, 14
_METHODS: Final = frozenset(
    {0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 14, 16, 18, 19, 20, 93, 94, 95, 96, 97, 98, 99}
)
_ENCRYPTED: Final = 1
_STORED_BLOCK, _FIXED_BLOCK, _DYNAMIC_BLOCK = 0, 1, 2
_DEFLATE_HEADER_BYTES: Final = 12
_ZSTD_RESERVED: Final = 0x08
_ZSTD_BLOCK_BYTES: Final = 128 * 1024

Read = Callable[[int, int], bytes]
"""Bytes from an offset on, at most so many; fewer at the end."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What came out of a stream, and whether that was all that there is in it."""

    data: bytes
    whole: bool


def starts_in(window: bytes, *, front: bool) -> Iterator[int]:
    """Where in a part of a file something packed may begin; `front` if it is the first part."""
    if front and _AT_FRONT.match(window):
        yield 0
    for begin, end in _marks()(window):
        mark = window[begin:end]
        if mark in _STARTS:
            rest = _STARTS[mark]
            if rest is None or rest.match(window, begin):
                yield begin
        elif _may_be_deflate(window[end : end + _DEFLATE_HEADER_BYTES]):
            yield begin


@cache
def _marks() -> Callable[[bytes], list[tuple[int, int]]]:
    """What finds the marks, no two of which overlap."""
    from ahocorasick_rs import BytesAhoCorasick, MatchKind

    # Leftmost alone is quick: the processor looks at many bytes at once.
    automaton = BytesAhoCorasick([*_STARTS, *_ZLIB], matchkind=MatchKind.LeftmostFirst)
    return lambda data: [match[1:] for match in automaton.find_matches_as_indexes(data)]


def _may_be_deflate(block: bytes) -> bool:
    """Whether the first block of a stream may be one: most bytes that look like its mark are told by it."""
    if len(block) < _DEFLATE_HEADER_BYTES:
        return True
    kind = block[0] >> 1 & 3
    if kind == _STORED_BLOCK:
        return block[1] ^ block[3] == block[2] ^ block[4] == 0xFF
    if kind != _DYNAMIC_BLOCK:
        return kind == _FIXED_BLOCK
    bits = int.from_bytes(block, "little")
    if bits >> 3 & 31 > 29 or bits >> 8 & 31 > 29:
        return False
    # Lengths of the code of lengths, of three bits each, which have to fill it.
    filled = 0
    for place in range((bits >> 13 & 15) + 4):
        length = bits >> 17 + 3 * place & 7
        filled += 128 >> length if length else 0
    return filled == 128


def open_stream(read: Read, offset: int, limit: int) -> Opened | None:
    """What is packed at the offset, up to a limit; None if there is nothing packed after all."""
    header = read(offset, 64)
    if header.startswith(_CLOSED):
        return Opened(b"", whole=False)
    if header.startswith(_ZSTD):
        return _unpack(read, offset, limit, _zstd(), sure=True) if _is_zstd(header) else None
    if header.startswith(_ZIP):
        return _open_member(read, offset, header, limit)
    if header.startswith(b"\x1f\x8b"):
        return _unpack(read, offset, limit, _Inflate(16 + zlib.MAX_WBITS), sure=False)
    if header.startswith(b"BZh"):
        return _unpack(read, offset, limit, _Staged(bz2.BZ2Decompressor()), sure=True)
    if header.startswith(b"\xfd7z"):
        return _unpack(read, offset, limit, _lzma(lzma.FORMAT_XZ), sure=True)
    if header.startswith(b"\x5d\x00\x00"):
        return _unpack(read, offset, limit, _lzma(lzma.FORMAT_ALONE), sure=False)
    return _unpack(read, offset, limit, _Inflate(zlib.MAX_WBITS), sure=False)


def _is_zstd(header: bytes) -> bool:
    """Whether it is a frame, and not bytes that happen to look like its mark."""
    if len(header) < 5 or header[4] & _ZSTD_RESERVED:
        return False
    sizes, single = header[4] >> 6, header[4] >> 5 & 1
    at = 5 + (not single) + (0, 1, 2, 4)[header[4] & 3] + (single, 2, 4, 8)[sizes]
    block = int.from_bytes(header[at : at + 3], "little")
    return len(header) < at + 3 or (block >> 1 & 3 != 3 and block >> 3 <= _ZSTD_BLOCK_BYTES)


def _open_member(read: Read, offset: int, header: bytes, limit: int) -> Opened | None:
    """What a member of a zip holds. One that is only stored stands there to be read as it is."""
    if len(header) < _ZIP_HEADER_BYTES:
        return None
    flags, method = int.from_bytes(header[6:8], "little"), int.from_bytes(header[8:10], "little")
    if method not in _METHODS:
        return None
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    if flags & _ENCRYPTED:
        return Opened(b"", whole=False)
    at = offset + _ZIP_HEADER_BYTES + lengths
    if method == _DEFLATED:
        return _unpack(read, at, limit, _Inflate(-zlib.MAX_WBITS), sure=True)
    if method == _LZMA:
        return _open_lzma_member(read, at, limit)
    # A member in bzip2 has a beginning of its own, which is found like any.
    return None if method in (_STORED, _BZIP2) else Opened(b"", whole=False)


def _open_lzma_member(read: Read, at: int, limit: int) -> Opened | None:
    head = read(at, 9)
    size = int.from_bytes(head[2:4], "little")
    if len(head) < 9 or size != 5 or head[4] >= 225 or int.from_bytes(head[5:9], "little") > _MEMORY_BYTES:
        return Opened(b"", whole=False)
    # The bytes of the filter, as a file of its own kind has them, with a size that says that there is an end mark.
    front = head[4:9] + b"\xff" * 8
    unpacker = _lzma(lzma.FORMAT_ALONE)
    unpacker(front, 0)
    return _unpack(read, at + 9, limit, unpacker, sure=True)


class _Inflate:
    """A stream of deflate in the packing that the number of bits says."""

    def __init__(self, bits: int) -> None:
        self._stream = zlib.decompressobj(bits)

    @property
    def ended(self) -> bool:
        return self._stream.eof

    def __call__(self, packed: bytes, limit: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + packed, limit)

    @property
    def hungry(self) -> bool:
        return not self._stream.unconsumed_tail


class _Reader(Protocol):
    """What the readers of the other kinds have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Staged:
    """A stream of the kinds whose reader keeps what it has not used yet, and its own error for what is damaged."""

    def __init__(self, stream: _Reader, error: type[Exception] = EOFError) -> None:
        self._stream, self._error = stream, error

    @property
    def ended(self) -> bool:
        return self._stream.eof

    def __call__(self, packed: bytes, limit: int) -> bytes:
        try:
            return self._stream.decompress(packed, limit)
        except self._error:
            raise ValueError("expected a stream that is whole") from None

    @property
    def hungry(self) -> bool:
        return self._stream.needs_input


def _lzma(kind: int) -> _Staged:
    return _Staged(lzma.LZMADecompressor(kind, memlimit=_MEMORY_BYTES))


def _zstd() -> _Staged:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    bound: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _MEMORY_BYTES.bit_length() - 1}
    return _Staged(zstd.ZstdDecompressor(options=bound), zstd.ZstdError)


def _unpack(read: Read, at: int, limit: int, stream: _Inflate | _Staged, *, sure: bool) -> Opened | None:
    """`sure` if its beginning tells it from everything else: then what breaks is damaged, and not something else."""
    parts: list[bytes] = []
    size, step = 0, _PROBE_BYTES
    while not stream.ended and size < limit:
        packed = read(at, step) if stream.hungry else b""
        if not packed and stream.hungry:
            break  # cut: there is no more of it
        at += len(packed)
        step = _PIECE_BYTES
        try:
            data = stream(packed, min(_PIECE_BYTES, limit - size))
        except (zlib.error, OSError, lzma.LZMAError, EOFError, ValueError):
            return Opened(b"".join(parts), whole=False) if sure or size >= _SURE_BYTES else _rest(parts)
        parts.append(data)
        size += len(data)
    # What is left of a cut stream is all there is of it; other kinds than deflate keep more in it than they give out.
    return Opened(b"".join(parts), whole=stream.ended or (size < limit and not sure))


def _rest(parts: list[bytes]) -> Opened | None:
    return Opened(b"".join(parts), whole=True) if parts else None
