"""`muniment batch`: one answer a line, flushed before the next is read, and no line ends the others."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import batch, wiring
from memory.batch import run_batch
from memory.principal import owner_from_environment
from memory.service import Memory
from memory.wiring import Home

OWNER = owner_from_environment({})
NAMED = {
    *("remember", "recall", "get", "history", "provenance", "retract", "conflicts", "resolve", "confirm"),
    *("discard", "forget_preview", "forget", "retention", "receipt", "publish", "status"),
}

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def run(home: Home) -> Run:
    def lines(*requests: Any, operator: bool = False) -> list[dict[str, Any]]:
        written: list[str] = []
        texts = (one if isinstance(one, str) else json.dumps(one) for one in requests)
        run_batch(texts, written.append, home, operator, OWNER)
        assert all("\n" not in line for line in written)
        return [json.loads(line) for line in written]

    return lines


def code(answer: dict[str, Any]) -> str:
    assert answer["ok"] is False
    assert set(answer["error"]) == {"code", "message"}
    return str(answer["error"]["code"])


def test_has_every_promised_operation() -> None:
    assert set(batch.OPERATIONS) >= NAMED


def test_each_line_is_answered_before_the_next_is_read(home: Home) -> None:
    events: list[str] = []

    def lines() -> Iterable[str]:
        for number in range(3):
            events.append(f"read {number}")
            yield json.dumps({"op": "remember", "text": f"fact {number}"})

    run_batch(lines(), lambda _: events.append("answered"), home, False, OWNER)
    assert events == ["read 0", "answered", "read 1", "answered", "read 2", "answered"]


def test_a_whole_conversation(run: Run, home: Home) -> None:
    first, second, echo, get, history, recall, status = run(
        {"op": "remember", "text": "it runs in a", "key": "k", "value": "a"},
        {"op": "remember", "text": "it runs in b", "key": "k", "value": "b", "valid_until": None},
        {"op": "remember", "text": "it runs in a", "key": "k", "value": "a"},
        {"op": "get", "key": "k", "as_of": "now"},
        {"op": "history", "key": "k"},
        {"op": "recall", "query": "runs", "limit": 5, "include_history": True},
        {"op": "status"},
    )
    assert [one["result"]["outcome"] for one in (first, second, echo)] == ["stored", "superseded", "refused"]
    assert get["result"]["current"] == "b"
    assert len(history["result"]["facts"]) == 3
    assert len(recall["result"]["facts"]) == 2
    assert status["result"]["facts"] == {"active": 1, "refused": 1, "superseded": 1}
    id = second["result"]["id"]
    provenance, published, receipt, proof = run(
        {"op": "provenance", "id": id},
        {"op": "publish"},
        {"op": "receipt", "id": id},
        {"op": "receipt", "id": id, "format": "tlog-proof"},
    )
    assert provenance["result"]["fact"]["id"] == id
    assert published["result"]["size"] == 3
    assert base64.b64decode(receipt["result"]["receipt"]).startswith(b"\xd2\x84")
    assert base64.b64decode(proof["result"]["receipt"]).startswith(b"c2sp.org/tlog-proof@v1\n")
    preview = run({"op": "forget", "id": [id]})[0]["result"]
    assert preview["preview"]["ids"] == [id]
    (done,) = run({"op": "forget", "id": [id], "confirm": preview["confirm"]})
    assert done["result"]["erased"] == 1
    assert code(run({"op": "retract", "id": id})[0]) == "erased"


def test_a_bad_line_is_answered_and_the_rest_goes_on(run: Run) -> None:
    bad = [
        "not json",
        "[]",
        '"text"',
        "[" * 100_000,
        '{"op": "remember", "text": "cut',
        '{"op": "remember", "text": "\udcff"}',
        {"op": "remember", "text": "lone \ud800"},
        '{"op": "remember", "text": "one", "text": "two"}',
        '{"op": "get", "op": "remember", "text": "one"}',
        '{"op": "remember", "text": "one", "key": {"a": 1, "a": 2}}',
        '{"op": "retract", "id": NaN}',
        {"op": "remember"},
        {"op": "remember", "text": None},
        {"op": "remember", "text": ""},
        {"op": "get", "key": ["k"]},
        {"op": "nothing"},
        {"op": ["remember"]},
        {"text": "no op"},
        {"op": "retract", "id": "nonsense"},
        {"op": "receipt", "id": {"a": 1}},
        {"op": "retention", "superseded_older_than": 90},
        "x" * (batch.MAX_LINE_CHARACTERS + 1),
    ]
    answers = run(*bad, {"op": "remember", "text": "still here"})
    assert len(answers) == len(bad) + 1
    assert [code(answer) for answer in answers[:-1]] == ["bad_input"] * len(bad)
    assert answers[-1]["result"]["outcome"] == "stored"


def test_empty_lines_are_no_requests(run: Run) -> None:
    assert len(run("", "  \n", {"op": "status"})) == 1


@pytest.mark.parametrize(
    "request_line",
    [
        {"op": "remember", "text": "t", "tenant": "other"},
        {"op": "remember", "text": "t", "agent": "other"},
        {"op": "remember", "text": "t", "self": 1},
        {"op": "remember", "text": "t", "valid-from": "now"},
        {"op": "conflicts", "key": "k"},
        {"op": "get", "key": "k", "limit": 1},
        {"op": "remember", "text": "t", "as": "a/b/c"},
    ],
)
def test_an_unknown_argument_is_an_error(run: Run, request_line: dict[str, Any]) -> None:
    assert code(run(request_line)[0]) == "unknown_argument"
    assert run({"op": "status"})[0]["result"]["facts"] == {}


def test_codes_of_what_is_refused(run: Run) -> None:
    made = run({"op": "remember", "text": "t", "key": "k", "value": "v", "idempotency_key": "1"})[0]["result"]
    answers = run(
        {"op": "remember", "text": "other", "idempotency_key": "1"},
        {"op": "provenance", "id": "aaaaaaaaaaaaaaaaaaaaaaaaae"},
        {"op": "retract", "id": made["id"][::-1]},
        {"op": "forget", "id": made["id"], "confirm": "x"},
        {"op": "remember", "text": "t", "key": "k", "value": "w", "reaffirm": "x", "reason": "r"},
    )
    codes = [code(answer) for answer in answers]
    assert codes[0] == "idempotency_conflict"
    assert codes[1] in ("unknown_id", "bad_input")
    assert codes[2] in ("unknown_id", "bad_input")
    assert codes[3:] == ["token_invalid", "token_invalid"]


def test_the_operator_acts_for_others_each_in_its_scope(run: Run) -> None:
    answers = run(
        {"op": "remember", "as": "acme/ops/desk", "text": "t", "key": "k", "value": "one"},
        {"op": "remember", "as": "umbrella/ops/desk", "text": "t", "key": "k", "value": "two"},
        {"op": "get", "as": "acme/ops/other/with/slashes", "key": "k"},
        {"op": "get", "as": "umbrella/ops/desk", "key": "k"},
        {"op": "get", "as": "acme/sales/desk", "key": "k"},
        {"op": "get", "key": "k"},
        {"op": "get", "as": "acme/ops", "key": "k"},
        {"op": "get", "as": "*/ops/desk", "key": "k"},
        {"op": "get", "as": 5, "key": "k"},
        {"op": "get", "as": "new tenant/x/y", "key": "k"},
        operator=True,
    )
    assert [answer["result"]["current"] for answer in answers[2:6]] == ["one", "two", None, None]
    assert [code(answer) for answer in answers[6:9]] == ["bad_input"] * 3
    assert answers[9]["result"]["scope"] == {"tenant": "new tenant", "agent": "x"}


def test_our_own_bug_is_answered_as_internal_without_content(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Memory, key: str, **_: Any) -> None:
        raise RuntimeError(f"secret {key}")

    monkeypatch.setattr(Memory, "get", broken)
    failed, after = run({"op": "get", "key": "k-secret"}, {"op": "status"})
    assert code(failed) == "internal"
    assert "secret" not in failed["error"]["message"]
    assert after["ok"]


CASES = Path(__file__).resolve().parent.parent / "vectors" / "guard_cases.jsonl"
NOW = re.compile(r"\$now([+-]\d+)")


class Clock:
    """A clock that moves a second with each line, and more where a case waits."""

    def __init__(self) -> None:
        self.seconds = 1_900_000_000

    def __call__(self) -> int:
        return self.seconds * 1_000_000


def played(case: dict[str, Any], ask: Callable[[dict[str, Any]], dict[str, Any]], clock: Clock) -> list[str]:
    """What came out other than wanted. Each case has tenants of its own, so all of them can share a store."""
    given: dict[str, Any] = {"$last": ""}
    wrong = []
    for number, step in enumerate(case["steps"]):
        clock.seconds += step.get("seconds", 1)
        if step["op"] == "wait":
            continue
        line = {
            name: given.get(value, value) if isinstance(value, str) else value for name, value in step.items()
        }
        for name, value in step.items():
            relative = NOW.fullmatch(value) if isinstance(value, str) else None
            if relative is not None:
                line[name] = clock.seconds + int(relative[1])
        want = line.pop("want", {})
        answer = ask({**line, "as": f"{case['id']} {line['as']}"})
        result = answer.get("result") or {"outcome": "error"}
        given |= {"$last": result.get("reaffirm") or given["$last"], f"$id{number}": result.get("id")}
        seen = result | {"ok": answer["ok"], "active": len(result.get("active", ()))}
        seen["count"] = len(result.get("conflicts", ()))
        wrong += [f"{case['id']} step {number}: {name}" for name in want if seen.get(name) != want[name]]
    return wrong


def test_the_guard_cases_hold_in_a_store(tmp_path: Path) -> None:
    """As in benchmarks/guard_cases.py, but for what erases: that is a process for each."""
    clock = Clock()
    cases = [json.loads(line) for line in CASES.read_text("utf-8").splitlines()]
    chosen = [case for case in cases if all(step["op"] != "retention" for step in case["steps"])]
    assert len(chosen) > 450
    with wiring.open_home(tmp_path / "home", clock=clock) as home:

        def ask(line: dict[str, Any]) -> dict[str, Any]:
            written: list[str] = []
            run_batch([json.dumps(line)], written.append, home, True, OWNER)
            answer: dict[str, Any] = json.loads(written[0])
            return answer

        wrong = [problem for case in chosen for problem in played(case, ask, clock)]
    assert wrong == []
