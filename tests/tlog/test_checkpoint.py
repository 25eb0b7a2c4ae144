"""C2SP tlog-checkpoint: the text, and whose signature makes it a log's."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlog.checkpoint import Checkpoint, format_checkpoint, open_checkpoint, parse_checkpoint
from tlog.errors import Error, MalformedError, VerificationError
from tlog.merkle import EMPTY_ROOT
from tlog.note import Note, SignatureLine, SignatureType, format_note, parse_vkey, sign_note

ORIGIN = "log.example/test"
ROOT = "Iu08wWceprUSFI2H31Iorbup5qTFUc5rNvCzycG1Kjg="
TEXT = f"{ORIGIN}\n25\n{ROOT}\n"


@pytest.fixture(scope="module")
def log(seed_signer: Callable[..., Any]) -> Any:
    return seed_signer(ORIGIN, SignatureType.ED25519, 1)


@pytest.fixture(scope="module")
def pq_log(seed_signer: Callable[..., Any]) -> Any:
    return seed_signer(ORIGIN, SignatureType.MLDSA44, 2)


def signed(text: str, *signers: Any) -> bytes:
    return format_note(sign_note(text, signers))


# The text


def test_own_checkpoints(vectors: Path) -> None:
    known = json.loads((vectors / "checkpoints/vectors.json").read_text())
    key = parse_vkey(known["log"]["vkey"])
    assert len(known["checkpoints"]) == 10
    for size, expected in known["checkpoints"].items():
        data = (vectors / f"checkpoints/checkpoint-{size}.note").read_bytes()
        opened = open_checkpoint(data, [key], known["log"]["origin"])
        assert opened.checkpoint == Checkpoint(known["log"]["origin"], int(size), b64decode(expected["root"]))
        assert format_checkpoint(opened.checkpoint) == opened.note.text
        assert format_note(opened.note) == data
        assert [line.key for line in opened.lines] == [key]


def test_checkpoints_of_tessera(vectors: Path) -> None:
    key = parse_vkey("example.com/log/testdata+33d7b496+AeHTu4Q3hEIMHNqc6fASMsq3rKNx280NI+oO5xCFkkSx")
    for size in range(16):
        data = (vectors / f"tessera/log/checkpoint.{size}").read_bytes()
        opened = open_checkpoint(data, [key], "example.com/log/testdata")
        assert opened.checkpoint.size == size
        assert (opened.checkpoint.root == EMPTY_ROOT) == (size == 0)


def test_text() -> None:
    checkpoint = parse_checkpoint(TEXT)
    assert checkpoint == Checkpoint(ORIGIN, 25, b64decode(ROOT))
    assert format_checkpoint(checkpoint) == TEXT


def test_empty_log() -> None:
    text = f"{ORIGIN}\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
    assert parse_checkpoint(text) == Checkpoint(ORIGIN, 0, EMPTY_ROOT)


def test_extension_lines_are_kept() -> None:
    text = TEXT + "one more\n{}\n"
    assert parse_checkpoint(text).extensions == ("one more", "{}")
    assert format_checkpoint(parse_checkpoint(text)) == text


@pytest.mark.parametrize(
    "origin", ["rekor.example - 2605736670972794746", "a+b", "é" * 127, " ", "\xa0", "7", ROOT, "— x", "\x7f"]
)
def test_origin_is_any_line(origin: str) -> None:
    checkpoint = Checkpoint(origin, 1, bytes(32))
    assert parse_checkpoint(format_checkpoint(checkpoint)) == checkpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "hello\n",
        f"{ORIGIN}\n25\n",
        f"{ORIGIN}\n25\n\n",
        f"{ORIGIN}\n25\n{ROOT}",
        f"\n25\n{ROOT}\n",
        f"25\n{ROOT}\n",
        f"{ORIGIN}\n\n25\n{ROOT}\n",
        TEXT + "\n",
        TEXT + "\n\n",
        TEXT + "extension\n\n",
        TEXT + "\nextension\n",
        TEXT + "extension",
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("log", "l\tog"),
        TEXT.replace("log", "l\0og"),
        TEXT + "ext\x1bension\n",
        TEXT.replace(ORIGIN, "é" * 128),
        TEXT.replace(ORIGIN, "\ud800"),
        *(
            f"{ORIGIN}\n{size}\n{ROOT}\n"
            for size in ("+7", "07", " 7", "7 ", "1_000", "٧", "-0", "-1", "", "7.0")
        ),
        *(f"{ORIGIN}\n{size}\n{ROOT}\n" for size in (2**63, 2**64, "9" * 5000, "0x7", "1e3", "00")),
        TEXT.replace("Kjg=", "Kjh="),
        TEXT.replace("Kjg=", "Kjg"),
        TEXT.replace("Kjg=", "Kjg=="),
        TEXT.replace("Kjg=", "Kg=="),
        TEXT.replace("Kjg=", "Kjg= "),
        TEXT.replace("Iu08", "Iu08\r"),
        TEXT.replace(ROOT, "AAAA"),
        TEXT.replace(ROOT, ROOT[:-1].replace("+", "-") + "AAAA="),
    ],
)
def test_rejects_malformed_texts(text: str) -> None:
    with pytest.raises(MalformedError):
        parse_checkpoint(text)


@given(st.text(alphabet=TEXT + "\r\t0é", max_size=8), st.integers(0, len(TEXT)), st.integers(0, 8))
def test_any_text_that_parses_is_the_one_written(noise: str, at: int, drop: int) -> None:
    text = TEXT[:at] + noise + TEXT[at + drop :]
    try:
        checkpoint = parse_checkpoint(text)
    except MalformedError:
        return
    assert format_checkpoint(checkpoint) == text


lines = st.text(st.characters(exclude_categories=["Cs"], min_codepoint=32), min_size=1, max_size=20)


@given(lines, st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32), st.lists(lines, max_size=3))
def test_round_trip(origin: str, size: int, root: bytes, extensions: list[str]) -> None:
    checkpoint = Checkpoint(origin, size, root, tuple(extensions))
    assert parse_checkpoint(format_checkpoint(checkpoint)) == checkpoint


@pytest.mark.parametrize(
    "parts",
    [
        ("", 1, bytes(32)),
        ("a\nb", 1, bytes(32)),
        ("a\rb", 1, bytes(32)),
        ("a" * 256, 1, bytes(32)),
        ("a", -1, bytes(32)),
        ("a", 2**63, bytes(32)),
        ("a", 1, bytes(31)),
        ("a", 1, bytes(33)),
        ("a", 1, bytes(32), ("",)),
        ("a", 1, bytes(32), ("x\n\ny",)),
    ],
)
def test_makes_no_checkpoint_it_could_not_read(parts: Any) -> None:
    with pytest.raises(MalformedError):
        Checkpoint(*parts)


# Whose signature


def code(data: bytes, keys: list[Any], origin: str = ORIGIN) -> str:
    with pytest.raises(Error) as raised:
        open_checkpoint(data, keys, origin)
    return raised.value.code


def test_opens_with_either_type_of_log_key(log: Any, pq_log: Any) -> None:
    note = Note(TEXT, (log.sign(TEXT), pq_log.cosign(TEXT, 0)))
    for keys in ([log.verifier_key], [pq_log.verifier_key], [pq_log.verifier_key, log.verifier_key]):
        opened = open_checkpoint(format_note(note), keys, ORIGIN)
        assert len(opened.lines) == len(keys)
        assert opened.checkpoint == parse_checkpoint(TEXT)


def test_key_name_need_not_be_the_origin(seed_signer: Callable[..., Any]) -> None:
    text = TEXT.replace(ORIGIN, "rekor.example - 2605736670972794746")
    log = seed_signer("rekor.example", SignatureType.ED25519, 5)
    assert open_checkpoint(signed(text, log), [log.verifier_key], "rekor.example - 2605736670972794746")


def test_another_origin_is_refused(log: Any) -> None:
    data = signed(TEXT, log)
    for origin in ("", "log.example", ORIGIN + "/", ORIGIN.upper()):
        assert code(data, [log.verifier_key], origin) == "origin"


def test_unknown_and_failing_signatures_are_refused(
    log: Any, pq_log: Any, seed_signer: Callable[..., Any]
) -> None:
    stranger = seed_signer(ORIGIN, SignatureType.ED25519, 9)
    assert code(signed(TEXT, stranger), [log.verifier_key]) == "log_signature"
    assert code(signed(TEXT, log), []) == "log_signature"
    good = log.sign(TEXT)
    bad = SignatureLine(good.name, good.key_id, bytes((good.signature[0] ^ 1,)) + good.signature[1:])
    keys = [log.verifier_key, pq_log.verifier_key]
    for signatures in ((bad,), (good, good), (good, bad), (bad, pq_log.cosign(TEXT, 0))):
        assert code(format_note(Note(TEXT, signatures)), keys) == "log_signature"
    other = parse_checkpoint(TEXT.replace("25", "26"))
    assert code(format_note(Note(format_checkpoint(other), (good,))), keys) == "log_signature"
    line = pq_log.cosign(TEXT, 0)
    assert code(format_note(Note(format_checkpoint(other), (line,))), keys) == "log_signature"


def test_witness_and_grease_lines_may_come_first(log: Any, seed_signer: Callable[..., Any]) -> None:
    witness = seed_signer("w.example", SignatureType.COSIGNATURE_ED25519, 3)
    grease = SignatureLine("grease.invalid", b"1234", b"anything")
    note = Note(TEXT, (witness.cosign(TEXT, 1), grease, log.sign(TEXT)))
    assert open_checkpoint(format_note(note), [log.verifier_key], ORIGIN).lines[0].line == note.signatures[2]


def test_a_witness_key_signs_for_no_log(seed_signer: Callable[..., Any]) -> None:
    witness = seed_signer(ORIGIN, SignatureType.COSIGNATURE_ED25519, 3)
    data = format_note(Note(TEXT, (witness.cosign(TEXT, 1),)))
    assert code(data, [witness.verifier_key]) == "log_signature"


def test_empty_log_with_the_root_of_another_is_refused(log: Any) -> None:
    text = format_checkpoint(Checkpoint(ORIGIN, 0, b"\x01" * 32))
    assert code(signed(text, log), [log.verifier_key]) == "empty_root"
    text = format_checkpoint(Checkpoint(ORIGIN, 0, EMPTY_ROOT))
    assert open_checkpoint(signed(text, log), [log.verifier_key], ORIGIN)


def test_signed_text_that_is_no_checkpoint_is_malformed(log: Any) -> None:
    for text in ("hello\n", TEXT + "\nmore\n", TEXT.replace("25", "025")):
        assert code(signed(text, log), [log.verifier_key]) == "bad_input"


def test_errors_name_their_kind(log: Any) -> None:
    with pytest.raises(VerificationError) as raised:
        open_checkpoint(signed(TEXT, log), [], ORIGIN)
    assert ORIGIN not in raised.value.message
