"""Erasing and deciding over MCP: a token that a preview gives, and a person who is asked beside it, never instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import ElicitRequestParams, ElicitResult, Implementation

from memory import wiring
from memory.mcp_ask import NOBODY, Person, Question, Reply
from memory.mcp_calls import call
from memory.mcp_server import bound, make_server
from memory.model import AGENT_SCOPES, Principal
from memory.wiring import Home

ME = Principal("acme", "ops", "desk", AGENT_SCOPES)
PROVED = replace(ME, authenticated=True)
CAN_BE_ASKED = Person(askable=True)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


def ask(
    home: Home, tool: str, principal: Principal = ME, person: Person = NOBODY, **given: Any
) -> dict[str, Any]:
    answer = call(home, principal, tool, given, person)
    assert isinstance(answer, dict), "a question where an answer was expected"
    return answer


def question(home: Home, tool: str, principal: Principal = ME, **given: Any) -> Question:
    asked = call(home, principal, tool, given, CAN_BE_ASKED)
    assert isinstance(asked, Question), asked
    return asked


def said(asked: Question, action: str = "accept", **content: Any) -> Person:
    return Person(True, Reply(action, content), asked.digest)


def remember(home: Home, text: str = "her jam is quince", **given: Any) -> str:
    made = ask(home, "remember", text=text, **({"key": "jam/kind", "value": "quince"} | given))
    return str(made["id"])


def is_there(home: Home) -> bool:
    return ask(home, "get", key="jam/kind")["current"] == "quince"


SELECTIONS = [("forget", {"key": "jam/kind"}), ("forget_all", {})]


# The token


@pytest.mark.parametrize(("tool", "selection"), SELECTIONS)
@pytest.mark.parametrize("person", [NOBODY, CAN_BE_ASKED])
def test_the_first_call_deletes_nothing(
    home: Home, tool: str, selection: dict[str, Any], person: Person
) -> None:
    remember(home)
    for _ in range(3):
        preview = ask(home, tool, person=person, **selection)
        assert preview["preview"]["count"] == 1 and preview["confirm"] and preview["expires_at"]
    assert is_there(home)


@pytest.mark.parametrize(("tool", "selection"), SELECTIONS)
def test_the_second_erases_once_with_the_token_alone(
    home: Home, tool: str, selection: dict[str, Any]
) -> None:
    """A client that shows no dialog."""
    remember(home)
    token = ask(home, tool, **selection)["confirm"]
    for wrong in ("yes", "true", token[:-1], token + "0"):
        assert ask(home, tool, **selection, confirm=wrong)["error"]["code"] == "token_invalid"
    assert is_there(home)
    assert ask(home, tool, **selection, confirm=token)["erased"] == 1
    assert not is_there(home)
    assert "error" in ask(home, tool, **selection, confirm=token)


def test_who_asks_from_elsewhere_learns_no_path_of_the_server(home: Home) -> None:
    for number, principal in enumerate((ME, PROVED), 1):
        id = str(ask(home, "remember", principal=principal, text="her jam is quince")["id"])
        token = ask(home, "forget", principal=principal, id=[id])["confirm"]
        done = ask(home, "forget", principal=principal, id=[id], confirm=token)
        path = f"erasures/{number}.cose"
        assert done["manifest"] == (path if principal is PROVED else str(home.public_storage().folder / path))


def test_a_token_is_for_one_tool_selection_and_client(home: Home) -> None:
    id = remember(home)
    one, everything = ask(home, "forget", id=[id])["confirm"], ask(home, "forget_all")["confirm"]
    other = replace(ME, client="ide")
    for tool, given, principal in (
        ("forget_all", {"confirm": one}, ME),
        ("forget", {"id": [id], "confirm": everything}, ME),
        ("forget", {"id": [id], "confirm": one}, other),
        ("forget_all", {"confirm": everything}, other),
    ):
        assert ask(home, tool, principal=principal, **given)["error"]["code"] == "token_invalid"
    assert is_there(home)


# The person beside it


@pytest.mark.parametrize(("tool", "selection"), SELECTIONS)
def test_a_person_who_can_be_asked_is_asked_beside_the_token(
    home: Home, tool: str, selection: dict[str, Any]
) -> None:
    remember(home)
    token = ask(home, tool, **selection)["confirm"]
    asked = question(home, tool, **selection, confirm=token)
    assert "1 fact (1 active)" in asked.message and "quince" not in asked.message
    for action in ("decline", "cancel"):
        refused = ask(home, tool, person=said(asked, action), **selection, confirm=token)
        assert refused["error"]["code"] == "declined" and is_there(home)
    assert ask(home, tool, person=said(asked), **selection, confirm=token)["erased"] == 1


@pytest.mark.parametrize(("tool", "selection"), SELECTIONS)
def test_an_answer_never_stands_in_for_the_token(home: Home, tool: str, selection: dict[str, Any]) -> None:
    """A client that approves everything by itself: what is left between wish and deletion is the token."""
    remember(home)
    asked = question(home, tool, **selection, confirm=ask(home, tool, **selection)["confirm"])
    assert ask(home, tool, person=said(asked), **selection, confirm="yes")["error"]["code"] == "token_invalid"
    assert "preview" in ask(home, tool, person=said(asked), **selection)
    assert is_there(home)


@pytest.mark.parametrize(("tool", "selection"), SELECTIONS)
def test_nobody_is_asked_about_a_token_that_does_not_hold(
    home: Home, tool: str, selection: dict[str, Any]
) -> None:
    remember(home)
    token = ask(home, tool, person=CAN_BE_ASKED, **selection)["confirm"]
    for other in ("0" * 64, token[:-1], token.upper()):
        refused = ask(home, tool, person=CAN_BE_ASKED, confirm=other, **selection)
        assert refused["error"]["code"] == "token_invalid"
    remember(home, "another jam", key="jam/other", value="plum", subject="jam")
    if tool == "forget_all":
        # What nobody was shown has come to it.
        assert ask(home, tool, person=CAN_BE_ASKED, confirm=token)["error"]["code"] == "token_invalid"
        token = ask(home, tool, person=CAN_BE_ASKED)["confirm"]
    asked = question(home, tool, confirm=token, **selection)
    assert ask(home, tool, person=said(asked), confirm=token, **selection)["erased"] >= 1
    assert ask(home, tool, person=CAN_BE_ASKED, confirm=token, **selection)["error"]["code"] in (
        "nothing_matched",
        "token_invalid",
    )


def test_an_answer_is_to_one_question(home: Home) -> None:
    """Accepted for one fact, it erases no second that came meanwhile, nor what another question is about."""
    remember(home)
    token = ask(home, "forget", key="jam/kind")["confirm"]
    accepted = said(question(home, "forget", key="jam/kind", confirm=token))
    remember(home, "her jam is plum", value="plum")
    for tool, selection in SELECTIONS:
        refused = ask(home, tool, person=accepted, confirm=token, **selection)
        assert refused["error"]["code"] == "token_invalid"
    shown = ask(home, "forget", key="jam/kind")["confirm"]
    assert isinstance(call(home, ME, "forget", {"key": "jam/kind", "confirm": shown}, accepted), Question)
    assert len(ask(home, "history", key="jam/kind")["facts"]) == 2


# Rights of a caller that proved who it is


@pytest.mark.parametrize("person", [NOBODY, CAN_BE_ASKED])
def test_who_proved_its_name_has_its_scopes_and_no_more(home: Home, person: Person) -> None:
    id = remember(home)
    reader = replace(PROVED, scopes=frozenset({"memory:read"}))
    for tool, given, principal in (
        ("forget", {"id": [id]}, reader),
        ("forget", {"id": [id], "confirm": "x"}, reader),
        ("forget_all", {}, PROVED),
        ("remember", {"text": "x"}, reader),
        ("review", {}, PROVED),
    ):
        assert ask(home, tool, principal=principal, person=person, **given)["error"]["code"] == "forbidden"
    for tool, given in (("review", {"id": id}), ("resolve", {"conflict": id, "keep": id})):
        assert ask(home, tool, principal=PROVED, person=person, **given)["error"]["code"] == "needs_person"
    purger = replace(PROVED, scopes=AGENT_SCOPES | {"memory:purge"})
    assert ask(home, "forget_all", principal=purger)["preview"]["count"] == 1


# What waits for a person


def corrected(home: Home) -> str:
    """The id of a write that was refused as an echo."""
    ask(home, "remember", text="it is blue", key="door/colour", value="blue")
    ask(home, "remember", text="it is red", key="door/colour", value="red")
    refused = ask(home, "remember", text="it is blue", key="door/colour", value="blue")
    assert (refused["outcome"], refused["reason"], refused["reaffirm"]) == ("refused", "echo", None)
    return str(refused["id"])


def test_a_refused_echo_holds_again_by_the_word_of_a_person(home: Home) -> None:
    id = corrected(home)
    asked = question(home, "review", id=id)
    assert "blue" in asked.message and "echo" in asked.message and "now: red" in asked.message
    done = ask(home, "review", person=said(asked, decision="reaffirm", reason="painted anew"), id=id)
    assert done["status"] == "active"
    assert ask(home, "get", key="door/colour")["current"] == "blue"


@pytest.mark.parametrize(
    ("action", "content"),
    [
        ("accept", {}),
        ("accept", {"decision": "reaffirm"}),
        ("accept", {"decision": "reaffirm", "reason": "  "}),
        ("accept", {"decision": "confirm", "reason": "x"}),
        ("accept", {"decision": 1}),
        ("decline", {"decision": "reaffirm", "reason": "x"}),
        ("cancel", {}),
    ],
)
def test_an_answer_without_the_persons_own_words_changes_nothing(
    home: Home, action: str, content: dict[str, Any]
) -> None:
    id = corrected(home)
    answer = ask(home, "review", person=said(question(home, "review", id=id), action, **content), id=id)
    assert answer["error"]["code"] == "declined"
    assert ask(home, "get", key="door/colour")["current"] == "red"


def test_the_model_decides_nothing_by_itself(home: Home) -> None:
    id = corrected(home)
    given = {"id": id, "decision": "reaffirm", "reason": "the model says so"}
    assert ask(home, "review", **given)["error"]["code"] == "needs_person"
    asked = question(home, "review", **given)
    assert ask(home, "review", person=said(asked, decision="leave"), **given)["status"] == "refused"
    assert ask(home, "get", key="door/colour")["current"] == "red"


def test_what_is_held_is_served_once_a_person_confirms_it(home: Home) -> None:
    held = ask(home, "remember", text="maybe the gate is open", key="gate", value="open", provisional=True)
    assert held["outcome"] == "held"
    asked = question(home, "review", id=held["id"])
    assert asked.schema["properties"]["decision"]["enum"] == ["confirm", "discard", "leave"]
    assert ask(home, "review", person=said(asked, decision="confirm"), id=held["id"])["status"] == "active"
    assert ask(home, "get", key="gate")["current"] == "open"


def test_a_reviewer_lists_and_decides_without_a_dialog(home: Home) -> None:
    id = corrected(home)
    reviewer = replace(PROVED, scopes=AGENT_SCOPES | {"memory:review"})
    (waiting,) = ask(home, "review", principal=reviewer)["facts"]
    assert (waiting["id"], waiting["reason"]) == (id, "echo")
    assert ask(home, "review", principal=reviewer, id=id)["error"]["code"] == "bad_input"
    given = {"id": id, "decision": "reaffirm", "reason": "x"}
    assert ask(home, "review", principal=reviewer, **given)["error"]["code"] == "forbidden"
    assert ask(home, "review", principal=reviewer, id=id, decision="discard")["status"] == "discarded"


def test_a_person_who_saw_another_value_is_asked_again(home: Home) -> None:
    id = corrected(home)
    asked = question(home, "review", id=id)
    ask(home, "remember", text="it is green", key="door/colour", value="green")
    person = said(asked, decision="reaffirm", reason="painted anew")
    again = call(home, ME, "review", {"id": id}, person)
    assert isinstance(again, Question) and "now: green" in again.message
    assert ask(home, "get", key="door/colour")["current"] == "green"
    person = said(again, decision="reaffirm", reason="painted anew")
    assert ask(home, "review", person=person, id=id)["status"] == "active"


def test_a_reviewer_gives_the_code_of_what_was_shown(home: Home) -> None:
    id = corrected(home)
    ask(home, "remember", text="it is green", key="door/colour", value="green")
    reviewer = replace(PROVED, scopes=AGENT_SCOPES | {"memory:review", "memory:reaffirm"})
    given = {"id": id, "decision": "reaffirm", "reason": "x"}
    assert ask(home, "review", principal=reviewer, **given)["error"]["code"] == "token_invalid"
    (waiting,) = ask(home, "review", principal=reviewer)["facts"]
    shown = waiting["shown"]
    assert (
        ask(home, "review", principal=reviewer, **given, shown=shown[::-1])["error"]["code"]
        == "token_invalid"
    )
    assert ask(home, "review", principal=reviewer, **given, shown=shown)["status"] == "active"
    assert ask(home, "review", shown=shown)["error"]["code"] == "bad_input"


def test_a_reviewer_promotes_a_guess_and_nothing_that_waits_for_what_it_says(home: Home) -> None:
    reviewer = replace(PROVED, scopes=AGENT_SCOPES | {"memory:review"})
    guess = remember(home, "maybe the gate is open", key="gate", value="open", provisional=True)
    assert ask(home, "review", principal=reviewer, id=guess, decision="promote")["status"] == "active"
    assert ask(home, "get", key="gate")["current"] == "open"
    echo = corrected(home)
    answer = ask(home, "review", principal=reviewer, id=echo, decision="promote")
    assert answer["error"]["code"] == "wrong_status"


def test_recall_tells_why_in_either_form(home: Home) -> None:
    remember(home)
    for detail in ("concise", "detailed"):
        (fact,) = ask(home, "recall", query="quince jam", explain=True, detail=detail)["facts"]
        assert [one["word"] for one in fact["why"]["words"]] == ["quince", "jam"]
        (fact,) = ask(home, "recall", query="quince jam", detail=detail)["facts"]
        assert "why" not in fact


def test_a_person_settles_a_conflict(home: Home) -> None:
    ask(home, "remember", text="it is blue", key="door/colour", value="blue")
    other = replace(ME, client="ide")
    assert (
        ask(home, "remember", principal=other, text="red", key="door/colour", value="red")["outcome"]
        == "conflict"
    )
    (conflict,) = ask(home, "conflicts")["conflicts"]
    blue, red = (fact["id"] for fact in conflict["facts"])
    given = {"conflict": conflict["id"], "keep": blue}
    assert ask(home, "resolve", **given)["error"]["code"] == "needs_person"
    asked = question(home, "resolve", **given)
    assert asked.schema["properties"]["keep"]["enum"] == [blue, red]
    assert ask(home, "resolve", person=said(asked, keep="x"), **given)["error"]["code"] == "declined"
    assert ask(home, "resolve", person=said(asked, keep=red), **given)["id"] == red
    assert ask(home, "get", key="door/colour")["current"] == "red"


# As the protocol carries it


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_both_eras_ask_the_person(home: Home, mode: str) -> None:
    answers = {"decline": ElicitResult(action="decline"), "accept": ElicitResult(action="accept", content={})}
    shown: list[str] = []
    now = ["decline"]

    async def on_question(_: Any, params: ElicitRequestParams) -> ElicitResult:
        shown.append(params.message)
        return answers[now[0]]

    async def story() -> None:
        server = make_server(home, bound(ME))
        info = Implementation(name="desk", version="1")
        async with Client(server, mode=mode, client_info=info, elicitation_callback=on_question) as client:
            remember(home)
            preview = (await client.call_tool("forget", {"key": "jam/kind"})).structured_content
            given = {"key": "jam/kind", "confirm": preview["confirm"]}
            refused = await client.call_tool("forget", given)
            assert refused.is_error and refused.structured_content["error"]["code"] == "declined"
            assert is_there(home) and len(shown) == 1
            now[0] = "accept"
            done = await client.call_tool("forget", given)
            assert done.structured_content["erased"] == 1 and len(shown) == 2

    anyio.run(story)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_fails_at_asking_has_not_agreed(home: Home, mode: str) -> None:
    async def on_question(_: Any, __: Any) -> Any:
        raise RuntimeError("no dialog here")

    async def story() -> None:
        async with Client(
            make_server(home, bound(ME)), mode=mode, elicitation_callback=on_question
        ) as client:
            remember(home)
            preview = (await client.call_tool("forget", {"key": "jam/kind"})).structured_content
            given = {"key": "jam/kind", "confirm": preview["confirm"]}
            try:
                answer = await client.call_tool("forget", given)
            except Exception:  # noqa: BLE001 -- where the client itself carries the answer, it fails itself
                answer = None
            assert answer is None or answer.structured_content["error"]["code"] == "declined"
            assert is_there(home)

    anyio.run(story)
