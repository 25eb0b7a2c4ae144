"""JSON values as documents, and how they are asked for: what adapters to other programs' stores share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from tlog.errors import MalformedError

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$eq": lambda value, wanted: value == wanted,
    "$ne": lambda value, wanted: value != wanted,
    "$gt": lambda value, wanted: float(value) > float(wanted),
    "$gte": lambda value, wanted: float(value) >= float(wanted),
    "$lt": lambda value, wanted: float(value) < float(wanted),
    "$lte": lambda value, wanted: float(value) <= float(wanted),
}


def encode(value: Any) -> str:
    """The JSON text of a value; MalformedError for one that JSON has no form of, or would bring back as another."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if json.loads(text) == _plain(value):
            return text
    except (TypeError, ValueError, RecursionError):
        pass
    raise MalformedError(
        "expected a value of JSON: texts, numbers, true, false, null, lists, and objects by text"
    )


def decode(text: str) -> Any:
    """The value of such a text."""
    return json.loads(text)


def name_of(*parts: str) -> str:
    """One line for a list of texts, a different one for every list."""
    return json.dumps(list(parts), ensure_ascii=True, separators=(",", ":"))


def parts_of(name: str) -> tuple[str, ...]:
    """The list that a name stands for."""
    return tuple(json.loads(name))


def fits(value: Any, wanted: Any) -> bool:
    """Whether a value is as a filter wants it: equal, or, for an object with operators ($eq, $gt, …), as they say."""
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_apply(str(name), value, operand) for name, operand in wanted.items())
        return isinstance(value, Mapping) and all(fits(value.get(name), one) for name, one in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(fits(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _apply(name: str, value: Any, operand: Any) -> bool:
    operator = _OPERATORS.get(name)
    if operator is None:
        raise ValueError(f"expected an operator out of {', '.join(_OPERATORS)}")
    return bool(operator(value, operand))


def _plain(value: Any) -> Any:
    """The value with tuples as lists, which is how JSON brings them back."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
