"""More single changes, most of them by an operator with every key, who knows what an audit looks at."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tampering as by
from copies import Copy
from tamper_catalogue import Make, Options, Tamper, of_copy, sql

from memory import event
from memory.manifest import decode_manifest
from memory.wiring import open_home
from tlog import cbor
from tlog.statement import sign_statement

HOUR = 3_600_000_000
TEXT_AS_KEY = b"-----BEGIN PRIVATE KEY-----\n%b\n-----END PRIVATE KEY-----\n" % base64.b64encode(
    b"Zqxv Kumquat likes green tea of Uji"
)


def home_file(path: str, data: bytes, hours: int = 2) -> Make:
    def make(copy: Copy, _: Path) -> Options:
        (copy.home / path).parent.mkdir(parents=True, exist_ok=True)
        (copy.home / path).write_bytes(data)
        os.utime(copy.home / path, (time.time() - hours * 3600,) * 2)
        return None

    return make


def link(seq: Callable[[Copy], int] = by.lonely_seq, **fields: Any) -> Make:
    def change(copy: Copy) -> None:
        at = seq(copy)
        said = event.decode_link(copy.ask(f"SELECT link FROM events WHERE seq = {at}")[0][0])
        details = {**said.details, **fields.pop("details", {})}
        by.relink(copy, at, link={"details": details, **fields})

    return of_copy(change)


def content(**fields: Any) -> Make:
    return of_copy(lambda copy: by.relink(copy, by.lonely_seq(copy), content=fields))


def seqs(copy: Copy, condition: str) -> list[int]:
    return [seq for (seq,) in copy.ask(f"SELECT seq FROM facts WHERE {condition} ORDER BY seq")]


def acts(kind: str, act: str, condition: str, **said: Any) -> Make:
    """A statement of a kind that acts on the first fact of a condition, which is none for it."""
    return of_copy(lambda copy: by.state(copy, kind, {act: seqs(copy, condition)[:1]}, **said))


def header(at: int, data: bytes) -> Make:
    def change(copy: Copy) -> None:
        store = copy.home / "store.db"
        whole = bytearray(store.read_bytes())
        whole[at : at + len(data)] = data
        store.write_bytes(whole)

    return of_copy(change)


def document(change: Callable[[dict[str, Any]], None]) -> Make:
    """The manifest of the erasure said otherwise, signed and announced anew; the store's own list as it was."""

    def make(copy: Copy) -> None:
        said = dict(decode_manifest(by.manifest_of(copy).read_bytes()).document)
        change(said)
        by.rewrite_manifest(copy, announce=True, **said)

    return of_copy(make)


def _append(path: str, data: bytes) -> Make:
    def change(copy: Copy) -> None:
        file = copy.home / path
        file.write_bytes(file.read_bytes() + data)

    return of_copy(change)


def _release_nothing(copy: Copy) -> None:
    by.state(copy, "release", {"releases": [by.lonely_seq(copy)]}, authority="court")


def _release_twice(copy: Copy) -> None:
    held = by.state(copy, "hold", {"holds": [by.lonely_seq(copy)]}, authority="c", review_by=time.time_ns())
    copy.sql(f"UPDATE facts SET on_hold = 1 WHERE seq = {by.lonely_seq(copy)}")
    by.state(copy, "release", {"releases": [held]}, authority="c")
    copy.sql("UPDATE facts SET on_hold = 0")
    by.state(copy, "release", {"releases": [held]}, authority="c")


def _grant(copy: Copy) -> int:
    with open_home(copy.home) as home:
        home.memory(by.ONE).grant("aide")
        home.publish()
    return int(copy.ask("SELECT max(seq) FROM grants")[0][0])


def _grant_then(*statements: str) -> Make:
    def change(copy: Copy) -> None:
        _grant(copy)
        assert copy.codes() == set()
        copy.sql_unchecked(*statements)

    return of_copy(change)


def _revoked_then_read(copy: Copy) -> None:
    with open_home(copy.home) as home:
        memory = home.memory(by.ONE)
        memory.revoke(memory.grant("aide")["id"])
        home.publish()
    copy.sql_unchecked("DELETE FROM acts WHERE act = 'revokes'")


def _tombstone_of_another_tenant(copy: Copy) -> None:
    (other,) = copy.ask("SELECT commitment FROM events WHERE tenant = 2 LIMIT 1")[0]
    by.relink(copy, by.tombstone(copy, [by.lonely_seq(copy)]), link={"acts": {"erases": (other,)}})


