"""The one look at the bytes finds what a look in each way by itself finds, wherever the parts of a file end.

The judge is slow and plain: it makes the bytes anew as each way of looking sees them, and counts in them.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import accumulate, pairwise

import pytest

from auditor import engines, patterns
from auditor.encodings import DROPPED, SHORTEST_NEEDLE, Encoding, View, encodings_of
from auditor.patterns import Tally, compile_patterns, search, unlike

NEEDLES = (
    "Anna Müller-Berg",
    "müller",
    "a b = c",
    "zwei  Worte\tund mehr",
    "=gleich vorn",
    "+49 170 1234567",
    "x < y && <b>",
    "日本 東京都 ａｂｃ",
    bytes(range(30)),
    b" \n=salt with white ends\r\n",
)
CONTROL = "controllettersnobodywrites"
BLANKS = (
    b" ",
    b"\n",
    b"\t \r\n",
    b"\xc2\xa0",
    b"&nbsp;",
    b"<br>\n",
    b"\\n",
    b"=\r\n",
    b"\xe3\x80\x80",
    b"\xe2\x80\x83",
)


def ways(view: View, data: bytes) -> bytes:
    if view == "exact":
        return data
    if view == "folded":
        return data.lower()
    if view == "joined":
        return bytes(byte for byte in data if byte not in b" \t\r\n\v\f")
    data = re.sub(rb"=[\r\n]\n?", b"", data.lower())
    data = re.sub(
        rb"\xc2[\x85\xa0]|\xe2[\x80\x81][\x80-\x8b\x9f\xaf]|\xe3\x80\x80|\xe3\x81\x80|&(?:nbsp|#160|#xa0);"
        rb"|<[bp]r? ?/?>|\\(?:[nrt]|u00a0)",
        b" ",
        data,
    )
    return re.sub(rb"[ \t\r\n\v\f]+", b" ", data)


def count(data: bytes, form: Encoding) -> int:
    seen = ways(form.view, data)
    return sum(seen.startswith(form.data, at) for at in range(len(seen)))


def judged(data: bytes, needles: tuple[str | bytes, ...]) -> Counter[int]:
    """How often each needle is there: of forms with one core, as often as the way that sees it most often."""
    found: Counter[int] = Counter()
    for number, needle in enumerate(needles):
        cores: Counter[bytes] = Counter()
        for form in encodings_of(needle):
            cores[form.core] = max(cores[form.core], count(data, form))
        found[number] = sum(cores.values())
    return found


def looked(data: bytes, needles: tuple[str | bytes, ...], ends: list[int]) -> Counter[int]:
    """How often the scanner says so, of the data in parts."""
    made, tally = (
        compile_patterns([encodings_of(needle) for needle in needles], encodings_of(CONTROL)),
        Tally(),
    )
    for begin, end in pairwise([0, *ends, len(data)]):
        start = max(begin - made.carry_bytes, 0)
        search(made, data[start:end], begin - start, start, tally, "")
    found = Counter[int]()
    for (needle, _), times in tally.counts.items():
        found[needle] += times
    return found


def disguised(chance: random.Random, needle: str | bytes) -> bytes:
    forms = encodings_of(needle)
    view = chance.choice(sorted({form.view for form in forms}))
    form = chance.choice([form for form in forms if form.view == view])
    data = chance.choice([form.data, unlike(form), form.data.upper() if form.view == "folded" else form.data])
    if form.view == "spaced":
        data = re.sub(b" ", lambda _: b"".join(chance.choices(BLANKS, k=chance.randint(1, 3))), form.data)
    if chance.random() < 0.2:
        at = chance.randrange(len(data))
        data = (
            data[:at] + chance.choice([b"", b"x", b"\n", b"=", b"=\r\n"]) + data[at + chance.randint(0, 1) :]
        )
    return data


def a_file(chance: random.Random) -> bytes:
    return b"".join(parts_of_a_file(chance))


def parts_of_a_file(chance: random.Random) -> list[bytes]:
    parts = []
    for _ in range(chance.randint(1, 12)):
        parts.append(disguised(chance, chance.choice(NEEDLES)))
        parts.append(
            chance.choice([chance.randbytes(chance.randint(0, 40)), b" the quick brown fox ", *BLANKS])
        )
    return parts


@pytest.mark.parametrize("seed", range(40))
def test_one_look_finds_what_each_way_finds(seed: int) -> None:
    chance = random.Random(seed)
    parts = parts_of_a_file(chance)
    data = b"".join(parts)
    # Parts of a file that end where a needle does, and anywhere.
    ends = sorted({*accumulate(map(len, parts[:-1])), *chance.choices(range(len(data)), k=3)})
    assert {**looked(data, NEEDLES, ends)} == {
        n: times for n, times in judged(data, NEEDLES).items() if times
    }


def test_each_way_is_needed() -> None:
    """The files above hold something for each of the ways, and the judge tells them apart."""
    data = b"".join(a_file(random.Random(seed)) for seed in range(20))
    views = {form.view for needle in NEEDLES for form in encodings_of(needle) if count(data, form)}
    assert views == {"exact", "folded", "spaced", "joined"}


def test_what_is_left_of_a_needle_has_to_tell_something() -> None:
    for needle in ("= = = =", "    =", b"\n\n\n\n\n\n", "= 5 ="):
        assert encodings_of(needle) == ()
    assert encodings_of("= 57 =") and len("= 5 =") >= SHORTEST_NEEDLE
    assert set(b" \t\r\n\v\f=") == set(DROPPED)


@pytest.mark.parametrize("fast_bytes", [0, engines._FAST_BYTES])
def test_few_and_many_patterns_are_found_alike(monkeypatch: pytest.MonkeyPatch, fast_bytes: int) -> None:
    monkeypatch.setattr(engines, "_FAST_BYTES", fast_bytes)
    data = a_file(random.Random(7))
    assert {**looked(data, NEEDLES, [])} == {n: times for n, times in judged(data, NEEDLES).items() if times}


def test_hyperscan_finds_the_same() -> None:
    pytest.importorskip("hyperscan", reason="hyperscan is not installed")
    wanted = [form.data.lower() for needle in NEEDLES for form in encodings_of(needle)]
    wanted = list(dict.fromkeys(wanted))
    for seed in range(20):
        data = a_file(random.Random(seed)).lower()
        one, other = engines._hyperscan(wanted)(data), engines.aho_corasick(wanted)(data)
        assert sorted(one) == sorted(other) and [end for _, end in one] == sorted(end for _, end in other)


def test_the_engine_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where hyperscan is installed it is what looks."""
    monkeypatch.setattr(engines.importlib.util, "find_spec", lambda name: name == "hyperscan")
    monkeypatch.setattr(engines, "_hyperscan", lambda wanted: lambda data: [(len(wanted), len(data))])
    assert engines.build_engine([b"abcd"])(b"xyz") == [(1, 3)]
    monkeypatch.setattr(engines.importlib.util, "find_spec", lambda name: None)
    assert patterns.build_engine([b"abcd"])(b"xabcd") == [(0, 5)]
