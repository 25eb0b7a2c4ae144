"""Lines of facts: what is taken, what is not, and that the same file twice gives the same identities."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memory.import_jsonl import parse_lines
from memory.import_report import Line, remember_lines
from memory.remember_many import Kept
from tlog.errors import MalformedError, RefusedError, UnavailableError

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def parsed(*lines: str | bytes) -> list[Any]:
    return list(parse_lines(line if isinstance(line, bytes) else line.encode() for line in lines))


def test_a_line_becomes_the_arguments_of_remember() -> None:
    (line,) = parsed(
        '{"text":"t","key":"k","value":"v","client":"c","many":true,"valid_from":"2026-01-01T00:00:00Z"}'
    )
    assert (line.number, line.client) == (1, "c")
    arguments = dict(line.arguments)
    assert arguments.pop("idempotency_key").startswith("jsonl:")
    assert arguments == {
        "text": "t",
        "key": "k",
        "value": "v",
        "many": True,
        "valid_from": "2026-01-01T00:00:00Z",
    }


def test_blank_lines_are_passed_over_and_numbers_kept() -> None:
    assert [line.number for line in parsed("", '{"text":"a"}', "  ", '{"text":"b"}')] == [2, 4]


def test_identity_is_the_bytes_and_how_often_they_came() -> None:
    keys = [
        line.arguments["idempotency_key"] for line in parsed('{"text":"a"}', '{"text":"b"}', '{"text":"a"}')
    ]
    again = [
        line.arguments["idempotency_key"] for line in parsed('{"text":"a"}', '{"text":"b"}', '{"text":"a"}')
    ]
    assert keys == again
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "nonsense",
        '{"value":"v"}',
        '{"text":1}',
        '{"text":"t","tenant":"x"}',
        '{"text":"t","many":"yes"}',
        '{"text":"t","valid_from":true}',
        '{"text":"t","key":null}',
        b'{"text":"\xff"}',
        "[" * 100_000,
        '{"text":"' + "x" * 1_100_000 + '"}',
    ],
)
def test_bad_lines_are_reported_and_the_rest_goes_on(line: str | bytes) -> None:
    bad, good = parsed(line, '{"text":"t"}')
    assert bad[0] == 1
    assert isinstance(bad[1], MalformedError)
    assert isinstance(good, Line)


class Recorder:
    """Remembers lines as a script says."""

    def __init__(self, answers: Iterator[Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.at_once: list[int] = []

    def __call__(self, lines: Sequence[Line]) -> list[Any]:
        self.at_once.append(len(lines))
        return [self._remember(line.arguments["idempotency_key"]) for line in lines]

    def _remember(self, idempotency_key: str) -> Any:
        answer = next(self.answers)
        known = idempotency_key in self.asked
        self.asked.append(idempotency_key)
        return answer if isinstance(answer, Exception) else Kept({"outcome": answer}, known)


def test_report_counts_outcomes_and_says_what_was_not_taken() -> None:
    recorder = Recorder(iter(["stored", MalformedError("expected a time"), "agreed"]))
    steps: list[int] = []
    lines = parse_lines([b'{"text":"a"}', b'{"text":"b"}', b"?", b'{"text":"c"}'])
    report = remember_lines(lines, recorder, steps.append).describe()
    assert report["outcomes"] == {"stored": 1, "agreed": 1}
    assert [one["line"] for one in report["not_taken"]] == [2, 3]
    assert report["lines"] == 4
    assert steps == [1, 2, 3, 4]


def test_what_was_there_already_is_told_from_what_is_new() -> None:
    recorder = Recorder(
        iter(["stored", "refused", "stored", RefusedError("is erased", code="erased"), "held"])
    )
    remember_lines(parse_lines([b'{"text":"a"}', b'{"text":"b"}']), recorder, lambda _: None)
    again = parse_lines([b'{"text":"a"}', b'{"text":"b"}', b'{"text":"c"}'])
    report = remember_lines(again, recorder, lambda _: None).describe()
    assert (report["new"], report["known"], report["erased"]) == (1, 2, 1)
    assert (report["outcomes"], report["not_taken"]) == ({"held": 1}, [])


def test_a_temporary_failure_stops_the_run() -> None:
    recorder = Recorder(iter([UnavailableError("busy")]))
    with pytest.raises(UnavailableError):
        remember_lines(parse_lines([b'{"text":"a"}']), recorder, lambda _: None)


def test_lines_are_remembered_some_at_once_and_in_order() -> None:
    recorder = Recorder(iter(["stored"] * 150))
    steps: list[int] = []
    lines = [b'{"text":"%d"}' % number for number in range(150)]
    remember_lines(parse_lines(lines), recorder, steps.append)
    assert recorder.at_once == [64, 64, 22]
    assert steps == list(range(1, 151))


def test_the_example_week_is_what_it_says() -> None:
    lines = [
        json.loads(line)
        for line in (REPOSITORY / "examples" / "team-week.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(lines) >= 200
    assert {line["client"] for line in lines} == {"desk", "phone"}
    assert sum(1 for line in lines if line.get("restatement")) >= 5
    assert sum(1 for line in lines if line.get("subject") == "Otilia Brandmeyer") >= 8
    assert all(isinstance(one, Line) for one in parse_lines(json.dumps(line).encode() for line in lines))
