"""The configuration of agent hosts: one server entry put into a host's own file, and taken out again.

Every other setting in the file stays; a file that can't be read as what it should be is not touched. The file is
replaced whole, so that a host that reads it meanwhile sees the old one or the new one.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memory import json_comments
from tlog.errors import MalformedError, RefusedError, UnavailableError

SERVER_NAME: Final = "muniment"
MAX_FILE_BYTES: Final = 16 << 20
_BEGIN: Final = "# >>> muniment >>>"
_END: Final = "# <<< muniment <<<"
_MARK: Final = "\ufeff"  # of byte order, which some editors begin a file with


@dataclass(frozen=True, slots=True)
class Client:
    """A host: where its file lies for a user and in a project, and under which name servers stand in it."""

    title: str
    user: Mapping[str, str]
    project: str
    servers: str
    typed: bool = False
    """Whether an entry says that it is started over stdio."""


def _everywhere(path: str) -> dict[str, str]:
    return {"linux": path, "darwin": path, "win32": path}


CLIENTS: Final[Mapping[str, Client]] = {
    "claude-code": Client(
        "Claude Code", _everywhere("~/.claude.json"), ".mcp.json", "mcpServers", typed=True
    ),
    "claude-desktop": Client(
        "Claude Desktop",
        {
            "linux": "~/.config/Claude/claude_desktop_config.json",
            "darwin": "~/Library/Application Support/Claude/claude_desktop_config.json",
            "win32": "~/AppData/Roaming/Claude/claude_desktop_config.json",
        },
        "",
        "mcpServers",
    ),
    "cursor": Client("Cursor", _everywhere("~/.cursor/mcp.json"), ".cursor/mcp.json", "mcpServers"),
    "vscode": Client(
        "VS Code",
        {
            "linux": "~/.config/Code/User/mcp.json",
            "darwin": "~/Library/Application Support/Code/User/mcp.json",
            "win32": "~/AppData/Roaming/Code/User/mcp.json",
        },
        ".vscode/mcp.json",
        "servers",
        typed=True,
    ),
    "codex": Client("Codex", _everywhere("~/.codex/config.toml"), ".codex/config.toml", "mcp_servers"),
    "gemini": Client(
        "Gemini CLI", _everywhere("~/.gemini/settings.json"), ".gemini/settings.json", "mcpServers"
    ),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """How a host starts the server: command, arguments, and the environment that binds home and caller."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]

    def describe(self, typed: bool) -> dict[str, Any]:
        """The entry as hosts write it."""
        kind = {"type": "stdio"} if typed else {}
        return {**kind, "command": self.command, "args": list(self.args), "env": dict(self.env)}


def make_entry(home: Path, tenant: str | None = None, agent: str | None = None) -> Entry:
    """The entry that starts this installation on this home, by its whole path: hosts have a PATH of their own."""
    names = {"MUNIMENT_HOME": str(home), "MUNIMENT_TENANT": tenant, "MUNIMENT_AGENT": agent}
    env = {name: value for name, value in names.items() if value is not None}
    found = shutil.which("muniment")
    beside = Path(sys.executable).with_name("muniment")
    if found is None and beside.is_file():
        found = str(beside)
    if found is None:
        return Entry(sys.executable, ("-m", "memory.cli", "mcp"), env)
    return Entry(str(Path(found).absolute()), ("mcp",), env)


def settings_file(name: str, project: Path | None) -> Path:
    """The file of a host: the user's, or that of a project folder."""
    client = CLIENTS[name]
    if project is not None:
        if not client.project:
            raise MalformedError(f"expected no --project: {client.title} has settings for a user only")
        if not project.is_dir():
            raise MalformedError("expected --project to be a folder that is there")
        return project / client.project
    return Path(client.user.get(sys.platform, client.user["linux"])).expanduser()


