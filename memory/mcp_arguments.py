"""Arguments of a tool against its schema: what the schemas of `mcp_tools` use of JSON Schema, and no more.

An argument that is null is one that was not given. Errors name the argument and what was expected, and never repeat
what came; the name of an unknown one may be content that went astray, so it is not repeated either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tlog.errors import MalformedError

Schema = Mapping[str, Any]

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_WORDS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


def check_arguments(tool: str, schema: Schema, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that were given, if they fit; MalformedError names what was expected otherwise."""
    expected: Schema = schema["properties"]
    if not arguments.keys() <= expected.keys():
        names = ", ".join(sorted(expected)) or "no arguments"
        raise MalformedError(f"unknown argument; {tool} takes {names}", code="unknown_argument")
    given = {name: _number(value) for name, value in arguments.items() if value is not None}
    missing = [name for name in schema.get("required", ()) if name not in given]
    if missing:
        raise MalformedError(f"{tool} needs {', '.join(missing)}")
    for name, value in given.items():
        _check(name, expected[name], value)
    return given


def _check(name: str, schema: Schema, value: object) -> None:
    if "enum" in schema:
        if value not in schema["enum"]:
            raise MalformedError(f"expected {name} to be one of {', '.join(schema['enum'])}")
        return
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(_is(value, one) for one in types):
        raise MalformedError(f"expected {name} to be {' or '.join(_WORDS[one] for one in types)}")
    if isinstance(value, list):
        for one in value:
            _check(f"each of {name}", schema["items"], one)
    if isinstance(value, int) and "minimum" in schema:
        low, high = schema["minimum"], schema["maximum"]
        if not low <= value <= high:
            raise MalformedError(f"expected {name} to be from {low} to {high}")


def _number(value: Any) -> Any:
    """JSON knows one kind of number: 5.0 is the whole number 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is(value: object, kind: str) -> bool:
    # True and False are whole numbers to Python, and to nobody else.
    return isinstance(value, _TYPES[kind]) and not (kind == "integer" and isinstance(value, bool))
