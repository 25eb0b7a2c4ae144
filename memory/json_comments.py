"""Settings in JSON, with comments or without: one server put in or taken out, every other byte left as it is.

Comments (`//`, `/* */`) and a comma before a closing bracket are what editors allow beyond JSON. What is changed is
found in the text with these blanked, so places are the same in both; the result is read again, and has to say what it
was to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tlog.errors import MalformedError

_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])')
_SPACE: Final = " \t\r\n"
_STEP: Final = "  "


class _Member(NamedTuple):
    """A member of an object: where its name begins, and its value from where to where."""

    name: str
    at: int
    begin: int
    end: int


def without_comments(text: str) -> str:
    """The text as JSON, as long as it was: comments, last commas and a byte order mark are spaces."""
    plain = " " + text[1:] if text.startswith("\ufeff") else text
    return _LAST_COMMA.sub(_blank_comma, _without_remarks(plain))


def dump(value: object, indent: str | None = None) -> str:
    """The value as JSON. Half a character, as a path may have, is escaped: UTF-8 has no form for it."""
    made = json.dumps(value, indent=indent, ensure_ascii=False)
    return json.dumps(value, indent=indent) if re.search("[\ud800-\udfff]", made) else made


def put(text: str, group: str, name: str, entry: dict[str, Any]) -> str:
    """The text with `entry` under this name in the object `group`, in place of the one that stands there."""
    document = json.loads(without_comments(text))
    servers = _member(text, text_start(text), group)
    there = None if servers is None else _member(text, servers.begin, name)
    if there is not None:
        made = text[: there.begin] + _value(text, entry, 2) + text[there.end :]
    elif servers is not None:
        made = _put_first(text, servers.begin, name, entry, 2)
    else:
        made = _put_first(text, text_start(text), group, {name: entry}, 1)
    return _same(made, document | {group: document.get(group, {}) | {name: entry}})


def take_out(text: str, group: str, name: str) -> str:
    """The text without that member of the object `group`, and without the object if `put` had added that.

    That is told by its place, for `put` adds what is missing as the first member.
    """
    document = json.loads(without_comments(text))
    servers = _member(text, text_start(text), group)
    assert servers is not None  # the caller saw it there
    there = _member(text, servers.begin, name)
    assert there is not None
    is_first = next(_members(text, text_start(text))).name == group
    made = _closed(_remove(text, there), servers.begin)
    left = {other: value for other, value in document[group].items() if other != name}
    expected = document | {group: left}
    emptied = _member(made, text_start(made), group)
    assert emptied is not None
    if not left and is_first and not made[emptied.begin + 1 : emptied.end - 1].strip():
        made = _closed(_remove(made, emptied), text_start(made))
        del expected[group]
    return _same(made, expected)


def text_start(text: str) -> int:
    """Where the object of the whole text begins."""
    return without_comments(text).index("{")


def _without_remarks(text: str) -> str:
    return _TOKEN.sub(lambda one: one[0] if one[0].startswith('"') else _blank(one[0]), text)


def _blank(remark: str) -> str:
    return re.sub(r"[^\r\n]", " ", remark)


def _blank_comma(one: re.Match[str]) -> str:
    return one[0] if one[0].startswith('"') else " "


def _members(text: str, begin: int) -> Iterator[_Member]:
    """The members of the object that begins there."""
    plain, decoder = without_comments(text), json.JSONDecoder()
    at = _after_space(plain, begin + 1)
    while plain[at] != "}":
        name, end = decoder.raw_decode(plain, at)
        value = _after_space(plain, plain.index(":", end) + 1)
        _, end = decoder.raw_decode(plain, value)
        yield _Member(name, at, value, end)
        at = _after_space(plain, end)
        if plain[at] == ",":
            at = _after_space(plain, at + 1)


def _member(text: str, begin: int, name: str) -> _Member | None:
    return next((one for one in _members(text, begin) if one.name == name), None)


def _after_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _put_first(text: str, begin: int, name: str, value: dict[str, Any], depth: int) -> str:
    """The text with a first member in the object that begins there: what follows keeps its comments and its place.

    It stands in the line of the object if something else does, so that it can be taken out without a trace.
    """
    line, step, rest = _newline(text), _step(text), text[begin + 1 :]
    lines = f"{line}{step * depth}{json.dumps(name)}: {_value(text, value, depth)}"
    if next(_members(text, begin), None) is None:
        return text[: begin + 1] + lines + (line + step * (depth - 1) if rest[:1] == "}" else "") + rest
    if rest[:1] in "\r\n":
        return text[: begin + 1] + lines + "," + rest
    return text[: begin + 1] + f"{json.dumps(name)}: {dump(value)}," + rest


def _remove(text: str, member: _Member) -> str:
    """The text without a member, the comma that parted it from the next, and the empty line that it leaves."""
    plain = _without_remarks(text)
    head, end = text[: member.at], member.end
    after = _after_space(plain, end)
    if plain[after] == ",":
        end = after + 1
    else:
        before = len(plain[: member.at].rstrip(_SPACE)) - 1
        if plain[before] == ",":
            head = head[:before] + head[before + 1 :]
    tail = text[end:]
    line = head.rstrip(" \t")
    if line.endswith("\n") and tail.lstrip(_SPACE)[:1] == "}" and not line.rstrip(_SPACE).endswith(","):
        # Nothing else is on its line, nor before the bracket that closes.
        return line.removesuffix("\n").removesuffix("\r") + tail
    if line.endswith("\n") and tail[:1] in ("\r", "\n"):
        return line.removesuffix("\n").removesuffix("\r") + tail
    return head + tail


def _closed(text: str, begin: int) -> str:
    """The text with the object that begins there as `{}`, if there is nothing but lines in it."""
    end = _after_space(text, begin + 1)
    return text[: begin + 1] + text[end:] if text[end] == "}" and "\n" in text[begin:end] else text


def _value(text: str, value: dict[str, Any], depth: int) -> str:
    lines = dump(value, _step(text)).split("\n")
    return f"{_newline(text)}{_step(text) * depth}".join(lines)


def _step(text: str) -> str:
    """What the lines of the text are indented by, one deep."""
    begin = text_start(text)
    found = re.match(r"\s*?\n([ \t]+)\S", without_comments(text)[begin + 1 :])
    return found[1] if found else _STEP


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _same(made: str, expected: dict[str, Any]) -> str:
    try:
        says = json.loads(without_comments(made))
    except ValueError:
        says = None
    if says != expected:
        raise MalformedError(
            "the settings can't be changed without losing comments in them; nothing was changed. "
            "muniment install --print shows what to add by hand",
            code="settings_unread",
        )
    return made
