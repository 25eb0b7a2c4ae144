"""`muniment install`: what is put into the settings of a host, what stays there, and what is taken out again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from memory import cli, install, json_comments
from tlog.errors import MalformedError, RefusedError, UnavailableError

JSON_CLIENTS = sorted(set(install.CLIENTS) - {"codex"})
REPOSITORY = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with nothing in it, so that no test touches real settings."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("MUNIMENT_HOME", str(tmp_path / "home"))
    for name in ("MUNIMENT_AGENT", "MUNIMENT_TENANT"):
        monkeypatch.delenv(name, raising=False)
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = cli.main(["install", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def servers_of(name: str, path: Path) -> dict[str, Any]:
    text = path.read_text("utf-8")
    document = tomllib.loads(text) if name == "codex" else json.loads(text)
    servers: dict[str, Any] = document[install.CLIENTS[name].servers]
    return servers


@pytest.mark.parametrize("name", sorted(install.CLIENTS))
def test_what_is_written_starts_the_server_and_is_undone(
    name: str, user: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = run(capsys, name, "--agent", "ada")
    assert (code, answer["changed"]) == (0, True)
    path = Path(answer["file"])
    assert path.is_relative_to(user)
    entry = servers_of(name, path)["muniment"]
    assert entry["env"] == {"MUNIMENT_HOME": str(tmp_path / "home"), "MUNIMENT_AGENT": "ada"}
    started = subprocess.run(
        [entry["command"], *entry["args"], "--help"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 0 and "MCP" in started.stdout
    assert run(capsys, name, "--agent", "ada")[1]["changed"] is False
    assert run(capsys, name, "--undo") == (0, {"client": name, "file": str(path), "changed": True})
    assert not path.exists(), "a file with nothing else in it goes with the entry"
    assert run(capsys, name, "--undo")[1]["changed"] is False


@pytest.mark.parametrize("name", JSON_CLIENTS)
def test_every_other_setting_stays(name: str, user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = install.settings_file(name, None)
    path.parent.mkdir(parents=True, exist_ok=True)
    container = install.CLIENTS[name].servers
    before = {"theme": "dunkel", container: {"other": {"command": "x", "args": []}}, "n": [1, {"a": None}]}
    path.write_text(json.dumps(before), "utf-8")
    path.chmod(0o640)
    run(capsys, name)
    after = json.loads(path.read_text("utf-8"))
    assert after[container].pop("muniment")["args"]
    assert after == before and list(after) == list(before)
    assert path.stat().st_mode & 0o777 == 0o640
    run(capsys, name, "--undo")
    assert json.loads(path.read_text("utf-8")) == before


@pytest.mark.parametrize(
    "text",
    ['model = "x"\n', 'model = "x"', "# only a remark\n\n", '[a]\nb = 1\n[mcp_servers.z]\ncommand="z"\n'],
)
def test_toml_keeps_every_byte_of_the_rest(text: str, user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = install.settings_file("codex", None)
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    run(capsys, "codex")
    assert path.read_text("utf-8").startswith(text)
    assert "muniment" in tomllib.loads(path.read_text("utf-8"))["mcp_servers"]
    run(capsys, "codex", "--tenant", "acme")
    assert path.read_text("utf-8").count("[mcp_servers.muniment]") == 1
    run(capsys, "codex", "--undo")
    assert path.read_text("utf-8").rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cursor", "{ // a remark\n"),
        ("cursor", '{"a": 1, /* not ended }'),
        ("cursor", '{"a": 1,, /* twice */ "b": 2}'),
        ("cursor", "[1]"),
        ("cursor", '{"mcpServers": [1]}'),
        ("gemini", "\x00\x01"),
        ("codex", "= broken"),
        ("codex", "mcp_servers = 3\n"),
        ("codex", 'mcp_servers = {z = {command = "z"}}\n'),
    ],
)
def test_a_file_that_is_not_understood_is_not_touched(name: str, text: str, user: Path) -> None:
    path = install.settings_file(name, None)
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    entry = install.make_entry(user)
    with pytest.raises(MalformedError):
        install.install(name, path, entry)
    assert path.read_text("utf-8") == text
    assert sorted(one.name for one in path.parent.iterdir()) == [path.name]


@pytest.mark.parametrize("name", sorted(install.CLIENTS))
def test_a_server_of_somebody_else_with_our_name_stays(name: str, user: Path) -> None:
    path = install.settings_file(name, None)
    path.parent.mkdir(parents=True, exist_ok=True)
    container = install.CLIENTS[name].servers
    if name == "codex":
        text = '[mcp_servers.muniment]\ncommand = "other"\nargs = []\n'
    else:
        text = json.dumps({container: {"muniment": {"command": "other", "args": []}}})
    path.write_text(text, "utf-8")
    for act in (
        lambda: install.install(name, path, install.make_entry(user)),
        lambda: install.uninstall(name, path),
    ):
        with pytest.raises(RefusedError, match="another server"):
            act()
    assert path.read_text("utf-8") == text


def test_print_changes_nothing(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in install.CLIENTS:
        assert cli.main(["install", name, "--print"]) == 0
        assert "muniment" in capsys.readouterr().out
    assert list(user.rglob("*")) == []


def test_a_project_has_its_own_file(user: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = tmp_path / "project"
    project.mkdir()
    code, answer = run(capsys, "claude-code", "--project", str(project))
    assert (code, Path(answer["file"])) == (0, project / ".mcp.json")
    assert cli.main(["install", "claude-desktop", "--project", str(project)]) == 2
    assert cli.main(["install", "cursor", "--project", str(project / "nowhere")]) == 2
    assert cli.main(["install", "cursor", "--agent", "*"]) == 2


def test_a_link_is_followed(user: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "dotfiles.json"
    kept.write_text("{}", "utf-8")
    path = install.settings_file("cursor", None)
    path.parent.mkdir(parents=True)
    path.symlink_to(kept)
    run(capsys, "cursor")
    assert path.is_symlink() and "muniment" in kept.read_text("utf-8")


def test_undo_leaves_a_link_and_what_it_leads_to(
    user: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, empty in (("cursor", "{}\n"), ("codex", "")):
        kept = tmp_path / f"kept-{name}"
        kept.write_text(empty)
        path = install.settings_file(name, None)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(kept)
        run(capsys, name)
        assert "muniment" in kept.read_text()
        assert run(capsys, name, "--undo")[1]["changed"]
        assert path.is_symlink() and kept.read_text() == empty


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"mcpServers": {"x": {"command": "x", "command": "y"}}}',
        '{"a": 1e400}',
        '{"a": NaN}',
    ],
)
def test_what_would_be_written_otherwise_is_not_touched(user: Path, text: str) -> None:
    path = install.settings_file("cursor", None)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(MalformedError, match="nothing was changed"):
        install.install("cursor", path, install.Entry("muniment", ("mcp",), {}))
    assert path.read_text() == text


REMARKS = [
    '{\n  // one\n  "a": "// no remark",\n  "SERVERS": {\n    // mine\n    "z": {"command": "z"}, // last\n  },\n}\n',
    '{\r\n  /* one */\r\n  "SERVERS": {\r\n    "z": 1 // z\r\n  }\r\n}\r\n',
    '// one\n{\n  "a": [1, 2,], /* {"SERVERS": {}} */\n  "b": "\\\\" // two\n}\n// three\n',
    "{ // one\n}",
    '{"SERVERS": {/* none */}, "b": 2}',
]


@pytest.mark.parametrize("text", REMARKS)
@pytest.mark.parametrize("name", ["vscode", "gemini"])
def test_remarks_in_settings_stay(
    name: str, text: str, user: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    container = install.CLIENTS[name].servers
    text = text.replace("SERVERS", container)
    path = install.settings_file(name, None)
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode())
    before = json.loads(json_comments.without_comments(text))
    for more in ((), ("--tenant", "acme")):
        assert run(capsys, name, *more)[1]["changed"] and not run(capsys, name, *more)[1]["changed"]
        made = path.read_bytes().decode()
        says = json.loads(json_comments.without_comments(made))
        assert says[container].pop("muniment")["env"].get("MUNIMENT_TENANT") == (more[1] if more else None)
        assert says == {container: {}} | before
        assert ("\r\n" in text) == ("\r\n" in made) and made.count("\r") in (0, made.count("\n"))
        _has_remarks_of(text, made)
    assert run(capsys, name, "--undo")[1]["changed"]
    left = path.read_bytes().decode()
    assert json.loads(json_comments.without_comments(left)) in (before, {container: {}} | before)
    _has_remarks_of(text, left)
    if f'"{container}": {{\n' in text or "\r\n" in text:
        assert left == text, "to the byte"


def _has_remarks_of(text: str, made: str) -> None:
    for remark in re.findall(r"/\*.*?\*/|(?<![\":])//[^\r\n]*", text):
        assert remark in made


# As hosts and people write them: in one line, with tabs, with a mark of byte order, with numbers and letters that could
# be written otherwise, with a list of servers that is empty, and with the servers of projects beside.
SHAPES = [
    '{"n":1.50,"e":1E5,"SERVERS":{"x":{"command":"y\\u00e9\\/","args":[]}},"z":{}}',
    '{ "theme": "dark" }',
    '{\n\t"a": [\n\t\t1\n\t],\n\t"SERVERS": {\n\t\t"z": {"command": "z"}\n\t}\n}',
    '\ufeff{\r\n    "SERVERS": {\r\n        "z": {}\r\n    }\r\n}\r\n',
    '{"projects": {"/a": {"SERVERS": {}}}, "SERVERS": {}}\n',
    '{\n  "inputs": [],\n  "SERVERS": {}\n}\n',
    '{\n    "SERVERS": {\n        "z": {"command": "\\ud800"}\n    },\n    "half": true\n}\n\n',
]


@pytest.mark.parametrize("text", SHAPES)
@pytest.mark.parametrize("name", ["claude-code", "vscode"])
def test_undo_gives_back_every_byte(
    name: str, text: str, user: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = install.settings_file(name, None)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = text.replace("SERVERS", install.CLIENTS[name].servers).encode()
    path.write_bytes(written)
    for more in ((), ("--tenant", "acme")):
        assert run(capsys, name, *more)[1]["changed"] and not run(capsys, name, *more)[1]["changed"]
        says = json.loads(path.read_bytes().decode("utf-8-sig"))
        assert says[install.CLIENTS[name].servers]["muniment"]["args"]
    assert run(capsys, name, "--undo")[1]["changed"]
    assert path.read_bytes() == written


def test_what_codex_adds_within_our_remarks_stays(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An editor of TOML that keeps remarks puts a new table before the last one of the file, which is ours."""
    path = install.settings_file("codex", None)
    path.parent.mkdir(parents=True)
    path.write_text('# <<< muniment <<<\nmodel = "x"\n')
    run(capsys, "codex")
    added = '\n[projects."/x"]\ntrust_level = "trusted"\n\n[mcp_servers.z]\ncommand = "z"\n'
    head, end = path.read_text().rsplit("# <<<", 1)
    path.write_text(f"{head}{added}# <<<{end}")
    assert not run(capsys, "codex")[1]["changed"]
    assert run(capsys, "codex", "--tenant", "acme")[1]["changed"]
    says = tomllib.loads(path.read_text())
    assert says["projects"] == {"/x": {"trust_level": "trusted"}} and set(says["mcp_servers"]) == {
        "muniment",
        "z",
    }
    assert run(capsys, "codex", "--undo")[1]["changed"]
    assert path.read_text() == f'# <<< muniment <<<\nmodel = "x"\n{added}'


