"""When two values, two keys, or a text and a value are the same."""

from __future__ import annotations

import itertools
import json
import time
import unicodedata
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import canon, canon_text

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
# A line: spellings of one value. No spelling of a line is the same as one of another, or as one of APART.
ONE_VALUE: list[list[str]] = [
    json.loads(line) for line in (VECTORS / "canon_same.jsonl").read_text("utf-8").splitlines()
]
# A line: one value, the same as no other.
APART: list[str] = [
    json.loads(line) for line in (VECTORS / "canon_apart.jsonl").read_text("utf-8").splitlines()
]


def test_spellings_of_one_value_are_the_same() -> None:
    for spellings in ONE_VALUE:
        for spelling in spellings:
            assert canon.same_value(spellings[0], spelling), (spellings[0], spelling)


def test_no_value_is_the_same_as_another() -> None:
    values = [(spelling, number) for number, spellings in enumerate(ONE_VALUE) for spelling in spellings]
    values += [(value, -1 - number) for number, value in enumerate(APART)]
    for (left, one), (right, other) in itertools.combinations(values, 2):
        if one != other:
            assert not canon.same_value(left, right), (left, right)


def test_every_spelling_stays_itself() -> None:
    for value in (*itertools.chain(*ONE_VALUE), *APART):
        assert canon.same_value(value, value)
        assert canon.value_forms(value)[0] == canon.canonical_value(value)


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\u200b", "\u00ad\u2060", "\ufeff ", "\x00", "\u3000"])
def test_a_value_without_anything_visible_has_an_empty_form(blank: str) -> None:
    assert canon.canonical_value(blank).form == ""


def test_an_ambiguous_value_has_a_form_for_each_reading() -> None:
    for reading in ("5 minutes", "5 metres", "5 m"):
        assert canon.same_value("5m", reading)
    assert not canon.same_value("5 minutes", "5 metres")
    assert canon.same_value("5 pounds", "£5")
    assert canon.same_value("5 pounds", "5 lbs")
    assert not canon.same_value("£5", "5 lbs")


def test_numbers_are_exact() -> None:
    assert not canon.same_value("0.1 TB", "100000000001 bytes")
    assert canon.same_value("0.1 TB", "100000000000 bytes")
    assert not canon.same_value("9007199254740993 B" + "ytes", "9007199254740992 bytes")
    assert not canon.same_value("1" * 39 + " days", "1" * 38 + "2 days")


ODD_VALUES = [
    "9" * 5000,
    "1 " * 5000,
    "1,000" * 3000,
    "-" * 9000,
    "+351 " + "1 " * 4000,
    "a@" * 5000,
    "three " * 3000,
    "(" * 9000,
    "P" + "1D" * 4000,
    "1:" * 4000,
    "é" * 8000,
    "²" * 8000,
    "$" * 9000,
    "1" * 90 + "!",
    ("1 h " * 24).strip(),
    ("ninety " * 14).strip(),
]


@pytest.mark.parametrize("value", ODD_VALUES)
def test_odd_values_cost_no_more_than_their_length(value: str) -> None:
    started = time.process_time()
    canon.canonical_value(value)
    assert time.process_time() - started < 0.1


@given(st.text(max_size=40))
def test_case_space_and_composition_make_no_other_value(text: str) -> None:
    value = canon.canonical_value(text)
    assert canon.canonical_value(f"  {text}\t") == value
    assert canon.canonical_value(unicodedata.normalize("NFC", text)) == value
    assert canon.canonical_value(unicodedata.normalize("NFD", text)) == value


@given(st.text(max_size=40))
def test_folding_twice_changes_nothing(text: str) -> None:
    once = canon.canonical_text(text)
    assert canon.canonical_text(once) == once


@given(st.text("0123456789.,' -+:/%$€kmMGBdhsapPATZ°", max_size=12))
def test_a_sign_is_never_lost(text: str) -> None:
    value = canon.canonical_value(text)
    if text[:1].isdigit() and any(digit in text for digit in "123456789"):
        assert value == canon.canonical_value(text)
        assert canon.canonical_value(f"-{text}") != value


