"""The command: exit codes, one JSON document on standard output, and errors that never repeat content."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memory import cli

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SECRET = "Zebrafinch-0451"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def run(capsys: pytest.CaptureFixture[str], home: Path, *arguments: str) -> tuple[int, Any, str]:
    """Exit code, the JSON document, and what was said to people."""
    code = cli.main([*arguments, "--home", str(home), "--json"])
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) == 1, "with --json standard output is one document"
    return code, json.loads(lines[0]), captured.err


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in cli.COMMANDS:
        with pytest.raises(SystemExit) as ended:
            cli.main([command, "--help"])
        assert ended.value.code == 0
        assert command in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("muniment ")


def test_a_refused_write_ends_with_1(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    key = ("--key", "api/region")
    assert run(capsys, home, "remember", "one", *key, "--value", "eu-west-1")[0] == 0
    code, answer, _ = run(capsys, home, "remember", "two", *key, "--value", "us-east-2")
    assert (code, answer["outcome"]) == (0, "superseded")
    code, answer, _ = run(capsys, home, "remember", "one", *key, "--value", "eu-west-1")
    assert (code, answer["outcome"], answer["reason"]) == (1, "refused", "echo")
    again = ("--reaffirm", answer["reaffirm"], "--reason", "it went back")
    code, answer, _ = run(capsys, home, "remember", "one", *key, "--value", "eu-west-1", *again)
    assert (code, answer["outcome"]) == (0, "superseded")


def test_a_refusal_waits_in_review_and_a_person_lifts_it(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    key = ("--key", "api/region")
    for value in ("eu-west-1", "us-east-2"):
        run(capsys, home, "remember", value, *key, "--value", value)
    _, refused, _ = run(capsys, home, "remember", "again", *key, "--value", "eu-west-1")
    _, listed, _ = run(capsys, home, "review")
    assert refused["id"] in [fact["id"] for fact in listed["facts"]]
    code, lifted, _ = run(capsys, home, "review", "--reaffirm", refused["id"], "--reason", "it went back")
    assert (code, lifted["status"]) == (0, "active")
    assert run(capsys, home, "get", "api/region")[1]["current"] == "eu-west-1"


def test_a_terminal_shows_why_facts_rank(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    run(capsys, home, "remember", "the gate is green", "--key", "gate/colour", "--value", "green")
    run(capsys, home, "remember", "a green lantern")
    asked = ["recall", "gate colour", "--home", str(home)]
    assert cli.main(asked) == 0
    (plain,) = capsys.readouterr().out.splitlines()
    assert cli.main([*asked, "--explain"]) == 0
    line, why = capsys.readouterr().out.splitlines()
    assert line == plain and why.startswith("    has gate (")
    assert "colour (" in why and "in key, subject or value" in why and "; scores 1.00 for its words" in why


def test_conflicts_are_listed_and_resolved(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUNIMENT_CLIENT", "desk")
    _, first, _ = run(capsys, home, "remember", "blue", "--key", "door/colour", "--value", "blue")
    monkeypatch.setenv("MUNIMENT_CLIENT", "phone")
    _, second, _ = run(capsys, home, "remember", "red", "--key", "door/colour", "--value", "red")
    assert second["conflict_with"] == [first["id"]]
    assert run(capsys, home, "get", "door/colour")[1]["current"] is None
    (conflict,) = run(capsys, home, "conflicts")[1]["conflicts"]
    code, kept, _ = run(capsys, home, "resolve", conflict["id"], "--keep", second["id"])
    assert (code, kept["status"]) == (0, "active")
    assert run(capsys, home, "get", "door/colour")[1]["current"] == "red"
    assert run(capsys, home, "conflicts")[1]["conflicts"] == []


def test_text_is_read_from_standard_input(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"about {SECRET}\n".encode())))
    _, fact, _ = run(capsys, home, "remember", "-")
    found = run(capsys, home, "recall", SECRET)[1]["facts"]
    assert [one["id"] for one in found] == [fact["id"]]
    assert found[0]["text"] == f"about {SECRET}"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("remember",), "usage"),
        (("remember", ""), "bad_input"),
        (("remember", "   \t"), "bad_input"),
        (("remember", f"{SECRET}\0"), "bad_input"),
        (("remember", f"{SECRET}\udc80"), "bad_input"),
        (("remember", SECRET * 70_000), "bad_input"),
        (("remember", SECRET, "--value", SECRET), "bad_input"),
        (("remember", SECRET, "--key", "k", "--value", "  "), "bad_input"),
        (("remember", SECRET, "--key", "  "), "bad_input"),
        (("remember", SECRET, "--valid-from", SECRET), "bad_input"),
        (("remember", SECRET, "--valid-from", "2026-01-01"), "bad_input"),
        (
            (
                "remember",
                SECRET,
                "--valid-from",
                "2026-02-01T00:00:00Z",
                "--valid-until",
                "2026-01-01T00:00:00Z",
            ),
            "bad_input",
        ),
        (("remember", SECRET, "--reaffirm", SECRET), None),
        (("remember", SECRET, "--tenant", SECRET), "usage"),
        (("remember", SECRET, SECRET), "usage"),
        (("recall", SECRET, "--limit", SECRET), "usage"),
        (("recall", SECRET, "--limit", "0"), "bad_input"),
        (("recall", ""), None),
        (("get", "k", "--as-of", SECRET), "bad_input"),
        (("provenance", SECRET), "bad_input"),
        (("provenance", "aaaaaaaaaaaaaaaaaaaaaaaaaa"), None),
        (("retract", SECRET), "bad_input"),
        (("resolve", SECRET, "--keep", SECRET), "bad_input"),
        (("receipt", SECRET), "bad_input"),
        (("forget",), "usage"),
        (("forget", "--id", SECRET), "bad_input"),
        (("forget", "--key", SECRET), None),
        (("forget", "--subject", SECRET, "--all"), "usage"),
        (("forget", "--all", "--guard", SECRET), "bad_input"),
        (("forget", "--all", "--reason", SECRET), "bad_input"),
        (("retention", "--superseded-older-than", SECRET), "bad_input"),
        (("import", SECRET, "x"), "usage"),
        (("import", "jsonl", f"/no/such/{SECRET}"), "bad_input"),
        (("verify", f"/no/such/{SECRET}"), None),
        (("audit", "--trust", f"/no/such/{SECRET}"), None),
        ((SECRET,), "usage"),
        ((), "usage"),
    ],
)
def test_bad_input_is_named_and_never_repeated(
    capsys: pytest.CaptureFixture[str], home: Path, arguments: tuple[str, ...], code: str | None
) -> None:
    if arguments[:1] != ("import",):
        cli.main(["init", "--home", str(home)])
        capsys.readouterr()
    ended = cli.main([*arguments, "--home", str(home), "--json"])
    captured = capsys.readouterr()
    if arguments == ("recall", ""):
        assert ended in (0, 2)
        return
    assert ended in (1, 2)
    document = json.loads(captured.out)
    if "error" in document and code is not None:
        assert document["error"]["code"] == code
        assert document["error"]["message"]
    if arguments[:1] not in (("verify",), ("import",), ("audit",)):
        # A file's name is the caller's own and may be named back; nothing else is.
        assert SECRET not in captured.out + captured.err


READING = [
    ("recall", SECRET),
    ("get", SECRET),
    ("history", SECRET),
    ("provenance", "a" * 26),
    ("retract", "a" * 26),
    ("conflicts",),
    ("resolve", "a" * 26, "--keep", "a" * 26),
    ("review",),
    ("status",),
    ("receipt", "a" * 26),
    ("opening", "a" * 26),
    ("forget", "--key", SECRET),
    ("retention", "--superseded-older-than", "90d"),
    ("log", "status"),
    ("log", "publish"),
]


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_what_reads_makes_no_home(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "mistyped", tmp_path / "empty"):
        code, answer, said = run(capsys, folder, *arguments)
        assert (code, answer["error"]["code"]) == (2, "no_home")
        assert "muniment init" in answer["error"]["message"] and SECRET not in said
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty"]


def test_a_second_import_says_that_nothing_was_new(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "facts.jsonl"
    file.write_text('{"text":"one"}\n{"text":"two"}\n{"text":"one"}\n', "utf-8")
    first = run(capsys, home, "import", "jsonl", str(file))[1]
    assert (first["lines"], first["new"], first["known"]) == (3, 3, 0)
    assert first["outcomes"] == {"stored": 2, "agreed": 1}
    with file.open("a", encoding="utf-8") as lines:
        lines.write('{"text":"three"}\n')
    second = run(capsys, home, "import", "jsonl", str(file))[1]
    assert (second["lines"], second["new"], second["known"]) == (4, 1, 3)
    assert second["outcomes"] == {"stored": 1}
    cli.main(["import", "jsonl", str(file), "--home", str(home)])
    assert capsys.readouterr().out == "4 lines: 0 new, 4 there already\n"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EIO])
def test_only_a_failure_that_may_pass_asks_to_try_again(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    real = os.open

    def failing(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return real(path, flags, *rest, **named)

    assert run(capsys, tmp_path / "home", "init")[0] == 0
    monkeypatch.setattr(os, "open", failing)
    expected = 2 if number in (errno.EROFS, errno.EACCES, errno.EPERM) else 3
    assert run(capsys, tmp_path / "home", "log", "publish")[0] == expected
    assert run(capsys, tmp_path / "home", "remember", "a fact")[0] == expected
    assert run(capsys, tmp_path / "another", "init")[0] == expected


def test_a_source_is_told_in_the_provenance(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    for more, limited in (((), True), (("--source", "minutes of May"), False)):
        id = run(capsys, home, "remember", f"a fact {more}", *more)[1]["id"]
        told = run(capsys, home, "provenance", id)[1]
        assert ("no_source" in {limit["code"] for limit in told["limits"]}) == limited
    assert told["origin"]["source"] == "minutes of May"


def test_a_home_that_is_a_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine", "utf-8")
    for home in (file, file / "below"):
        code, answer, _ = run(capsys, home, "remember", "x")
        assert (code, answer["error"]["code"]) == (2, "bad_input")
    assert file.read_text("utf-8") == "mine"


def test_a_folder_with_other_files_is_not_made_a_home(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "letter").write_text("mine", "utf-8")
    code, answer, _ = run(capsys, tmp_path, "remember", "x")
    assert (code, answer["error"]["code"]) == (2, "bad_input")
    assert [entry.name for entry in tmp_path.iterdir()] == ["letter"]


@pytest.mark.parametrize("name", ["with space", "日本語", "a.b%c_d", "deep/er/still"])
def test_homes_of_any_name_are_made(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    assert run(capsys, tmp_path / name, "remember", "x")[0] == 0
    assert (tmp_path / name / "store.db").is_file()


def test_a_relative_home_and_the_environment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUNIMENT_HOME", "relative")
    assert cli.main(["remember", "x", "--json"]) == 0
    capsys.readouterr()
    assert (tmp_path / "relative" / "store.db").is_file()


def as_anybody(home: Path, *arguments: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the command without the right to pass over file modes, with a limit on the size of files if given."""
    command = [sys.executable, "-m", "memory.cli", *arguments, "--home", str(home), "--json"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root passes over file modes here, and there is no setpriv to give that up")
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]

    def prepare() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=prepare,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_a_read_only_home_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    run(capsys, home, "remember", "before", "--key", "k", "--value", "v")
    for path in (home, *home.rglob("*")):
        path.chmod(0o500 if path.is_dir() else 0o400)
    done = as_anybody(home, "remember", SECRET)
    for path in (home, *home.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert done.returncode in (2, 3), done.stderr
    assert "error" in json.loads(done.stdout)
    assert SECRET not in done.stdout + done.stderr
    assert run(capsys, home, "get", "k")[1]["current"] == "v"


def test_a_full_disk_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    run(capsys, home, "remember", "before", "--key", "k", "--value", "v")
    big = max((path.stat().st_size for path in home.rglob("*") if path.is_file()), default=0)
    outcomes = []
    for number in range(12):
        done = as_anybody(home, "remember", f"{SECRET} {number} " + "x" * 60_000, limit=big + 200_000)
        outcomes.append(done.returncode)
        assert SECRET not in done.stderr
        if done.returncode:
            assert done.returncode in (1, 2, 3), done.stderr
            assert "error" in json.loads(done.stdout)
    assert any(outcomes), "the limit was never reached, so nothing was shown"
    found = run(capsys, home, "recall", SECRET, "--limit", "50")[1]["facts"]
    assert len(found) == outcomes.count(0)
    assert run(capsys, home, "get", "k")[1]["current"] == "v"
    assert run(capsys, home, "log", "publish")[0] == 0
    assert run(capsys, home, "audit")[1]["verdict"] == "clean"
