"""Numbers and bytes as text: one spelling each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlog.ascii import decode_base64, decode_hash, encode_base64, parse_decimal
from tlog.errors import MalformedError


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("7", 7), ("10", 10), (str(2**63 - 1), 2**63 - 1)])
def test_decimals(text: str, number: int) -> None:
    assert parse_decimal(text, "size") == number


@pytest.mark.parametrize(
    "text",
    [
        *("", "+7", "-0", "-7", "07", "00", " 7", "7 ", "7\n", "1_000", "1e3", "0x7", "7.0", "٧", "７", "²"),
        *(str(2**63), str(2**64), "9" * 5000),
    ],
)
def test_rejects_other_decimals(text: str) -> None:
    with pytest.raises(MalformedError):
        parse_decimal(text, "size")


@given(st.binary(max_size=100))
def test_base64_round_trip(data: bytes) -> None:
    assert decode_base64(encode_base64(data), "data") == data


@given(st.text(alphabet="AQgwZz09+/=", max_size=12))
def test_base64_that_decodes_is_the_one_written(text: str) -> None:
    try:
        data = decode_base64(text, "data")
    except MalformedError:
        return
    assert encode_base64(data) == text


@pytest.mark.parametrize(
    "text",
    [
        *("A", "AA", "AAA", "AA=", "AB==", "AAB=", "AAAA=", "=", "==", "AA==AA==", "AA==\n", "A A="),
        *("AA\n==", "-_==", "QQ==\0", "é===", "ＡＡ==", "=AAA", "AA==="),
    ],
)
def test_rejects_other_base64(text: str) -> None:
    with pytest.raises(MalformedError):
        decode_base64(text, "data")


def test_rejects_the_second_spelling_of_a_root() -> None:
    assert decode_hash("Iu08wWceprUSFI2H31Iorbup5qTFUc5rNvCzycG1Kjg=", "root")
    for other in (
        "Iu08wWceprUSFI2H31Iorbup5qTFUc5rNvCzycG1Kjh=",
        "Iu08wWceprUSFI2H31Iorbup5qTFUc5rNvCzycG1Kjg",
    ):
        with pytest.raises(MalformedError):
            decode_hash(other, "root")


@pytest.mark.parametrize("length", [0, 31, 33])
def test_rejects_hashes_of_another_length(length: int) -> None:
    with pytest.raises(MalformedError):
        decode_hash(encode_base64(bytes(length)), "root")