def test_half_a_character_stays(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = install.settings_file("cursor", None)
    path.parent.mkdir(parents=True)
    path.write_text('{"a": "x \\ud800 y", "b": "π"}')
    assert run(capsys, "cursor")[1]["changed"]
    assert json.loads(path.read_text())["a"] == "x \ud800 y"


def test_a_file_that_may_not_be_written_is_not_replaced(
    user: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who may write the folder could replace it all the same; whoever made it read-only did not want that."""
    path = install.settings_file("cursor", None)
    run(capsys, "cursor")
    before = path.read_text()
    monkeypatch.setattr(install.os, "access", lambda *_: False)
    for act in (lambda: install.uninstall("cursor", path), lambda: install._replace(path, "{}")):
        with pytest.raises(UnavailableError, match="read-only"):
            act()
    assert path.read_text() == before


def test_a_pipe_in_its_place_is_not_read(user: Path) -> None:
    path = install.settings_file("cursor", None)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(MalformedError, match="to be a file"):
        install.install("cursor", path, install.Entry("muniment", ("mcp",), {}))


def test_without_a_command_the_interpreter_starts_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install.shutil, "which", lambda _: None)
    monkeypatch.setattr(install.sys, "executable", str(tmp_path / "python"))
    entry = install.make_entry(tmp_path)
    assert (entry.command, entry.args) == (str(tmp_path / "python"), ("-m", "memory.cli", "mcp"))
    assert sys.executable
