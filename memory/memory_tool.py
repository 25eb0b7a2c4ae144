"""Claude's memory tool (`memory_20250818`) over a home: files under /memories, with receipts, history and erasure.

Each command is a dict as the model sends it; the answer is the text for the model. Files are documents (memory.
documents): every version is a statement, a deleted file can still be erased, and an older version still be audited.
`view` hands stored text out as data: text that reads like instructions is wrapped and invisible characters are shown,
as in every other read, while edits work on the text as it was stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from memory.documents import Document, Documents
from memory.quarantine import present
from tlog.errors import MalformedError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.wiring import Home

TOOL: Final = {"type": "memory_20250818", "name": "memory"}
"""What goes into the `tools` of a request."""

COLLECTION: Final = "memory tool files"
ROOT: Final = "/memories"
MAX_LINES: Final = 999_999
MAX_LISTED_BYTES: Final = 12_000
"""Of one list of files: some thousand names, or about four thousand tokens."""
_NUMBER_WIDTH: Final = 6
_PLAIN_NAME: Final = re.compile(r"[\w./@+,=()&#:!'~-]+(?: [\w./@+,=()&#:!'~-]+)*")
_EDITED: Final = (
    "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
)
_MAX_SHOWN_DEPTH: Final = 2


class ToolError(Exception):
    """Why a command was not done, in words for the model; it goes back as a tool result with `is_error`."""


class MemoryTool:
    """The six commands, for one caller of a home."""

    def __init__(self, home: Home, principal: Principal) -> None:
        self._files = Documents(home.parts(), principal, COLLECTION)

    def run(self, command: Mapping[str, Any]) -> str:
        """What one command answers; ToolError with the words for the model if it was not done."""
        edit = {
            "create": self._create,
            "str_replace": self._str_replace,
            "insert": self._insert,
            "delete": self._delete,
            "rename": self._rename,
        }.get(str(command.get("command")))
        try:
            if command.get("command") == "view":
                return self._view(command)
            if edit is None:
                raise ToolError(
                    "Unknown command: expected view, create, str_replace, insert, delete or rename"
                )
            # What an edit writes depends on what it read, and several hosts may have the same files.
            with self._files.editing():
                return edit(command)
        except (MalformedError, RefusedError, UnavailableError) as error:
            raise ToolError(error.message) from None

    def _view(self, command: Mapping[str, Any]) -> str:
        path = _path(command, "path")
        document = self._file(path)
        if document is not None:
            return _numbered(path, document, command.get("view_range"))
        below = self._below(path)
        if not below and path != ROOT:
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        return _listing(path, below)

    def _create(self, command: Mapping[str, Any]) -> str:
        path, text = _path(command, "path"), _text(command, "file_text")
        if path == ROOT or self._file(path) is not None or self._below(path):
            raise ToolError(f"File {path} already exists")
        self._require_no_file_above(path)
        self._put(path, text)
        return f"File created successfully at: {path}"

    def _str_replace(self, command: Mapping[str, Any]) -> str:
        path, document = self._existing(command)
        old, new = _text(command, "old_str"), _text(command, "new_str")
        if not old:
            raise ToolError("No replacement was performed: old_str is empty")
        count = document.text.count(old)
        if count == 0:
            raise ToolError(f"No replacement was performed: old_str did not appear verbatim in {path}.")
        if count > 1:
            lines = [str(number) for number, line in enumerate(document.text.split("\n"), 1) if old in line]
            where = f" in lines: {', '.join(lines)}" if lines else ""
            raise ToolError(
                f"No replacement was performed: old_str occurs {count} times{where}. Please ensure it is unique"
            )
        at = document.text.index(old)
        edited = document.text[:at] + new + document.text[at + len(old) :]
        self._put(path, edited)
        snippet = _around(edited, at, len(new), document.id)
        return f"{_EDITED}\n{snippet}"

    def _insert(self, command: Mapping[str, Any]) -> str:
        path, document = self._existing(command)
        text, line = _text(command, "insert_text"), command.get("insert_line")
        lines = document.text.split("\n")
        ends = bool(document.text) and document.text.endswith("\n")
        count = len(lines) - 1 if ends else len(lines) if document.text else 0
        if type(line) is not int or not 0 <= line <= count:
            raise ToolError(f"Invalid insert_line: expected a whole number from 0 to {count}")
        lines[line:line] = text.removesuffix("\n").split("\n")
        self._put(path, "\n".join(lines))
        return f"The file {path} has been edited."

    def _delete(self, command: Mapping[str, Any]) -> str:
        path = _path(command, "path")
        if path == ROOT:
            raise ToolError("Cannot delete the /memories directory itself")
        below = [document.name for document in self._below(path)]
        if not self._files.delete(path) and not below:
            raise ToolError(f"The path {path} does not exist")
        for name in below:
            self._files.delete(name)
        return f"Successfully deleted {path}"

    def _rename(self, command: Mapping[str, Any]) -> str:
        old, new = _path(command, "old_path"), _path(command, "new_path")
        if ROOT in (old, new):
            raise ToolError("Cannot rename the /memories directory itself")
        if self._file(new) is not None or self._below(new):
            raise ToolError(f"The destination {new} already exists")
        if f"{new}/".startswith(f"{old}/"):
            raise ToolError("Cannot rename a path to a place below itself")
        self._require_no_file_above(new)
        document = self._file(old)
        moved = [document] if document is not None else self._below(old)
        if not moved:
            raise ToolError(f"The path {old} does not exist")
        # The new place is written before the old one is taken away: a crash leaves two, never none.
        for one in moved:
            self._put(new + one.name[len(old) :], one.text)
        for one in moved:
            self._files.delete(one.name)
        return f"Successfully renamed {old} to {new}"

    def _existing(self, command: Mapping[str, Any]) -> tuple[str, Document]:
        path = _path(command, "path")
        document = self._file(path)
        if document is None:
            if path == ROOT or self._below(path):
                raise ToolError(f"The path {path} is not a file.")
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        return path, document

    def _put(self, path: str, text: str) -> None:
        if text.count("\n") > MAX_LINES:
            raise ToolError(f"File {path} exceeds maximum line limit of 999,999 lines.")
        self._files.put(path, text)

    def _file(self, path: str) -> Document | None:
        return None if path == ROOT else self._files.get(path)

    def _below(self, path: str) -> list[Document]:
        return self._files.all(f"{path}/")

    def _require_no_file_above(self, path: str) -> None:
        parts = path.split("/")
        for end in range(3, len(parts)):
            if self._file("/".join(parts[:end])) is not None:
                raise ToolError(f"The path {'/'.join(parts[:end])} is a file, not a directory")


def _path(command: Mapping[str, Any], name: str) -> str:
    """The path that a command names, in its one spelling; never one outside /memories."""
    path = command.get(name)
    if not isinstance(path, str) or not path:
        raise ToolError(f"expected {name} to be a path under {ROOT}")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/") or parts[:1] != [ROOT[1:]]:
        raise ToolError(f"Path must start with {ROOT}")
    # Also where somebody would decode it later.
    if any(part == ".." or "%2e%2e" in part.lower() or "\\" in part for part in parts):
        raise ToolError(f"Path would escape {ROOT} directory")
    if any(not character.isprintable() for character in path):
        raise ToolError("expected a path without control characters")
    return "/" + "/".join(parts)


def _text(command: Mapping[str, Any], name: str) -> str:
    text = command.get(name)
    if not isinstance(text, str):
        raise ToolError(f"expected {name} to be a text")
    return text


def _numbered(path: str, document: Document, view_range: object) -> str:
    lines = present(document.text, document.id).text.split("\n")
    first, last = _range(view_range, len(lines))
    shown = (f"{at:>{_NUMBER_WIDTH}}\t{lines[at - 1]}" for at in range(first, last + 1))
    return f"Here's the content of {path} with line numbers:\n" + "\n".join(shown)


def _range(view_range: object, count: int) -> tuple[int, int]:
    if view_range is None:
        return 1, count
    if (
        not isinstance(view_range, list)
        or len(view_range) != 2
        or any(type(one) is not int for one in view_range)
    ):
        raise ToolError("Invalid view_range: expected two whole numbers [first, last]; -1 as last is the end")
    first, last = view_range
    last = count if last == -1 else min(last, count)
    if not 1 <= first <= count or last < first:
        raise ToolError(f"Invalid view_range: expected lines from 1 to {count}")
    return first, last


def _around(text: str, at: int, length: int, mark: str) -> str:
    """The lines about an edit."""
    lines = text.split("\n")
    first = max(text.count("\n", 0, at) - 1, 0)
    last = min(text.count("\n", 0, at + length) + 2, len(lines))
    shown = present("\n".join(lines[first:last]), mark).text.split("\n")
    return "\n".join(f"{number:>{_NUMBER_WIDTH}}\t{line}" for number, line in enumerate(shown, first + 1))


def _listing(path: str, below: list[Document]) -> str:
    sizes: dict[str, int] = {path: 0}
    marks: dict[str, str] = {}
    for document in below:
        size = len(document.text.encode("utf-8", "surrogatepass"))
        parts = document.name[len(path) :].split("/")[1:]
        sizes[path] += size
        for depth in range(1, min(len(parts), _MAX_SHOWN_DEPTH) + 1):
            name = "/".join((path, *parts[:depth]))
            sizes[name] = sizes.get(name, 0) + size
            marks.setdefault(name, document.id)
    names = sorted(
        (name for name in sizes if "/." not in name[len(path) :]), key=lambda name: (name.count("/"), name)
    )
    listed, left = {}, MAX_LISTED_BYTES
    # What is not so deep comes first where there is no room for all: it is where the rest can be looked for.
    for name in names:
        listed[name] = f"{_size(sizes[name])}\t{_quoted(name, marks.get(name, ''))}"
        left -= len(listed[name].encode("utf-8", "surrogatepass")) + 1
        if left < 0 and len(listed) > 1:
            del listed[name]
            break
    more = len(names) - len(listed)
    head = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    tail = [f"({more} more are not listed here: view a directory that is)"] if more else []
    return "\n".join([head, *(listed[name] for name in sorted(listed)), *tail])


def _quoted(name: str, mark: str) -> str:
    """A name as it stands in a list: nothing in it ends its line, or reads as another one or as an order."""
    shown = present(name, mark)
    if shown.rules:
        return shown.text
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=not name.isprintable())


def _size(size: int) -> str:
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.1f}{unit}"
    return f"{size}B"
