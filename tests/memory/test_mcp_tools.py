"""The tool table as hosts and models get it: names and order, size, hints, schemas, and what wrong arguments meet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from memory import wiring
from memory.mcp_arguments import check_arguments
from memory.mcp_calls import call
from memory.mcp_tools import BY_NAME, TOOLS
from memory.model import SCOPES, Principal
from memory.wiring import Home
from tlog.errors import MalformedError

NAMES = [
    *("remember", "recall", "get", "history", "provenance", "conflicts"),
    *("resolve", "review", "forget", "forget_all", "receipt", "status"),
]
ME = Principal("acme", "ops", "desk", SCOPES)
EXPECTED = ("bad_input", "cursor_invalid", "unknown_id", "token_invalid", "nothing_matched")
SECRET = "quincemarmalade"
# tool: read only, destructive, idempotent
HINTS = {
    "remember": (False, False, False),
    "resolve": (False, False, True),
    "review": (False, True, False),
    "forget": (False, True, False),
    "forget_all": (False, True, False),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with wiring.open_home(tmp_path_factory.mktemp("tools") / "home") as opened:
        yield opened


def ask(home: Home, tool: str, principal: Principal = ME, **arguments: Any) -> dict[str, Any]:
    answer = call(home, principal, tool, arguments)
    assert isinstance(answer, dict)
    return answer


def test_there_are_exactly_twelve_in_this_order() -> None:
    assert [tool.name for tool in TOOLS] == NAMES


def test_hints_are_true_to_the_act() -> None:
    for tool in TOOLS:
        assert (tool.read_only, tool.destructive, tool.idempotent) == HINTS.get(
            tool.name, (True, False, True)
        )


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_schemas_are_sound_and_closed(tool: Any) -> None:
    Draft202012Validator.check_schema(tool.arguments)
    Draft202012Validator.check_schema(tool.answer)
    assert tool.arguments["additionalProperties"] is False
    assert tool.answer["type"] == "object"
    # An answer that is neither a result nor an error is none.
    assert list(Draft202012Validator(tool.answer).iter_errors({}))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("argument", ["tenant", "user_id", "project", "client", SECRET])
def test_who_asks_is_never_an_argument(home: Home, name: str, argument: str) -> None:
    answer = ask(home, name, **{argument: SECRET})
    assert answer["error"]["code"] == "unknown_argument"
    assert SECRET not in json.dumps(answer)
    Draft202012Validator(BY_NAME[name].answer).validate(answer)


WRONG = [
    (tool.name, argument, value)
    for tool in TOOLS
    for argument in tool.arguments["properties"]
    for value in (["x", [SECRET]], {"a": SECRET}, f"{SECRET}\ud800")
]


def test_wrong_values_are_errors_that_repeat_nothing(home: Home) -> None:
    asked = 0
    for name, argument, value in WRONG:
        filled = dict.fromkeys(BY_NAME[name].arguments.get("required", ()), "x")
        answer = ask(home, name, **{**filled, argument: value})
        assert SECRET not in json.dumps(answer), (name, argument)
        assert "error" in answer, (name, argument)
        assert answer["error"]["code"] in EXPECTED
        assert answer["error"]["message"] and answer["error"]["next"]
        Draft202012Validator(BY_NAME[name].answer).validate(answer)
        asked += 1
    assert asked > 100


def test_each_argument_may_be_null_as_if_it_were_not_given(home: Home) -> None:
    """Models fill optional arguments with null."""
    properties = BY_NAME["remember"].arguments["properties"]
    given = dict.fromkeys(properties) | {"text": "the sky is blue over the shed"}
    assert ask(home, "remember", **given)["outcome"] == "stored"
    assert ask(home, "remember", text=None)["error"]["code"] == "bad_input"


def test_a_list_that_arrives_as_text_is_an_error_that_says_so(home: Home) -> None:
    answer = ask(home, "forget", id='["abc"]')
    assert "expected id to be a list" in answer["error"]["message"]


@pytest.mark.parametrize("value", [True, 3.5, "12"])
def test_a_number_is_a_whole_number(value: object) -> None:
    with pytest.raises(MalformedError, match="limit to be a whole number"):
        check_arguments("recall", BY_NAME["recall"].arguments, {"query": "x", "limit": value})


def test_an_unknown_tool_is_told_what_there_is(home: Home) -> None:
    answer = ask(home, SECRET)
    assert answer["error"]["code"] == "unknown_tool" and "remember" in answer["error"]["message"]
    assert SECRET not in json.dumps(answer)


def test_our_own_check_agrees_with_a_validator(home: Home) -> None:
    """What the schema that a host reads refuses, is refused; what it takes, is taken."""
    values: list[Any] = ["x", 1, True, [], ["x"], [1], {}, "concise", 400, 399, 50, 51, "cose"]
    tried = 0
    for tool in TOOLS:
        validator = Draft202012Validator(tool.arguments)
        for name in tool.arguments["properties"]:
            for value in values:
                given = dict.fromkeys(tool.arguments.get("required", ()), "x") | {name: value}
                try:
                    check_arguments(tool.name, tool.arguments, given)
                    taken = True
                except MalformedError:
                    taken = False
                assert taken == validator.is_valid(given), (tool.name, name, value)
                tried += 1
    assert tried > 300


def test_a_crash_inside_a_tool_says_nothing_of_what_it_held(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from memory.service import Memory

    def crash(*_: Any, **__: Any) -> None:
        raise ValueError(SECRET)

    monkeypatch.setattr(Memory, "recall", crash)
    answer = ask(home, "recall", query="x")
    assert answer["error"]["code"] == "internal"
    assert SECRET not in json.dumps(answer) and SECRET not in "".join(capsys.readouterr())


def test_an_answer_that_is_no_success_never_looks_like_one(home: Home, tmp_path: Path) -> None:
    """Unknown ids and empty selections: an error each, no count of zero with success."""
    unknown = "a" * 26
    ask(home, "remember", text="the box is called heron")
    assert ask(home, "forget", id=[unknown])["error"]["code"] == "unknown_id"
    assert ask(home, "forget", key="no/such")["error"]["code"] == "nothing_matched"
    assert ask(home, "provenance", id=unknown)["error"]["code"] == "unknown_id"
    assert ask(home, "receipt", id=unknown)["error"]["code"] == "unknown_id"
    assert ask(home, "review", id=unknown, decision="discard")["error"]["code"] == "unknown_id"
    assert ask(home, "resolve", conflict=unknown, keep=unknown)["error"]["code"] == "unknown_id"