@given(st.integers(-(10**12), 10**12))
def test_separators_of_thousands_do_not_matter(number: int) -> None:
    for separator in (",", " ", "\u00a0", "_", "'"):
        assert canon.same_value(str(number), f"{number:,}".replace(",", separator))


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_different_numbers_are_different_however_written(left: int, right: int) -> None:
    for unit in ("", " days", " GB", "%", " users"):
        assert canon.same_value(f"{left:,}{unit}", f"{right}{unit}") == (left == right)


@given(st.integers(1, 10**6), st.sampled_from(["s", "min", "h", "d", "w"]))
def test_durations_are_compared_in_seconds(count: int, unit: str) -> None:
    seconds = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}[unit]
    assert canon.same_value(f"{count}{unit}", f"{count * seconds} seconds")
    assert not canon.same_value(f"{count}{unit}", f"{count * seconds + 1} seconds")


@given(st.dates())
def test_dates_are_read_back(day: date) -> None:
    iso = day.isoformat()
    assert canon.canonical_value(iso) == canon.Canonical("date", iso)
    assert canon.same_value(iso, f"{day:%A}, {day:%B} {day.day}, {day.year:04}")
    assert canon.same_value(iso, f"{day.day} {day:%b} {day.year:04}")


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_one_instant_in_two_zones_is_one_value(moment: datetime, offset: int) -> None:
    moment = moment.replace(microsecond=0)
    local = moment + timedelta(minutes=offset)
    sign, minutes = ("-", -offset) if offset < 0 else ("+", offset)
    there = f"{local.isoformat()}{sign}{minutes // 60:02}:{minutes % 60:02}"
    assert canon.same_value(f"{moment.isoformat()}Z", there)


SAME_KEY = [
    ["checkout-api/region", "Checkout_API / Region", "checkout api region", "checkout.api.region"],
    ["invoice-broker/engine", "INVOICE-BROKER:ENGINE", "invoiceBroker/engine", "Invoice Broker > Engine"],
    ["Bucket Size", "bucket/size", "bucket-size", "bucketSize"],
    ["ann duarte / employer", "ann-duarte/employer"],
    ["python/3.10", "Python / 3.10"],
    ["plan/name", "ｐｌａｎ／ｎａｍｅ"],
    ["料金/プラン", "料金 / ﾌﾟﾗﾝ"],
    ["svc17/region", "svc17Region", "SVC17_REGION", "svc17-region"],
    ["api2/base-url", "api2/baseURL", "API2_BASE_URL", "api2BaseUrl"],
    ["user/o-auth2-token", "userOAuth2Token"],
    ["favourite user colour", "FavouriteUserColour"],
    ["s3/bucket", "s3Bucket"],
    ["macOS/version", "macos/version"],
    ["user/iPhone", "user/iphone"],
    ["GitHub/token", "github/token"],
]
OTHER_KEYS = """
offset -7|offset 7|t (-7)|t (7)
checkout-api/region-replica|checkout-api|region|checkout/region|checkout-api/regions|checkoutapi/region
python/3.1|python/310|python/3.11|c++/version|c#/version|c/version|offset/-5|offset/5|user/likes-0|user/likes-1|ab/c|a/bc|cafe/name|café/name
""".replace("\n", "|").strip("|").split("|")  # fmt: skip


def test_case_and_separators_make_no_other_key() -> None:
    for spellings in SAME_KEY:
        assert len({canon.canonical_key(spelling) for spelling in spellings}) == 1, spellings


def test_other_words_make_another_key() -> None:
    keys = [spellings[0] for spellings in SAME_KEY] + OTHER_KEYS
    assert len({canon.canonical_key(key) for key in keys}) == len(keys)


@pytest.mark.parametrize("key", ["/", "///", "-", "...", "→", "🙂", "_ _"])
def test_a_key_of_separators_alone_is_still_a_key(key: str) -> None:
    assert canon.canonical_key(key)


def test_a_blank_key_is_empty() -> None:
    assert canon.canonical_key(" \u200b") == ""


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("checkout-api/region", {"checkout", "api"}),
        ("Ann Duarte/City", {"ann", "duarte"}),
        ("backup_job.retention", {"backup", "job"}),
        ("user/city", {"city"}),
        ("user/favourite-editor", {"favourite", "editor"}),
        ("region", {"region"}),
        ("cafés/name", {"cafe"}),
        ("プラン/name", {"プラン"}),
        ("lang/c++", {"lang"}),
    ],
)
def test_a_key_is_named_by_what_it_is_about(key: str, words: set[str]) -> None:
    assert canon.key_words(key) == words


