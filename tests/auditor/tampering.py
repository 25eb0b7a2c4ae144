"""What it takes to spoil a copy: changes of bytes by anybody, and changes signed again by an operator with all keys."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw
from copies import Copy

from memory import event, vfs
from memory.manifest import decode_manifest
from memory.model import SCOPES, Principal
from memory.wiring import open_home
from tlog import cbor
from tlog.checkpoint import Checkpoint, format_checkpoint
from tlog.cose import decode_sign1, sign1
from tlog.cosignature import Cosigner
from tlog.keys import load_cose_key, load_log_key, make_cosigner_key
from tlog.merkle import Frontier, leaf_hash
from tlog.note import Note, format_note, parse_note
from tlog.policy import GroupEntry, WitnessEntry, make_policy
from tlog.statement import sign_statement
from tlog.tile import decode_bundle, encode_bundle, grow, tiles_at
from tlog.trust import Trust, make_trust

OWN = ("erase", "manifest", "lost", "state")
ONE = Principal("acme", "bot", "one", SCOPES)
# Bytes


def flip(path: Path, at: int = -3, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def cut(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])


def swap(one: Path, two: Path) -> None:
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


# The log


def checkpoint_of(copy: Copy) -> Path:
    return copy.home / "log" / "checkpoint"


def size_of(copy: Copy) -> int:
    return int(parse_note(checkpoint_of(copy).read_bytes()).text.split("\n")[1])


def bundle_of(copy: Copy) -> Path:
    """The newest bundle of a log that has not filled one yet."""
    return copy.home / "log" / "tile" / "entries" / "000.p" / str(size_of(copy))


def tile_of(copy: Copy) -> Path:
    return copy.home / "log" / "tile" / "0" / "000.p" / str(size_of(copy))


def entries_of(copy: Copy) -> list[bytes]:
    size = size_of(copy)
    return list(decode_bundle(bundle_of(copy).read_bytes(), size))


def write_log(copy: Copy, entries: list[bytes]) -> None:
    """The log as an operator with its key would make it anew, whole and signed."""
    public = copy.home / "log"
    shutil.rmtree(public / "tile")
    leaves = [leaf_hash(entry) for entry in entries]
    size = len(entries)
    files = {tile.path: data for tile, data in grow(0, leaves, lambda tile: b"")}
    for tile in tiles_at(size):
        if tile.level is None:
            start = tile.index * 256
            files[tile.path] = encode_bundle(entries[start : start + tile.width])
    for name, data in files.items():
        (public / name).parent.mkdir(parents=True, exist_ok=True)
        (public / name).write_bytes(data)
    sign_head(copy, size, Frontier(0, ()).extend(leaves).root())


def sign_head(copy: Copy, size: int, root: bytes, key: Path | None = None) -> None:
    signer = load_log_key(copy.home / "keys" / "log.key" if key is None else key)
    text = format_checkpoint(
        Checkpoint(load_log_key(copy.home / "keys" / "log.key").verifier_key.name, size, root)
    )
    checkpoint_of(copy).write_bytes(format_note(Note(text, (signer.sign(text),))))


def claims_of(copy: Copy) -> tuple[str, str]:
    """Issuer and subject of the statements of a home."""
    config = tomllib.loads((copy.home / "config.toml").read_text())
    return config["issuer"], config["subject"]


def own_entry(copy: Copy, commitment: bytes, key: str = "issuer") -> bytes:
    return sign_statement(load_cose_key(copy.home / "keys" / f"{key}.key"), *claims_of(copy), commitment)


def append(copy: Copy, *entries: bytes) -> None:
    write_log(copy, [*entries_of(copy), *entries])


# Statements


def relink(
    copy: Copy,
    seq: int,
    content: Mapping[str, Any] | None = None,
    link: Mapping[str, Any] | None = None,
    link_salt: bytes | None = None,
    key: str = "issuer",
) -> None:
    """A statement said otherwise: hashed, signed and logged again, in store and log."""
    row = copy.ask(f"SELECT link, link_salt, content_hash, entry_index FROM events WHERE seq = {seq}")[0]
    said = event.decode_link(row[0])
    changed = said._replace(**dict(link or {})).encode()
    salt = row[1] if link_salt is None else link_salt
    digest = row[2]
    statements: list[str | tuple[str, tuple[object, ...]]] = []
    if content is not None:
        old = event.decode_content(copy.ask(f"SELECT content FROM contents WHERE seq = {seq}")[0][0])
        encoded, content_salt = event.encode_content({**old, **content}), os.urandom(32)
        digest = event.content_hash(encoded, content_salt)
        sql = f"UPDATE contents SET content = ?, salt = ? WHERE seq = {seq}"
        statements.append((sql, (encoded, content_salt)))
    commitment = event.commitment(event.link_hash(changed, salt), digest)
    entry = own_entry(copy, commitment, key)
    columns = "commitment = ?, link = ?, link_salt = ?, content_hash = ?, entry = ?"
    statements.append(
        (f"UPDATE events SET {columns} WHERE seq = {seq}", (commitment, changed, salt, digest, entry))
    )
    copy.sql(*statements)
    if row[3] is not None and row[3] < size_of(copy):
        entries = entries_of(copy)
        entries[row[3]] = entry
        write_log(copy, entries)


def seq_where(copy: Copy, condition: str) -> int:
    return int(copy.ask(f"SELECT seq FROM facts WHERE {condition} ORDER BY seq LIMIT 1")[0][0])


def lonely_seq(copy: Copy) -> int:
    """A published fact that no other statement names."""
    return seq_where(
        copy,
        f"seq NOT IN (SELECT target FROM acts) AND seq < {size_of(copy)} AND status = 'active' AND key_tag IS NULL",
    )


def erased_seq(copy: Copy) -> int:
    sql = "SELECT e.seq FROM events e LEFT JOIN contents c ON c.seq = e.seq WHERE c.seq IS NULL"
    return int(copy.ask(sql)[0][0])


def state(
    copy: Copy,
    kind: str,
    acts: Mapping[str, list[int]] | None = None,
    details: Mapping[str, Any] | None = None,
    **content: Any,
) -> int:
    """A statement that the store's own code signs and logs, past every rule of the service. Its number."""
    with open_home(copy.home) as home:
        parts = home.parts()
        commitments = dict(copy.ask("SELECT seq, commitment FROM events"))
        with parts.store.write() as txn:
            tenant = txn.find_tenant(parts.vault.tag_of_name(b"", "tenant", "acme"))
            assert tenant is not None
            now = txn.stamp(parts.clock())
            who = {} if kind in OWN else {"tenant": "acme", "agent": "bot", "client": "one"}
            said = {**who, "recorded_at": now, **content}
            named = {act: [commitments[seq] for seq in seqs] for act, seqs in (acts or {}).items()}
            made = txn.add_event(tenant, kind, said, sign=parts.sign_entry, acts=named, details=details)
        home.publish()
    return made.seq


