"""The rows of a witness's database as values, and the statements that read and write a log's.

The safety of a witness is the one UPDATE in `advance_row`.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import apsw

from tlog.note import VerifierKey, parse_vkey
from witness.decide import KnownHead
from witness.records import Advance, Cosigned, LogRecord, Terms
from witness.wire import format_cosignatures, origin_digest, parse_cosignatures

LOGS = """
SELECT origin, size, root, time, note, cosignatures,
    (SELECT json_group_array(vkey) FROM log_key WHERE log_key.origin = log.origin), requests_per_day, contact
FROM log LEFT JOIN log_terms USING (origin)"""
ONE_LOG = f"{LOGS} WHERE origin = ?"

verifier_key = lru_cache(maxsize=4096)(parse_vkey)


def record_of(row: tuple[Any, ...]) -> LogRecord:
    origin, size, root, time, note, cosignatures, vkeys, requests_per_day, contact = row
    cosigned = None
    if size is not None:
        cosigned = Cosigned(KnownHead(size, root), time, note, parse_cosignatures(cosignatures))
    terms = None if requests_per_day is None else Terms(requests_per_day, contact)
    return LogRecord(origin, verifier_keys(vkeys), cosigned, terms)


@lru_cache(maxsize=4096)
def verifier_keys(vkeys: str) -> tuple[VerifierKey, ...]:
    return tuple(map(verifier_key, json.loads(vkeys)))


def advance_row(database: apsw.Connection, step: Advance) -> bool:
    last = step.last
    expected = (last.head.size, last.head.root) if last else (None, None)
    database.execute(
        "UPDATE log SET size = ?, root = ?, time = ?, note = ?, cosignatures = ?"
        " WHERE origin = ? AND size IS ? AND root IS ? AND coalesce(time <= ?, TRUE)",
        (*values_of(step.new), step.origin, *expected, step.new.time),
    )
    return database.changes() == 1


def values_of(new: Cosigned) -> tuple[int, bytes, int, bytes, bytes]:
    """The columns of a head, in their order."""
    return (new.head.size, new.head.root, new.time, new.note, format_cosignatures(new.cosignatures))


def keys_of(database: apsw.Connection, origin: str) -> tuple[VerifierKey, ...]:
    rows = database.execute("SELECT vkey FROM log_key WHERE origin = ?", (origin,)).fetchall()
    return tuple(verifier_key(str(vkey)) for (vkey,) in rows)


def insert_log(database: apsw.Connection, origin: str, key: VerifierKey, terms: Terms | None) -> bool:
    database.execute(
        "INSERT INTO log (origin, digest) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (origin, origin_digest(origin)),
    )
    database.execute("INSERT INTO log_key VALUES (?, ?) ON CONFLICT DO NOTHING", (origin, key.vkey))
    added = database.changes() == 1
    if terms is not None:
        database.execute(
            "INSERT OR REPLACE INTO log_terms VALUES (?, ?, ?)",
            (origin, terms.requests_per_day, terms.contact),
        )
    return added
