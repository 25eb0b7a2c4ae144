"""One call of a tool: arguments checked, the work done for the caller that the host bound, the answer shaped.

What comes back is an answer, `{"error": {"code", "message", "next"}}`, or a question for the person: the transport
asks it as the client can be asked, and calls again with the reply. An argument never widens who asks. Where nobody
proved who they are, as over stdio, scopes say nothing about a person: there the token of a preview lets everything
go, and the person's own answer settles what waits for a person. A caller that proved who it is has its scopes.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from memory import mcp_ask
from memory.mcp_arguments import check_arguments
from memory.mcp_ask import NOBODY, Person, Question
from memory.mcp_cursor import Place, open_cursor, seal
from memory.mcp_tools import BY_NAME
from memory.mcp_view import DEFAULT_BUDGET, in_few_words, in_full, make_page
from memory.model import Principal
from memory.recovery import manifest_path
from tlog.errors import Error, MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.wiring import Home

Answer = dict[str, Any]

DEFAULT_LIMIT: Final = 10
_MAX_PLACE: Final = 1000
_NEXT: Final[Mapping[str, str]] = {
    "bad_input": "Correct the argument that the message names and call again.",
    "unknown_argument": "Leave it out. Who asks is bound by the host; no argument changes it.",
    "unknown_tool": "Use a tool of the list.",
    "unknown_id": "Take an id from an answer of recall, get, history or conflicts.",
    "cursor_invalid": "Ask again without cursor, or with the very arguments of the answer that gave it.",
    "nothing_matched": "Look with recall or get for what is there, and select by its id.",
    "token_invalid": "Call again without confirm, show the new preview to the person, and use its token.",
    "forbidden": "Tell the person: this needs a right that the host has not given you.",
    "needs_person": "Tell the person. They can decide with: muniment review, or muniment resolve.",
    "declined": "Leave it, unless the person brings it up again.",
    "idempotency_conflict": "Use a new idempotency_key for what is another fact.",
    "erased": "Nothing brings it back. Tell the person.",
    "pending": "Ask again in some seconds.",
    "busy": "Try again in a moment.",
    "on_hold": "Tell the person: a legal hold keeps it.",
    "internal": "Tell the person; muniment audit shows whether anything is damaged.",
}
_OTHERWISE: Final = "Tell the person what the message says."


@dataclass(frozen=True)
class _Call:
    """A call under way. `acting` is who acts where a person's word or a token counts for a right."""

    home: Home
    principal: Principal
    tool: str
    arguments: dict[str, Any]
    person: Person

    @property
    def memory(self) -> Any:
        return self.home.memory(self.principal)

    def acting(self, *scopes: str) -> Any:
        """The memory for this call with these rights too; one who proved who it is has its own and no more."""
        who = self.principal
        if not who.authenticated:
            who = replace(who, scopes=who.scopes | set(scopes))
        return self.home.memory(who)

    @property
    def asks_person(self) -> bool:
        """Whether the person can be asked, and their answer counts for this caller."""
        own = "memory:review" in self.principal.scopes
        return self.person.askable and (own or not self.principal.authenticated)


def call(
    home: Home, principal: Principal, name: str, arguments: Mapping[str, Any], person: Person = NOBODY
) -> Answer | Question:
    """The answer of one tool, an error as an answer, or what the person has to be asked first."""
    try:
        tool = BY_NAME.get(name)
        if tool is None:
            raise MalformedError(f"expected one of the tools {', '.join(BY_NAME)}", code="unknown_tool")
        given = check_arguments(tool.name, tool.arguments, arguments)
        return _RUN[name](_Call(home, principal, name, given, person))
    except Error as error:
        return failed(error.code, error.message)
    except Exception as error:  # noqa: BLE001 -- the outermost loop of a server: one call must not end the others
        kind = type(error).__name__
        print(f"muniment: {name}: {kind}", file=sys.stderr)  # noqa: T201 -- what it says may be content
        return failed("internal", f"internal error ({kind}); nothing is known to have changed")


def failed(code: str, message: str) -> Answer:
    """An error as an answer: its cause, and what to do next."""
    return {"error": {"code": code, "message": message, "next": _NEXT.get(code, _OTHERWISE)}}