def shown(name: str, entry: Entry) -> str:
    """What would be put into the file, for whoever does it by hand."""
    client = CLIENTS[name]
    if name == "codex":
        return _toml_block(entry)
    document = {client.servers: {SERVER_NAME: entry.describe(client.typed)}}
    return json_comments.dump(document, "  ") + "\n"


def install(name: str, path: Path, entry: Entry) -> bool:
    """Whether the file was changed: it has the entry when this returns.

    RefusedError if a server of this name that is not ours stands there.
    """
    if name == "codex":
        return _install_toml(path, entry)
    client = CLIENTS[name]
    document = _read_json(path)
    servers = _servers(document.members, client.servers)
    wanted = entry.describe(client.typed)
    there = servers.get(SERVER_NAME)
    if there == wanted:
        return False
    if there is not None and not _is_ours(there):
        raise _taken(path)
    if document.is_blank:
        _replace(path, shown(name, entry))
        return True
    _replace(path, json_comments.put(document.text, client.servers, SERVER_NAME, wanted))
    return True


def uninstall(name: str, path: Path) -> bool:
    """Whether the file had the entry, which it has no more; a file that held nothing else is removed."""
    if name == "codex":
        return _uninstall_toml(path)
    client = CLIENTS[name]
    if not path.exists():
        return False
    document = _read_json(path)
    servers = _servers(document.members, client.servers)
    if SERVER_NAME not in servers:
        return False
    if not _is_ours(servers[SERVER_NAME]):
        raise _taken(path)
    left = json_comments.take_out(document.text, client.servers, SERVER_NAME)
    _replace_or_remove(path, left, left.removeprefix(_MARK).strip() == "{}")
    return True


def _is_ours(entry: object) -> bool:
    """Whether a server entry starts Muniment: whatever folder it is started from, and on whichever home."""
    if not isinstance(entry, dict):
        return False
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str) or not isinstance(args, list):
        return False
    return (Path(command).stem == "muniment" and args[:1] == ["mcp"]) or args[:3] == [
        "-m",
        "memory.cli",
        "mcp",
    ]


def _taken(path: Path) -> RefusedError:
    return RefusedError(
        f"another server is called {SERVER_NAME} in {path}: rename or remove it first", code="name_taken"
    )


