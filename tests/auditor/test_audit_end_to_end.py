"""An audit of a real home: clean as it was made, and a finding that names the place for each single change."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest
import tampering as by

from auditor.checks_log import check_checkpoint, check_tree
from auditor.evidence import Asked
from auditor.log_files import folder_files
from auditor.report import Report, to_document, to_text
from memory import cli, event, vfs
from memory.model import Principal
from memory.wiring import open_home
from tlog.checkpoint import Checkpoint, format_checkpoint
from tlog.cosignature import Cosigner
from tlog.errors import MalformedError
from tlog.keys import load_cose_key, load_log_key, make_cosigner_key
from tlog.note import Note, format_note, parse_note
from tlog.policy import WitnessEntry, make_policy
from tlog.statement import sign_statement
from tlog.tile import Tile
from tlog.trust import make_trust, trust_from_policy

# The last byte of an Ed25519 signature is at most 0x10, and often 0.
NOT_A_SIGNATURE = b"\xff"
REPOSITORY = Path(__file__).resolve().parent.parent.parent
CONTENTS = (
    "Berlin",
    "Hamburg",
    "garden",
    "庭の話",
    "Kumquat",
    "sencha",
    "secret plan",
    "globex",
    "acme",
    "office/city",
)


# As it was made


def test_the_untouched_home_is_clean(copy: Any) -> None:
    audited = copy.audit()
    assert audited.outcome.findings == ()
    assert audited.verified.checkpoint.size == audited.outcome.counts["entries"]
    assert audited.outcome.counts["tombstones"] == audited.outcome.counts["manifests"] == 1
    assert audited.outcome.counts["promises"] == 1
    checked = {note.check for note in audited.outcome.checked}
    assert {"tree", "signatures", "store and log", "facts", "erasures", "word index", "free space"} <= checked


def test_an_audit_changes_nothing(copy: Any) -> None:
    def state() -> dict[str, tuple[int, bytes]]:
        return {
            str(path.relative_to(copy.home)): (path.stat().st_mtime_ns, path.read_bytes())
            for path in copy.home.rglob("*")
            if path.is_file()
        }

    before = state()
    copy.audit(needles=["nothing of this kind"])
    assert state() == before


def test_the_command_reports_in_the_shape_that_is_promised(
    copy: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    trust = str(copy.home / "trust.toml")
    arguments = ["audit", "--home", str(copy.home), "--trust", trust, "--json", "--report", str(report)]
    assert cli.main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(report.read_text())
    assert document["verdict"] == "clean"
    assert document["findings"] == []
    assert document["counts"]["statements"] > 30
    assert all(note["text"] for note in document["checked"] + document["not_checked"])
    copy.sql("UPDATE facts SET status = 'active' WHERE status = 'superseded'")
    assert cli.main(["audit", "--home", str(copy.home), "--trust", trust, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "findings"
    assert {finding["code"] for finding in document["findings"]} == {"RETIRED_RETURNED"}
    assert {"code", "severity", "where", "what", "evidence"} == document["findings"][0].keys()
    assert cli.main(["audit", "--home", str(copy.home)]) == 1
    assert "RETIRED_RETURNED  store.db facts seq" in capsys.readouterr().out


def test_a_trust_that_came_from_the_home_is_said(copy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "--home", str(copy.home)]) == 0
    assert "the trust came from the home itself" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--home", "nowhere"],
        ["--home", "{home}", "--trust", "nowhere"],
        ["--home", "{home}", "--trust", "{home}/policy.txt"],
        ["--home", "{home}", "--needles", "nowhere"],
        ["--home", "{home}", "--report", "report.docx"],
        ["--home", "{home}", "--tenant", "nobody"],
        ["--home", "{home}", "--log", "nowhere"],
        ["--home", "{home}", "--manifest", "{home}/trust.toml"],
        ["--home", "{home}", "--needles", "{home}/trust.toml", "--also", "nowhere"],
    ],
)
def test_bad_usage_is_an_error_and_not_a_verdict(copy: Any, arguments: list[str]) -> None:
    assert cli.main(["audit", *(each.format(home=copy.home) for each in arguments)]) == 2


def test_no_report_repeats_content(make_copy: Callable[[], Any]) -> None:
    for spoil in (
        "UPDATE contents SET content = CAST(content || x'00' AS BLOB)",
        "UPDATE facts SET status = 'active', valid_from = valid_from + 1",
        "DELETE FROM contents WHERE seq % 2",
        "UPDATE events SET link_salt = zeroblob(32)",
    ):
        spoiled = make_copy()
        spoiled.sql(spoil)
        outcome = spoiled.audit(needles=["sencha of Uji", "the office is in Hamburg"]).outcome
        report = Report(outcome, "2030-01-01T00:00:00Z")
        said = json.dumps(to_document(report), ensure_ascii=False) + to_text(report)
        assert outcome.findings
        assert not [content for content in CONTENTS if content in said]


# One byte


def test_one_byte_of_any_log_file_is_found(copy: Any) -> None:
    choose = random.Random(3)
    for path in sorted(path for path in (copy.home / "log").rglob("*") if path.is_file()):
        data = path.read_bytes()
        for offset in {0, len(data) - 1, *choose.sample(range(len(data)), min(3, len(data)))}:
            changed = bytearray(data)
            changed[offset] ^= 1 << choose.randrange(8)
            path.write_bytes(changed)
            findings = copy.audit().outcome.findings
            name = path.relative_to(copy.home / "log").as_posix()
            assert any(finding.where.startswith(f"log {name}") for finding in findings), (
                name,
                offset,
                findings,
            )
        path.write_bytes(data)
    assert copy.audit().outcome.findings == ()


@pytest.mark.parametrize("table", ["events", "contents", "facts", "acts", "tenants", "erasures"])
def test_one_byte_of_any_row_is_found(copy: Any, table: str) -> None:
    choose = random.Random(table)
    store = copy.home / "store.db"
    data = store.read_bytes()
    connection = apsw.Connection(str(store))
    pages = [page for (page,) in connection.execute(f"SELECT pageno FROM dbstat WHERE name = '{table}'")]
    connection.close()
    for name in os.listdir(copy.home):
        if name.startswith("store.db-"):
            (copy.home / name).unlink()
    places = [at for page in pages for at in range((page - 1) * 4096, page * 4096) if data[at]]
    for at in choose.sample(places, 25):
        changed = bytearray(data)
        changed[at] ^= 1 << choose.randrange(8)
        store.write_bytes(changed)
        findings = copy.audit().outcome.findings
        assert findings, (table, at)
        assert any("store.db" in finding.where or "tenant" in finding.where for finding in findings)


# One change of a row, as somebody with the store in hand would make it


@pytest.mark.parametrize(
    ("statements", "code", "where"),
    [
        (["DELETE FROM contents WHERE seq = 2"], "WRITE_MISSING", "store.db events seq 2"),
        (["DELETE FROM events WHERE seq = 5"], "WRITE_MISSING", "log entry 4"),
        (["DELETE FROM events WHERE seq = 5"], "SEQUENCE_GAP", "store.db events"),
        (
            ["UPDATE events SET seq = 900 WHERE seq = 5", "UPDATE events SET seq = 5 WHERE seq = 6"],
            "FACT_ALTERED",
            "store.db events seq 5",
        ),
        (
            ["UPDATE contents SET content = CAST(content || x'00' AS BLOB) WHERE seq = 3"],
            "FACT_ALTERED",
            "store.db contents seq 3",
        ),
        (
            ["UPDATE contents SET salt = zeroblob(32) WHERE seq = 3"],
            "FACT_ALTERED",
            "store.db contents seq 3",
        ),
        (["UPDATE contents SET salt = 'text' WHERE seq = 3"], "FACT_ALTERED", "store.db events row 3"),
        (["UPDATE facts SET status = 'active' WHERE seq = 1"], "RETIRED_RETURNED", "store.db facts seq 1"),
        (
            ["UPDATE facts SET status = 'active' WHERE status = 'held'"],
            "HELD_AND_SERVED",
            "store.db facts seq",
        ),
        (
            ["UPDATE facts SET status = 'active' WHERE status = 'refused'"],
            "HELD_AND_SERVED",
            "store.db facts seq",
        ),
        (
            [
                "UPDATE facts SET status = 'superseded'"
                " WHERE seq = (SELECT min(seq) FROM facts WHERE status = 'active')"
            ],
            "RETIREMENT_UNDECLARED",
            "store.db facts seq",
        ),
        (["UPDATE facts SET status = 'history' WHERE seq = 1"], "FACT_ALTERED", "store.db facts seq 1"),
        (
            ["UPDATE facts SET valid_from = valid_from - 1 WHERE seq = 1"],
            "FACT_ALTERED",
            "store.db facts seq 1",
        ),
        (
            ["UPDATE facts SET recorded_at = recorded_at - 1 WHERE seq = 1"],
            "FACT_ALTERED",
            "store.db facts seq 1",
        ),
        (
            ["UPDATE facts SET replaced_at = replaced_at + 1 WHERE seq = 1"],
            "FACT_ALTERED",
            "store.db facts seq 1",
        ),
        (
            ["UPDATE facts SET replaced_by = replaced_by + 1 WHERE seq = 1"],
            "FACT_ALTERED",
            "store.db facts seq 1",
        ),
        (["UPDATE facts SET key_tag = NULL WHERE seq = 1"], "FACT_ALTERED", "store.db facts seq 1"),
        (["UPDATE facts SET key_tag = randomblob(32) WHERE seq = 1"], "FACT_ALTERED", "store.db facts seq"),
        (["UPDATE facts SET agent_tag = randomblob(32) WHERE seq = 1"], "FACT_ALTERED", "store.db facts seq"),
        (["UPDATE facts SET tenant = 2 WHERE seq = 1"], "FACT_ALTERED", "store.db facts seq 1"),
        (["DELETE FROM facts WHERE seq = 1"], "FACT_ALTERED", "store.db facts seq 1"),
        (
            [
                "INSERT INTO facts SELECT 999, tenant, agent_tag, key_tag, subject_tag, text_tag, status, valid_from,"
                " declared, valid_until, recorded_at, replaced_at, replaced_by, end_erased, on_hold FROM facts"
                " WHERE seq = 1",
            ],
            "FACT_UNLOGGED",
            "store.db facts seq 999",
        ),
        (
            ["INSERT INTO contents VALUES (999, x'a0', zeroblob(32))"],
            "FACT_UNLOGGED",
            "store.db contents seq 999",
        ),
        (
            [
                "UPDATE events SET entry_index = NULL WHERE seq = 5",
                "UPDATE events SET entry_index = 4 WHERE seq = 6",
                "UPDATE events SET entry_index = 5 WHERE seq = 5",
            ],
            "ORDER_ALTERED",
            "store.db events seq",
        ),
        (["UPDATE events SET entry_index = NULL WHERE seq = 4"], "FACT_ALTERED", "store.db events seq 4"),
        (["UPDATE events SET entry_index = 900 WHERE seq = 5"], "ORDER_ALTERED", "store.db events seq 5"),
        (
            ["UPDATE events SET link_salt = randomblob(32) WHERE seq = 4"],
            "FACT_ALTERED",
            "store.db events seq 4",
        ),
        (["UPDATE events SET link = x'a0' WHERE seq = 4"], "FACT_ALTERED", "store.db events seq 4"),
        (["UPDATE events SET content_hash = randomblob(32) WHERE seq = 4"], "FACT_ALTERED", "store.db"),
        (
            [
                "UPDATE events SET entry = CAST(substr(entry, 1, length(entry) - 1) || x'ff' AS BLOB) WHERE seq = 4"
            ],
            "FACT_ALTERED",
            "store.db events seq 4",
        ),
        (["UPDATE events SET tenant_seq = 900 WHERE seq = 4"], "SEQUENCE_GAP", "store.db events of tenant 1"),
        (
            ["UPDATE tenants SET last_seq = last_seq + 1 WHERE id = 1"],
            "SEQUENCE_GAP",
            "store.db events of tenant 1",
        ),
        (["UPDATE tenants SET number = randomblob(16) WHERE id = 2"], "FACT_ALTERED", "store.db events seq"),
        (["DELETE FROM acts WHERE id = 1"], "FACT_ALTERED", "store.db acts seq"),
        (["UPDATE acts SET act = 'keeps' WHERE id = 1"], "FACT_ALTERED", "store.db acts seq"),
        (["UPDATE conflicts SET closed_by = 2 WHERE closed_by IS NULL"], "FACT_ALTERED", "store.db"),
        (
            ["UPDATE ledger SET key_tag = randomblob(32) WHERE id = (SELECT min(id) FROM ledger)"],
            "FACT_ALTERED",
            "store.db ledger row",
        ),
        (
            ["UPDATE idempotency SET answer = replace(answer, 'superseded', 'stored')"],
            "FACT_ALTERED",
            "store.db idempotency row",
        ),
        (
            ["UPDATE meta SET value = value - 1 WHERE name = 'recorded_at'"],
            "FACT_ALTERED",
            "store.db meta recorded_at",
        ),
        (["DELETE FROM erasures"], "ERASURE_STATE_FALSE", "store.db events seq"),
        (["UPDATE erasures SET state = 'failed'"], "ERASURE_STATE_FALSE", "store.db erasures 1"),
        (["UPDATE erasures SET detail = x'a0'"], "ERASURE_STATE_FALSE", "store.db erasures 1"),
        (
            ["UPDATE erasures SET manifest = CAST(manifest || x'00' AS BLOB)"],
            "MANIFEST_ALTERED",
            "store.db erasures 1",
        ),
        (
            [
                "UPDATE meta SET value = CAST(x'82015820' || randomblob(32) AS BLOB) WHERE name = 'erasure.manifest'"
            ],
            "FACT_ALTERED",
            "store.db meta",
        ),
        (
            ["INSERT INTO search (rowid, key, value, body) VALUES (999, 'k', 'v', 'left over')"],
            "RESIDUE_INDEX",
            "store.db search row 999",
        ),
        (
            ["INSERT INTO search (rowid, key, value, body) VALUES (1, 'k', 'v', 'more words')"],
            "RESIDUE_INDEX",
            "store.db search row 1",
        ),
        (
            ["INSERT INTO search_idx (segid, term, pgno) VALUES (77, x'306b756d71756174', 4)"],
            "RESIDUE_INDEX",
            "store.db search_idx segment 77",
        ),
        (
            ["CREATE TABLE copies AS SELECT content FROM contents"],
            "RESIDUE_ROW",
            "store.db sqlite_schema row",
        ),
        (
            ["CREATE TRIGGER keep AFTER DELETE ON facts BEGIN SELECT 1; END"],
            "RESIDUE_ROW",
            "store.db sqlite_schema row",
        ),
    ],
)
def test_a_changed_row_is_found(copy: Any, statements: list[str], code: str, where: str) -> None:
    copy.sql("PRAGMA foreign_keys = OFF", *statements)
    findings = copy.audit().outcome.findings
    assert any(finding.code == code and finding.where.startswith(where) for finding in findings), findings


def test_two_openings_swapped_are_found(copy: Any) -> None:
    copy.sql(
        "UPDATE contents SET seq = -1 WHERE seq = 1",
        "UPDATE contents SET seq = 1 WHERE seq = 2",
        "UPDATE contents SET seq = 2 WHERE seq = -1",
    )
    where = {finding.where for finding in copy.audit().outcome.findings if finding.code == "FACT_ALTERED"}
    assert {"store.db contents seq 1", "store.db contents seq 2"} <= where


# Erasures


def erased_seq(copy: Any) -> int:
    (seq,) = copy.ask("SELECT e.seq FROM events e LEFT JOIN contents c ON c.seq = e.seq WHERE c.seq IS NULL")[
        0
    ]
    return int(seq)


def test_an_erased_content_that_comes_back_is_found(original: Path, tmp_path: Path, copy: Any) -> None:
    """The same erasure as in the original, undone with what was there before it."""
    with open_home(copy.home) as home:
        memory = home.memory(Principal("acme", "bot", "one"))
        made = memory.remember("the well is 30 m deep", key="well", value="30 m")
        before = copy.ask("SELECT * FROM contents ORDER BY seq DESC LIMIT 1")[0]
        preview = memory.forget_preview(id=[made["id"]])
        memory.forget(id=[made["id"]], confirm=preview["confirm"])
        home.publish()
    assert copy.codes() == set()
    copy.sql(("INSERT INTO contents VALUES (?, ?, ?)", before))
    findings = copy.audit().outcome.findings
    places = {(finding.code, finding.where) for finding in findings}
    assert ("ERASED_STILL_PRESENT", f"store.db contents seq {before[0]}") in places
    assert "ERASURE_STATE_FALSE" in {code for code, _ in places}


def test_a_salt_that_survives_its_content_is_found(copy: Any) -> None:
    seq = erased_seq(copy)
    copy.sql(f"INSERT INTO contents VALUES ({seq}, x'', randomblob(32))")
    findings = copy.audit().outcome.findings
    assert ("SALT_SURVIVES", f"store.db contents seq {seq}") in {(each.code, each.where) for each in findings}


def test_an_erased_fact_that_is_served_is_found(copy: Any) -> None:
    seq = erased_seq(copy)
    copy.sql(
        f"INSERT INTO facts SELECT {seq}, tenant, agent_tag, key_tag, subject_tag, text_tag, status, valid_from,"
        " declared, valid_until, recorded_at, replaced_at, replaced_by, end_erased, on_hold FROM facts WHERE seq = 1"
    )
    assert "ERASED_STILL_PRESENT" in copy.codes()


def test_a_missing_manifest_is_found(copy: Any) -> None:
    (copy.home / "log" / "erasures" / "1.cose").unlink()
    assert "TOMBSTONE_WITHOUT_MANIFEST" in copy.codes()


def test_a_manifest_without_a_tombstone_is_found(copy: Any) -> None:
    folder = copy.home / "log" / "erasures"
    shutil.copy(folder / "1.cose", folder / "2.cose")
    places = {(finding.code, finding.where) for finding in copy.audit().outcome.findings}
    assert ("ERASURE_STATE_FALSE", "log erasures/2.cose") in places
    assert ("MANIFEST_ALTERED", "log erasures/2.cose") in places


def test_a_manifest_that_was_signed_again_is_found(copy: Any) -> None:
    """The operator has the key, and still can't change what a manifest says: its digest is logged."""
    from memory.manifest import decode_manifest, sign_manifest

    path = copy.home / "log" / "erasures" / "1.cose"
    manifest = decode_manifest(path.read_bytes())
    document = {**manifest.document, "state": "closed_partial", "why": ["mentions_elsewhere"]}
    signer = load_cose_key(copy.home / "keys" / "manifest.key")
    changed = sign_manifest(signer, manifest.issuer, manifest.subject, document)
    path.write_bytes(changed)
    copy.sql(
        ("UPDATE erasures SET state = 'closed_partial', manifest = ?", (changed,)),
    )
    assert "MANIFEST_ALTERED" in copy.codes()