def _plain(method: str) -> Callable[[_Call], Answer]:
    def run(asked: _Call) -> Answer:
        answer: Answer = getattr(asked.memory, method)(**asked.arguments)
        return answer

    return run


# Reading


def _recall(asked: _Call) -> Answer:
    given, place = _paging(asked)
    limit = given.pop("limit", DEFAULT_LIMIT)
    wanted = min(place.first + limit, _MAX_PLACE)
    answer = asked.memory.recall(limit=wanted, **given)
    total = place.total if place.total is not None else len(answer["facts"]) + answer["omitted"]
    if len(answer["facts"]) < wanted:
        total = len(answer["facts"])
    return _paged(asked, answer, "facts", Place(place.first, total, answer["as_of"], answer["as_recorded"]))


def _history(asked: _Call) -> Answer:
    given, place = _paging(asked)
    answer = asked.memory.history(**given)
    total = len(answer["facts"])
    # A history tells of no time in the world unless it was asked about one.
    return _paged(asked, answer, "facts", Place(place.first, total, answer["as_of"], answer["as_recorded"]))


def _get(asked: _Call) -> Answer:
    given, place = _paging(asked)
    answer = asked.memory.get(**given)
    total = len(answer["active"])
    return _paged(asked, answer, "active", Place(place.first, total, answer["as_of"], answer["as_recorded"]))


def _conflicts(asked: _Call) -> Answer:
    given, place = _paging(asked)
    answer = asked.memory.conflicts(**given)
    return _paged(asked, answer, "conflicts", Place(place.first, len(answer["conflicts"])))


def _paging(asked: _Call) -> tuple[Answer, Place]:
    """The arguments without those of paging, at the times of the first page, and where this one begins."""
    given = {
        name: value for name, value in asked.arguments.items() if name not in ("detail", "budget", "cursor")
    }
    cursor = asked.arguments.get("cursor")
    if cursor is None:
        return given, Place()
    place = open_cursor(
        cursor, asked.home.parts().vault.index_tag, _caller(asked), asked.tool, asked.arguments
    )
    times = {"as_of": place.as_of, "as_recorded": place.as_recorded}
    return given | {name: time for name, time in times.items() if time is not None}, place


def _paged(asked: _Call, answer: Answer, name: str, place: Place) -> Answer:
    """The answer with what fits of its list, in the form asked for, and a cursor if there is more."""
    concise = asked.arguments.get("detail", "concise" if asked.tool in ("recall", "history") else "detailed")
    shape = in_few_words if concise == "concise" else in_full
    items = answer[name][place.first :]
    shaped = items if name == "conflicts" else [shape(item) for item in items]
    page = make_page(shaped, place.first, asked.arguments.get("budget", DEFAULT_BUDGET))
    after = place.first + len(page.items)
    omitted = max((place.total or 0) - after, 0)
    # The notice comes before what it is about.
    shown: Answer = {"notice": answer["notice"], **answer, name: list(page.items), "omitted": omitted}
    if asked.tool == "recall" and concise == "concise":
        shown = {key: value for key, value in shown.items() if key not in ("as_of", "as_recorded")}
    if omitted and after < _MAX_PLACE:
        rest = replace(place, first=after)
        tag = asked.home.parts().vault.index_tag
        shown["cursor"] = seal(rest, tag, _caller(asked), asked.tool, asked.arguments)
    return shown


def _caller(asked: _Call) -> tuple[str, ...]:
    return asked.principal.tenant, asked.principal.agent, asked.principal.client


def _receipt(asked: _Call) -> Answer:
    data: bytes = asked.memory.receipt(**asked.arguments)
    form = asked.arguments.get("format", "cose")
    return {
        "id": asked.arguments["id"],
        "format": form,
        "receipt": base64.b64encode(data).decode("ascii"),
        "proves": "that this statement is in the log; neither what it says nor that it is true",
    }


# Erasing


def _forget(asked: _Call) -> Answer | Question:
    return _erase(asked, asked.memory, dict(asked.arguments), everything=False)