def _announce_twice(copy: Copy) -> None:
    (tombstone,) = copy.ask("SELECT e.commitment FROM erasures r JOIN events e ON e.seq = r.tombstone")[0]
    said = {"number": 1, "erasure": tombstone, "digest": os.urandom(32)}
    by.state(copy, "manifest", details=said)


def _state_that_lies(copy: Copy) -> None:
    kinds = {"write": 3}
    seq = by.state(copy, "state", details={"number": 1, "counts": kinds, "sequences": os.urandom(32)})
    copy.sql(
        (
            "INSERT OR REPLACE INTO meta VALUES ('state.last', ?)",
            (cbor.encode([seq, time.time_ns() // 1000]),),
        )
    )


def _declare_lost(copy: Copy) -> None:
    seq = by.lonely_seq(copy)
    (hidden,) = copy.ask(f"SELECT commitment FROM events WHERE seq = {seq}")[0]
    by.state(copy, "lost", details={"count": 1, "statements": [hidden]})
    copy.sql_unchecked(
        *(f"DELETE FROM {table} WHERE seq = {seq}" for table in ("facts", "contents", "events"))
    )


def _another_subject(copy: Copy) -> None:
    """A statement of the same issuer about another store."""
    seq = by.lonely_seq(copy)
    issuer, _ = by.claims_of(copy)
    (commitment, index) = copy.ask(f"SELECT commitment, entry_index FROM events WHERE seq = {seq}")[0]
    signer = by.load_cose_key(copy.home / "keys" / "issuer.key")
    entry = sign_statement(signer, issuer, "urn:uuid:another-store", commitment)
    copy.sql(("UPDATE events SET entry = ? WHERE seq = ?", (entry, seq)))
    entries = by.entries_of(copy)
    entries[index] = entry
    by.write_log(copy, entries)


def _told_otherwise(copy: Copy, folder: Path) -> Options:
    """A client was told that its write was stored, and the log says that it was refused."""
    with open_home(copy.home) as home:
        memory = home.memory(by.ONE)
        memory.remember("the pump runs at noon", key="pump", value="noon")
        memory.remember("the pump runs at night", key="pump", value="night")
        answer = memory.remember("the pump runs at noon", key="pump", value="noon")
        home.publish()
    assert answer["outcome"] == "refused"
    (folder / "given").mkdir()
    (folder / "given" / "a.json").write_text(json.dumps({**answer, "outcome": "stored", "reason": None}))
    return {"receipts": folder / "given"}


def _setting(old: str, new: str) -> Make:
    def change(copy: Copy) -> None:
        path = copy.home / "config.toml"
        path.write_text(path.read_text().replace(old, new))

    return of_copy(change)


def _hard_link(copy: Copy) -> None:
    os.link(copy.home / "store.db", copy.home.parent / "elsewhere.db")
    os.utime(copy.home / "store.db", (time.time() - 7200,) * 2)


def _behind_the_wal(copy: Copy) -> None:
    by.leave_frames(copy, "UPDATE tenants SET last_seq = last_seq")
    wal = copy.home / "store.db-wal"
    wal.write_bytes(wal.read_bytes() + b"kumquat" * 700)


def _signed_ahead(copy: Copy) -> None:
    """The log's own notes say that it has signed a larger head than the one it shows."""
    signed = copy.home / "log-state" / "signed"
    lines = signed.read_text().split("\n")
    lines[1] = str(int(lines[1]) + 3)
    signed.write_text("\n".join(lines))


def _cut_without_erasure(copy: Copy, folder: Path) -> Options:
    from memory.wiring import init_home
    from tlog.trust import parse_trust

    home = folder / "plain"
    with init_home(home) as other:
        for number in range(6):
            other.memory(by.ONE).remember(f"note {number}")
        other.publish()
    plain = Copy(home, parse_trust((home / "trust.toml").read_text()))
    shutil.rmtree(copy.home)
    shutil.copytree(home, copy.home)
    copy.sql(*(f"DELETE FROM {t} WHERE seq = 6" for t in ("facts", "contents", "events")))
    by.write_log(copy, by.entries_of(copy)[:5])
    copy.sql("UPDATE tenants SET last_seq = 5")
    return {"trust": plain.trust}


LINKS = (
    Tamper("keys: words of somebody's in a link", "RESIDUE_ROW", link(details={"reason": "he moved to Uji"})),
    Tamper("keys: an outcome that none has", "RESIDUE_ROW", link(details={"outcome": "kumquat"})),
    Tamper("keys: a detail of another kind", "RESIDUE_ROW", link(details={"digest": os.urandom(32)})),
    Tamper("keys: bytes of any length in a link", "RESIDUE_ROW", link(details={"statements": [b"kumquat"]})),
    Tamper("keys: a release of what is no hold", "ORDER_ALTERED", of_copy(_release_nothing)),
    Tamper("keys: a hold released twice", "ORDER_ALTERED", of_copy(_release_twice)),
    Tamper(
        "keys: a hold of nothing",
        "ORDER_ALTERED",
        of_copy(lambda c: by.state(c, "hold", authority="x", review_by=time.time_ns())),
    ),
    Tamper(
        "keys: confirmed, and never held", "ORDER_ALTERED", acts("confirm", "confirms", "status = 'active'")
    ),
    Tamper(
        "keys: discarded, and in force", "ORDER_ALTERED", acts("discard", "discards", "status = 'active'")
    ),
    Tamper(
        "keys: lifted, and never refused", "ORDER_ALTERED", acts("reaffirm", "lifts", "status = 'active'")
    ),
    Tamper(
        "keys: retired a second time", "ORDER_ALTERED", acts("resolve", "retires", "status = 'superseded'")
    ),
    Tamper(
        "keys: resolved without a conflict", "ORDER_ALTERED", acts("resolve", "keeps", "status = 'active'")
    ),
    Tamper(
        "keys: begun, and never written ahead",
        "ORDER_ALTERED",
        acts("begin", "begins", "status = 'retracted'"),
    ),
    Tamper(
        "keys: a revocation of what is no grant",
        "ORDER_ALTERED",
        acts("revoke", "revokes", "status = 'active'"),
    ),
    Tamper(
        "keys: an act that its kind has not", "ORDER_ALTERED", acts("retract", "erases", "status = 'active'")
    ),
    Tamper(
        "keys: a write that erases",
        "ORDER_ALTERED",
        of_copy(
            lambda c: by.state(c, "write", {"erases": [by.lonely_seq(c)]}, {"outcome": "stored"}, text="x")
        ),
    ),
    Tamper("keys: a tombstone of another tenant's", "ORDER_ALTERED", of_copy(_tombstone_of_another_tenant)),
    Tamper("keys: a manifest announced twice", "SEQUENCE_GAP", of_copy(_announce_twice)),
    Tamper("keys: a state that counts otherwise", "FACT_ALTERED", of_copy(_state_that_lies)),
    Tamper("keys: declared lost", "WRITE_LOST", of_copy(_declare_lost)),
    Tamper("keys: a statement about another store", "FACT_ALTERED", of_copy(_another_subject)),
    Tamper("keys: a field that no content has", "FACT_ALTERED", content(note="x")),
    Tamper("keys: flags of nobody", "FACT_ALTERED", content(flags=["kumquat"])),
    Tamper("keys: a write by nobody", "FACT_ALTERED", content(agent=7)),
)
GRANTS = (
    Tamper(
        "a grant that points at a write",
        "FACT_ALTERED",
        sql("INSERT INTO grants SELECT 1, 1, agent_tag, randomblob(32) FROM facts WHERE seq = 1"),
    ),
    Tamper(
        "a grant of no statement",
        "RESIDUE_ROW",
        sql("INSERT INTO grants VALUES (999, 1, randomblob(32), randomblob(32))"),
    ),
    Tamper("a grant that was taken out", "FACT_ALTERED", _grant_then("DELETE FROM grants")),
    Tamper(
        "a grant moved to another owner",
        "FACT_ALTERED",
        _grant_then("UPDATE grants SET owner_tag = randomblob(32)"),
    ),
    Tamper("a grant to itself", "FACT_ALTERED", _grant_then("UPDATE grants SET reader_tag = owner_tag")),
    Tamper("a grant of another tenant", "FACT_ALTERED", _grant_then("UPDATE grants SET tenant = 2")),
    Tamper("a text in a grant", "RESIDUE_ROW", _grant_then("UPDATE grants SET reader_tag = 'kumquat'")),
    Tamper("a revocation taken out", "FACT_ALTERED", of_copy(_revoked_then_read)),
)
STORE = (
    Tamper(
        "who may see a fact", "FACT_ALTERED", sql("UPDATE facts SET agent_tag = randomblob(32) WHERE seq = 1")
    ),
    Tamper(
        "since when, as declared",
        "FACT_ALTERED",
        sql("UPDATE facts SET declared = 1 - declared WHERE seq = 2"),
    ),
    Tamper(
        "until when a fact holds",
        "FACT_ALTERED",
        sql("UPDATE facts SET valid_until = 4000000000000000 WHERE seq = 2"),
    ),
    Tamper(
        "when a fact was recorded",
        "FACT_ALTERED",
        sql("UPDATE facts SET recorded_at = recorded_at - 1 WHERE seq = 2"),
    ),
    Tamper(
        "by what a fact was replaced", "FACT_ALTERED", sql("UPDATE facts SET replaced_by = 9 WHERE seq = 1")
    ),
    Tamper(
        "when a fact was replaced",
        "FACT_ALTERED",
        sql("UPDATE facts SET replaced_at = replaced_at - 1 WHERE seq = 1"),
    ),
    Tamper(
        "a fact withdrawn from reads", "FACT_ALTERED", sql("UPDATE facts SET end_erased = 1 WHERE seq = 2")
    ),
    Tamper("a hold of nobody", "FACT_ALTERED", sql("UPDATE facts SET on_hold = 1 WHERE seq = 2")),
    Tamper(
        "the hash of a text",
        "FACT_ALTERED",
        sql("UPDATE facts SET text_tag = (SELECT text_tag FROM facts WHERE seq = 2) WHERE seq = 1"),
    ),
    Tamper(
        "whom a fact is about",
        "FACT_ALTERED",
        sql(
            "UPDATE facts SET subject_tag = randomblob(32) "
            "WHERE seq = (SELECT max(seq) FROM facts WHERE subject_tag IS NOT NULL)"
        ),
    ),
    Tamper(
        "a text for a number", "FACT_ALTERED", sql("UPDATE facts SET valid_from = 'kumquat' WHERE seq = 1")
    ),
    Tamper(
        "a status that none has", "FACT_ALTERED", sql("UPDATE facts SET status = 'kumquat' WHERE seq = 1")
    ),
    Tamper(
        "the random number of a tenant",
        "FACT_ALTERED",
        sql("UPDATE tenants SET number = randomblob(16) WHERE id = 1"),
    ),
    Tamper(
        "a conflict of nobody",
        "FACT_ALTERED",
        sql(
            "INSERT INTO conflicts SELECT seq, tenant, agent_tag, key_tag, NULL FROM facts "
            "WHERE status = 'active' AND key_tag IS NOT NULL ORDER BY seq DESC LIMIT 1"
        ),
    ),
    Tamper(
        "a value refused that nobody retired",
        "FACT_ALTERED",
        sql(
            "INSERT INTO ledger SELECT 99, tenant, agent_tag, key_tag, subject_tag, randomblob(32), name_tags, "
            "word_count, canon_version, NULL, NULL, NULL FROM ledger LIMIT 1"
        ),
    ),
    Tamper(
        "an erasure that is never over",
        "RESIDUE_ROW",
        sql("UPDATE meta SET value = 1 WHERE name = 'erasure.executing'"),
    ),
    Tamper(
        "a canary left behind",
        "RESIDUE_ROW",
        sql("INSERT OR REPLACE INTO meta VALUES ('erasure.canary', 'kumquatteaofujiinthemorni')"),
    ),
    Tamper("a note in the store's header", "RESIDUE_FREE_SPACE", header(72, b"kumquat")),
    Tamper("a number in the store's header", "FACT_ALTERED", sql("PRAGMA user_version = 1802")),
    Tamper("another application's number", "FACT_ALTERED", sql("PRAGMA application_id = 1802")),
    Tamper("a text behind the last page", "RESIDUE_FREE_SPACE", _append("store.db", b"kumquat")),
    Tamper("a page behind the last page", "RESIDUE_FREE_SPACE", _append("store.db", b"kumquat!" * 512)),
    Tamper("a text behind the last frame", "RESIDUE_WAL", of_copy(_behind_the_wal)),
    Tamper(
        "a recipient in words",
        "RESIDUE_ROW",
        sql("INSERT INTO openings VALUES (9, 1, 1, 'kumquat', 3600000000, 'opening')"),
    ),
    Tamper(
        "a backup in words",
        "RESIDUE_ROW",
        sql("INSERT INTO backups VALUES (1, 'kumquat', 3600000000, 7200000000, 1)"),
    ),
    Tamper(
        "a backup of what is to come",
        "RESIDUE_ROW",
        sql("INSERT INTO backups VALUES (1, randomblob(16), 3600000000, 7200000000, 9999)"),
    ),
)


def _said(name: str, value: Any) -> Make:
    return document(lambda said: said.update({name: value}))


def _within(name: str, **fields: Any) -> Make:
    return document(lambda said: said.update({name: {**said[name], **fields}}))


def _first(name: str, **fields: Any) -> Make:
    return document(lambda said: said.update({name: [{**said[name][0], **fields}, *said[name][1:]]}))


MANIFESTS = (
    Tamper("keys: words of somebody's in a manifest", "MANIFEST_ALTERED", _said("note", "he moved to Uji")),
    Tamper(
        "keys: tools that nobody made",
        "MANIFEST_ALTERED",
        _said("tools", {"muniment": "likes green tea", "sqlite": "3", "apsw": "3"}),
    ),
    Tamper(
        "keys: tools left out",
        "MANIFEST_ALTERED",
        of_copy(lambda c: by.rewrite_manifest(c, announce=True, without="tools")),
    ),
    Tamper("keys: a tool too many", "MANIFEST_ALTERED", _within("tools", kumquat="1.0")),
    Tamper(
        "keys: a limit that none has",
        "MANIFEST_ALTERED",
        document(lambda said: said.update(limits=sorted([*said["limits"], "kumquat"]))),
    ),
    Tamper("keys: a reason in words", "MANIFEST_ALTERED", _said("why", ["he moved to Uji"])),
    Tamper("keys: a basis that none has", "MANIFEST_ALTERED", _said("basis", "kumquat")),
    Tamper(
        "keys: a time to the second",
        "MANIFEST_ALTERED",
        document(lambda said: said["times"].update(closed_at=said["times"]["closed_at"] + 1)),
    ),
    Tamper(
        "keys: closed before it began",
        "TIME_IMPLAUSIBLE",
        document(lambda said: said["times"].update(closed_at=said["times"]["closed_at"] - 48 * HOUR)),
    ),
    Tamper(
        "keys: closed in times to come",
        "TIME_IMPLAUSIBLE",
        document(lambda said: said["times"].update(closed_at=said["times"]["closed_at"] + 480 * HOUR)),
    ),
    Tamper("keys: a checkpoint that is none", "MANIFEST_ALTERED", _within("log", checkpoint=b"kumquat\n")),
    Tamper("keys: a system in words", "MANIFEST_ALTERED", _first("systems", kind="kumquat")),
    Tamper("keys: a system that failed", "ERASURE_STATE_FALSE", _first("systems", result="failed")),
    Tamper(
        "keys: a key that is still there",
        "ERASURE_STATE_FALSE",
        _said("keys", [{"key": b"1" * 16, "destroyed": False}]),
    ),
    Tamper("keys: another scheme", "MANIFEST_ALTERED", _said("schema", 99)),
    Tamper(
        "keys: more erased than there was",
        "MANIFEST_INCOMPLETE",
        document(lambda said: said["erased"].update(contents=99)),
    ),
    Tamper(
        "keys: statuses that do not add up",
        "MANIFEST_INCOMPLETE",
        document(lambda said: said["scope"].update(by_status={"held": 5})),
    ),
    Tamper(
        "keys: a backup of nobody",
        "MANIFEST_INCOMPLETE",
        _said("backups", [{"backup": b"1" * 16, "beyond_use": True, "count": 1}]),
    ),
    Tamper(
        "keys: a hold of nobody kept something",
        "MANIFEST_INCOMPLETE",
        _said("exceptions", [{"why": "legal_hold", "count": 1, "statements": [b"1" * 32]}]),
    ),
    Tamper("keys: the request's claim", "ERASURE_STATE_FALSE", _said("claim", os.urandom(32))),
    Tamper(
        "a manifest too many",
        "ERASURE_STATE_FALSE",
        of_copy(lambda c: shutil.copy(by.manifest_of(c), c.home / "log/erasures/2.cose")),
    ),
    Tamper(
        "a manifest under another name",
        "ERASURE_STATE_FALSE",
        of_copy(lambda c: by.manifest_of(c).rename(c.home / "log/erasures/7.cose")),
    ),
)
FILES = (
    Tamper(
        "a registration policy of no entry",
        "RESIDUE_FILE",
        home_file(f"log/registration/{hashlib.sha256(b'kumquat').hexdigest()}.toml", b"kumquat"),
    ),
    Tamper(
        "a key of nobody for statements",
        "RESIDUE_FILE",
        home_file("log/scitt-keys/" + "ab" * 32 + ".cose", cbor.encode({1: "kumquat"})),
    ),
    Tamper(
        "what is known of witnesses, in words",
        "RESIDUE_FILE",
        home_file("log-state/witnesses/" + "ab" * 32 + ".json", b'{"note": "kumquat"}'),
    ),
    Tamper(
        "a lie in words",
        "RESIDUE_FILE",
        home_file("log-state/witnesses/lies/" + "ab" * 32 + ".json", b'{"note": "kumquat"}'),
    ),
    Tamper("a log's own head in words", "RESIDUE_FILE", home_file("log-state/head", b"kumquat")),
    Tamper("a signed head in words", "RESIDUE_FILE", home_file("log-state/signed", b"kumquat")),
    Tamper("a frozen head in words", "RESIDUE_FILE", home_file("log-state/frozen", b"kumquat")),
    Tamper("a registration in words", "RESIDUE_FILE", home_file("log-state/registration", b"kumquat")),
    Tamper(
        "a segment of nobody",
        "RESIDUE_FILE",
        home_file("log-state/staging/1.2." + "A" * 43 + "." + "B" * 43, b"kumquat"),
    ),
    Tamper(
        "backup keys of a space that is none",
        "RESIDUE_FILE",
        home_file("keys/backup/kumquat-7.keys", bytes(64)),
    ),
    Tamper(
        "backup keys in words",
        "RESIDUE_FILE",
        home_file("keys/backup/subjects/" + "ab" * 16 + ".key", b"kumquat"),
    ),
    Tamper(
        "a key of hashes of nobody", "RESIDUE_FILE", home_file("keys/guard/" + "ab" * 16 + ".key", bytes(32))
    ),
    Tamper("a key that is text", "RESIDUE_FILE", home_file("keys/issuer.next.key", TEXT_AS_KEY)),
    Tamper(
        "a trust file with a setting of nobody",
        "RESIDUE_FILE",
        _append("trust.toml", b'\n[note]\nkumquat = "green tea"\n'),
    ),
    Tamper("a setting in words", "RESIDUE_FILE", _setting('guard = "on"', 'guard = "kumquat"')),
    Tamper(
        "a pipe in the home", "RESIDUE_FILE", of_copy(lambda c: os.mkfifo(c.home / "keys" / "log.key.pipe"))
    ),
    Tamper("an empty folder in the home", "RESIDUE_FILE", of_copy(lambda c: (c.home / "kumquat").mkdir())),
    Tamper(
        "an empty folder in a log",
        "RESIDUE_FILE",
        of_copy(lambda c: (c.home / "log" / "tile" / "kumquat").mkdir()),
    ),
    Tamper(
        "a link in a log",
        "RESIDUE_FILE",
        of_copy(lambda c: (c.home / "log" / "erasures" / "9.cose").symlink_to("/etc/hostname")),
    ),
    Tamper("another name of the store", "RESIDUE_FILE", of_copy(_hard_link)),
    Tamper("a bundle's remains in a log", "ENTRY_ALTERED", home_file("log/tile/entries/000.p/9", b"kumquat")),
    Tamper(
        "a log that nothing leads to",
        "LOG_FORK",
        of_copy(lambda c: shutil.copytree(c.home / "log", c.home / "log-2")),
    ),
    Tamper("the guard switched off", "GUARD_OFF", _setting('guard = "on"', 'guard = "off"')),
    Tamper("the log's own head is larger", "LOG_ROLLED_BACK", of_copy(_signed_ahead)),
    Tamper("keys: the end cut off, nothing erased", "LOG_ROLLED_BACK", _cut_without_erasure),
    Tamper("keys: a client told otherwise", "FACT_ALTERED", _told_otherwise),
)
MORE = (*LINKS, *GRANTS, *STORE, *MANIFESTS, *FILES)
