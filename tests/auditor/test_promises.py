"""What clients still have, held against the log: a promise that was kept, one that was broken, another log."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from copies import Copy

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import cli
from memory.model import SCOPES, Principal
from memory.wiring import init_home, open_home
from tlog.errors import MalformedError
from tlog.trust import parse_trust

ME = Principal("acme", "bot", "one", SCOPES)
DAY = 86_400


@dataclass
class Client:
    """A home, and the folder of a client of it, who kept every answer and asked for every receipt."""

    copy: Copy
    folder: Path

    def found(self, **options: Any) -> set[tuple[str, str]]:
        findings = self.copy.audit(receipts=self.folder, **options).outcome.findings
        return {(one.code, one.where) for one in findings}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    kept = folder / "kept"
    kept.mkdir()
    with init_home(folder / "home") as home:
        memory = home.memory(ME)
        first = memory.remember("the office is in Berlin", key="city", value="Berlin")
        second = memory.remember("the office is in Hamburg", key="city", value="Hamburg")
        home.publish()
        (kept / "a.cose").write_bytes(memory.receipt(first["id"]))
        (kept / "b.tlog-proof").write_bytes(memory.receipt(second["id"], "tlog-proof"))
        (kept / "c.checkpoint").write_bytes((folder / "home" / "log" / "checkpoint").read_bytes())
        again = [{"ok": True, "result": first}, {"ok": False, "error": {"code": "busy"}}]
        (kept / "d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in again))
        third = memory.remember("the fax is 555", key="fax", value="555")
        (kept / "e.json").write_text(json.dumps(third))
    return folder


@pytest.fixture
def client(given: Path, tmp_path: Path) -> Client:
    shutil.copytree(given, tmp_path / "given")
    home = tmp_path / "given" / "home"
    return Client(Copy(home, parse_trust((home / "trust.toml").read_text())), tmp_path / "given" / "kept")


def test_what_was_kept_is_clean_and_what_waits_is_said(client: Client) -> None:
    outcome = client.copy.audit(receipts=client.folder).outcome
    assert outcome.findings == ()
    assert outcome.counts["receipts"] == 5
    counts = [note.count for note in outcome.checked if note.check == "receipts"]
    assert counts == [5, 3, 3]
    assert [note.count for note in outcome.not_checked if note.check == "receipts"] == [1]


def test_the_command_takes_them(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    home = str(client.copy.home)
    assert cli.main(["audit", "--home", home, "--receipts", str(client.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["receipts"] == 5
    assert cli.main(["audit", "--home", home, "--receipts", str(client.folder / "nowhere")]) == 2


@pytest.mark.parametrize("what", ["folder", "link", "pipe"])
def test_nothing_in_the_folder_is_passed_over(client: Client, what: str) -> None:
    place = client.folder / "f.cose"
    {"folder": place.mkdir, "link": lambda: place.symlink_to("a.cose"), "pipe": lambda: os.mkfifo(place)}[
        what
    ]()
    with pytest.raises(MalformedError, match="nothing but files"):
        client.found()


@pytest.mark.parametrize(
    "told", [{"outcome": "superseded"}, {"outcome": "held", "reason": "echo"}, {"retired": ["a" * 26]}]
)
def test_a_client_that_was_told_otherwise_is_heard(client: Client, told: dict[str, Any]) -> None:
    answer = json.loads((client.folder / "e.json").read_text())
    assert answer["outcome"] == "stored"
    (client.folder / "e.json").write_text(json.dumps({**answer, **told}))
    assert client.found() == {("FACT_ALTERED", "receipts file 5")}


def test_a_write_that_store_and_log_deny_is_found(client: Client) -> None:
    """The newest write, which was not logged yet, is taken out of the store with all its traces."""
    client.copy.sql(
        "DELETE FROM facts WHERE seq = 3",
        "DELETE FROM contents WHERE seq = 3",
        "DELETE FROM events WHERE seq = 3",
        "UPDATE tenants SET last_seq = 2",
        "INSERT INTO search (search) VALUES ('delete-all')",
    )
    assert ("WRITE_LOST", "receipts file 5") in client.found()


def test_a_promise_older_than_the_merge_delay_is_broken(client: Client) -> None:
    later = time.time_ns() // 1000 + 2 * DAY * 1_000_000
    assert client.found(now=later) == {
        ("PROMISE_BROKEN", "receipts file 5"),
        ("PROMISE_BROKEN", "store.db events seq 3"),
    }


def test_a_place_that_was_told_and_is_not_its_own_is_found(client: Client) -> None:
    answer = json.loads((client.folder / "e.json").read_text())
    answer["receipt"] = {"state": "logged", "entry": 0}
    with open_home(client.copy.home) as home:
        home.publish()
    (client.folder / "e.json").write_text(json.dumps(answer))
    assert client.found() == {("ORDER_ALTERED", "receipts file 5")}


def test_a_log_of_which_the_end_was_cut_is_found(client: Client) -> None:
    asked = Asked(client.copy.trust, time.time_ns() // 1000)
    with open_home(client.copy.home) as home:
        home.publish()
    old = (client.folder / "c.checkpoint").read_bytes()
    newest = (client.copy.home / "log" / "checkpoint").read_bytes()
    (client.folder / "c.checkpoint").write_bytes(newest)
    (client.copy.home / "log" / "checkpoint").write_bytes(old)
    audited = audit(
        Places(None, log=str(client.copy.home / "log"), receipts=client.folder),
        asked,
        tenant=None,
        needles=None,
    )
    assert ("LOG_ROLLED_BACK", "receipts file 3") in {
        (one.code, one.where) for one in audited.outcome.findings
    }


@pytest.mark.parametrize("name", ["a.cose", "b.tlog-proof", "c.checkpoint"])
def test_a_receipt_that_was_spoiled_is_found(client: Client, name: str) -> None:
    path = client.folder / name
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    assert {code for code, _ in client.found()} == {"RECEIPT_INVALID"}


@pytest.mark.parametrize("text", ["{", '{"id": "?", "receipt": {}}', "\ud800"])
def test_an_answer_that_is_none_is_found(client: Client, text: str) -> None:
    (client.folder / "e.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert client.found() == {("RECEIPT_INVALID", "receipts file 5")}


def test_a_log_without_its_store_is_held_to_what_the_file_system_says(client: Client) -> None:
    places = Places(None, log=str(client.copy.home / "log"), receipts=client.folder)

    def codes() -> set[str]:
        asked = Asked(client.copy.trust, time.time_ns() // 1000)
        return {one.code for one in audit(places, asked, tenant=None, needles=None).outcome.findings}

    assert codes() == set()
    os.utime(client.folder / "e.json", (time.time() - 2 * DAY,) * 2)
    assert codes() == {"PROMISE_BROKEN"}


def test_two_logs_of_one_key_are_found_by_whoever_saw_the_other(client: Client, tmp_path: Path) -> None:
    """The operator shows an auditor a log in which the third write was another one."""
    fork = tmp_path / "fork"
    shutil.copytree(client.copy.home, fork)
    with open_home(client.copy.home) as home:
        home.publish()
    (client.folder / "c.checkpoint").write_bytes((client.copy.home / "log" / "checkpoint").read_bytes())
    (client.folder / "e.json").unlink()
    shown = Copy(fork, client.copy.trust)
    shown.sql(*(f"DELETE FROM {table} WHERE seq = 3" for table in ("facts", "contents", "events")))
    shown.sql("UPDATE tenants SET last_seq = 2", "INSERT INTO search (search) VALUES ('delete-all')")
    with open_home(fork) as home:
        home.memory(ME).remember("the fax is 777", key="fax", value="777")
        home.publish()
    found = {(one.code, one.where) for one in shown.audit(receipts=client.folder).outcome.findings}
    assert ("LOG_FORK", "receipts file 3") in found