def test_a_manifest_that_was_handed_out_is_compared(copy: Any, tmp_path: Path) -> None:
    kept = tmp_path / "mine.cose"
    kept.write_bytes((copy.home / "log" / "erasures" / "1.cose").read_bytes())
    audited = copy.audit(manifests=(kept,))
    assert audited.outcome.findings == ()
    assert "manifest" in {note.check for note in audited.outcome.checked}
    (copy.home / "log" / "erasures" / "1.cose").write_bytes(kept.read_bytes()[:-1] + NOT_A_SIGNATURE)
    assert "MANIFEST_ALTERED" in copy.codes(manifests=(kept,))


# Residue


def test_free_space_that_is_not_zero_is_found(copy: Any) -> None:
    copy.sql("CREATE TABLE big (x)", "INSERT INTO big VALUES (zeroblob(20000))", "DROP TABLE big")
    store = copy.home / "store.db"
    data = bytearray(store.read_bytes())
    trunk = int.from_bytes(data[32:36], "big")
    leaf = int.from_bytes(data[(trunk - 1) * 4096 + 8 : (trunk - 1) * 4096 + 12], "big")
    data[(leaf - 1) * 4096 + 100] = 65
    store.write_bytes(data)
    findings = copy.audit().outcome.findings
    assert [(finding.code, finding.where) for finding in findings] == [
        ("RESIDUE_FREE_SPACE", f"store.db page {leaf} (free)")
    ]