def test_a_text_names_the_words_inside_a_word() -> None:
    assert canon.text_words("AnnDuarte likes GitHub") == {
        "annduarte",
        "ann",
        "duarte",
        "github",
        "git",
        "hub",
    }
    assert canon.key_words("annDuarte/city") <= canon.text_words("AnnDuarte: Lisbon")


def test_a_text_and_a_key_share_words_across_case_accents_and_plural() -> None:
    assert canon.key_words("café-orders/limit") <= canon.text_words("The CAFES had one order each")


STATED = [
    ("90 days", "the backup job (90 days) is old"),
    ("415-555-0132", "call (415) 555-0132 now"),
    ("+351912345678", "call (+351) 912 345 678 or (+351 912 345 679)"),
    ("+351 912 345 679", "call (+351) 912 345 678 or (+351 912 345 679)"),
    ("eu-west-1", "Note: checkout-api runs in eu-west-1."),
    ("eu-west-1", "region=eu-west-1, zone=a"),
    ("eu-west-1", "is it (EU-WEST-1)?"),
    ("Initech GmbH", "She works for initech  gmbh, I think"),
    ("90 days", "the backup job keeps data for 90 days."),
    ("90 days", "90-day retention"),
    ("90d", "kept for ninety days"),
    ("90 days", "kept for 2160 hours"),
    ("1,000", "set to 1000"),
    ("1000", "set to 1 000 now"),
    ("1,000 users", "serves 1000 users at most"),
    ("1.5 TB", "holds 1500 GB"),
    ("$1,200", "it costs 1200 USD a month"),
    ("$1.2M", "revenue of 1.2 million dollars"),
    ("14:30", "starts at 2:30 PM on Monday"),
    ("14:30", "starts at 14:30."),
    ("2026-03-01", "ships on March 1, 2026"),
    ("2026-03-01", "ships on 1 March 2026, maybe"),
    ("+351 912 345 678", "call +351-912-345-678 now"),
    ("(415) 555-2671", "call (415) 555-2671 now"),
    ("ana@example.com", "write to Ana@Example.com."),
    ("15%", "a rate of 15 percent"),
    ("true", "feature dark-mode is True."),
    ("スタンダード", "料金プラン はスタンダードです"),
    ("北京", "结账服务在北京运行"),
    ("서울", "서버는 서울에 있다"),
    ("C++", "mostly written in C++, some Rust"),
    ("Foo (EU)", "runs as Foo (EU), not as Bar"),
    ("O'Brien", "by o’brien himself"),
    ("-5", "the offset is -5"),
    ("5m", "a timeout of 5 minutes"),
    ("a third value", "it is a third value now"),
]
NOT_STATED = [
    ("5", "the offset is -5"),
    ("5", "it costs 5,000 USD"),
    ("30", "starts at 2:30 PM"),
    ("1", "ships on March 1, 2026"),
    ("2026", "ships on March 1, 2026"),
    ("4", "lives in 4A"),
    ("16", "a ratio of 16:9"),
    ("9", "a ratio of 16:9"),
    ("C", "mostly written in C++"),
    ("Pro", "is on Pro+ now"),
    ("3.1", "runs 3.10"),
    ("GPT-4", "uses GPT-4o"),
    ("eu-west-1", "runs in eu-west-1a"),
    ("90 days", "kept for 90 months"),
    ("スタンダード", "料金プラン はプレミアムです"),
]


def stated(text: str, value: str) -> bool:
    found = set(canon.spans(text, {canon.value_word_count(value)}))
    return not found.isdisjoint(canon.value_forms(value))


@pytest.mark.parametrize(("value", "text"), STATED)
def test_a_text_states_a_value(value: str, text: str) -> None:
    assert stated(text, value)


@pytest.mark.parametrize(("value", "text"), NOT_STATED)
def test_a_text_does_not_state_another_value(value: str, text: str) -> None:
    assert not stated(text, value)


def test_every_value_is_stated_by_a_sentence_with_it() -> None:
    # What begins or ends with a mark between words, or counts more than it says in the form, may be missed.
    missed = [
        value
        for value in (*itertools.chain(*ONE_VALUE), *APART)
        if not stated(f"It says {value} for now", value)
    ]
    assert missed == []


