"""The demo as a user runs it, and its claims checked again from outside: bytes, proofs, findings."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from auditor.residue import scan_files
from memory import cli

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PERSON = "Otilia Brandmeyer"
# What the week says about the person, in the forms it stands in.
TRACES = (
    "Otilia",
    "Brandmeyer",
    "917 246 803",
    "otilia.brandmeyer",
    "Oliveiras",
    "Quastenberg",
    "quince jam",
)
COLLEAGUE = "Mara Lindqvist"


@dataclass(frozen=True)
class Told:
    """A demo that has run: what it said, and the folder it left."""

    text: str
    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"


def muniment(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memory.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=180,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("demo") / "kept"
    done = muniment("demo", "--keep", str(folder))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    yield Told(done.stdout, folder)


def files_of(home: Path) -> dict[str, bytes]:
    return {
        path.relative_to(home).as_posix(): path.read_bytes() for path in home.rglob("*") if path.is_file()
    }


def places_of(word: str, home: Path) -> list[str]:
    """Files whose bytes, or whose name, hold the word as UTF-8 or UTF-16, in its case or lower case."""
    forms = {
        form.encode(encoding)
        for form in (word, word.lower(), word.upper())
        for encoding in ("utf-8", "utf-16-le", "utf-16-be")
    }
    return [
        name
        for name, data in files_of(home).items()
        if word.lower() in name.lower() or any(form in data for form in forms)
    ]


def findings(home: Path, told: Told) -> tuple[int, dict[str, Any]]:
    """What the command says, run in this process: it is asked often."""
    said = io.StringIO()
    trust = str(told.folder / "handed-out" / "trust.toml")
    with contextlib.redirect_stdout(said):
        code = cli.main(["audit", "--home", str(home), "--trust", trust, "--json"])
    return code, json.loads(said.getvalue())


def test_every_step_is_told(told: Told) -> None:
    for number in range(1, 10):
        assert f"--- {number}. " in told.text
    assert told.text.count("refused, reason echo") == 3


def test_keys_and_home_are_for_their_owner_alone(told: Told) -> None:
    assert told.home.stat().st_mode & 0o777 == 0o700
    keys = [path for path in (told.home / "keys").rglob("*") if path.is_file()]
    assert len(keys) >= 6
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in keys)


def test_correction_is_served_and_conflict_listed(told: Told) -> None:
    assert muniment("get", "standup/time", "--home", str(told.home)).stdout == "09:30\n"
    listed = json.loads(muniment("conflicts", "--home", str(told.home), "--json").stdout)["conflicts"]
    assert [conflict["key"] for conflict in listed] == ["release/next"]


def test_the_kept_home_goes_on_once_its_witnesses_are_started_as_it_says(told: Told, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(told.home, home)
    lines = [line.split() for line in told.text.splitlines() if "witness serve" in line]
    assert len(lines) == 2
    command = [sys.executable, "-m", "memory.cli"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    running = [
        subprocess.Popen(
            [*command, *line[1:], "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        for line in lines
    ]
    try:
        assert all(process.stdout is not None and process.stdout.readline() for process in running)
        assert muniment("remember", "the demo goes on", "--home", str(home)).returncode == 0
        published = muniment("log", "publish", "--home", str(home), "--json")
        assert json.loads(published.stdout)["state"] == "witnessed"
    finally:
        for process in running:
            process.terminate()
            process.communicate(timeout=20)


def test_a_demo_that_is_stopped_leaves_no_witness_and_no_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen(
        [sys.executable, "-u", "-m", "memory.cli", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith("--- 3."):
            break
    assert witnesses_below(tmp_path)
    demo.terminate()
    demo.communicate(timeout=60)
    assert demo.returncode == 143
    assert not witnesses_below(tmp_path)
    assert list(tmp_path.iterdir()) == []


def witnesses_below(folder: Path) -> list[bytes]:
    """The command lines of running witnesses whose state lies there."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes()
        except OSError:
            continue
        if b"witness" in words and str(folder).encode() in words:
            found.append(words)
    return found