def _forget_all(asked: _Call) -> Answer | Question:
    return _erase(asked, asked.acting("memory:purge"), asked.arguments | {"all": True}, everything=True)


def _erase(asked: _Call, memory: Any, selector: Answer, everything: bool) -> Answer | Question:
    token = selector.pop("confirm", None)
    if token is None:
        preview: Answer = memory.forget_preview(**selector)
        return preview
    if asked.person.askable:
        memory.require_token(confirm=token, **selector)
        question = mcp_ask.ask_to_erase(memory.forget_preview(**selector)["preview"], everything)
        if asked.person.reply_to(question) is None:
            return question
    done: Answer = memory.forget(confirm=token, **selector)
    if asked.principal.authenticated:
        # Where the home lies is nothing to a caller from elsewhere; the log serves the manifest by this name.
        done["manifest"] = manifest_path(done["number"])
    return done


# What waits for a person


def _review(asked: _Call) -> Answer | Question:
    id = asked.arguments.get("id")
    if id is None:
        if asked.arguments.keys() & {"decision", "reason", "shown"}:
            raise MalformedError("expected the id of what is decided on")
        _, place = _paging(asked)
        answer = asked.memory.review()
        return _paged(asked, answer, "facts", Place(place.first, len(answer["facts"]) + answer["omitted"]))
    if asked.asks_person:
        return _review_by_person(asked, id)
    if "memory:review" not in asked.principal.scopes:
        raise _needs_person()
    given = (asked.arguments.get(name) for name in ("decision", "reason", "shown"))
    return _decide(asked.memory, id, *given)


def _review_by_person(asked: _Call, id: str) -> Answer | Question:
    memory = asked.acting("memory:review", "memory:reaffirm")
    fact = mcp_ask.find(memory.review()["facts"], id, "a write that waits")
    decisions = ["confirm", "discard"] if fact["status"] == "held" else ["discard"]
    if fact["reason"] == "echo" and "memory:reaffirm" in memory.principal.scopes:
        decisions = ["reaffirm", *decisions]
    question = mcp_ask.ask_to_review(fact, decisions)
    reply = asked.person.reply_to(question)
    if reply is None:
        return question
    decision, reason = mcp_ask.read_review(reply, decisions)
    if decision == mcp_ask.LEAVE:
        return {"id": fact["id"], "status": fact["status"]}
    # What the person was shown with it is in the question, and with that in the answer.
    return _decide(memory, fact["id"], decision, reason, fact["shown"])


def _decide(memory: Any, id: str, decision: str | None, reason: str | None, shown: str | None) -> Answer:
    if decision is None:
        raise MalformedError("expected decision to be confirm, promote, discard or reaffirm")
    answer: Answer
    if decision == "reaffirm":
        answer = memory.reaffirm(id, reason, shown)
    else:
        answer = getattr(memory, decision)(id)
    return answer


def _resolve(asked: _Call) -> Answer | Question:
    conflict, keep = asked.arguments["conflict"], asked.arguments["keep"]
    memory = asked.memory
    if asked.asks_person:
        memory = asked.acting("memory:review")
        found = mcp_ask.find(memory.conflicts()["conflicts"], conflict, "an open conflict")
        question = mcp_ask.ask_to_resolve(found)
        reply = asked.person.reply_to(question)
        if reply is None:
            return question
        keep = mcp_ask.read_resolve(reply, found)
    elif "memory:review" not in asked.principal.scopes:
        raise _needs_person()
    answer: Answer = memory.resolve(conflict, keep)
    return answer


def _needs_person() -> RefusedError:
    return RefusedError(
        "only a person may decide this, and this client cannot ask one, or the caller lacks the scope memory:review",
        code="needs_person",
    )


_RUN: Final[Mapping[str, Callable[[_Call], Answer | Question]]] = {
    "remember": _plain("remember"),
    "recall": _recall,
    "get": _get,
    "history": _history,
    "provenance": _plain("provenance"),
    "conflicts": _conflicts,
    "resolve": _resolve,
    "review": _review,
    "forget": _forget,
    "forget_all": _forget_all,
    "receipt": _receipt,
    "status": _plain("status"),
}
