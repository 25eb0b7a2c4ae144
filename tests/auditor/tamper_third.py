"""A third set of single changes: what is left of a list of everything that can be cut, swapped, kept or put back."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import apsw
import tampering as by
from copies import Copy
from tamper_catalogue import Make, Options, Tamper, home_file, of_copy, sql

from memory import event, vfs
from memory.model import SCOPES, Principal
from memory.wiring import open_home
from tlog.keys import make_cose_key
from tlog.statement import sign_statement

DAY = 86_400


def _unindexed(copy: Copy, *statements: str) -> None:
    """Statements that leave the index of texts as it was, as SQLite does without that index in its schema."""
    copy.sql_unchecked("VACUUM")
    connection = apsw.Connection(str(copy.home / "store.db"), vfs=vfs.register())
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.execute(
        "PRAGMA secure_delete = ON; PRAGMA writable_schema = ON; PRAGMA foreign_keys = OFF"
    ).fetchall()
    (row,) = connection.execute(
        "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema WHERE name = 'facts_text'"
    ).fetchall()
    connection.execute("DELETE FROM sqlite_schema WHERE name = 'facts_text'")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    copy.sql_unchecked(*statements)
    connection = apsw.Connection(str(copy.home / "store.db"), vfs=vfs.register())
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.execute("PRAGMA writable_schema = ON").fetchall()
    connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def _index_entry_left(copy: Copy) -> None:
    seq = by.lonely_seq(copy)
    by.tombstone(copy, [seq])
    _unindexed(copy, f"DELETE FROM contents WHERE seq = {seq}", f"DELETE FROM facts WHERE seq = {seq}")


def _tombstone_out(copy: Copy) -> None:
    seq = copy.ask("SELECT tombstone FROM erasures")[0][0]
    copy.sql_unchecked(
        *(f"DELETE FROM {table} WHERE seq = {seq}" for table in ("acts", "contents", "events"))
    )


def _tombstone_out_of_both(copy: Copy) -> None:
    """Store and log without the tombstone, its manifest and what announced it, all numbers closed up again."""
    seq = copy.ask("SELECT tombstone FROM erasures")[0][0]
    entries = by.entries_of(copy)
    (index,) = copy.ask(f"SELECT entry_index FROM events WHERE seq = {seq}")[0]
    _tombstone_out(copy)
    copy.sql_unchecked(
        "DELETE FROM erasures", f"UPDATE events SET entry_index = entry_index - 1 WHERE entry_index > {index}"
    )
    by.write_log(copy, entries[:index] + entries[index + 1 :])


def _stranger(copy: Copy, folder: Path) -> Options:
    key = make_cose_key(folder / "stranger.key")
    seq = by.lonely_seq(copy)
    (commitment,) = copy.ask(f"SELECT commitment FROM events WHERE seq = {seq}")[0]
    entry = sign_statement(key, *by.claims_of(copy), commitment)
    copy.sql(("UPDATE events SET entry = ? WHERE seq = ?", (entry, seq)))
    return None


def _content_salt_twice(copy: Copy) -> None:
    first, second = (
        row[0] for row in copy.ask("SELECT seq FROM facts WHERE key_tag IS NULL ORDER BY seq LIMIT 2")
    )
    (salt,) = copy.ask(f"SELECT salt FROM contents WHERE seq = {first}")[0]
    (content,) = copy.ask(f"SELECT content FROM contents WHERE seq = {second}")[0]
    (link, link_salt) = copy.ask(f"SELECT link, link_salt FROM events WHERE seq = {second}")[0]
    made = event.commit(link, link_salt, content, salt)
    entry = by.own_entry(copy, made.commitment)
    copy.sql(
        (f"UPDATE contents SET salt = ? WHERE seq = {second}", (salt,)),
        (
            f"UPDATE events SET commitment = ?, content_hash = ?, entry = ? WHERE seq = {second}",
            (made.commitment, made.content_hash, entry),
        ),
    )
    entries = by.entries_of(copy)
    (index,) = copy.ask(f"SELECT entry_index FROM events WHERE seq = {second}")[0]
    entries[index] = entry
    by.write_log(copy, entries)


def _clock_behind(copy: Copy, folder: Path) -> Options:
    _, trust = by.witnessed(copy, folder, at=int(time.time()) - DAY)
    return {"trust": trust}


def _empty_erasure(copy: Copy) -> None:
    by.tombstone(copy, [])


def _cache(name: str, *statements: str) -> Make:
    def change(copy: Copy) -> None:
        connection = apsw.Connection(str(copy.home / "log-state" / name))
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()

    return of_copy(change)


def _vectors(copy: Copy) -> None:
    data = struct.pack("<64f", *(0.01 * n for n in range(64)))
    copy.sql(
        "CREATE TABLE embeddings (seq INTEGER PRIMARY KEY, vector BLOB)",
        ("INSERT INTO embeddings VALUES (999, ?)", (data,)),
    )


def _attribute(copy: Copy) -> None:
    os.setxattr(copy.home / "policy.txt", "user.note", b"kumquat")


def _given_opening(copy: Copy) -> None:
    """An opening of what is erased since stands among the tokens."""
    copy.sql(
        "INSERT INTO tokens VALUES "
        f"(9, 1, randomblob(32), 'reaffirm', randomblob(32), {by.erased_seq(copy)}, 4000000000000000)"
    )


def _gap(kind: int) -> Make:
    def change(copy: Copy) -> None:
        store = copy.home / "store.db"
        data = bytearray(store.read_bytes())
        for number in range(2, len(data) // 4096 + 1):
            base = (number - 1) * 4096
            if data[base] != kind:
                continue
            cells = int.from_bytes(data[base + 3 : base + 5], "big")
            start = base + (8 if kind in (10, 13) else 12) + 2 * cells
            end = base + int.from_bytes(data[base + 5 : base + 7], "big")
            if end - start > 16:
                data[start + 4 : start + 11] = b"kumquat"
                store.write_bytes(data)
                return

    return of_copy(change)


def _wal_text(copy: Copy) -> None:
    (copy.home / "store.db-wal").write_bytes(b"kumquat " * 100)


def _name_of_nobody(copy: Copy) -> None:
    """A tenant that an erasure emptied has its name again."""
    with open_home(copy.home) as home:
        gone = home.memory(Principal("ghosts", "bot", "one", SCOPES))
        gone.remember("boo", key="say", value="boo")
        gone.forget(all=True, guard="erase", confirm=gone.forget_preview(all=True, guard="erase")["confirm"])
        home.publish()
    assert copy.codes() == set()
    copy.sql("UPDATE tenants SET name = 'ghosts' WHERE name = ''")


def _of(column: str) -> str:
    """A fact is found under the tag of another."""
    return (
        f"UPDATE facts SET {column} = (SELECT {column} FROM facts WHERE {column} IS NOT NULL AND tenant = 1"
        f" ORDER BY seq DESC LIMIT 1) WHERE seq = (SELECT min(seq) FROM facts WHERE {column} IS NOT NULL)"
    )


THIRD = (
    Tamper("a fact under the tag of another key", "FACT_ALTERED", sql(_of("key_tag"))),
    Tamper("a fact under the tag of another text", "FACT_ALTERED", sql(_of("text_tag"))),
    Tamper(
        "a fact under the tag of another tenant's",
        "FACT_ALTERED",
        sql("UPDATE facts SET text_tag = (SELECT text_tag FROM facts WHERE tenant = 2) WHERE seq = 2"),
    ),
    Tamper("a conflict that nobody closed", "FACT_ALTERED", sql("UPDATE conflicts SET closed_by = 999")),
    Tamper(
        "a conflict of another agent", "FACT_ALTERED", sql("UPDATE conflicts SET agent_tag = zeroblob(32)")
    ),
    Tamper("the name of a tenant that is gone", "RESIDUE_ROW", of_copy(_name_of_nobody)),
    Tamper(
        "a place far before the log",
        "ORDER_ALTERED",
        sql("UPDATE events SET entry_index = -9e9 WHERE seq = 1"),
    ),
    Tamper("a tombstone taken out", "WRITE_MISSING", of_copy(_tombstone_out)),
    Tamper("keys: a tombstone taken out of store and log", "WRITE_MISSING", of_copy(_tombstone_out_of_both)),
    Tamper("a statement signed by a stranger", "KEY_NOT_VALID", _stranger),
    Tamper("keys: a salt of contents used twice", "SALT_REUSED", of_copy(_content_salt_twice)),
    Tamper("a witness's clock behind", "TIME_IMPLAUSIBLE", _clock_behind),
    Tamper(
        "keys: an erasure of nothing, and no manifest", "TOMBSTONE_WITHOUT_MANIFEST", of_copy(_empty_erasure)
    ),
    Tamper("an entry of an index left", "RESIDUE_INDEX", of_copy(_index_entry_left)),
    Tamper("vectors of what is gone", "RESIDUE_VECTOR", of_copy(_vectors)),
    Tamper("an attribute of a file", "RESIDUE_FILE", of_copy(_attribute)),
    Tamper("a token of what is erased", "RESIDUE_ROW", of_copy(_given_opening)),
    Tamper("a gap in a page of a table", "RESIDUE_FREE_SPACE", _gap(13)),
    Tamper("a gap in a page of an index", "RESIDUE_FREE_SPACE", _gap(10)),
    Tamper("a text for a write-ahead log", "RESIDUE_WAL", of_copy(_wal_text)),
    Tamper(
        "a cache of a log with a text",
        "RESIDUE_FILE",
        _cache("identities.sqlite", "INSERT INTO known VALUES (99, 'green tea')"),
    ),
    Tamper(
        "a key that is words",
        "RESIDUE_FILE",
        home_file("keys/index.key", lambda p: p.write_bytes(b"Zqxv Kumquat likes tea from Uji.")),
    ),
    Tamper(
        "the log's note of its head cut",
        "RESIDUE_FILE",
        home_file("log-state/signed", lambda p: by.cut(p, 30)),
    ),
    Tamper("the checkpoint cut", "LOG_SIGNATURE", of_copy(lambda c: by.cut(by.checkpoint_of(c), 90))),
    Tamper("the checkpoint emptied", "LOG_TRUNCATED", of_copy(lambda c: by.cut(by.checkpoint_of(c), 0))),
    Tamper(
        "a fact of no statement",
        "FACT_UNLOGGED",
        sql(
            "INSERT INTO facts SELECT 999, tenant, agent_tag, NULL, NULL, randomblob(32), 'active', valid_from, 0, "
            "NULL, recorded_at, NULL, NULL, 0, 0 FROM facts LIMIT 1"
        ),
    ),
    Tamper(
        "words of a fact taken out of the index",
        "FACT_ALTERED",
        sql("INSERT INTO search (search) VALUES ('delete-all')"),
    ),
    Tamper("the store emptied", "FACT_ALTERED", home_file("store.db", lambda p: by.cut(p, 0))),
    Tamper("a content emptied", "FACT_ALTERED", sql("UPDATE contents SET content = x'' WHERE seq = 2")),
    Tamper(
        "two salts swapped",
        "FACT_ALTERED",
        sql("UPDATE contents SET salt = (SELECT salt FROM contents WHERE seq = 3) WHERE seq = 2"),
    ),
    Tamper(
        "a hold let go without a word", "FACT_ALTERED", sql("UPDATE facts SET on_hold = -1 WHERE seq = 2")
    ),
    Tamper("an erasure of another number", "ERASURE_STATE_FALSE", sql("UPDATE erasures SET number = 4")),
    Tamper(
        "an erasure of another request",
        "ERASURE_STATE_FALSE",
        sql("UPDATE erasures SET request = randomblob(16)"),
    ),
    Tamper("an erasure of another tenant", "ERASURE_STATE_FALSE", sql("UPDATE erasures SET tenant = 2")),
    Tamper(
        "a manifest in the store that is another",
        "MANIFEST_ALTERED",
        sql("UPDATE erasures SET manifest = CAST(manifest || x'00' AS BLOB)"),
    ),
)
