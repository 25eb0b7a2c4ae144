"""C2SP tlog-cosignature: the signed bytes, and which lines hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlog.cosignature import (
    cosigned_message,
    cosigned_message_ed25519,
    cosigned_message_mldsa44,
    make_cosignature_line,
    verify_cosignature,
    verify_log_line,
)
from tlog.errors import MalformedError, VerificationError
from tlog.note import SignatureLine, SignatureType, known_lines, make_verifier_key, parse_note, parse_vkey

TEXT = "log.example/test\n25\nIu08wWceprUSFI2H31Iorbup5qTFUc5rNvCzycG1Kjg=\n"
OTHER_TEXT = TEXT.replace("25", "26")
ROOT = bytes(range(32))
KINDS = (SignatureType.COSIGNATURE_ED25519, SignatureType.MLDSA44)


@pytest.fixture(scope="module", params=KINDS, ids=["ed25519", "mldsa44"])
def witness(request: pytest.FixtureRequest, seed_signer: Callable[..., Any]) -> Any:
    return seed_signer("w.example/one", request.param, 1)


# The signed bytes


def test_own_cosignatures(vectors: Path) -> None:
    known = json.loads((vectors / "checkpoints/vectors.json").read_text())
    keys = [parse_vkey(known[name]["vkey"]) for name in ("witness_ed25519", "witness_mldsa44")]
    for size, expected in known["checkpoints"].items():
        note = parse_note((vectors / f"checkpoints/checkpoint-{size}.note").read_bytes())
        time = expected["time"]
        assert cosigned_message(keys[0], time, note.text).hex() == expected["ed25519_cosig_message_hex"]
        assert cosigned_message(keys[1], time, note.text).hex() == expected["mldsa_message_hex"]
        lines = known_lines(note, keys)
        assert len(lines) == 2
        for line in lines:
            assert verify_cosignature(line.key, line.line, note.text).timestamp == time


def test_message_of_the_specification() -> None:
    text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    assert cosigned_message_ed25519(1679315147, text) == b"cosignature/v1\ntime 1679315147\n" + text.encode()


def test_mldsa44_message_byte_by_byte() -> None:
    message = cosigned_message_mldsa44("w", 258, "log", 0, 513, ROOT)
    assert message == (
        b"subtree/v1\n\0"
        + b"\x01w"
        + b"\0\0\0\0\0\0\x01\x02"
        + b"\x03log"
        + bytes(8)
        + bytes(6)
        + b"\x02\x01"
        + ROOT
    )
    assert len(message) == 12 + 2 + 8 + 4 + 8 + 8 + 32


def test_ed25519_covers_extension_lines_and_mldsa44_does_not(seed_signer: Callable[..., Any]) -> None:
    extended = TEXT + "extension\n"
    ed25519, mldsa44 = (seed_signer("w.example/one", kind, 1).verifier_key for kind in KINDS)
    assert cosigned_message(ed25519, 1, extended) == b"cosignature/v1\ntime 1\n" + extended.encode()
    assert cosigned_message(mldsa44, 1, extended) == cosigned_message(mldsa44, 1, TEXT)


@pytest.mark.parametrize(
    "parts",
    [
        ("", 1, "log", 0, 1, ROOT),
        ("w", 1, "", 0, 1, ROOT),
        ("w" * 256, 1, "log", 0, 1, ROOT),
        ("w", 1, "é" * 128, 0, 1, ROOT),
        ("w", -1, "log", 0, 1, ROOT),
        ("w", 2**63, "log", 0, 1, ROOT),
        ("w", 1, "log", 1, 2, ROOT),
        ("w", 0, "log", 2, 1, ROOT),
        ("w", 0, "log", -1, 1, ROOT),
        ("w", 0, "log", 0, 2**63, ROOT),
        ("w", 0, "log", 0, 1, ROOT[1:]),
    ],
)
def test_makes_no_mldsa44_message_that_must_not_be(parts: Any) -> None:
    with pytest.raises(MalformedError):
        cosigned_message_mldsa44(*parts)


def test_longest_names_fit() -> None:
    message = cosigned_message_mldsa44("w" * 255, 2**63 - 1, "é" * 127 + "x", 0, 2**63 - 1, ROOT)
    assert len(message) == 12 + 256 + 8 + 256 + 48
    assert (
        cosigned_message_mldsa44("w", 0, "log", 4, 8, ROOT)[-48:-32]
        == bytes(7) + b"\x04" + bytes(7) + b"\x08"
    )


@pytest.mark.parametrize("timestamp", [-1, 2**63, 2**64])
def test_makes_no_cosignature_of_an_impossible_time(witness: Any, timestamp: int) -> None:
    with pytest.raises(MalformedError):
        cosigned_message_ed25519(timestamp, TEXT)
    with pytest.raises(MalformedError):
        witness.cosign(TEXT, timestamp)
    with pytest.raises(MalformedError):
        make_cosignature_line(witness.verifier_key, timestamp, bytes(64))


@pytest.mark.parametrize("text", ["hello\n", TEXT[:-1], TEXT + "\n", TEXT.replace("25", "025")])
def test_cosigns_checkpoints_only(witness: Any, text: str) -> None:
    with pytest.raises(MalformedError):
        witness.cosign(text, 1)


@given(st.integers(0, 2**63 - 1))
def test_time_is_in_the_message_and_the_line(timestamp: int) -> None:
    assert f"\ntime {timestamp}\n".encode() in cosigned_message_ed25519(timestamp, TEXT)
    key = make_verifier_key("w", SignatureType.COSIGNATURE_ED25519, b"\x07" * 32)
    line = make_cosignature_line(key, timestamp, bytes(64))
    assert int.from_bytes(line.signature[:8]) == timestamp and len(line.signature) == 72


# Which lines hold


def test_cosignature_holds(witness: Any) -> None:
    for timestamp in (1, 1767225600, 2**63 - 1):
        line = witness.cosign(TEXT, timestamp)
        found = verify_cosignature(witness.verifier_key, line, TEXT)
        assert (found.timestamp, found.line, found.key) == (timestamp, line, witness.verifier_key)


def refused(key: Any, line: SignatureLine, text: str = TEXT) -> None:
    with pytest.raises(VerificationError) as raised:
        verify_cosignature(key, line, text)
    assert raised.value.code == "cosignature"


def test_cosignature_holds_for_its_checkpoint_only(witness: Any) -> None:
    refused(witness.verifier_key, witness.cosign(TEXT, 7), OTHER_TEXT)
    refused(witness.verifier_key, witness.cosign(TEXT, 7), TEXT.replace("log.", "lag."))
    refused(witness.verifier_key, witness.cosign(TEXT, 7), TEXT.replace("Iu0", "Iu1"))


def test_cosignature_holds_for_its_time_only(witness: Any) -> None:
    line = witness.cosign(TEXT, 7)
    other = SignatureLine(line.name, line.key_id, (8).to_bytes(8) + line.signature[8:])
    refused(witness.verifier_key, other)


def test_time_0_is_no_witness(witness: Any) -> None:
    refused(witness.verifier_key, witness.cosign(TEXT, 0))


def test_time_above_2_63_is_refused(witness: Any) -> None:
    line = witness.cosign(TEXT, 7)
    for timestamp in (2**63, 2**64 - 1, 13078826355777102329):
        other = SignatureLine(line.name, line.key_id, timestamp.to_bytes(8) + line.signature[8:])
        refused(witness.verifier_key, other)


@pytest.mark.parametrize("change", [lambda s: s[:-1], lambda s: s + b"\0", lambda s: s[:8], lambda s: s[8:]])
def test_cosignature_of_another_length_is_refused(witness: Any, change: Callable[[bytes], bytes]) -> None:
    line = witness.cosign(TEXT, 7)
    with pytest.raises(VerificationError, match="8 bytes and one signature"):
        verify_cosignature(
            witness.verifier_key, SignatureLine(line.name, line.key_id, change(line.signature)), TEXT
        )


def test_flipped_bits_are_refused(witness: Any) -> None:
    line = witness.cosign(TEXT, 7)
    for at in (0, 7, 8, 40, -1):
        data = bytearray(line.signature)
        data[at] ^= 1
        refused(witness.verifier_key, SignatureLine(line.name, line.key_id, bytes(data)))


def test_line_of_another_name_or_id_is_refused(witness: Any) -> None:
    line = witness.cosign(TEXT, 7)
    refused(witness.verifier_key, SignatureLine("w.example/two", line.key_id, line.signature))
    refused(witness.verifier_key, SignatureLine(line.name, b"1234", line.signature))


def test_mldsa44_covers_the_name(seed_signer: Callable[..., Any]) -> None:
    one, two = (seed_signer(name, SignatureType.MLDSA44, 1) for name in ("w.example/one", "w.example/two"))
    line = one.cosign(TEXT, 7)
    moved = SignatureLine(two.verifier_key.name, two.verifier_key.key_id, line.signature)
    refused(two.verifier_key, moved)


def test_note_signature_is_no_cosignature(seed_signer: Callable[..., Any]) -> None:
    log = seed_signer("w.example/one", SignatureType.ED25519, 1)
    refused(log.verifier_key, log.sign(TEXT))
    witness = seed_signer("w.example/one", SignatureType.COSIGNATURE_ED25519, 1)
    key = witness.verifier_key
    stamped = SignatureLine(key.name, key.key_id, (7).to_bytes(8) + log.sign(TEXT).signature)
    refused(key, stamped)
    with pytest.raises(MalformedError):
        cosigned_message(log.verifier_key, 7, TEXT)


def test_makes_no_line_of_another_length(witness: Any) -> None:
    for length in (0, 32, 63, 65, 2419, 2421):
        with pytest.raises(MalformedError):
            make_cosignature_line(witness.verifier_key, 7, bytes(length))


def test_log_line_may_have_time_0_with_mldsa44(seed_signer: Callable[..., Any]) -> None:
    log = seed_signer("log.example/test", SignatureType.MLDSA44, 1)
    verify_log_line(log.verifier_key, log.cosign(TEXT, 0), TEXT)
    verify_log_line(log.verifier_key, log.cosign(TEXT, 7), TEXT)
    with pytest.raises(VerificationError):
        verify_log_line(log.verifier_key, log.cosign(TEXT, 0), OTHER_TEXT)
    witness = seed_signer("log.example/test", SignatureType.COSIGNATURE_ED25519, 1)
    with pytest.raises(VerificationError):
        verify_log_line(witness.verifier_key, witness.cosign(TEXT, 7), TEXT)


def test_machine_without_mldsa_verifies_nothing(
    seed_signer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey

    def unsupported(data: bytes) -> None:
        raise UnsupportedAlgorithm("no ML-DSA")

    witness = seed_signer("w.example/one", SignatureType.MLDSA44, 1)
    line = witness.cosign(TEXT, 7)
    monkeypatch.setattr(MLDSA44PublicKey, "from_public_bytes", unsupported)
    refused(witness.verifier_key, line)