def test_proofs_verify_with_a_trust_file_and_nothing_else(told: Told, tmp_path: Path) -> None:
    for name in ("fact.cose", "fact.tlog-proof", "trust.toml"):
        shutil.copy(told.folder / "handed-out" / name, tmp_path / name)
    for name in ("fact.cose", "fact.tlog-proof"):
        good = muniment("verify", name, "--trust", "trust.toml", "--json", cwd=tmp_path)
        assert good.returncode == 0
        codes = {one["code"] for one in json.loads(good.stdout)["files"][0]["proved"]}
        assert {"log_signature", "witnessed", "inclusion", "issuer_signature"} <= codes


@pytest.mark.parametrize("name", ["fact.cose", "fact.tlog-proof"])
def test_no_changed_byte_of_a_proof_goes_through(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    data = (told.folder / "handed-out" / name).read_bytes()
    shutil.copy(told.folder / "handed-out" / "trust.toml", tmp_path / "trust.toml")
    step = max(1, len(data) // 12)
    for at in range(0, len(data), step):
        changed = bytearray(data)
        changed[at] ^= 0x01
        (tmp_path / name).write_bytes(changed)
        code = cli.main(["verify", name, "--trust", "trust.toml", "--json"])
        assert code in (1, 2), f"byte {at} of {name} changed, and it still verifies"


def test_no_byte_of_the_person_is_left(told: Told) -> None:
    for trace in TRACES:
        assert places_of(trace, told.home) == []
    assert places_of(COLLEAGUE, told.home), "the same search finds a colleague, so it can find something"


def test_the_same_scans_find_a_planted_secret(told: Told, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(told.home, copy)
    assert not scan_files(copy, TRACES, canary=COLLEAGUE).hits
    (copy / "log" / "planted").write_bytes(b"\0\1\2 Parcels for Otilia Brandmeyer \0")
    assert places_of("Brandmeyer", copy) == ["log/planted"]
    found = scan_files(copy, TRACES, canary=COLLEAGUE)
    assert found.control_found
    assert {hit.file for hit in found.hits} == {"log/planted"}


def test_audit_of_the_original_is_clean(told: Told) -> None:
    code, report = findings(told.home, told)
    assert (code, report["verdict"], report["findings"]) == (0, "clean", [])
    trust = str(told.folder / "handed-out" / "trust.toml")
    assert muniment("audit", "--home", str(told.home), "--trust", trust).returncode == 0


@pytest.mark.parametrize(
    ("file", "needle", "codes"),
    [
        ("store.db", b"Source Sans", {"FACT_ALTERED"}),
        ("log/tile/entries", b"\xd2\x84", {"ENTRY_ALTERED"}),
        ("log/tile/0", None, {"ENTRY_ALTERED", "LOG_FORK"}),
        ("log/checkpoint", None, {"LOG_SIGNATURE", "QUORUM_NOT_MET"}),
        ("log/erasures/1.cose", None, {"MANIFEST_ALTERED"}),
    ],
)
def test_audit_names_one_changed_byte(
    told: Told, tmp_path: Path, file: str, needle: bytes | None, codes: set[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(told.home, copy)
    path = copy / file
    if path.is_dir():
        path = max((one for one in path.rglob("*") if one.is_file()), key=lambda one: one.stat().st_size)
    data = bytearray(path.read_bytes())
    at = data.index(needle) + len(needle) // 2 if needle else len(data) // 2
    data[at] ^= 0x01
    path.write_bytes(data)
    code, report = findings(copy, told)
    assert (code, report["verdict"]) == (1, "findings")
    found = {one["code"] for one in report["findings"]}
    assert found & codes, found
    assert all(one["where"] for one in report["findings"])


def test_keep_wants_a_new_or_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious", "utf-8")
    done = muniment("demo", "--keep", str(tmp_path))
    assert done.returncode == 2
    assert (tmp_path / "mine").read_text("utf-8") == "precious"