def _read(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise MalformedError(f"expected {path} to be a file; nothing was changed")
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise UnavailableError(f"{path} can't be read: {error.strerror}", errno=error.errno) from None
    if len(data) > MAX_FILE_BYTES:
        raise MalformedError(f"expected {path} to have at most {MAX_FILE_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedError(f"expected {path} to be UTF-8; nothing was changed") from None


@dataclass(frozen=True, slots=True)
class _Document:
    """A JSON object as it stands in a file, and what it says."""

    text: str
    members: dict[str, Any]

    @property
    def is_blank(self) -> bool:
        """Whether nothing stands in the file."""
        return not self.text.removeprefix(_MARK).strip()


def _read_json(path: Path) -> _Document:
    document = _Document(_read(path), {})
    if document.is_blank:
        return document
    for plain in (document.text, json_comments.without_comments(document.text)):
        try:
            members = json.loads(
                plain, object_pairs_hook=_members, parse_float=_finite, parse_constant=_finite
            )
        except (ValueError, RecursionError):
            continue
        if isinstance(members, dict):
            return _Document(document.text, members)
    raise MalformedError(
        f"expected {path} to be a JSON object with no name twice in it; nothing was changed. "
        "muniment install --print shows what to add by hand",
        code="settings_unread",
    )


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object. Of a name that stands twice one would be lost when the file is written again."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def _servers(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    servers = document.get(name, {})
    if not isinstance(servers, dict):
        raise MalformedError(f"expected {name} to be an object; nothing was changed", code="settings_unread")
    return dict(servers)


def _toml_block(entry: Entry) -> str:
    """The table of our server, between two comments by which it is found again."""
    env = ", ".join(f"{json.dumps(name)} = {_toml(value)}" for name, value in entry.env.items())
    args = ", ".join(_toml(one) for one in entry.args)
    lines = [
        _BEGIN,
        f"[mcp_servers.{SERVER_NAME}]",
        f"command = {_toml(entry.command)}",
        f"args = [{args}]",
        f"env = {{ {env} }}",
        _END,
    ]
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    # JSON escapes what TOML wants escaped, save DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _read_toml(path: Path) -> tuple[str, object]:
    """The text of the file without our table, and what that says; the text as it is and None if it is not there."""
    text = _read(path)
    document = _parse_toml(text)
    if document is None:
        raise MalformedError(f"expected {path} to be TOML; nothing was changed", code="settings_unread")
    servers = _servers(document, "mcp_servers")
    begin = text.find(_BEGIN)
    end = text.find(_END, begin)
    if begin < 0 or end < 0 or SERVER_NAME not in servers:
        if SERVER_NAME in servers:
            raise _taken(path)
        return text, None
    stop = end + len(_END)
    stop += text[stop : stop + 1] == "\n"
    # The empty line before it is ours too.
    before = text[: begin - 1] if text[:begin].endswith("\n\n") else text[:begin]
    expected = _told({**document, "mcp_servers": _without_ours(servers)})
    # Whatever Codex adds it writes before the last remark of the file, so between ours, too: that stays.
    inside = text[begin:end].splitlines(keepends=True)
    for number in range(1, len(inside) + 1):
        rest = before + "".join(inside[number:]) + text[stop:]
        if _told(_parse_toml(rest)) == expected:
            return rest, servers[SERVER_NAME]
    raise MalformedError(
        f"the table of {SERVER_NAME} in {path} can't be told from what stands beside it; nothing was changed. "
        "Take it out by hand",
        code="settings_unread",
    )


def _parse_toml(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text.removeprefix(_MARK))
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _without_ours(servers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in servers.items() if name != SERVER_NAME}


def _told(document: Mapping[str, Any] | None) -> str | None:
    """What a document says, in whatever order, as a text that can be compared."""
    if document is None:
        return None
    says = {name: value for name, value in document.items() if name != "mcp_servers" or value}
    return json.dumps(says, sort_keys=True, default=repr)


def _install_toml(path: Path, entry: Entry) -> bool:
    rest, there = _read_toml(path)
    wanted = _toml_block(entry)
    if there == entry.describe(typed=False):
        return False
    # At the end: a table goes on until the next one begins.
    gap = "" if not rest else "\n" if rest.endswith("\n") else "\n\n"
    text = rest + gap + wanted
    if _parse_toml(text) is None:
        raise MalformedError(
            f"expected mcp_servers in {path} to be a table that others can follow; nothing was changed. "
            "muniment install --print shows what to add by hand",
            code="settings_unread",
        )
    _replace(path, text)
    return True


def _uninstall_toml(path: Path) -> bool:
    if not path.exists():
        return False
    rest, there = _read_toml(path)
    if there is None:
        return False
    _replace_or_remove(path, rest, not rest.removeprefix(_MARK).strip())
    return True


def _replace_or_remove(path: Path, text: str, nothing_left: bool) -> None:
    """A link is somebody's own, and so is a file that may not be written: neither is removed."""
    if not nothing_left or path.is_symlink() or not os.access(path, os.W_OK):
        _replace(path, text)
        return
    try:
        path.unlink()
    except OSError as error:
        raise UnavailableError(f"{path} can't be removed: {error.strerror}", errno=error.errno) from None


def _replace(path: Path, text: str) -> None:
    """Returns once the file holds this text, with the mode that it had; a link is followed, not replaced."""
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, "it is read-only")
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=".muniment-")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text.encode("utf-8"))
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, mode)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise UnavailableError(f"{path} can't be written: {error.strerror}", errno=error.errno) from None