def test_a_deleted_row_left_in_the_write_ahead_log_is_found(copy: Any) -> None:
    connection = apsw.Connection(str(copy.home / "store.db"), vfs=vfs.register())
    connection.execute("PRAGMA secure_delete = ON").fetchall()
    connection.execute("DELETE FROM contents WHERE seq = 20")
    assert {"RESIDUE_WAL", "WRITE_MISSING"} <= copy.codes()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert "RESIDUE_WAL" not in copy.codes()
    connection.close()


def test_needles_are_found_where_they_are(copy: Any) -> None:
    assert copy.codes(needles=["Zqxv Kumquat", "sencha of Uji"]) == set()
    found = copy.audit(needles=["sencha of Uji", "their secret plan"]).outcome.findings
    assert {(finding.code, finding.evidence["needle"]) for finding in found} >= {("RESIDUE_ROW", 1)}
    assert all("contents" in finding.where or "search" in finding.where for finding in found)


def test_needles_are_found_in_other_places(copy: Any, tmp_path: Path) -> None:
    transcript = tmp_path / "chat.jsonl"
    transcript.write_text('{"text": "Zqxv Kumquat likes green tea"}')
    found = copy.audit(needles=["Zqxv Kumquat"], also=(transcript,)).outcome.findings
    assert [(finding.code, finding.where) for finding in found] == [("RESIDUE_FILE", "chat.jsonl")]