def tombstone(copy: Copy, targets: list[int], **details: Any) -> int:
    """A tombstone like those that an erasure makes, and nothing else of it."""
    (previous,) = copy.ask("SELECT commitment FROM events WHERE seq = (SELECT tombstone FROM erasures)")[0]
    said = {
        "number": 2,
        "previous": previous,
        "request": os.urandom(16),
        "guard": "keep",
        "basis": "data_subject",
        "count": len(targets),
        **details,
    }
    return state(copy, "erase", {"erases": targets}, said)


# Manifests


def manifest_of(copy: Copy) -> Path:
    return copy.home / "log" / "erasures" / "1.cose"


def rewrite_manifest(copy: Copy, announce: bool = False, without: str = "", **fields: Any) -> None:
    """The manifest with other fields, signed again; with `announce` its digest is logged anew, too."""
    path = manifest_of(copy)
    manifest = decode_manifest(path.read_bytes())
    document = {**manifest.document, **fields}
    document.pop(without, None)
    signer = load_cose_key(copy.home / "keys" / "manifest.key")
    changed = sign_document(signer, manifest, document)
    path.write_bytes(changed)
    copy.sql(("UPDATE erasures SET manifest = ? WHERE number = 1", (changed,)))
    if announce:
        digest = hashlib.sha256(changed).digest()
        copy.sql(("UPDATE meta SET value = ? WHERE name = 'erasure.manifest'", (cbor.encode([1, digest]),)))
        (seq,) = (seq for seq, link in copy.ask("SELECT seq, link FROM events") if b"manifest" in link)
        details = dict(
            event.decode_link(copy.ask(f"SELECT link FROM events WHERE seq = {seq}")[0][0]).details
        )
        relink(copy, seq, link={"details": {**details, "digest": digest}})


def sign_document(signer: Any, manifest: Any, document: Mapping[str, Any]) -> bytes:
    """A manifest of any document, also one that no writer would make."""
    message = decode_sign1(manifest.raw, max_bytes=1 << 26)
    headers = {label: value for label, value in message.headers.items() if label not in (1, 4)}
    return sign1(signer, headers, cbor.encode(dict(document)))


# Witnesses


def witnessed(
    copy: Copy, folder: Path, count: int = 1, at: int | None = None
) -> tuple[list[Cosigner], Trust]:
    """The copy with its checkpoint cosigned, and the trust that asks for all of the witnesses."""
    keys = [make_cosigner_key(folder / f"witness-{n}.key", f"witness.example/{n}") for n in range(count)]
    path = checkpoint_of(copy)
    note = parse_note(path.read_bytes())
    time_of = int(time.time()) + 1 if at is None else at
    lines = [key.cosign(note.text, time_of) for key in keys]
    path.write_bytes(format_note(Note(note.text, (*note.signatures, *lines))))
    witnesses = [WitnessEntry(f"w{n}", key.verifier_key) for n, key in enumerate(keys)]
    group = GroupEntry("all", count, tuple(one.name for one in witnesses))
    policy = make_policy(copy.trust.policy.logs, witnesses, [group], "all")
    (copy.home / "policy.txt").write_text(policy.text)
    return list(keys), make_trust(policy.text, copy.trust.keys, max_checkpoint_age_seconds=3600)


# The store's files


def dirty_free_page(copy: Copy) -> None:
    copy.sql("CREATE TABLE big (x)", "INSERT INTO big VALUES (zeroblob(20000))", "DROP TABLE big")
    store = copy.home / "store.db"
    data = bytearray(store.read_bytes())
    trunk = int.from_bytes(data[32:36], "big")
    leaf = int.from_bytes(data[(trunk - 1) * 4096 + 8 : (trunk - 1) * 4096 + 12], "big")
    data[(leaf - 1) * 4096 + 100] = 65
    store.write_bytes(data)


def leave_frames(copy: Copy, sql: str) -> None:
    """The statement run, its pages and those before them left in the write-ahead log."""
    source = copy.home.parent / "writing"
    shutil.copytree(copy.home, source)
    connection = apsw.Connection(str(source / "store.db"), vfs=vfs.register())
    connection.execute("PRAGMA secure_delete = ON; PRAGMA wal_autocheckpoint = 0").fetchall()
    connection.execute(sql)
    for name in ("store.db", "store.db-wal"):
        shutil.copy(source / name, copy.home / name)
    connection.close()
