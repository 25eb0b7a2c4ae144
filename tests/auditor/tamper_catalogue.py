"""Single changes to a home, each with the finding that it has to raise.

A change is made on a copy. What it returns are options of the audit: the trust, time, state or receipts that whoever
asks brings along. Those under "keys" can only be made by an operator with every key of the home.
"""

from __future__ import annotations

import os
import shutil
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tampering as by
from copies import Copy

from memory import event
from memory.manifest import decode_manifest
from memory.wiring import init_home, open_home
from tlog import cbor
from tlog.keys import make_cosigner_key, make_log_key
from tlog.note import Note, format_note, parse_note
from tlog.receipt import make_transparent, split_transparent
from tlog.statement import sign_statement
from tlog.tile import encode_bundle
from tlog.trust import make_trust

DAY = 86_400_000_000
Options = Mapping[str, Any] | None
Make = Callable[[Copy, Path], Options]


@dataclass(frozen=True)
class Tamper:
    """A change, how it is made (with a folder outside the home to its use), and the code of its finding."""

    name: str
    code: str
    make: Make


def sql(*statements: str) -> Make:
    def make(copy: Copy, _: Path) -> Options:
        copy.sql_unchecked(*statements)
        return None

    return make


def home_file(path: str, change: Callable[[Path], object]) -> Make:
    def make(copy: Copy, _: Path) -> Options:
        change(copy.home / path)
        return None

    return make


def of_copy(change: Callable[[Copy], object]) -> Make:
    def make(copy: Copy, _: Path) -> Options:
        change(copy)
        return None

    return make


# The log


def _swap_entries(copy: Copy) -> None:
    entries = by.entries_of(copy)
    entries[3], entries[4] = entries[4], entries[3]
    by.bundle_of(copy).write_bytes(encode_bundle(entries))


def _insert_entry(copy: Copy) -> None:
    entries = by.entries_of(copy)
    by.bundle_of(copy).write_bytes(encode_bundle([*entries[:3], entries[7], *entries[4:]]))


def _relabel_size(copy: Copy) -> None:
    path = by.checkpoint_of(copy)
    size = by.size_of(copy)
    path.write_bytes(path.read_bytes().replace(b"\n%d\n" % size, b"\n%d\n" % (size + 1), 1))


def _sign_with_another_key(copy: Copy, folder: Path) -> Options:
    note = parse_note(by.checkpoint_of(copy).read_bytes())
    other = make_log_key(folder / "other.key", note.text.split("\n")[0])
    by.checkpoint_of(copy).write_bytes(format_note(Note(note.text, (other.sign(note.text),))))
    return None


def _imposter(copy: Copy) -> None:
    note = parse_note(by.checkpoint_of(copy).read_bytes())
    stranger = replace(note.signatures[0], key_id=bytes(4))
    by.checkpoint_of(copy).write_bytes(format_note(Note(note.text, (*note.signatures, stranger))))


def _replay_old_checkpoint(copy: Copy, folder: Path) -> Options:
    assert copy.codes(state=folder) == set()
    entries = by.entries_of(copy)
    by.write_log(copy, entries[:-1])
    return {"state": folder}


def _cut_and_sign(copy: Copy) -> None:
    by.write_log(copy, by.entries_of(copy)[:10])


def _swallow_entry(copy: Copy) -> None:
    entries = by.entries_of(copy)
    by.write_log(copy, entries[:7] + entries[8:])


def _reorder_and_sign(copy: Copy) -> None:
    entries = by.entries_of(copy)
    entries[3], entries[4] = entries[4], entries[3]
    by.write_log(copy, entries)


def _log_twice(copy: Copy) -> None:
    by.append(copy, by.entries_of(copy)[5])


def _hide_write(copy: Copy) -> None:
    by.append(copy, by.own_entry(copy, os.urandom(32)))


def _foreign_entry(copy: Copy) -> None:
    signer = by.load_cose_key(copy.home / "keys" / "issuer.key")
    by.append(copy, sign_statement(signer, "https://other.example", "x", os.urandom(32)))


def _rewrite_past(copy: Copy) -> None:
    by.relink(copy, by.lonely_seq(copy), content={"source": "rewritten"})


def _drop_witness(copy: Copy, folder: Path) -> Options:
    _, trust = by.witnessed(copy, folder)
    assert copy.codes(trust=trust) == set()
    note = parse_note(by.checkpoint_of(copy).read_bytes())
    by.checkpoint_of(copy).write_bytes(format_note(Note(note.text, note.signatures[:1])))
    return {"trust": trust}


