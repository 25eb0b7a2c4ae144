"""C2SP tlog-policy: the file, the quorum, and which checkpoints satisfy it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlog.checkpoint import Checkpoint, format_checkpoint
from tlog.errors import Error, MalformedError
from tlog.merkle import EMPTY_ROOT
from tlog.note import Note, SignatureLine, SignatureType, format_note, make_verifier_key
from tlog.policy import (
    GroupEntry,
    LogEntry,
    Policy,
    WitnessEntry,
    format_policy,
    make_policy,
    parse_policy,
    satisfied_by,
    verify_checkpoint,
    verify_cosignatures,
)

ORIGIN = "log.example/test"
TEXT = format_checkpoint(Checkpoint(ORIGIN, 25, bytes(range(32))))
NAMES = ("X1", "X2", "X3", "Y1", "Y2", "Y3")


class Cast:
    """A log, six witnesses of the two types, and their keys."""

    def __init__(self, seed_signer: Callable[..., Any]) -> None:
        self.log = seed_signer(ORIGIN, SignatureType.ED25519, 1)
        self.pq_log = seed_signer(ORIGIN, SignatureType.MLDSA44, 1)
        self.other_log = seed_signer("other.example/log", SignatureType.ED25519, 2)
        self.witnesses = {
            name: seed_signer(
                f"{name.lower()}.example",
                SignatureType.MLDSA44 if name == "X3" else SignatureType.COSIGNATURE_ED25519,
                10 + number,
            )
            for number, name in enumerate(NAMES)
        }
        self.vkeys = {name: witness.verifier_key.vkey for name, witness in self.witnesses.items()}
        self.renamed = seed_signer("renamed.example", SignatureType.ED25519, 1)
        self.renamed_witness = seed_signer("renamed.example", SignatureType.COSIGNATURE_ED25519, 10)
        self.log_vkey = self.log.verifier_key.vkey

    def note(self, *names: str, text: str = TEXT, time: int = 7) -> bytes:
        lines = (self.witnesses[name].cosign(text, time) for name in names)
        return format_note(Note(text, (self.log.sign(text), *lines)))

    def lines(self, *names: str) -> str:
        return f"log {self.log_vkey}\n" + "".join(f"witness {name} {self.vkeys[name]}\n" for name in names)

    def expand(self, text: str) -> str:
        """The text with its capital words replaced by keys, and lines X1 and X2 by whole witness lines."""
        words = {
            "RENAMEDWITNESS": self.renamed_witness.verifier_key.vkey,
            "RENAMED": self.renamed.verifier_key.vkey,
            "WITNESSKEY": self.vkeys["X1"],
            "LOGKEY": self.log_vkey,
            "LOG2": self.other_log.verifier_key.vkey,
            "LOG": f"log {self.log_vkey}",
        }
        lines = []
        for line in text.split("\n"):
            whole = f"witness {line} {self.vkeys[line]}" if line in ("X1", "X2") else line
            lines.append(re.sub("|".join(words), lambda match: words[match[0]], whole))
        return "\n".join(lines)

    def example(self) -> str:
        """The example of tlog-policy."""
        return self.lines(*NAMES) + (
            "group X-witnesses 2 X1 X2 X3\n"
            "group Y-witnesses any Y1 Y2 Y3\n"
            "group X-and-Y all X-witnesses Y-witnesses\n"
            "quorum X-and-Y\n"
        )


@pytest.fixture(scope="module")
def cast(seed_signer: Callable[..., Any]) -> Cast:
    return Cast(seed_signer)


# The file


def test_example(cast: Cast) -> None:
    policy = parse_policy(cast.example())
    assert policy.logs == (LogEntry(cast.log.verifier_key),)
    assert [witness.name for witness in policy.witnesses] == list(NAMES)
    assert policy.witnesses[2] == WitnessEntry("X3", cast.witnesses["X3"].verifier_key)
    assert policy.groups == (
        GroupEntry("X-witnesses", 2, ("X1", "X2", "X3")),
        GroupEntry("Y-witnesses", 1, ("Y1", "Y2", "Y3")),
        GroupEntry("X-and-Y", 2, ("X-witnesses", "Y-witnesses")),
    )
    assert policy.quorum == "X-and-Y"
    assert policy.text == cast.example()


def test_round_trip(cast: Cast) -> None:
    policy = parse_policy(cast.example())
    assert parse_policy(format_policy(policy)) == policy
    assert make_policy(policy.logs, policy.witnesses, policy.groups, policy.quorum) == policy


def test_urls_spaces_comments_and_order(cast: Cast) -> None:
    policy = parse_policy(
        b"# comment \xff\n"
        b"\n"
        b" \t\n"
        b"\t # not a keyword\n"
        + f"witness\tone {cast.vkeys['X1']}   https://w.example/a#b \t\n".encode()
        + b"quorum one\n"
        + f"  log {cast.log_vkey} https://log.example/é\n".encode()
        + f"witness two {cast.vkeys['X2']} #\n".encode()
    )
    assert policy.witnesses[0].url == "https://w.example/a#b"
    assert policy.witnesses[1].url == "#"
    assert policy.logs[0].url == "https://log.example/é"
    assert policy.quorum == "one"
    assert parse_policy(format_policy(policy)) == policy


def test_names_are_octets(cast: Cast) -> None:
    text = (
        f"witness K {cast.vkeys['X1']}\nwitness \u212a {cast.vkeys['X2']}\n".encode()
        + b"witness \xff\xfe "
        + f"{cast.vkeys['Y1']}\n".encode()
        + "witness a\xa0b\u2028c ".encode()
        + f"{cast.vkeys['Y2']}\n".encode()
        + b"group all all K \xe2\x84\xaa \xff\xfe a\xc2\xa0b\xe2\x80\xa8c\nquorum all\n"
    )
    policy = parse_policy(text)
    assert len(policy.witnesses) == 4 and policy.groups[0].threshold == 4
    assert not satisfied_by(policy, ["K"])
    assert parse_policy(format_policy(policy)) == policy
    assert format_policy(policy).encode("utf-8", "surrogateescape").count(b"\xff\xfe") == 2


def test_quorum_none_needs_no_witness(cast: Cast) -> None:
    policy = parse_policy(f"log {cast.log_vkey}\nquorum none\n")
    assert policy.quorum is None and satisfied_by(policy, [])
    assert format_policy(policy) == policy.text
    assert parse_policy("quorum none\n").logs == ()


def test_one_origin_may_have_two_keys(cast: Cast) -> None:
    policy = parse_policy(f"log {cast.log_vkey}\nlog {cast.pq_log.verifier_key.vkey}\nquorum none\n")
    assert len(policy.logs) == 2


def test_takes_32_of_each(seed_signer: Callable[..., Any]) -> None:
    logs = [seed_signer(f"l{n}", 1, 100 + n).verifier_key for n in range(32)]
    witnesses = [seed_signer(f"w{n}", 6, 200 + n).verifier_key for n in range(32)]
    policy = make_policy(
        [LogEntry(key) for key in logs],
        [WitnessEntry(key.name, key, f"https://{key.name}.example/") for key in witnesses],
        [GroupEntry("g0", 1, ("w0",))]
        + [GroupEntry(f"g{n}", 2, (f"g{n - 1}", f"w{n}")) for n in range(1, 32)],
        "g31",
    )
    assert satisfied_by(policy, {key.name for key in witnesses})
    assert not satisfied_by(policy, {key.name for key in witnesses[1:]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "LOG\n",
        "LOG\nquorum none",
        "X1\nquorum X1\n# cut",
        "X1\nquorum X1\n\xa0\n",
        "LOG\r\nquorum none\r\n",
        "LOG\nquorum none\n\0",
        "LOG\nquorum none\n# \x1b\n",
        "LOG\nquorum none\n# \x7f\n",
        "LOG\x0bquorum none\n",
        "LOG\nquorum none\nquorum none\n",
        "LOG\nX1\nquorum X1\nquorum none\n",
        "LOG\nquorum\n",
        "LOG\nquorum none none\n",
        "LOG\nquorum none # no comment here\n",
        "LOG\nQuorum none\n",
        "LOG\nquorum X1\n",
        "LOG\nquorum X1\nX1\n",
        "LOG\nquorum None\n",
        "LOG LOG2 x\nquorum none\n",
        "log\nquorum none\n",
        "log x+y+z\nquorum none\n",
        "log WITNESSKEY\nquorum none\n",
        "LOG\nLOG\nquorum none\n",
        "LOG\nlog RENAMED\nquorum none\n",
        "X1\nX1\nquorum X1\n",
        "X1\nwitness X2 WITNESSKEY\nquorum X1\n",
        "X1\nwitness X2 RENAMEDWITNESS\nquorum X1\n",
        "witness X1 LOGKEY\nquorum X1\n",
        "witness X1\nquorum X1\n",
        "witness none WITNESSKEY\nquorum none\n",
        "witness X1 WITNESSKEY url more\nquorum X1\n",
        "X1\ngroup g\nquorum g\n",
        "X1\ngroup g any\nquorum g\n",
        "X1\ngroup g 1\nquorum g\n",
        "X1\ngroup g 0 X1\nquorum g\n",
        "X1\ngroup g 2 X1\nquorum g\n",
        "X1\ngroup g 01 X1\nquorum g\n",
        "X1\ngroup g +1 X1\nquorum g\n",
        "X1\ngroup g -1 X1\nquorum g\n",
        "X1\ngroup g 1.0 X1\nquorum g\n",
        "X1\ngroup g ١ X1\nquorum g\n",
        "X1\ngroup g 18446744073709551617 X1\nquorum g\n",
        "X1\ngroup g some X1\nquorum g\n",
        "X1\ngroup g ALL X1\nquorum g\n",
        "X1\ngroup g any none\nquorum g\n",
        "X1\ngroup g any g\nquorum g\n",
        "X1\ngroup g any X2\nX2\nquorum g\n",
        "X1\ngroup g any X1 X1\nquorum g\n",
        "X1\nX2\ngroup g any X1\ngroup h any X1 X2\nquorum h\n",
        "X1\nX2\ngroup g any X1\ngroup h any g\ngroup i any g X2\nquorum i\n",
        "X1\nX2\ngroup X1 any X2\nquorum X2\n",
        "X1\nX2\ngroup g any X1\ngroup g any X2\nquorum g\n",
        "X1\ngroup none any X1\nquorum none\n",
        "X1\nX2\ngroup X2 any X1\nquorum X1\n",
    ],
)
def test_rejects_malformed_policies(cast: Cast, text: str) -> None:
    with pytest.raises(MalformedError):
        parse_policy(cast.expand(text))


@pytest.mark.parametrize(
    "text",
    [
        "LOG\nquorum none\n",
        "LOG url\nlog LOG2\nquorum none\n",
        "X1\nX2\nquorum X2\n",
        "witness x\xa0 WITNESSKEY\nquorum x\xa0\n",
        "witness X1 WITNESSKEY\ngroup g 1 X1\nquorum g\n",
        "log RENAMED\nwitness X1 RENAMEDWITNESS\nquorum X1\n",
        "X1\nX2\ngroup g any X1\ngroup h any g X2\nquorum g\n",
    ],
)
def test_takes_their_well_formed_kin(cast: Cast, text: str) -> None:
    assert parse_policy(cast.expand(text))


def test_error_names_the_line_and_repeats_nothing(cast: Cast) -> None:
    with pytest.raises(MalformedError) as raised:
        parse_policy(f"# one\n{cast.lines('X1')}group secret 7 X1\nquorum none\n")
    assert raised.value.fields == {"line": 4}
    assert "line 4" in raised.value.message and "secret" not in raised.value.message


def test_rejects_policies_too_large(cast: Cast) -> None:
    with pytest.raises(MalformedError) as raised:
        parse_policy("#" * (1 << 20) + "\n")
    assert raised.value.code == "too_large"


@pytest.mark.parametrize("name", ["a b", "a\tb", "a\nquorum none\n#", "", "none", "a\x7f", "a\r"])
def test_makes_no_policy_it_could_not_read(cast: Cast, name: str) -> None:
    key = cast.witnesses["X1"].verifier_key
    with pytest.raises(MalformedError):
        make_policy([], [WitnessEntry(name, key)], [], name)
    if name not in ("none", ""):
        with pytest.raises(MalformedError):
            make_policy([], [WitnessEntry("w", key, f"https://{name}")], [], "w")


@pytest.mark.parametrize(
    "parts",
    [
        {"quorum": "one\n# more"},
        {"quorum": ""},
        {"url": "https://one.example\n# more"},
        {"url": ""},
        {"members": ("one two",)},
        {"group": "group any"},
    ],
)
def test_makes_no_policy_that_reads_as_another(cast: Cast, parts: dict[str, Any]) -> None:
    one, two = (cast.witnesses[name].verifier_key for name in ("X1", "X2"))
    whole = {"url": None, "group": "group", "members": ("one",), "quorum": "one"}
    for changed in (whole, whole | parts):
        witnesses = [WitnessEntry("one", one, changed["url"]), WitnessEntry("two", two)]
        groups = [GroupEntry(changed["group"], 1, changed["members"])]
        if changed == whole:
            assert make_policy([], witnesses, groups, changed["quorum"])
            continue
        with pytest.raises(MalformedError):
            make_policy([], witnesses, groups, changed["quorum"])


def test_rejects_two_keys_of_one_name_and_id() -> None:
    for kind, numbers in ((1, (22922, 28974)), (4, (28184, 56590))):
        one, two = (make_verifier_key("twin.example", kind, number.to_bytes(32)) for number in numbers)
        assert one != two and one.key_id == two.key_id
        words = ("log {}", "log {}") if kind == 1 else ("witness a {}", "witness b {}")
        lines = [word.format(key.vkey) for word, key in zip(words, (one, two), strict=True)]
        with pytest.raises(MalformedError, match="name and id"):
            parse_policy("\n".join((*lines, "quorum none\n")))


def test_rejects_more_than_256_of_a_kind() -> None:
    lines = [
        f"log {make_verifier_key('l', 1, (number << 8).to_bytes(32)).vkey}\n" for number in range(2, 259)
    ]
    assert len(parse_policy("".join(lines[1:]) + "quorum none\n").logs) == 256
    with pytest.raises(MalformedError, match="256"):
        parse_policy("".join(lines) + "quorum none\n")


def test_a_comment_cannot_be_a_name_made(cast: Cast) -> None:
    key = cast.witnesses["X1"].verifier_key
    policy = make_policy([], [WitnessEntry("#", key, "#")], [], "#")
    assert satisfied_by(policy, ["#"])


words = st.sampled_from(
    [
        "log",
        "witness",
        "group",
        "quorum",
        "none",
        "all",
        "any",
        "1",
        "2",
        "a",
        "b",
        "\n",
        "\n",
        "#",
        "\t",
        "KEY",
    ]
)


@given(st.lists(words, max_size=25))
def test_any_policy_that_parses_is_read_back(cast: Cast, parts: list[str]) -> None:
    text = " ".join(parts).replace("KEY", cast.vkeys["X1"]) + "\nquorum none\n"
    try:
        policy = parse_policy(text)
    except MalformedError:
        return
    assert parse_policy(format_policy(policy)) == policy


# The quorum


def test_quorum_of_the_example(cast: Cast) -> None:
    policy = parse_policy(cast.example())
    for count in range(len(NAMES) + 1):
        for names in combinations(NAMES, count):
            enough = sum(name[0] == "X" for name in names) >= 2 and any(name[0] == "Y" for name in names)
            assert satisfied_by(policy, names) == enough


def test_names_of_groups_and_strangers_do_not_count(cast: Cast) -> None:
    policy = parse_policy(cast.example())
    assert not satisfied_by(policy, ["X-and-Y", "X-witnesses", "Y-witnesses", "none", "else"])
    assert not satisfied_by(policy, ["X1", "X1", "Y1"])


# Whether a checkpoint satisfies it


def code(policy: Policy, data: bytes, origin: str | None = None) -> str:
    with pytest.raises(Error) as raised:
        verify_checkpoint(policy, data, origin)
    return raised.value.code


def test_checkpoint_with_quorum(cast: Cast) -> None:
    policy = parse_policy(cast.example())
    note = cast.note("Y2", "X3", "X1")
    verified = verify_checkpoint(policy, note, ORIGIN)
    assert verified.checkpoint.size == 25
    assert verified.log_key == cast.log.verifier_key
    assert verified.witnesses == ("Y2", "X3", "X1")
    assert [cosignature.timestamp for cosignature in verified.cosignatures] == [7, 7, 7]
    assert verify_checkpoint(policy, note) == verified


def test_own_checkpoints(vectors: Path) -> None:
    known = json.loads((vectors / "checkpoints/vectors.json").read_text())
    policy = parse_policy(
        f"log {known['log']['vkey']}\nwitness ed {known['witness_ed25519']['vkey']}\n"
        f"witness pq {known['witness_mldsa44']['vkey']}\ngroup both all ed pq\nquorum both\n"
    )
    for size in known["checkpoints"]:
        data = (vectors / f"checkpoints/checkpoint-{size}.note").read_bytes()
        assert verify_checkpoint(policy, data).witnesses == ("ed", "pq")


def test_too_few_cosignatures(cast: Cast) -> None:
    policy = parse_policy(cast.example())
    for names in ((), ("X1", "Y1"), ("X1", "X2", "X3")):
        assert code(policy, cast.note(*names)) == "quorum_not_met"


def test_cosignature_of_another_checkpoint_does_not_count(cast: Cast) -> None:
    policy = parse_policy(cast.lines("X1") + "quorum X1\n")
    other = cast.witnesses["X1"].cosign(TEXT.replace("25", "26"), 7)
    assert code(policy, format_note(Note(TEXT, (cast.log.sign(TEXT), other)))) == "cosignature"


def test_one_failing_or_doubled_witness_line_fails_it_all(cast: Cast) -> None:
    policy = parse_policy(cast.lines("X1", "X2") + "quorum X1\n")
    signatures = (cast.log.sign(TEXT), cast.witnesses["X1"].cosign(TEXT, 7))
    assert verify_checkpoint(policy, format_note(Note(TEXT, signatures)))
    twice = cast.witnesses["X1"].cosign(TEXT, 8)
    timeless = cast.witnesses["X2"].cosign(TEXT, 0)
    for extra in (twice, signatures[1], timeless, SignatureLine(timeless.name, timeless.key_id, b"x")):
        assert code(policy, format_note(Note(TEXT, (*signatures, extra)))) == "cosignature"


def test_strangers_lines_are_passed_over(cast: Cast) -> None:
    policy = parse_policy(cast.lines("X1") + "quorum X1\n")
    stranger = SignatureLine("grease.invalid", b"1234", b"x")
    key = cast.witnesses["X1"].verifier_key
    same_name = SignatureLine(key.name, b"1234", b"x")
    note = Note(
        TEXT,
        (
            stranger,
            same_name,
            cast.witnesses["Y1"].cosign(TEXT, 7),
            cast.witnesses["X1"].cosign(TEXT, 7),
            cast.log.sign(TEXT),
            stranger,
        ),
    )
    assert verify_checkpoint(policy, format_note(note)).witnesses == ("X1",)


def test_log_signature_is_needed_with_all_witnesses(cast: Cast) -> None:
    policy = parse_policy(cast.lines("X1") + "quorum X1\n")
    line = cast.witnesses["X1"].cosign(TEXT, 7)
    assert code(policy, format_note(Note(TEXT, (line,)))) == "log_signature"
    wrong = SignatureLine(cast.log.verifier_key.name, cast.log.verifier_key.key_id, bytes(64))
    assert code(policy, format_note(Note(TEXT, (wrong, line)))) == "log_signature"


def test_log_that_is_not_listed(cast: Cast) -> None:
    policy = parse_policy(f"log {cast.other_log.verifier_key.vkey}\nquorum none\n")
    assert code(policy, cast.note()) == "origin"
    assert code(parse_policy("quorum none\n"), cast.note()) == "origin"
    signed_by_other = format_note(Note(TEXT, (cast.other_log.sign(TEXT),)))
    assert code(policy, signed_by_other) == "origin", "a log signs for its own origin only"


def test_any_listed_log_will_do_unless_one_is_asked_for(cast: Cast) -> None:
    policy = parse_policy(f"log {cast.other_log.verifier_key.vkey}\nlog {cast.log_vkey}\nquorum none\n")
    assert verify_checkpoint(policy, cast.note()).log_key == cast.log.verifier_key
    assert code(policy, cast.note(), "other.example/log") == "origin"


def test_each_key_of_an_origin_has_to_hold(cast: Cast) -> None:
    policy = parse_policy(f"log {cast.log_vkey}\nlog {cast.pq_log.verifier_key.vkey}\nquorum none\n")
    pq_line = cast.pq_log.cosign(TEXT, 0)
    assert verify_checkpoint(policy, format_note(Note(TEXT, (pq_line,)))).log_key == cast.pq_log.verifier_key
    assert verify_checkpoint(policy, format_note(Note(TEXT, (cast.log.sign(TEXT), pq_line))))
    changed = bytes((*pq_line.signature[:-1], pq_line.signature[-1] ^ 1))
    wrong = SignatureLine(pq_line.name, pq_line.key_id, changed)
    assert code(policy, format_note(Note(TEXT, (cast.log.sign(TEXT), wrong)))) == "log_signature"


def test_empty_log(cast: Cast) -> None:
    policy = parse_policy(cast.lines("X1") + "quorum X1\n")
    empty = format_checkpoint(Checkpoint(ORIGIN, 0, EMPTY_ROOT))
    assert verify_checkpoint(policy, cast.note("X1", text=empty)).checkpoint.size == 0
    wrong = format_checkpoint(Checkpoint(ORIGIN, 0, b"\1" * 32))
    assert code(policy, cast.note("X1", text=wrong)) == "empty_root"


def test_what_is_no_checkpoint_is_malformed(cast: Cast) -> None:
    policy = parse_policy(cast.lines("X1") + "quorum X1\n")
    for data in (b"", b"hello\n", format_note(Note("hello\n", (cast.log.sign("hello\n"),)))):
        assert code(policy, data) == "bad_input"


def test_cosignatures_short_of_the_quorum_can_be_counted(cast: Cast) -> None:
    policy = parse_policy(cast.example())
    note = Note(TEXT, (cast.log.sign(TEXT), cast.witnesses["X1"].cosign(TEXT, 9)))
    assert [found.timestamp for found in verify_cosignatures(policy, note)] == [9]
