"""`muniment batch`: JSON lines in, JSON lines out, each answered before the next is read.

A line is {"op": NAME, …}; its answer {"ok": true, "result": {…}} or {"ok": false, "error": {"code", "message"}}.
A bad line is answered and the rest goes on. With the operator's rights a line may say for whom it acts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory.model import Principal
from memory.principal import parse_as
from tlog.errors import Error, MalformedError

if TYPE_CHECKING:
    from memory.answers import Answer
    from memory.service import Memory
    from memory.wiring import Home

MAX_LINE_CHARACTERS: Final = 8 * 1024 * 1024


@dataclass(frozen=True)
class _Operation:
    """What a line may ask for: a method of the facade, and the arguments it must and may have."""

    run: Callable[[Memory, dict[str, Any]], Answer]
    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


def run_batch(
    lines: Iterable[str], write: Callable[[str], None], home: Home, operator: bool, principal: Principal
) -> None:
    """Answers line after line with `write`, which gets an answer without its newline and flushes it.

    `operator`: the owner of the home runs this, so a line may carry "as".
    """
    for line in lines:
        if line.strip():
            write(json.dumps(_answer(line, home, operator, principal)))


def _answer(line: str, home: Home, operator: bool, principal: Principal) -> Answer:
    try:
        return {"ok": True, "result": _run(line, home, operator, principal)}
    except Error as error:
        return _failed(error.code, error.message)
    except Exception as error:  # noqa: BLE001 -- the outermost loop: one line must not end the others
        return _failed("internal", f"internal error ({type(error).__name__}); nothing is known to be stored")


def _failed(code: str, message: str) -> Answer:
    return {"ok": False, "error": {"code": code, "message": message}}


def _run(line: str, home: Home, operator: bool, principal: Principal) -> Answer:
    request = _parse(line)
    name = request.pop("op", None)
    operation = OPERATIONS.get(name) if isinstance(name, str) else None
    if operation is None:
        raise MalformedError(f"expected op to be one of {', '.join(sorted(OPERATIONS))}")
    if "as" in request:
        if not operator:
            raise MalformedError(
                '"as" is for the operator of the home alone (batch --operator)', code="unknown_argument"
            )
        principal = parse_as(request.pop("as"))
    return _perform(operation, home.memory(principal), request)


def run_operation(memory: Memory, name: str, arguments: dict[str, Any]) -> Answer:
    """What an operation answers on every surface: `name` is one of `OPERATIONS`, `arguments` as in a line."""
    return _perform(OPERATIONS[name], memory, arguments)


def _perform(operation: _Operation, memory: Memory, arguments: dict[str, Any]) -> Answer:
    _check_arguments(operation, arguments)
    return operation.run(memory, arguments)


def _parse(line: str) -> dict[str, Any]:
    if len(line) > MAX_LINE_CHARACTERS:
        raise MalformedError(f"expected a line of at most {MAX_LINE_CHARACTERS} characters")
    try:
        request = json.loads(line, object_pairs_hook=_members, parse_constant=_no_constant)
    except MalformedError:
        raise
    except (ValueError, RecursionError):
        raise MalformedError("expected a line to be one JSON object") from None
    if not isinstance(request, dict):
        raise MalformedError("expected a line to be one JSON object")
    return request


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object, each of them once: which of two would count is nobody's to guess."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise MalformedError("expected each member of an object once in a line")
    return members


def _no_constant(_: str) -> None:
    raise MalformedError("expected a line to be one JSON object: NaN and Infinity are no JSON")


def _check_arguments(operation: _Operation, request: Mapping[str, Any]) -> None:
    allowed = operation.required | operation.optional
    if not request.keys() <= allowed:
        # The unknown name may be a value that went astray, so it is not repeated.
        raise MalformedError(
            f"expected only the arguments {', '.join(sorted(allowed)) or '(none)'}", code="unknown_argument"
        )
    missing = sorted(operation.required - {name for name, value in request.items() if value is not None})
    if missing:
        raise MalformedError(f"expected the arguments {', '.join(missing)}")


def _method(name: str) -> Callable[[Memory, dict[str, Any]], Answer]:
    def run(memory: Memory, arguments: dict[str, Any]) -> Answer:
        answer: Answer = getattr(memory, name)(**arguments)
        return answer

    return run


def _forget(memory: Memory, arguments: dict[str, Any]) -> Answer:
    token = arguments.pop("confirm", None)
    if token is None:
        return memory.forget_preview(**arguments)
    return memory.forget(confirm=token, **arguments)


def _receipt(memory: Memory, arguments: dict[str, Any]) -> Answer:
    data = memory.receipt(**arguments)
    return {
        "id": arguments["id"],
        "format": arguments.get("format", "cose"),
        "receipt": base64.b64encode(data).decode("ascii"),
    }


def _named(name: str, required: str = "", optional: str = "") -> _Operation:
    return _Operation(_method(name), frozenset(required.split()), frozenset(optional.split()))


_SCOPE: Final = frozenset(
    {"id", "key", "subject", "all", "tenant", "value", "recorded_from", "recorded_until"}
)
_SELECTOR: Final = _SCOPE | {"identifiers", "guard", "reason", "received_at", "due_at"}
OPERATIONS: Final[Mapping[str, _Operation]] = {
    "remember": _named(
        "remember",
        "text",
        "key value subject valid_from valid_until provisional many restatement source idempotency_key reaffirm "
        "reason wait",
    ),
    "recall": _named("recall", "query", "limit as_of as_recorded include_history explain owner"),
    "get": _named("get", "key", "as_of as_recorded owner"),
    "history": _named("history", "key", "as_of as_recorded owner"),
    "provenance": _named("provenance", "id", "owner"),
    "retract": _named("retract", "id"),
    "conflicts": _named("conflicts", optional="owner"),
    "grant": _named("grant", "reader"),
    "revoke": _named("revoke", "id"),
    "grants": _named("grants"),
    "resolve": _named("resolve", "conflict keep"),
    "review": _named("review"),
    "confirm": _named("confirm", "id"),
    "promote": _named("promote", "id"),
    "discard": _named("discard", "id"),
    "reaffirm": _named("reaffirm", "id reason", "shown"),
    "forget_preview": _Operation(_method("forget_preview"), optional=_SELECTOR),
    "forget": _Operation(_forget, optional=_SELECTOR | {"confirm"}),
    "request": _named("request", "request"),
    "manifest": _named("manifest", "request", "number"),
    "forget_rest": _named("forget_rest", "request confirm", "identifiers"),
    "told": _named("told", "request recipients"),
    "deny": _Operation(_method("deny"), frozenset({"code"}), _SELECTOR - {"guard"}),
    "deny_rest": _named("deny_rest", "request code"),
    "withdraw": _named("withdraw", "request"),
    "hold": _Operation(_method("hold"), frozenset({"authority", "review_by"}), _SCOPE),
    "release": _named("release", "id authority"),
    "holds": _named("holds"),
    "export_subject": _named("export_subject", "subject"),
    "retention": _named("retention", "", "superseded_older_than apply"),
    "receipt": _Operation(_receipt, frozenset({"id"}), frozenset({"format"})),
    "publish": _named("publish"),
    "status": _named("status"),
}
