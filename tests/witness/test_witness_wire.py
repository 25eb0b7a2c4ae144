from __future__ import annotations

import base64
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlog.errors import MalformedError
from tlog.note import format_note, parse_note
from witness.wire import (
    MAX_BODY_BYTES,
    format_add_checkpoint,
    format_conflict,
    format_cosignatures,
    origin_digest,
    parse_add_checkpoint,
    parse_conflict,
    parse_cosignatures,
)

# The example of C2SP tlog-witness; its hashes and signatures belong to nothing, its form is right.
EXAMPLE = """old 20852014
PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=
jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=
5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=
/6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=

example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

\u2014 example.com/behind-the-sofa \
Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
""".encode()
HASH = b"PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=\n"
NOTE = EXAMPLE.partition(b"\n\n")[2]


def test_reads_the_example_of_the_specification() -> None:
    request = parse_add_checkpoint(EXAMPLE)
    assert (request.old_size, len(request.proof)) == (20852014, 4)
    assert (request.checkpoint.origin, request.checkpoint.size) == ("example.com/behind-the-sofa", 20852163)
    assert request.proof[0] == base64.b64decode(HASH)
    assert format_add_checkpoint(request.old_size, request.proof, request.note) == EXAMPLE


def test_reads_a_request_without_proof_and_one_with_the_longest() -> None:
    assert parse_add_checkpoint(b"old 0\n\n" + NOTE).proof == ()
    assert len(parse_add_checkpoint(b"old 1\n" + HASH * 63 + b"\n" + NOTE).proof) == 63


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n\n",
        b"old 0\n",
        b"old 0\n\n",
        b"old 0\n\nhello\n",
        b"hello\n\n" + NOTE,
        b"old\n\n" + NOTE,
        b"old \n\n" + NOTE,
        b"old  5\n\n" + NOTE,
        b"old 5 \n\n" + NOTE,
        b"old\t5\n\n" + NOTE,
        b"old 05\n\n" + NOTE,
        b"old +5\n\n" + NOTE,
        b"old -0\n\n" + NOTE,
        b"old 5junk\n\n" + NOTE,
        b"old 1_000\n\n" + NOTE,
        "old \u0667\n\n".encode() + NOTE,
        b"old 9223372036854775808\n\n" + NOTE,
        b"old 18446744073709551616\n\n" + NOTE,
        b"size 5\n\n" + NOTE,
        b"\nold 5\n\n" + NOTE,
        b"old 5\r\n\r\n" + NOTE.replace(b"\n", b"\r\n"),
        b"old 5\n" + HASH * 64 + b"\n" + NOTE,
        b"old 5\n" + b"A" * 5000 + b"\n\n" + NOTE,
        b"old 5\n" + HASH[:-2] + b"\n\n" + NOTE,
        b"old 5\n" + b"AAAA\n" + b"\n" + NOTE,
        b"old 5\n" + b" " + HASH + b"\n" + NOTE,
        # The same 32 bytes with other unused bits: another spelling of one hash.
        b"old 5\n" + HASH.replace(b"kaw=", b"kax=") + b"\n" + NOTE,
        b"old 5\n\n" + NOTE.replace(b"q2I=", b"q2J="),
        b"old 5\n\n" + NOTE[:-1],
        b"old 5\n\n" + NOTE + b"\n",
        b"old 5\n\n" + NOTE.replace(b"20852163", b"020852163"),
        b"old 5\n\n" + NOTE.replace(b"20852163", b"9223372036854775808"),
        b"old 5\n\n" + NOTE.replace(b"sofa\n", b"sofa\xff\n", 1),
        b"old 5\n\n" + NOTE.replace(b"sofa\n", b"sofa\0\n", 1),
    ],
)
def test_refuses_malformed_requests(body: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_add_checkpoint(body)


def test_refuses_extension_lines() -> None:
    extended = NOTE.replace(b"q2I=\n", b"q2I=\nextension\n")
    assert parse_note(extended)  # the note as such is well formed
    with pytest.raises(MalformedError, match="extension"):
        parse_add_checkpoint(b"old 5\n\n" + extended)


def test_holds_sixteen_mldsa_signatures_and_no_more_than_the_limit() -> None:
    lines = [
        f"\u2014 witness.example/{i:03d} ".encode() + base64.b64encode(bytes([i]) * 2432) + b"\n"
        for i in range(16)
    ]
    body = b"old 5\n" + HASH * 63 + b"\n" + NOTE + b"".join(lines)
    assert len(parse_add_checkpoint(body).note.signatures) == 17
    assert len(body) < MAX_BODY_BYTES
    with pytest.raises(MalformedError) as caught:
        parse_add_checkpoint(body + b"".join(lines) * 4)
    assert caught.value.code == "too_large"


hashes = st.lists(st.binary(min_size=32, max_size=32), max_size=63)


@given(st.integers(0, 2**63 - 1), hashes)
def test_every_request_reads_back(old_size: int, proof: list[bytes]) -> None:
    note = parse_note(NOTE)
    request = parse_add_checkpoint(format_add_checkpoint(old_size, proof, note))
    assert (request.old_size, request.proof, request.note) == (old_size, tuple(proof), note)


@settings(max_examples=200)
@given(st.integers(0, len(EXAMPLE) - 1), st.integers(1, 255))
def test_no_changed_byte_reads_as_the_same_request(position: int, flip: int) -> None:
    body = bytearray(EXAMPLE)
    body[position] ^= flip
    try:
        request = parse_add_checkpoint(bytes(body))
    except MalformedError:
        return
    assert request != parse_add_checkpoint(EXAMPLE)
    assert format_add_checkpoint(request.old_size, request.proof, request.note) == body


@given(st.binary(max_size=200))
def test_garbage_is_malformed_and_nothing_worse(body: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_add_checkpoint(body)


@given(st.integers(0, 2**63 - 1))
def test_every_conflict_reads_back(size: int) -> None:
    assert parse_conflict("text/x.tlog.size", format_conflict(size)) == size


@pytest.mark.parametrize("content_type", ["text/x.tlog.size", "Text/X.Tlog.Size; charset=utf-8"])
def test_reads_a_conflict_of_the_right_type(content_type: str) -> None:
    assert parse_conflict(content_type, b"20\n") == 20


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/plain", b"5\n"),
        ("", b"5\n"),
        *(
            ("text/x.tlog.size", body)
            for body in (
                b"",
                b"\n",
                b"5",
                b"55",
                b" 5\n",
                b"5 \n",
                b"05\n",
                b"+5\n",
                b"-1\n",
                b"5\r\n",
                b"5\n\n",
                b"5\n5\n",
                b"5x\n",
                b"9223372036854775808\n",
                "\u0665\n".encode(),
                b"1" * 5000 + b"\n",
            )
        ),
    ],
)
def test_refuses_malformed_conflicts(content_type: str, body: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_conflict(content_type, body)


def test_cosignatures_read_back(log: Any) -> None:
    lines = log.note(3).signatures
    assert parse_cosignatures(format_cosignatures(lines)) == lines
    assert format_note(log.note(3)).endswith(format_cosignatures(lines))


@pytest.mark.parametrize("body", [b"", b"\n", b"hello\n", b"\xff\n", b"x" * 70000, NOTE])
def test_refuses_malformed_cosignatures(body: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_cosignatures(body)


def test_origin_digest_is_that_of_a_deployed_log() -> None:
    digest = origin_digest("rome2026h1.example.org")
    assert digest.hex() == "000de184301123b9278c086a7d9f68c9577e83872224c197058fd90784ea9706"
    assert digest == sha256(b"rome2026h1.example.org").digest()