def _two_witnesses_on_two_heads(copy: Copy, folder: Path) -> Options:
    """One witness saw this head, the other another of the same size: its line is moved here."""
    keys, trust = by.witnessed(copy, folder, count=2)
    note = parse_note(by.checkpoint_of(copy).read_bytes())
    other = note.text.replace(note.text.split("\n")[2], "A" * 43 + "=")
    line = keys[1].cosign(other, int(time.time()) + 1)
    by.checkpoint_of(copy).write_bytes(format_note(Note(note.text, (*note.signatures[:2], line))))
    return {"trust": trust}


def _witness_clock_ahead(copy: Copy, folder: Path) -> Options:
    _, trust = by.witnessed(copy, folder, at=int(time.time()) + 86_400)
    return {"trust": trust}


def _stale(copy: Copy, folder: Path) -> Options:
    _, trust = by.witnessed(copy, folder)
    return {"trust": trust, "now": time.time_ns() // 1000 + 7_200_000_000}


def _foreign_witness(copy: Copy, folder: Path) -> Options:
    _, trust = by.witnessed(copy, folder)
    note = parse_note(by.checkpoint_of(copy).read_bytes())
    stranger = make_cosigner_key(folder / "stranger.key", "witness.example/0")
    line = stranger.cosign(note.text, int(time.time()) + 1)
    by.checkpoint_of(copy).write_bytes(format_note(Note(note.text, (note.signatures[0], line))))
    return {"trust": trust}


def _another_issuer_key(copy: Copy) -> None:
    by.relink(copy, by.lonely_seq(copy), key="receipt")


def _key_over(use: str) -> Make:
    def make(copy: Copy, _: Path) -> Options:
        keys = tuple(
            replace(one, not_before=0, not_after=1) if one.use == use else one for one in copy.trust.keys
        )
        return {"trust": make_trust(copy.trust.policy.text, keys)}

    return make


# Times and salts, with every key


def _backdate(copy: Copy) -> None:
    by.relink(copy, by.lonely_seq(copy), content={"recorded_at": 1_000_000})


def _postdate(copy: Copy) -> None:
    seq = copy.ask("SELECT max(seq) FROM facts")[0][0]
    later = time.time_ns() // 1000 + 30 * DAY
    by.relink(copy, seq, content={"recorded_at": later, "valid_from": later})
    copy.sql(
        f"UPDATE facts SET recorded_at = {later}, valid_from = {later} WHERE seq = {seq}",
        f"UPDATE meta SET value = {later} WHERE name = 'recorded_at'",
    )


def _reuse_salt(copy: Copy) -> None:
    (salt,) = copy.ask("SELECT link_salt FROM events WHERE seq = 1")[0]
    by.relink(copy, by.lonely_seq(copy), link_salt=salt)


def _second_opening(copy: Copy) -> None:
    """Another content for a statement, with its own salt: it does not open what was signed."""
    old = event.decode_content(copy.ask("SELECT content FROM contents WHERE seq = 2")[0][0])
    other = event.encode_content({**old, "value": "Bremen"})
    copy.sql(("UPDATE contents SET content = ?, salt = ? WHERE seq = 2", (other, os.urandom(32))))


def _entry_of_another(copy: Copy) -> None:
    copy.sql("UPDATE events SET entry = (SELECT entry FROM events WHERE seq = 6) WHERE seq = 5")


def _link_to_nothing(copy: Copy) -> None:
    seq = by.lonely_seq(copy)
    by.relink(copy, seq, link={"acts": {"retires": (os.urandom(32),)}})


def _link_ahead(copy: Copy) -> None:
    (target,) = copy.ask("SELECT commitment FROM events ORDER BY seq DESC LIMIT 1")[0]
    by.relink(copy, by.lonely_seq(copy), link={"acts": {"retires": (target,)}})


def _retire_unsaid(copy: Copy) -> None:
    """A retirement that is in the link and not in what is served."""
    first, second = (
        row[0] for row in copy.ask("SELECT seq FROM facts WHERE key_tag IS NULL ORDER BY seq LIMIT 2")
    )
    (target,) = copy.ask(f"SELECT commitment FROM events WHERE seq = {first}")[0]
    by.relink(copy, second, link={"acts": {"retires": (target,)}})


def _echo_stored(copy: Copy) -> None:
    """A value that its key had retired, written with every key and no reaffirmation."""
    with open_home(copy.home) as home:
        for value in ("noon", "night"):
            home.memory(by.ONE).remember(f"the pump runs at {value}", key="pump", value=value)
    now = time.time_ns() // 1000
    by.state(
        copy,
        "write",
        details={"outcome": "stored"},
        text="the pump runs at noon",
        key="pump",
        value="noon",
        valid_from=now,
        flags=[],
    )


def _back_to_retired(copy: Copy) -> None:
    copy.sql("UPDATE facts SET status = 'active', replaced_at = NULL, replaced_by = NULL WHERE seq = 1")


# Erasures


def _erase_without_tombstone(copy: Copy) -> None:
    with open_home(copy.home) as home:
        parts = home.parts()
        with parts.store.write() as txn:
            from memory.store_erase import erase_contents

            tenant = txn.find_tenant(parts.vault.tag_of_name(b"", "tenant", "acme"))
            assert tenant is not None
            erase_contents(txn, tenant.id, [by.lonely_seq(copy)], 1)


def _tombstone_without_erasing(copy: Copy) -> None:
    by.tombstone(copy, [by.lonely_seq(copy)])


def _tombstone_without_manifest(copy: Copy) -> None:
    _tombstone_without_erasing(copy)
    copy.sql("DELETE FROM contents WHERE seq = (SELECT max(target) FROM acts WHERE act = 'erases')")


def _keep_salt(copy: Copy) -> None:
    copy.sql(f"INSERT INTO contents VALUES ({by.erased_seq(copy)}, x'', randomblob(32))")


def _swallow_tombstone(copy: Copy) -> None:
    (target,) = copy.ask("SELECT tombstone FROM erasures")[0]
    by.tombstone(copy, [target])


def _tombstone_out_of_turn(copy: Copy) -> None:
    by.tombstone(copy, [by.lonely_seq(copy)], number=7)


def _tombstone_off_the_chain(copy: Copy) -> None:
    by.tombstone(copy, [by.lonely_seq(copy)], previous=os.urandom(32))


def _resurrect(copy: Copy) -> None:
    columns = (
        "tenant, agent_tag, key_tag, subject_tag, text_tag, status, valid_from, declared, valid_until, "
        "recorded_at, replaced_at, replaced_by, end_erased, on_hold"
    )
    copy.sql(f"INSERT INTO facts SELECT {by.erased_seq(copy)}, {columns} FROM facts WHERE seq = 1")


def _manifest(announce: bool = False, **fields: Any) -> Make:
    return of_copy(lambda copy: by.rewrite_manifest(copy, announce=announce, **fields))


def _manifest_scope(announce: bool) -> Make:
    def change(copy: Copy) -> None:
        from memory.manifest import decode_manifest

        scope = decode_manifest(by.manifest_of(copy).read_bytes()).document["scope"]
        by.rewrite_manifest(copy, announce=announce, scope={**scope, "count": scope["count"] + 1})

    return of_copy(change)


def _manifest_of_another_home(copy: Copy, folder: Path) -> Options:
    with init_home(folder / "other") as other:
        memory = other.memory(by.ONE)
        memory.remember("x", key="k", value="v")
        memory.forget(key="k", confirm=memory.forget_preview(key="k")["confirm"])
    shutil.copy(folder / "other" / "log" / "erasures" / "1.cose", by.manifest_of(copy))
    return None


def _overdue(copy: Copy) -> None:
    detail: Any = cbor.decode(copy.ask("SELECT detail FROM erasures")[0][0], max_bytes=1 << 20)
    for name in ("started_at", "received_at", "due_at"):
        if name in detail:
            detail[name] -= 40 * DAY
    copy.sql(("UPDATE erasures SET state = 'inconclusive', detail = ?", (cbor.encode(detail),)))


def _break_hold(copy: Copy) -> None:
    seq = by.lonely_seq(copy)
    by.state(copy, "hold", {"holds": [seq]}, authority="court", review_by=time.time_ns() // 1000 + DAY)
    by.tombstone(copy, [seq])


def _serve_on_hold(copy: Copy) -> None:
    seq = by.lonely_seq(copy)
    by.state(copy, "hold", {"holds": [seq]}, authority="court", review_by=time.time_ns() // 1000 + DAY)
    copy.sql(f"UPDATE facts SET on_hold = 0 WHERE seq = {seq}")


# Files and receipts


def _wal_cut(copy: Copy) -> None:
    """What was written and logged is in the write-ahead log alone, which is cut."""
    source = copy.home.parent / "writing"
    shutil.copytree(copy.home, source)
    with open_home(source) as home:
        home.memory(by.ONE).remember("the pump runs at noon", key="pump", value="noon")
        home.publish()
        shutil.rmtree(copy.home)
        shutil.copytree(source, copy.home)
    by.cut(copy.home / "store.db-wal", 0)


def _wal_frame(copy: Copy) -> None:
    by.leave_frames(copy, f"DELETE FROM contents WHERE seq = {by.lonely_seq(copy)}")


def _needle_beside(copy: Copy, folder: Path) -> Options:
    (folder / "chat.jsonl").write_text('{"text": "Zqxv Kumquat likes green tea"}')
    return {"needles": ["Zqxv Kumquat"], "also": (folder / "chat.jsonl",)}


def _needle_encoded(copy: Copy, folder: Path) -> Options:
    import base64

    (folder / "dump.txt").write_bytes(base64.b64encode(b"--Zqxv Kumquat likes green tea--"))
    return {"needles": ["Zqxv Kumquat likes green tea"], "also": (folder / "dump.txt",)}


def _plain_hash_in_log(copy: Copy) -> Options:
    import hashlib

    by.append(copy, by.own_entry(copy, hashlib.sha256(b"Zqxv Kumquat").digest()))
    return {"needles": ["Zqxv Kumquat"]}


def _given(copy: Copy, folder: Path) -> tuple[bytes, bytes]:
    with open_home(copy.home) as home:
        memory = home.memory(by.ONE)
        one = memory.remember("the pump runs at noon", key="pump", value="noon")
        two = memory.remember("the lamp is red", key="lamp", value="red")
        home.publish()
        return memory.receipt(one["id"]), memory.receipt(two["id"])


def _swap_receipts(copy: Copy, folder: Path) -> Options:
    one, two = _given(copy, folder)
    (entry, _), (_, receipts) = split_transparent(one), split_transparent(two)
    (folder / "given").mkdir()
    (folder / "given" / "a.cose").write_bytes(make_transparent(entry, receipts))
    return {"receipts": folder / "given"}


def _relabel_receipt(copy: Copy, folder: Path) -> Options:
    """The proof of a receipt as one in a larger tree."""
    one, _ = _given(copy, folder)
    entry, (receipt,) = split_transparent(one)
    size = by.size_of(copy)
    changed = receipt.replace(cbor.encode([size])[1:], cbor.encode([size + 1])[1:], 1)
    assert changed != receipt
    (folder / "given").mkdir()
    (folder / "given" / "a.cose").write_bytes(make_transparent(entry, [changed]))
    return {"receipts": folder / "given"}


def _fork_shown(copy: Copy, folder: Path) -> Options:
    """Another auditor was shown a log of the same key with another last entry."""
    other = Copy(folder / "other", copy.trust)
    shutil.copytree(copy.home, other.home)
    by.write_log(other, [*by.entries_of(other)[:-1], by.own_entry(other, os.urandom(32))])
    (folder / "given").mkdir()
    shutil.copy(by.checkpoint_of(other), folder / "given" / "seen.checkpoint")
    return {"receipts": folder / "given"}


def _deny_write(copy: Copy, folder: Path) -> Options:
    """A client was answered, and nothing of the write is left anywhere."""
    (folder / "given").mkdir()
    answer = '{"id": "aaaaaaaaaaaaaaaaaaaaaaaaaa", "receipt": {"state": "pending", "entry": null}}'
    (folder / "given" / "a.json").write_text(answer)
    return {"receipts": folder / "given"}


def _wait_for_ever(copy: Copy, _: Path) -> Options:
    return {"now": time.time_ns() // 1000 + 2 * DAY}


def _policy_changed(copy: Copy, folder: Path) -> Options:
    assert copy.codes(state=folder) == set()
    path = copy.home / "policy.txt"
    path.write_text(path.read_text() + "# other times\n")
    return {"state": folder}


def _weaker_policy(copy: Copy, folder: Path) -> Options:
    policy = (copy.home / "policy.txt").read_text()
    _, trust = by.witnessed(copy, folder)
    (copy.home / "policy.txt").write_text(policy)
    return {"trust": trust}


LOG = (
    Tamper("a bit of an entry", "ENTRY_ALTERED", of_copy(lambda copy: by.flip(by.bundle_of(copy)))),
    Tamper("a bit of a tile", "ENTRY_ALTERED", of_copy(lambda copy: by.flip(by.tile_of(copy)))),
    Tamper(
        "a bit of the checkpoint", "LOG_SIGNATURE", of_copy(lambda copy: by.flip(by.checkpoint_of(copy), 90))
    ),
    Tamper("a bundle deleted", "LOG_TRUNCATED", of_copy(lambda copy: by.bundle_of(copy).unlink())),
    Tamper("a bundle cut", "ENTRY_ALTERED", of_copy(lambda copy: by.cut(by.bundle_of(copy), 500))),
    Tamper("a tile deleted", "LOG_TRUNCATED", of_copy(lambda copy: by.tile_of(copy).unlink())),
    Tamper("a tile cut", "ENTRY_ALTERED", of_copy(lambda copy: by.cut(by.tile_of(copy), 64))),
    Tamper("the checkpoint deleted", "LOG_TRUNCATED", of_copy(lambda copy: by.checkpoint_of(copy).unlink())),
    Tamper("two entries swapped", "ENTRY_ALTERED", of_copy(_swap_entries)),
    Tamper("an entry put in the place of another", "ENTRY_ALTERED", of_copy(_insert_entry)),
    Tamper("the tree size relabelled", "LOG_SIGNATURE", of_copy(_relabel_size)),
    Tamper("the head signed with another key", "LOG_SIGNATURE", _sign_with_another_key),
    Tamper("a line with half a known name", "LOG_SIGNATURE", of_copy(_imposter)),
    Tamper("keys: an old head shown again", "LOG_ROLLED_BACK", _replay_old_checkpoint),
    Tamper("keys: the end cut off, signed again", "LOG_ROLLED_BACK", of_copy(_cut_and_sign)),
    Tamper("keys: an entry swallowed, signed again", "ORDER_ALTERED", of_copy(_swallow_entry)),
    Tamper("keys: two entries swapped, signed again", "ORDER_ALTERED", of_copy(_reorder_and_sign)),
    Tamper("keys: an entry twice", "ORDER_ALTERED", of_copy(_log_twice)),
    Tamper("keys: a write that the store hides", "WRITE_MISSING", of_copy(_hide_write)),
    Tamper("keys: a statement of somebody else", "STATEMENT_NOT_ADMITTED", of_copy(_foreign_entry)),
    Tamper("keys: the past rewritten throughout", "LOG_FORK", of_copy(_rewrite_past)),
    Tamper("a witness's line dropped", "QUORUM_NOT_MET", _drop_witness),
    Tamper("two witnesses on two heads", "QUORUM_NOT_MET", _two_witnesses_on_two_heads),
    Tamper("a witness's line by another key", "QUORUM_NOT_MET", _foreign_witness),
    Tamper("a witness's clock ahead", "TIME_IMPLAUSIBLE", _witness_clock_ahead),
    Tamper("an old head that nobody refreshed", "CHECKPOINT_STALE", _stale),
    Tamper("keys: signed with the receipt key", "KEY_NOT_VALID", of_copy(_another_issuer_key)),
    Tamper("statements of a key that was over", "KEY_NOT_VALID", _key_over("issuer")),
    Tamper("manifests of a key that was over", "KEY_NOT_VALID", _key_over("manifest")),
    Tamper("a policy changed since the last audit", "POLICY_CHANGED", _policy_changed),
    Tamper("a policy that asks less than the caller's", "POLICY_CHANGED", _weaker_policy),
)
STORE = (
    Tamper(
        "a content changed",
        "FACT_ALTERED",
        sql("UPDATE contents SET content = CAST(content || x'00' AS BLOB) WHERE seq = 3"),
    ),
    Tamper("a content deleted", "WRITE_MISSING", sql("DELETE FROM contents WHERE seq = 2")),
    Tamper(
        "two contents swapped",
        "FACT_ALTERED",
        sql(
            "UPDATE contents SET seq = -1 WHERE seq = 1",
            "UPDATE contents SET seq = 1 WHERE seq = 2",
            "UPDATE contents SET seq = 2 WHERE seq = -1",
        ),
    ),
    Tamper("a second opening of an entry", "FACT_ALTERED", of_copy(_second_opening)),
    Tamper("an entry in two rows", "FACT_ALTERED", of_copy(_entry_of_another)),
    Tamper(
        "a write taken out of the store",
        "WRITE_MISSING",
        sql(*(f"DELETE FROM {t} WHERE seq = 20" for t in ("facts", "contents", "events"))),
    ),
    Tamper(
        "a gap in the numbers of a tenant",
        "SEQUENCE_GAP",
        sql("UPDATE events SET tenant_seq = 900 WHERE seq = 4"),
    ),
    Tamper(
        "the last number of a tenant",
        "SEQUENCE_GAP",
        sql("UPDATE tenants SET last_seq = last_seq + 1 WHERE id = 1"),
    ),
    Tamper(
        "a place in the log that is another's",
        "ORDER_ALTERED",
        sql("UPDATE events SET entry_index = 900 WHERE seq = 5"),
    ),
    Tamper(
        "a statement said to be unlogged",
        "FACT_ALTERED",
        sql("UPDATE events SET entry_index = NULL WHERE seq = 4"),
    ),
    Tamper(
        "a link hashed with another salt",
        "FACT_ALTERED",
        sql("UPDATE events SET link_salt = randomblob(32) WHERE seq = 4"),
    ),
    Tamper("keys: a salt used twice", "SALT_REUSED", of_copy(_reuse_salt)),
    Tamper("keys: back-dated", "TIME_IMPLAUSIBLE", of_copy(_backdate)),
    Tamper("keys: post-dated", "TIME_IMPLAUSIBLE", of_copy(_postdate)),
    Tamper(
        "the clock of the store moved back",
        "FACT_ALTERED",
        sql("UPDATE meta SET value = value - 1 WHERE name = 'recorded_at'"),
    ),
    Tamper("keys: a link to nothing", "ORDER_ALTERED", of_copy(_link_to_nothing)),
    Tamper("keys: a link to what comes later", "ORDER_ALTERED", of_copy(_link_ahead)),
    Tamper("keys: a retirement that is not served", "RETIRED_RETURNED", of_copy(_retire_unsaid)),
    Tamper("keys: a retired value stored again", "RETIRED_RETURNED", of_copy(_echo_stored)),
    Tamper("a retired fact served", "RETIRED_RETURNED", of_copy(_back_to_retired)),
    Tamper(
        "a held fact served",
        "HELD_AND_SERVED",
        sql("UPDATE facts SET status = 'active' WHERE status = 'held'"),
    ),
    Tamper(
        "a refused fact served",
        "HELD_AND_SERVED",
        sql("UPDATE facts SET status = 'active' WHERE status = 'refused'"),
    ),
    Tamper(
        "a fact retired by nobody",
        "RETIREMENT_UNDECLARED",
        sql(
            "UPDATE facts SET status = 'superseded' WHERE seq = (SELECT min(seq) FROM facts WHERE status = 'active')"
        ),
    ),
    Tamper(
        "a fact moved to another tenant", "FACT_ALTERED", sql("UPDATE facts SET tenant = 2 WHERE seq = 1")
    ),
    Tamper(
        "a fact under another key",
        "FACT_ALTERED",
        sql("UPDATE facts SET key_tag = randomblob(32) WHERE seq = 1"),
    ),
    Tamper(
        "when a fact holds", "FACT_ALTERED", sql("UPDATE facts SET valid_from = valid_from - 1 WHERE seq = 1")
    ),
    Tamper("a fact taken out", "FACT_ALTERED", sql("DELETE FROM facts WHERE seq = 1")),
    Tamper(
        "a content of no statement",
        "FACT_UNLOGGED",
        sql("INSERT INTO contents VALUES (999, x'a0', zeroblob(32))"),
    ),
    Tamper("an act taken out", "FACT_ALTERED", sql("DELETE FROM acts WHERE id = 1")),
    Tamper(
        "a conflict closed by nobody",
        "FACT_ALTERED",
        sql("UPDATE conflicts SET closed_by = 2 WHERE closed_by IS NULL"),
    ),
    Tamper("the value ledger wiped", "RETIREMENT_FORGOTTEN", sql("DELETE FROM ledger")),
    Tamper(
        "a retired value let expire",
        "RETIREMENT_FORGOTTEN",
        sql("UPDATE ledger SET expires_at = 3600000000 WHERE id = (SELECT max(id) FROM ledger)"),
    ),
    Tamper(
        "a retired value refused for a time only",
        "RETIREMENT_FORGOTTEN",
        sql("UPDATE ledger SET until = 3600000000"),
    ),
    Tamper(
        "a retired value under rules of nobody",
        "RETIREMENT_FORGOTTEN",
        sql("UPDATE ledger SET canon_version = 99 WHERE id = (SELECT max(id) FROM ledger)"),
    ),
    Tamper(
        "an answer to a request changed",
        "FACT_ALTERED",
        sql("UPDATE idempotency SET answer = replace(answer, 'superseded', 'stored')"),
    ),
    Tamper("a tenant renamed", "FACT_ALTERED", sql("UPDATE tenants SET name = 'emca' WHERE id = 1")),
)


def _write_text(path: Path) -> None:
    path.write_text("kumquat")
    os.utime(path, (time.time() - 7200,) * 2)


def _append_text(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"kumquat")


def _append_setting(path: Path) -> None:
    path.write_text(path.read_text() + 'kumquat = "kumquat"\n')


def _needle_packed(_: Copy, folder: Path) -> Options:
    with zipfile.ZipFile(folder / "old.docx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", "Zqxv Kumquat " * 40)
    return {"also": (folder,), "needles": ["Zqxv Kumquat"]}


def _needle_unopened(_: Copy, folder: Path) -> Options:
    (folder / "old.zst").write_bytes(bytes.fromhex("28b52ffd0458") + b"\x91\x00\x00packed")
    return {"also": (folder,), "needles": ["Zqxv Kumquat"]}


def _document(copy: Copy) -> Mapping[str, Any]:
    return decode_manifest(by.manifest_of(copy).read_bytes()).document


def _checks(without: str | None = None, controls: int = 1) -> Make:
    def make(copy: Copy, _: Path) -> Options:
        checks = [
            {**one, "counts": {**one["counts"], "controls_found": controls}}
            if one["check"] == "residue"
            else one
            for one in _document(copy)["checks"]
            if one["check"] != without
        ]
        by.rewrite_manifest(copy, announce=True, checks=checks)
        return None

    return make


def _systems_without(kind: str) -> Make:
    def make(copy: Copy, _: Path) -> Options:
        systems = [one for one in _document(copy)["systems"] if one["kind"] != kind]
        by.rewrite_manifest(copy, announce=True, systems=systems)
        return None

    return make


def _given_before(copy: Copy) -> None:
    seq = by.erased_seq(copy)
    copy.sql(f"INSERT INTO openings VALUES (9, 1, {seq}, randomblob(16), 3600000000, 'opening')")


ERASURES = (
    Tamper("keys: erased without a tombstone", "WRITE_MISSING", of_copy(_erase_without_tombstone)),
    Tamper("keys: a tombstone without erasing", "ERASED_STILL_PRESENT", of_copy(_tombstone_without_erasing)),
    Tamper(
        "keys: a tombstone without a manifest",
        "TOMBSTONE_WITHOUT_MANIFEST",
        of_copy(_tombstone_without_manifest),
    ),
    Tamper("a salt kept", "SALT_SURVIVES", of_copy(_keep_salt)),
    Tamper("keys: a tombstone swallowed by another", "ERASURE_STATE_FALSE", of_copy(_swallow_tombstone)),
    Tamper("keys: a tombstone out of turn", "SEQUENCE_GAP", of_copy(_tombstone_out_of_turn)),
    Tamper("keys: a tombstone off the chain", "ORDER_ALTERED", of_copy(_tombstone_off_the_chain)),
    Tamper("an erased row resurrected", "ERASED_STILL_PRESENT", of_copy(_resurrect)),
    Tamper(
        "a manifest deleted",
        "TOMBSTONE_WITHOUT_MANIFEST",
        of_copy(lambda copy: by.manifest_of(copy).unlink()),
    ),
    Tamper("a manifest cut", "MANIFEST_ALTERED", of_copy(lambda copy: by.cut(by.manifest_of(copy), 200))),
    Tamper("a bit of a manifest", "MANIFEST_ALTERED", of_copy(lambda copy: by.flip(by.manifest_of(copy)))),
    Tamper("a manifest of another home", "MANIFEST_ALTERED", _manifest_of_another_home),
    Tamper("keys: a manifest's scope", "MANIFEST_ALTERED", _manifest_scope(announce=False)),
    Tamper("keys: a manifest's scope, logged anew", "MANIFEST_INCOMPLETE", _manifest_scope(announce=True)),
    Tamper("keys: a manifest's chain tip", "MANIFEST_ALTERED", _manifest(previous=b"\x01" * 32)),
    Tamper("keys: a manifest without a system", "MANIFEST_INCOMPLETE", _manifest(announce=True, systems=[])),
    Tamper("keys: a manifest without its limits", "MANIFEST_INCOMPLETE", _manifest(announce=True, limits=[])),
    Tamper(
        "keys: a manifest of another log",
        "MANIFEST_ALTERED",
        _manifest(announce=True, log={"origin": "other.example/log"}),
    ),
    Tamper("keys: a manifest without the scan", "ERASURE_STATE_FALSE", _checks(without="residue")),
    Tamper("keys: a scan without its control", "ERASURE_STATE_FALSE", _checks(controls=0)),
    Tamper("keys: a manifest without the write-ahead log", "MANIFEST_INCOMPLETE", _systems_without("wal")),
    Tamper(
        "keys: a recipient that nobody was",
        "MANIFEST_INCOMPLETE",
        _manifest(
            announce=True,
            recipients=[{"recipient": b"1" * 16, "told": False, "kind": "opening", "count": 1}],
        ),
    ),
    Tamper("a recipient that the manifest does not name", "MANIFEST_INCOMPLETE", of_copy(_given_before)),
    Tamper(
        "a backup that the manifest does not name",
        "MANIFEST_INCOMPLETE",
        of_copy(
            lambda copy: copy.sql(
                f"INSERT INTO backups VALUES (1, randomblob(16), 3600000000, 7200000000, {by.erased_seq(copy)})"
            )
        ),
    ),
    Tamper(
        "the tip that the next manifest gets",
        "FACT_ALTERED",
        sql(
            "UPDATE meta SET value = CAST(x'82015820' || zeroblob(32) AS BLOB) WHERE name = 'erasure.manifest'"
        ),
    ),
    Tamper(
        "a state that is not the manifest's",
        "ERASURE_STATE_FALSE",
        sql("UPDATE erasures SET state = 'failed'"),
    ),
    Tamper("an erasure off the list", "ERASURE_STATE_FALSE", sql("DELETE FROM erasures")),
    Tamper("a request that nobody answered", "REQUEST_OVERDUE", of_copy(_overdue)),
    Tamper("keys: erased under a legal hold", "HOLD_BROKEN", of_copy(_break_hold)),
    Tamper("a record on hold served", "HELD_AND_SERVED", of_copy(_serve_on_hold)),
    Tamper(
        "a retired value that names what was erased",
        "RESIDUE_ROW",
        sql("UPDATE ledger SET source = 999 WHERE id = (SELECT max(id) FROM ledger)"),
    ),
)
FILES = (
    Tamper(
        "a word left in the index",
        "RESIDUE_INDEX",
        sql("INSERT INTO search (rowid, key, value, body) VALUES (999, 'k', 'v', 'left over')"),
    ),
    Tamper(
        "the beginning of a word left in the index",
        "RESIDUE_INDEX",
        sql("INSERT INTO search_idx VALUES (77, x'306b756d71756174', 4)"),
    ),
    Tamper(
        "a page left in the index",
        "RESIDUE_INDEX",
        sql("INSERT INTO search_data VALUES ((99 << 37) + 1, x'6b756d71756174')"),
    ),
    Tamper(
        "a table of vectors",
        "RESIDUE_ROW",
        sql("CREATE TABLE more_vectors (seq INTEGER PRIMARY KEY, vector BLOB)"),
    ),
    Tamper("a setting that no store has", "RESIDUE_ROW", sql("INSERT INTO meta VALUES ('note', 'kumquat')")),
    Tamper("an index that no store has", "RESIDUE_INDEX", sql("CREATE INDEX more ON meta (value)")),
    Tamper("an index taken out", "FACT_ALTERED", sql("DROP INDEX facts_text")),
    Tamper("a free page that is not zero", "RESIDUE_FREE_SPACE", of_copy(by.dirty_free_page)),
    Tamper("a frame left in the write-ahead log", "RESIDUE_WAL", of_copy(_wal_frame)),
    Tamper("the write-ahead log cut", "WRITE_MISSING", of_copy(_wal_cut)),
    Tamper("the store cut", "FACT_ALTERED", home_file("store.db", lambda path: by.cut(path, 40_960))),
    Tamper(
        "a rollback journal",
        "RESIDUE_FILE",
        home_file("store.db-journal", lambda path: path.write_bytes(b"\x01")),
    ),
    Tamper(
        "a copy of the store",
        "RESIDUE_FILE",
        home_file("store.db.old", lambda path: path.write_bytes(b"\x01")),
    ),
    Tamper("a text in another place", "RESIDUE_FILE", _needle_beside),
    Tamper("a text in another form", "RESIDUE_ENCODED", _needle_encoded),
    Tamper("a text in a packed file", "RESIDUE_ENCODED", _needle_packed),
    Tamper("a packed file that can't be opened", "CONTROL_FAILED", _needle_unopened),
    Tamper("a store that was being put back", "RESIDUE_FILE", home_file("restoring.db", _write_text)),
    Tamper("a text in a lock", "RESIDUE_FILE", home_file(".locks/erase", _write_text)),
    Tamper("a text behind the list of keys", "RESIDUE_FILE", home_file("keys.cbor", _append_text)),
    Tamper("a setting that no home has", "RESIDUE_FILE", home_file("config.toml", _append_setting)),
    Tamper(
        "a tenant of no statement",
        "RESIDUE_ROW",
        sql("INSERT INTO tenants VALUES (9, randomblob(16), randomblob(32), 'kumquat', 0)"),
    ),
    Tamper(
        "keys: a plain hash in the log", "RESIDUE_LOG_CONFIRMABLE", lambda copy, _: _plain_hash_in_log(copy)
    ),
    Tamper("two receipts swapped", "RECEIPT_INVALID", _swap_receipts),
    Tamper("a receipt's tree size relabelled", "RECEIPT_INVALID", _relabel_receipt),
    Tamper("keys: a fork shown to another auditor", "LOG_FORK", _fork_shown),
    Tamper("keys: a write denied", "WRITE_LOST", _deny_write),
    Tamper("a promise that nobody keeps", "PROMISE_BROKEN", _wait_for_ever),
)
CATALOGUE = (*LOG, *STORE, *ERASURES, *FILES)
