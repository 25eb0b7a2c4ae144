"""C2SP signed-note: notes, vkeys, and which signatures count."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlog.errors import Error, MalformedError, VerificationError
from tlog.note import (
    MAX_NOTE_BYTES,
    MAX_SIGNATURES,
    Note,
    SignatureLine,
    SignatureType,
    VerifierKey,
    add_signatures,
    format_note,
    known_lines,
    make_verifier_key,
    open_note,
    parse_note,
    parse_signature_lines,
    parse_vkey,
    require_ed25519_point,
    sign_note,
    verify_text,
)

TEXT = "a note\n\nwith an empty line\n"
EXAMPLE_VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
EXAMPLE = (
    "This is an example message.\n\n"
    "— example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)
PETER_VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
PETER = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n\n"
    "— PeterNeumann "
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)


@pytest.fixture(scope="module")
def alice(seed_signer: Callable[..., Any]) -> Any:
    return seed_signer("alice.example/log", SignatureType.ED25519, 1)


@pytest.fixture(scope="module")
def bob(seed_signer: Callable[..., Any]) -> Any:
    return seed_signer("bob.example/log", SignatureType.ED25519, 2)


# Keys


def test_vkeys_of_others(vectors: Path) -> None:
    known = json.loads((vectors / "checkpoints/vectors.json").read_text())
    for name in ("log", "witness_ed25519", "witness_mldsa44"):
        assert parse_vkey(known[name]["vkey"]).vkey == known[name]["vkey"]


@pytest.mark.parametrize("vkey", [EXAMPLE_VKEY, PETER_VKEY])
def test_vkey_round_trip(vkey: str) -> None:
    key = parse_vkey(vkey)
    assert key.vkey == vkey
    assert make_verifier_key(key.name, key.kind, key.public_key) == key


def test_one_key_of_two_types_has_two_ids(alice: Any) -> None:
    key = alice.verifier_key
    other = make_verifier_key(key.name, SignatureType.COSIGNATURE_ED25519, key.public_key)
    assert other.key_id != key.key_id


@pytest.mark.parametrize(
    "vkey",
    [
        "",
        "example.com/foo",
        "example.com/foo+530d903a",
        "example.com/foo+530d903a+",
        "+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530D903A+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530d903+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530d903b+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/fop+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k=",
        "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2l\n",
        "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U==",
        "example.com/foo+530d903a+AukyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo +530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k ",
        EXAMPLE_VKEY + "+x",
        "x" * 256 + EXAMPLE_VKEY,
        "\udcff" + EXAMPLE_VKEY,
        EXAMPLE_VKEY + "A" * 100_000,
    ],
)
def test_rejects_malformed_vkeys(vkey: str) -> None:
    with pytest.raises(MalformedError):
        parse_vkey(vkey)


@pytest.mark.parametrize(
    ("kind", "length"), [(1, 31), (1, 33), (4, 0), (6, 32), (6, 1311), (0, 32), (2, 91), (3, 32)]
)
def test_rejects_key_types_and_lengths_not_verified_here(kind: int, length: int) -> None:
    with pytest.raises(MalformedError):
        make_verifier_key("example.com/foo", kind, b"\x07" * length)


def test_rejects_a_key_id_of_its_own_choice(alice: Any) -> None:
    key = alice.verifier_key
    with pytest.raises(MalformedError):
        VerifierKey(key.name, b"\0\0\0\0", key.kind, key.public_key)


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "a b", "a+b", "a\n", "a\tb", "a\0b", "a\x1fb", "a\xa0b", "a\x85b", "a\u2028b"),
        *("a\u3000b", "a\u1680b", "a\u202fb", "a\u205fb", "a\u2009b", "é" * 128, "\ud800"),
    ],
)
def test_rejects_names(name: str) -> None:
    with pytest.raises(MalformedError):
        make_verifier_key(name, 1, b"\x07" * 32)
    with pytest.raises(MalformedError):
        SignatureLine(name, b"1234", b"signature")


@pytest.mark.parametrize("name", ["a", "a\u200bb", "a\ufeffb", "a\x7fb", "—", "é" * 127, "K", "\u212a"])
def test_takes_names_that_only_look_odd(name: str) -> None:
    key = make_verifier_key(name, 1, b"\x07" * 32)
    assert parse_vkey(key.vkey) == key


# Points of small order

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


def point(encoded: bytes) -> tuple[int, int] | None:
    """RFC 8032, 5.1.3, with y taken modulo p and the sign of x = 0 ignored, as lenient decoders do."""
    value = int.from_bytes(encoded, "little")
    y = (value & (2**255 - 1)) % P
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P:
        return None
    return (P - x if x & 1 != value >> 255 else x) % P, y


def double(one: tuple[int, int]) -> tuple[int, int]:
    x, y = one
    cross = D * x * x * y * y
    return 2 * x * y * pow(1 + cross, -1, P) % P, (y * y + x * x) * pow(1 - cross, -1, P) % P


def is_small(encoded: bytes) -> bool:
    one = point(encoded)
    return one is not None and double(double(double(one))) == (0, 1)


SMALL = [
    (y | sign << 255).to_bytes(32, "little")
    for y in (
        *(0, 1, P - 1, P, P + 1),
        int.from_bytes(
            bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
        ),
        int.from_bytes(
            bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little"
        ),
    )
    for sign in (0, 1)
]


@pytest.mark.parametrize("encoded", SMALL, ids=bytes.hex)
def test_rejects_every_encoding_of_every_small_point(encoded: bytes) -> None:
    assert is_small(encoded)
    for kind in (SignatureType.ED25519, SignatureType.COSIGNATURE_ED25519):
        with pytest.raises(MalformedError):
            make_verifier_key("example.com/foo", kind, encoded)


def test_small_points_are_those_of_the_vectors(vectors: Path) -> None:
    cases = json.loads((vectors / "ed25519/ed25519vectors.json").read_text())
    assert len(cases) == 914
    keys = {case["key"]: case["flags"] or [] for case in cases}
    small = {key for key, flags in keys.items() if "low_order_A" in flags}
    assert {encoded.hex() for encoded in SMALL} == small
    for key, flags in keys.items():
        if "low_order_A" in flags or "non_canonical_A" in flags:
            with pytest.raises(MalformedError):
                require_ed25519_point(bytes.fromhex(key))
        else:
            require_ed25519_point(bytes.fromhex(key))
            assert not is_small(bytes.fromhex(key))


def test_a_small_key_would_let_one_signature_hold_for_any_text() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    identity = (1).to_bytes(32, "little")
    forged = identity + bytes(32)  # R the neutral element, S zero
    for message in (b"one", b"another"):
        Ed25519PublicKey.from_public_bytes(identity).verify(forged, message)


@pytest.mark.parametrize("excess", range(19))
def test_rejects_coordinates_that_are_not_canonical(excess: int) -> None:
    for sign in (0, 1):
        with pytest.raises(MalformedError):
            require_ed25519_point((P + excess | sign << 255).to_bytes(32, "little"))


# Notes


@pytest.mark.parametrize(("vkey", "data"), [(EXAMPLE_VKEY, EXAMPLE), (PETER_VKEY, PETER)])
def test_notes_of_others(vkey: str, data: str) -> None:
    note = parse_note(data.encode())
    assert format_note(note) == data.encode()
    (line,) = open_note(note, [parse_vkey(vkey)])
    assert line.key.vkey == vkey and line.line == note.signatures[0]


def test_text_ends_at_the_last_empty_line(alice: Any) -> None:
    note = sign_note(TEXT, [alice])
    assert parse_note(format_note(note)) == note
    assert note.text == TEXT
    assert open_note(note, [alice.verifier_key])
    odd = sign_note("\n\n\n", [alice])
    assert parse_note(format_note(odd)) == odd


def test_a_signature_block_can_be_part_of_a_text(alice: Any, bob: Any) -> None:
    inner = format_note(sign_note(TEXT, [alice])).decode()
    outer = parse_note(format_note(sign_note(inner, [bob])))
    assert outer.text == inner
    with pytest.raises(VerificationError):
        open_note(outer, [alice.verifier_key])


texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=[*map(chr, range(32))]), max_size=20
)
names = st.text("abc/.—é\u200b\x7f", min_size=1, max_size=10)
lines = st.builds(SignatureLine, names, st.binary(min_size=4, max_size=4), st.binary(min_size=1, max_size=70))


@given(st.lists(texts, min_size=1, max_size=5), st.lists(lines, min_size=1, max_size=5))
def test_note_round_trip(parts: list[str], signatures: list[SignatureLine]) -> None:
    note = Note("".join(f"{part}\n" for part in parts), tuple(signatures))
    assert parse_note(format_note(note)) == note


@given(st.binary(max_size=60), st.integers(0, len(EXAMPLE.encode())), st.integers(0, 5))
def test_any_note_that_parses_is_the_one_written(noise: bytes, at: int, drop: int) -> None:
    data = EXAMPLE.encode()
    data = data[:at] + noise + data[at + drop :]
    try:
        note = parse_note(data)
    except MalformedError:
        return
    assert format_note(note) == data


SIGNATURE = EXAMPLE.split("\n\n")[1]


@pytest.mark.parametrize(
    "data",
    [
        "",
        "\n",
        "\n\n",
        "text",
        "text\n",
        "text\n\n",
        "text\n" + SIGNATURE,
        SIGNATURE,
        "\n" + SIGNATURE,
        "text\n\n" + SIGNATURE[:-1],
        "text\n\n" + SIGNATURE + "\n",
        "text\n\n" + SIGNATURE + "text\n",
        "text\n\n" + SIGNATURE + " ",
        "text\r\n\r\n" + SIGNATURE,
        ("text\n\n" + SIGNATURE).replace("\n", "\r\n"),
        "te\txt\n\n" + SIGNATURE,
        "te\0xt\n\n" + SIGNATURE,
        "te\x0bxt\n\n" + SIGNATURE,
        "te\x1bxt\n\n" + SIGNATURE,
        "text\n\n" + SIGNATURE.replace("—", "-"),
        "text\n\n" + SIGNATURE.replace("—", "–"),
        "text\n\n" + SIGNATURE.replace("— ", "—"),
        "text\n\n" + SIGNATURE.replace("— ", "—\xa0"),
        "text\n\n" + SIGNATURE.replace("foo ", "foo  "),
        "text\n\n" + SIGNATURE.replace("foo ", "foo"),
        "text\n\n" + SIGNATURE.replace("example.com/foo", ""),
        "text\n\n" + SIGNATURE.replace("example", "exa\xa0mple"),
        "text\n\n" + SIGNATURE.replace("example", "exa\x85mple"),
        "text\n\n" + SIGNATURE.replace("example", "exa\u2028mple"),
        "text\n\n" + SIGNATURE.replace("example", "exa+mple"),
        "text\n\n" + SIGNATURE.replace("example", "exa\0mple"),
        "text\n\n" + SIGNATURE.replace("example", "exa\tmple"),
        "text\n\n" + SIGNATURE.replace("QM=", "QN="),
        "text\n\n" + SIGNATURE.replace("QM=", "QM"),
        "text\n\n" + SIGNATURE.replace("QM=", "QM=="),
        "text\n\n" + SIGNATURE.replace("Uw2Q", "Uw2_"),
        "text\n\n" + SIGNATURE.replace("Uw2Q", "Uw2Q "),
        "text\n\n— a \n",
        "text\n\n— a AAAAAA==\n",
        "text\n\n— a AAA=\n",
        "text\n\n" + SIGNATURE * (MAX_SIGNATURES + 1),
        "x" * MAX_NOTE_BYTES + "\n\n" + SIGNATURE,
        f"text\n\n— {'x' * 256} AAAAAAA=\n",
    ],
)
def test_rejects_malformed_notes(data: str) -> None:
    with pytest.raises(MalformedError):
        parse_note(data.encode())


@pytest.mark.parametrize("wrong", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x80", b"\xf4\x90\x80\x80"])
def test_rejects_what_is_not_utf8(wrong: bytes) -> None:
    for data in (wrong + EXAMPLE.encode(), EXAMPLE.encode().replace(b"example.com/foo", wrong)):
        with pytest.raises(MalformedError):
            parse_note(data)


def test_takes_as_many_signatures_as_it_says(alice: Any) -> None:
    grease = tuple(SignatureLine("grease.invalid", bytes((0, 0, 0, i)), b"x" * 2500) for i in range(99))
    note = Note(TEXT, (*grease, alice.sign(TEXT)))
    assert open_note(parse_note(format_note(note)), [alice.verifier_key])
    with pytest.raises(MalformedError):
        Note(TEXT, (*note.signatures, alice.sign(TEXT)))


def test_takes_a_delete_character_and_what_is_no_space(alice: Any) -> None:
    note = sign_note("a\x7fb\x80\u2028\n", [alice])
    assert open_note(parse_note(format_note(note)), [alice.verifier_key])


@pytest.mark.parametrize("text", ["", "text", "te\rxt\n", "\0\n", "\ud800\n", "a\tb\n"])
def test_makes_no_note_it_could_not_read(alice: Any, text: str) -> None:
    with pytest.raises(MalformedError):
        Note(text, (alice.sign("x\n"),))
    with pytest.raises(MalformedError):
        sign_note(text, [alice])


def test_makes_no_note_too_large(alice: Any) -> None:
    note = Note("x" * (MAX_NOTE_BYTES - 100) + "\n", (alice.sign("x\n"),))
    with pytest.raises(MalformedError):
        format_note(note)


def test_signature_lines_alone() -> None:
    (line,) = parse_signature_lines(SIGNATURE)
    assert line.line == SIGNATURE
    assert parse_signature_lines(SIGNATURE * 3) == (line,) * 3
    for text in (
        "",
        "\n",
        SIGNATURE[:-1],
        SIGNATURE + "\n",
        "\n" + SIGNATURE,
        SIGNATURE.replace("\n", "\r\n"),
    ):
        with pytest.raises(MalformedError):
            parse_signature_lines(text)


@pytest.mark.parametrize("parts", [(b"", b"x"), (b"123", b"x"), (b"12345", b"x"), (b"1234", b"")])
def test_rejects_signature_lines_without_key_id_or_signature(parts: tuple[bytes, bytes]) -> None:
    with pytest.raises(MalformedError):
        SignatureLine("name", *parts)


# Which signatures count


def test_known_signatures_count_in_any_order(alice: Any, bob: Any) -> None:
    stranger = SignatureLine("grease.invalid", b"1234", b"nothing")
    note = Note(TEXT, (stranger, bob.sign(TEXT), alice.sign(TEXT)))
    found = open_note(note, [alice.verifier_key, bob.verifier_key])
    assert [line.key for line in found] == [bob.verifier_key, alice.verifier_key]
    assert [line.key for line in open_note(note, [alice.verifier_key])] == [alice.verifier_key]


def test_unknown_signatures_do_not_count(alice: Any, bob: Any) -> None:
    note = sign_note(TEXT, [alice])
    for keys in ([], [bob.verifier_key]):
        with pytest.raises(VerificationError) as raised:
            open_note(note, keys)
        assert raised.value.code == "note_signature"


def test_a_shared_name_or_a_shared_id_is_not_a_known_key(alice: Any) -> None:
    key = alice.verifier_key
    signature = alice.sign(TEXT).signature
    for line in (
        SignatureLine(key.name, b"\0\0\0\1", signature),
        SignatureLine("else", key.key_id, signature),
    ):
        with pytest.raises(VerificationError):
            open_note(Note(TEXT, (line,)), [key])
        note = Note(TEXT, (line, alice.sign(TEXT)))
        assert len(open_note(note, [key])) == 1


def test_a_line_of_a_wrong_key_id_says_nothing_though_the_signature_is_right(alice: Any) -> None:
    other = SignatureLine(alice.verifier_key.name, bytes.fromhex("a4e6549f"), alice.sign(TEXT).signature)
    with pytest.raises(VerificationError):
        open_note(Note(TEXT, (other,)), [alice.verifier_key])


@pytest.mark.parametrize(
    "change",
    [lambda s: s[:-1], lambda s: s + b"\0", lambda s: bytes((s[0] ^ 1,)) + s[1:], lambda s: bytes(64)],
)
def test_one_failing_known_signature_fails_the_note(
    alice: Any, bob: Any, change: Callable[[bytes], bytes]
) -> None:
    good = alice.sign(TEXT)
    bad = SignatureLine(good.name, good.key_id, change(good.signature))
    for signatures in ((bob.sign(TEXT), bad), (bad, bob.sign(TEXT)), (bad,)):
        with pytest.raises(VerificationError):
            open_note(Note(TEXT, signatures), [alice.verifier_key, bob.verifier_key])


def test_every_flipped_bit_of_a_signature_fails(alice: Any) -> None:
    good = alice.sign(TEXT)
    for bit in range(0, 512, 7):
        wrong = (int.from_bytes(good.signature) ^ 1 << bit).to_bytes(64)
        with pytest.raises(VerificationError):
            verify_text(alice.verifier_key, SignatureLine(good.name, good.key_id, wrong), TEXT)


def test_signature_with_s_above_the_group_order_fails(alice: Any) -> None:
    good = alice.sign(TEXT)
    order = 2**252 + 27742317777372353535851937790883648493
    s = int.from_bytes(good.signature[32:], "little") + order
    wrong = good.signature[:32] + s.to_bytes(32, "little")
    with pytest.raises(VerificationError):
        verify_text(alice.verifier_key, SignatureLine(good.name, good.key_id, wrong), TEXT)


def test_signature_is_over_the_text_alone(alice: Any) -> None:
    note = sign_note(TEXT, [alice])
    for other in (TEXT + "\n", "x" + TEXT, TEXT.replace("note", "note ")):
        with pytest.raises(VerificationError):
            open_note(Note(other, note.signatures), [alice.verifier_key])


def test_two_lines_of_one_known_key_fail_the_note(alice: Any, bob: Any) -> None:
    good = alice.sign(TEXT)
    bad = SignatureLine(good.name, good.key_id, b"\0" * 64)
    for signatures in ((good, good), (good, bad), (bad, good)):
        with pytest.raises(VerificationError):
            open_note(Note(TEXT, signatures), [alice.verifier_key])
        assert open_note(Note(TEXT, (*signatures, bob.sign(TEXT))), [bob.verifier_key])


def test_two_keys_of_one_name_and_id_are_refused(alice: Any) -> None:
    one, two = (make_verifier_key("twin.example", 1, number.to_bytes(32)) for number in (22922, 28974))
    assert one != two and one.key_id == two.key_id, "32 bits collide for whoever looks for it"
    note = sign_note(TEXT, [alice])
    with pytest.raises(MalformedError):
        known_lines(note, [alice.verifier_key, one, two])
    assert known_lines(note, [one, alice.verifier_key, one, alice.verifier_key])


def test_key_of_another_type_signs_no_text(alice: Any) -> None:
    key = alice.verifier_key
    other = make_verifier_key(key.name, SignatureType.COSIGNATURE_ED25519, key.public_key)
    line = SignatureLine(other.name, other.key_id, alice.sign(TEXT).signature)
    with pytest.raises(VerificationError):
        open_note(Note(TEXT, (line,)), [other])


def test_verify_text_looks_at_name_and_id(alice: Any) -> None:
    good = alice.sign(TEXT)
    verify_text(alice.verifier_key, good, TEXT)
    with pytest.raises(VerificationError):
        verify_text(alice.verifier_key, SignatureLine("else", good.key_id, good.signature), TEXT)


def test_added_signatures_take_the_place_of_earlier_ones(alice: Any, bob: Any) -> None:
    note = sign_note(TEXT, [alice, bob])
    line = SignatureLine(alice.verifier_key.name, alice.verifier_key.key_id, b"later")
    grown = add_signatures(note, [line])
    assert grown.signatures == (note.signatures[1], line)
    assert add_signatures(note, []) == note


def test_errors_repeat_no_content() -> None:
    for data in (b"secret", b"secret\n\n\xe2\x80\x94 secret secret\n", b"secret\t\n\n"):
        with pytest.raises(Error) as raised:
            parse_note(data)
        assert "secret" not in raised.value.message
    with pytest.raises(Error) as raised:
        parse_vkey("secret+secret+secret")
    assert "secret" not in raised.value.message


# ECDSA, which is read and never signed with


def ecdsa_key(curve: Any = None) -> tuple[Any, bytes]:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    private = ec.derive_private_key(0x1234567, curve or ec.SECP256R1())
    public = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return private, public


def ecdsa_line(private: Any, name: str, key_id: bytes, text: str) -> SignatureLine:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    return SignatureLine(name, key_id, private.sign(text.encode(), ECDSA(SHA256())))


def test_an_ecdsa_signature_is_verified() -> None:
    from hashlib import sha256

    private, public = ecdsa_key()
    key = make_verifier_key("rekor.example", SignatureType.ECDSA, public)
    # Of these the id follows from the key alone, whatever its name.
    assert key.key_id == sha256(public).digest()[:4]
    assert parse_vkey(key.vkey) == key
    line = ecdsa_line(private, "rekor.example", key.key_id, TEXT)
    assert open_note(Note(TEXT, (line,)), [key])[0].key == key
    for changed in (
        Note(TEXT + "more\n", (line,)),
        Note(TEXT, (SignatureLine(line.name, line.key_id, line.signature + b"\0"),)),
        Note(TEXT, (SignatureLine(line.name, line.key_id, b"\0" * 64),)),
    ):
        with pytest.raises(VerificationError):
            open_note(changed, [key])


def test_an_ecdsa_key_is_p256_in_its_one_form() -> None:
    from cryptography.hazmat.primitives.asymmetric import ec

    _, public = ecdsa_key()
    for bad in (b"", public[:-1], public + b"\0", public[-65:], ecdsa_key(ec.SECP384R1())[1], b"0" * 2000):
        with pytest.raises(MalformedError):
            make_verifier_key("rekor.example", SignatureType.ECDSA, bad)
    vkey = make_verifier_key("rekor.example", SignatureType.ECDSA, public).vkey
    with pytest.raises(MalformedError, match="key id"):
        parse_vkey(vkey.replace(vkey.split("+")[1], "00000000"))