SCRIPTS = [
    "server",
    "дом",
    "الخادم",
    "שרת",
    "सर्वर",
    "σπίτι",
    "サーバー",
    "服务器",
    "서버",
    "เซิร์ฟเวอร์",
    "խոսք",
]


@pytest.mark.parametrize("other", SCRIPTS[1:])
def test_a_word_ends_where_the_script_changes(other: str) -> None:
    for text, value in (
        (f"{other}eu-west-1", "eu-west-1"),
        (f"Lisbon{other}", "Lisbon"),
        (f"x{other}y", other),
    ):
        form = canon.canonical_value(value)
        assert form in set(canon.spans(text, {canon.word_count(form)}))
    assert "server" in canon.text_words(f"{other}server")
    assert "server" in canon.text_words(f"server{other}")


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_a_text_states_a_value_that_stands_between_spaces(before: str, value: str, after: str) -> None:
    form = canon.canonical_value(value)
    count = canon.value_word_count(value)
    if (
        form.kind == "text"
        and count
        and canon_text.normal(value)[0].isalnum()
        and canon_text.normal(value)[-1].isalnum()
    ):
        assert form in set(canon.spans(f"{before} {value} {after}", {count}))


@given(st.text(st.characters(max_codepoint=127), max_size=60))
def test_ascii_and_other_texts_are_cut_into_the_same_words(text: str) -> None:
    text = canon_text.normal(text)
    wide = [match[0] for match in canon_text.words(f"{text} é")]
    assert wide == [*(match[0] for match in canon_text.words(text)), "é"]


def test_spans_come_once() -> None:
    found = list(canon.spans("a b a b 90 days 90 days", {1, 2}))
    assert len(found) == len(set(found))


def test_words_beside_leave_one_statement_out() -> None:
    value = canon.canonical_value("Café Zoë")
    assert canon.words_beside("A guide mentions Café Zoë", value) == {"guide", "mention"}
    assert canon.words_beside("Café Zoë is called Café Zoë", value) == {"cafe", "zoe", "called"}
    assert canon.words_beside("Café Noé", value) is None


def test_a_value_inside_the_current_one_is_not_stated() -> None:
    retired, current = canon.canonical_value("Porto"), canon.canonical_value("Porto Alegre")
    assert canon.words_beside("Ann lives in Porto Alegre", retired, [current]) is None
    assert canon.words_beside("Ann left Porto Alegre for Porto", retired, [current]) is not None
    days, number = canon.canonical_value("90 days"), canon.canonical_value("90")
    assert canon.words_beside("kept for 90 days", number, [days]) is None


def test_only_the_words_near_a_statement_count() -> None:
    value = canon.canonical_value("eu-west-1")
    far = " ".join(["filler"] * 60)
    assert canon.words_beside(f"checkout {far} eu-west-1", value) == {"filler"}
    assert canon.words_beside(f"eu-west-1 {far} checkout eu-west-1", value) == {"filler", "checkout"}


def test_a_reading_answers_as_its_text_does() -> None:
    text = "The backup job kept data for 90 days in eu-west-1, then 30 days"
    reading = canon.Reading(text)
    for counts in ({1}, {1, 2}, {3}):
        assert set(canon.spans(reading, counts)) >= set(canon.spans(text, counts))
    for value in ("90d", "eu-west-1", "Porto"):
        form = canon.canonical_value(value)
        assert canon.words_beside(reading, form) == canon.words_beside(text, form)


def test_values_of_very_many_words_are_not_looked_for() -> None:
    value = " ".join(f"word{number}" for number in range(40))
    assert not stated(f"note {value} note", value)


def test_many_statements_are_judged_in_bounded_time() -> None:
    reading = canon.Reading(" ".join(f"name{number} 14:30" for number in range(8000)))
    started = time.process_time()
    for form in list(canon.spans(reading, {1}))[:300]:
        canon.words_beside(reading, form, [canon.canonical_value("other name")])
    assert time.process_time() - started < 5


def test_long_texts_are_searched_in_bounded_time() -> None:
    prose = " ".join(f"word{number % 997} of the 14:30 meeting" for number in range(2000))
    digits = " ".join(str(number % 1000) for number in range(10_000))
    started = time.process_time()
    for text in (prose, digits, "ab" * 30_000, "(" * 20_000, "+1 " * 5000):
        sum(1 for _ in canon.spans(text, {1, 2, 3}))
    assert time.process_time() - started < 6