def test_a_scan_that_does_not_find_its_control_is_inconclusive(
    copy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("auditor.scan.CANARY", "nobody wrote this anywhere")
    outcome = copy.audit(needles=["Zqxv Kumquat"]).outcome
    assert {finding.code for finding in outcome.findings} == {"CONTROL_FAILED"}
    assert Report(outcome, "2030-01-01T00:00:00Z").verdict == "inconclusive"


# The log


def claims_of(copy: Any) -> tuple[str, str]:
    """Issuer and subject of the statements of a home."""
    config = tomllib.loads((copy.home / "config.toml").read_text())
    return config["issuer"], config["subject"]


def test_a_log_that_was_cut_is_found(make_copy: Callable[[], Any], tmp_path: Path) -> None:
    cut = make_copy()
    shutil.rmtree(cut.home / "log" / "tile")
    assert "LOG_TRUNCATED" in cut.codes()
    headless = make_copy()
    (headless.home / "log" / "checkpoint").unlink()
    assert "LOG_TRUNCATED" in headless.codes()


def test_a_log_that_was_cut_and_signed_again_is_found_with_time_or_memory(copy: Any, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert copy.codes(state=state) == set()
    entries = by.entries_of(copy)
    by.write_log(copy, entries[:10])
    assert "LOG_ROLLED_BACK" in copy.codes(state=state)
    later = time.time_ns() // 1000 + 2 * 86_400_000_000
    broken = [each for each in copy.audit(now=later).outcome.findings if each.code == "PROMISE_BROKEN"]
    assert {finding.where for finding in broken} >= {"store.db events seq 11"}


def test_a_past_rewritten_with_all_keys_is_found_by_whoever_saw_the_head(copy: Any, tmp_path: Path) -> None:
    """New content, new salts, new signatures, a new tree: only a head that was seen before tells."""
    state = tmp_path / "state"
    assert copy.codes(state=state) == set()
    entries = by.entries_of(copy)
    # A statement that others name can't be rewritten without rewriting those, too.
    sql = "SELECT seq FROM facts WHERE subject_tag IS NOT NULL AND seq NOT IN (SELECT target FROM acts)"
    seq = copy.ask(sql)[0][0]
    link, link_salt = copy.ask(f"SELECT link, link_salt FROM events WHERE seq = {seq}")[0]
    content = event.decode_content(copy.ask(f"SELECT content FROM contents WHERE seq = {seq}")[0][0])
    encoded, salt = event.encode_content({**content, "source": "rewritten"}), os.urandom(32)
    made = event.commit(link, link_salt, encoded, salt)
    issuer, subject = claims_of(copy)
    entry = sign_statement(load_cose_key(copy.home / "keys" / "issuer.key"), issuer, subject, made.commitment)
    copy.sql(
        (f"UPDATE contents SET content = ?, salt = ? WHERE seq = {seq}", (encoded, salt)),
        (
            f"UPDATE events SET commitment = ?, content_hash = ?, entry = ? WHERE seq = {seq}",
            (made.commitment, made.content_hash, entry),
        ),
    )
    assert "FACT_ALTERED" in copy.codes()
    entries[seq - 1] = entry
    by.write_log(copy, entries)
    # A manifest quotes the head of its day, and the log notes for itself what it signed. Where both are made anew,
    # too, a head that was seen is all that tells.
    where = {finding.where for finding in copy.audit().outcome.findings}
    assert where == {"log erasures/1.cose", "log-state/head", "log-state/signed"}
    found = {(one.code, one.where) for one in copy.audit(state=state).outcome.findings}
    assert ("LOG_FORK", "log checkpoint") in found


def test_a_swallowed_entry_is_found_though_signed_again(copy: Any) -> None:
    entries = by.entries_of(copy)
    by.write_log(copy, entries[:7] + entries[8:])
    found = {(finding.code, finding.where) for finding in copy.audit().outcome.findings}
    assert ("ORDER_ALTERED", "store.db events seq 9") in found


def test_an_entry_that_the_store_does_not_know_is_found(copy: Any) -> None:
    entries = by.entries_of(copy)
    signer = load_cose_key(copy.home / "keys" / "issuer.key")
    by.write_log(copy, [*entries, sign_statement(signer, *claims_of(copy), os.urandom(32))])
    found = {(finding.code, finding.where) for finding in copy.audit().outcome.findings}
    assert ("WRITE_MISSING", f"log entry {len(entries)}") in found


def test_an_entry_changed_with_its_tiles_is_found(copy: Any) -> None:
    """Bundle and tiles agree with each other, and not with the signed root."""
    checkpoint = (copy.home / "log" / "checkpoint").read_bytes()
    entries = by.entries_of(copy)
    entries[5] = entries[6]
    by.write_log(copy, entries)
    (copy.home / "log" / "checkpoint").write_bytes(checkpoint)
    assert "ENTRY_ALTERED" in copy.codes()


def test_what_no_checkpoint_covers_is_a_promise_until_it_is_broken(copy: Any) -> None:
    now = time.time_ns() // 1000
    assert copy.audit(now=now).outcome.counts["promises"] == 1
    late = copy.audit(now=now + 86_401_000_000).outcome
    assert {finding.code for finding in late.findings} == {"PROMISE_BROKEN"}


# Trust


def test_with_a_policy_alone_the_statements_are_not_proved_to_be_anybodys(copy: Any) -> None:
    outcome = copy.audit(trust=trust_from_policy(copy.trust.policy.text)).outcome
    assert outcome.findings == ()
    assert {"signatures", "manifests"} <= {note.check for note in outcome.not_checked}


def test_keys_that_are_not_trusted_are_found(copy: Any) -> None:
    other = copy.trust.keys[1].key
    for use, code in (("issuer", "KEY_NOT_VALID"), ("manifest", "KEY_NOT_VALID")):
        keys = tuple(replace(each, key=other) if each.use == use else each for each in copy.trust.keys)
        trust = make_trust(copy.trust.policy.text, keys)
        found = copy.audit(trust=trust).outcome.findings
        assert {finding.code for finding in found} == {code}


def test_keys_count_only_while_they_are_valid(copy: Any) -> None:
    keys = tuple(replace(each, not_before=0, not_after=1) for each in copy.trust.keys)
    trust = make_trust(copy.trust.policy.text, keys)
    assert copy.codes(trust=trust) == {"KEY_NOT_VALID"}


def test_another_log_is_not_believed(make_copy: Callable[[], Any], tmp_path: Path) -> None:
    from memory.wiring import init_home

    one = make_copy()
    with init_home(tmp_path / "other") as other:
        trust = other.trust()
    assert "LOG_SIGNATURE" in one.codes(trust=trust)


def witnessed(copy: Any, tmp_path: Path, timestamp: int) -> tuple[Cosigner, Any]:
    """The copy with its checkpoint cosigned, and the trust that asks for it."""
    witness = make_cosigner_key(tmp_path / "witness.key", "witness.example/1")
    path = copy.home / "log" / "checkpoint"
    note = parse_note(path.read_bytes())
    line = witness.cosign(note.text, timestamp)
    path.write_bytes(format_note(Note(note.text, (*note.signatures, line))))
    policy = make_policy(copy.trust.policy.logs, [WitnessEntry("w", witness.verifier_key)], [], "w")
    (copy.home / "policy.txt").write_text(policy.text)
    return witness, make_trust(policy.text, copy.trust.keys, max_checkpoint_age_seconds=3600)


def test_a_quorum_is_asked_for(copy: Any, tmp_path: Path) -> None:
    checkpoint = (copy.home / "log" / "checkpoint").read_bytes()
    _, trust = witnessed(copy, tmp_path, int(time.time()) + 1)
    audited = copy.audit(trust=trust)
    assert audited.outcome.findings == ()
    assert audited.verified.witnesses == ("w",)
    (copy.home / "log" / "checkpoint").write_bytes(checkpoint)
    assert "QUORUM_NOT_MET" in copy.codes(trust=trust)


def test_the_age_of_cosignatures_counts(copy: Any, tmp_path: Path) -> None:
    now = int(time.time())
    _, trust = witnessed(copy, tmp_path, now)
    later = (now + 7200) * 1_000_000
    assert copy.codes(trust=trust, now=later) == {"CHECKPOINT_STALE"}


def test_what_is_dated_after_its_cosignature_is_found(copy: Any, tmp_path: Path) -> None:
    _, trust = witnessed(copy, tmp_path, int(time.time()) - 3000)
    # Also the keys are younger than that: nothing that a witness saw then can have been signed with them.
    assert copy.codes(trust=trust) == {"TIME_IMPLAUSIBLE", "KEY_NOT_VALID"}


def test_a_signature_line_with_half_a_known_name_is_found(copy: Any) -> None:
    path = copy.home / "log" / "checkpoint"
    note = parse_note(path.read_bytes())
    line = note.signatures[0]
    stranger = replace(line, key_id=bytes(4))
    path.write_bytes(format_note(Note(note.text, (*note.signatures, stranger))))
    found = copy.audit().outcome.findings
    assert [(finding.code, finding.where) for finding in found] == [
        ("LOG_SIGNATURE", "log checkpoint signature line 2")
    ]


# Scope


def test_one_tenant_is_audited_without_the_others(copy: Any) -> None:
    assert copy.codes(tenant="acme") == set()
    globex = copy.audit(tenant="globex").outcome
    assert globex.findings == ()
    assert globex.counts["statements"] == 1
    copy.sql("UPDATE facts SET status = 'active' WHERE seq = 1")
    assert copy.codes(tenant="globex") == set()
    assert copy.codes(tenant="acme") == {"RETIRED_RETURNED"}


def test_a_log_can_be_audited_without_a_store(copy: Any) -> None:
    from auditor.audit import Places, audit

    asked = Asked(copy.trust, time.time_ns() // 1000)
    log = copy.home / "log"
    outcome = audit(Places(None, str(log)), asked, tenant=None, needles=None).outcome
    assert outcome.findings == ()
    assert "store" in {note.check for note in outcome.not_checked}
    bundle = next((log / "tile" / "entries").rglob("*"))
    bundle = bundle if bundle.is_file() else next(path for path in bundle.rglob("*") if path.is_file())
    bundle.write_bytes(bundle.read_bytes()[:-1] + NOT_A_SIGNATURE)
    assert audit(Places(None, str(log)), asked, tenant=None, needles=None).outcome.findings


def test_a_log_is_audited_over_http(copy: Any) -> None:
    handler = functools.partial(QuietHandler, directory=str(copy.home / "log"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/"
        assert copy.codes(log=url) == set()
        shutil.rmtree(copy.home / "log" / "erasures")
        assert copy.codes(log=url) == {"TOMBSTONE_WITHOUT_MANIFEST", "MANIFEST_ALTERED"}
        shutil.rmtree(copy.home / "log" / "tile")
        assert "LOG_TRUNCATED" in copy.codes(log=url)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


# A store in use


WRITER = """
import sys, threading
from memory.model import Principal
from memory.wiring import open_home

with open_home(sys.argv[1]) as home:
    memory = home.memory(Principal("acme", "bot", "one"))
    done = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), done.set())).start()
    number = 0
    while not done.wait(0.005):
        number += 1
        memory.remember(f"a busy note {number}", key=f"busy/{number % 5}", value=str(number))
        if number % 10 == 0:
            memory.publish()
        if number == 1:
            print("writing", flush=True)
    print(number, home.parts().store.checkpoint_truncate(0.0))
"""


def test_a_store_in_use_is_audited_and_nothing_of_it_is_pinned(copy: Any) -> None:
    command = [sys.executable, "-c", WRITER, str(copy.home)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=REPOSITORY, text=True, **pipes) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        for _ in range(6):
            assert copy.audit().outcome.findings == ()
        said, _ = writer.communicate()
    written, truncated = said.split()
    assert writer.returncode == 0
    assert truncated == "True"
    assert copy.audit().outcome.counts["statements"] >= int(written)


def test_a_log_that_grew_since_it_was_listed_is_whole(copy: Any) -> None:
    """The list of files may be older than the head: what the head needs is looked for all the same."""
    files = folder_files(copy.home / "log")
    with open_home(copy.home) as home:
        home.memory(Principal("acme", "bot", "one")).remember("one more")
        home.publish()
    asked = Asked(copy.trust, time.time_ns() // 1000)
    _, verified = check_checkpoint(files, asked)
    assert verified is not None
    assert files.names is not None
    needed = Tile(None, 0, verified.checkpoint.size).path
    assert needed not in files.names
    outcome, entries = check_tree(files, verified, asked)
    assert outcome.findings == ()
    assert entries.proved
    (copy.home / "log" / needed).unlink()
    outcome, _ = check_tree(files, verified, asked)
    assert {(each.code, each.where) for each in outcome.findings} == {("LOG_TRUNCATED", f"log {needed}")}


def test_a_partial_tile_that_was_pruned_since_is_read_from_the_full_one(copy: Any) -> None:
    """A log may drop a partial tile once the full one stands, while an audit keeps to the head before."""
    entries = [os.urandom(40) for _ in range(300)]
    by.write_log(copy, entries[:200])
    head = (copy.home / "log" / "checkpoint").read_bytes()
    listed = folder_files(copy.home / "log")
    by.write_log(copy, entries)
    assert not (copy.home / "log" / Tile(None, 0, 200).path).exists()
    files = replace(listed, read=lambda path: head if path == "checkpoint" else listed.read(path))
    asked = Asked(copy.trust, time.time_ns() // 1000)
    _, verified = check_checkpoint(files, asked)
    assert verified is not None
    outcome, read = check_tree(files, verified, asked)
    assert outcome.findings == ()
    assert (read.proved, read.size) == (True, 200)


# Hostile evidence


def test_links_and_folders_in_place_of_files_are_refused(copy: Any, tmp_path: Path) -> None:
    moved = tmp_path / "moved.db"
    (copy.home / "store.db").rename(moved)
    (copy.home / "store.db").symlink_to(moved)
    with pytest.raises(MalformedError):
        copy.audit()
    (copy.home / "store.db").unlink()
    (copy.home / "store.db").mkdir()
    with pytest.raises(MalformedError):
        copy.audit()


def test_a_store_that_is_one_large_hole_is_refused_at_once(copy: Any) -> None:
    os.truncate(copy.home / "store.db", 1 << 40)
    started = time.monotonic()
    with pytest.raises(MalformedError):
        copy.audit()
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0", os.urandom(10_000), bytes(8192)])
def test_a_store_that_is_none_is_a_finding(copy: Any, data: bytes) -> None:
    for name in ("store.db-wal", "store.db-shm"):
        (copy.home / name).unlink(missing_ok=True)
    (copy.home / "store.db").write_bytes(data)
    assert "FACT_ALTERED" in copy.codes()


def test_a_head_over_billions_of_entries_with_no_files_is_refused_at_once(copy: Any) -> None:
    signer = load_log_key(copy.home / "keys" / "log.key")
    text = format_checkpoint(Checkpoint(signer.verifier_key.name, 1 << 50, hashlib.sha256(b"").digest()))
    (copy.home / "log" / "checkpoint").write_bytes(format_note(Note(text, (signer.sign(text),))))
    started = time.monotonic()
    assert "LOG_TRUNCATED" in copy.codes()
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "name", ["tile/entries/000.p/999", "tile/0/x001/000", "tile/entries/001", "erasures/0.cose"]
)
def test_files_that_a_log_does_not_have_do_no_harm(copy: Any, name: str) -> None:
    path = copy.home / "log" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x00\x01x" * 300)
    assert copy.codes() <= {"ENTRY_ALTERED", "RESIDUE_FILE"}
