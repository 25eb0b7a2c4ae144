"""Contents that mention nobody are told by their bytes, and no other is: held against the look into every content."""

from __future__ import annotations

import random
import unicodedata

import pytest

from memory.erase_mentions import FIELDS, mentions_of_subjects, mentions_of_values
from memory.event import encode_content

NAMES = (
    "Dana Scully",
    "dana-scully",
    "user-1",
    "Zoë Müller-Weiß",
    "O'Brien",
    "İpek Kılıç",
    "Straße",
    "日本 太郎",
    "Ελένη",
    "ﬁnch",
    "+49 40 1234567",
    "040/123 45 67",
    "+49 1234567",
    "01234567",
    "DE89 3704 0044 0532 0130 00",
    "7",
    "é7",
    "---",
    "ñandú",
    "Анна",
    "a",
)
DISGUISES = (
    lambda chance, text: text,
    lambda chance, text: text.upper(),
    lambda chance, text: text.casefold(),
    lambda chance, text: unicodedata.normalize("NFD", text),
    lambda chance, text: unicodedata.normalize("NFKD", text),
    lambda chance, text: "".join(chr(ord(c) + 0xFEE0) if 0x21 <= ord(c) < 0x7F else c for c in text),
    lambda chance, text: "".join(c + chance.choice(["", "", "\u00ad", "\u200b", "\x01"]) for c in text),
    lambda chance, text: text.replace(" ", chance.choice(["\u00a0", "  ", "\n", "-", ", ", "_", "\u3000"])),
    lambda chance, text: text.replace("-", chance.choice(["\u2011", "\u2013", " ", "/"])),
    lambda chance, text: text.replace("'", "\u2019"),
    lambda chance, text: " ".join(reversed(text.split())),
    lambda chance, text: text.replace("s", "\u017f").replace("K", "\u212a").replace("fi", "\ufb01"),
    lambda chance, text: "".join(chr(0x660 + int(c)) if c in "0123456789" else c for c in text),
    lambda chance, text: text.replace(" ", "").replace("+49", "0049"),
    lambda chance, text: chance.choice(["x", "1", ""]) + text + chance.choice(["er", "0", ""]),
)


def a_content(chance: random.Random) -> dict[str, object]:
    """Some of the names, disguised twice, among other words and the numbers that a content has."""
    content: dict[str, object] = {
        "recorded_at": chance.randrange(1 << 50, 1 << 51),
        "valid_from": chance.randrange(1 << 50, 1 << 51),
        "flags": [],
    }
    for name in chance.sample(FIELDS, k=chance.randint(1, len(FIELDS))):
        said = chance.choice(NAMES)
        for disguise in chance.choices(DISGUISES, k=chance.randint(0, 2)):
            said = disguise(chance, said)
        content[name] = (
            chance.choice(["", "ask ", "é ", "\x1b "]) + said + chance.choice(["", ".", " of Köln", "\n"])
        )
    return content


@pytest.mark.parametrize("seed", range(5))
def test_what_the_bytes_rule_out_mentions_nobody(seed: int) -> None:
    chance = random.Random(seed)
    contents = [a_content(chance) for _ in range(80)]
    mentioned = ruled_out = 0
    for look in (mentions_of_subjects, mentions_of_values):
        for name in NAMES:
            mentions = look([name])
            for content in contents:
                may = mentions.may_be_in(encode_content(content))
                assert may or not mentions(content), (name, content)
                mentioned += mentions(content)
                ruled_out += not may
    assert mentioned > 300 and ruled_out > 300


def test_contents_of_other_words_are_ruled_out() -> None:
    """Also where a number looks like a character; beside another character that happens to be one, few are not."""
    chance = random.Random(5)
    mentions = mentions_of_subjects(["Dana Scully"])
    texts = ("Ask Fox Mulder.", "Café in Köln", "Анна и Пётр")
    contents = [
        {"text": text, "recorded_at": chance.randrange(1 << 50, 1 << 63)}
        for text in texts
        for _ in range(500)
    ]
    left = [content["text"] for content in contents if mentions.may_be_in(encode_content(content))]
    assert texts[0] not in left and len(left) < len(contents) / 5
