"""A fourth set of single changes: found unnoticed by changing every column and file of a random home at random."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import tampering as by
from copies import Copy
from tamper_catalogue import Make, Tamper, home_file, of_copy, sql

from memory.wiring import open_home
from tlog import cbor

HOUR = 3_600_000_000


def _begun_before_it_was_asked_for(copy: Copy) -> None:
    """In the hour that the manifest tells of both."""
    noted: Any = cbor.decode(copy.ask("SELECT detail FROM erasures")[0][0], max_bytes=1 << 20)
    hour = noted["started_at"] - noted["started_at"] % HOUR
    told = {**noted, "started_at": hour, "received_at": hour + HOUR - 1}
    copy.sql(("UPDATE erasures SET detail = ?", (cbor.encode(told),)))


def _with_oslo(sql: str) -> Make:
    """A key has moved on twice, and back to the first value, and its rows are changed."""

    def change(copy: Copy) -> None:
        _move_back(copy)
        (oslo,) = copy.ask("SELECT max(source) FROM ledger WHERE source < (SELECT max(source) FROM ledger)")[
            0
        ]
        copy.sql(f"{sql} WHERE source = {oslo}")

    return of_copy(change)


def _move_back(copy: Copy) -> None:
    with open_home(copy.home) as home:
        one = home.memory(by.ONE)
        for city in ("Rome", "Oslo", "Bern"):
            one.remember(f"the venue is {city}", key="venue", value=city)
        refused = one.remember("the venue is Rome", key="venue", value="Rome")
        said = {"key": "venue", "value": "Rome", "reaffirm": refused["reaffirm"], "reason": "moved back"}
        one.remember("the venue is Rome", **said)
        home.publish()
    assert copy.codes() == set()


def _one_more_kept(copy: Copy) -> None:
    """Beside the value that an erasure has kept refused, one that nobody ever said."""
    with open_home(copy.home) as home:
        one = home.memory(by.ONE)
        for gate in ("12", "14"):
            one.remember(f"the gate is {gate}", key="gate", value=gate)
        asked = {"key": "gate", "guard": "keep"}
        one.forget(confirm=one.forget_preview(**asked)["confirm"], **asked)
        home.publish()
    assert copy.codes() == set()
    copy.sql(
        "INSERT INTO ledger SELECT 999, tenant, agent_tag, key_tag, subject_tag, randomblob(32), name_tags,"
        " word_count, canon_version, NULL, NULL, NULL FROM ledger WHERE source IS NULL LIMIT 1"
    )


def _another_key(copy: Copy) -> None:
    """The conflict that was settled stands under the key of one that was never in any."""
    copy.sql(
        "UPDATE conflicts SET key_tag = (SELECT key_tag FROM facts WHERE key_tag IS NOT NULL AND tenant = 1 AND"
        " key_tag NOT IN (SELECT key_tag FROM conflicts) ORDER BY seq LIMIT 1) WHERE closed_by IS NOT NULL"
    )


def _guard_key(copy: Copy) -> None:
    (number,) = copy.ask("SELECT number FROM tenants WHERE id = 1")[0]
    (copy.home / "keys" / "guard" / f"{number.hex()}.key").unlink()


def _served(copy: Copy, folder: Path) -> Any:
    """Behind a URL: a partial bundle of an earlier size that has a text in it."""
    import functools
    import http.server
    import threading

    stale = by.bundle_of(copy).with_name("3")
    stale.write_bytes(b"kumquat")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(copy.home / "log"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return {"log": f"http://127.0.0.1:{server.server_address[1]}"}


def _given(when: str) -> Any:
    now = int(time.time())
    at = {"early": 0, "late": (now - now % 3600 + 7200) * 1_000_000}[when]
    seq = "(SELECT min(seq) FROM facts WHERE tenant = 1)"
    return sql(f"INSERT INTO openings VALUES (9, 1, {seq}, randomblob(16), {at}, 'opening')")


def _backup(made_at: int, expires_at: int) -> Any:
    return sql(f"INSERT INTO backups VALUES (9, randomblob(16), {made_at}, {expires_at}, 3)")


_AHEAD = (int(time.time()) // 3600 + 2) * HOUR

FOURTH = (
    Tamper(
        "a conflict closed by another statement",
        "FACT_ALTERED",
        sql("UPDATE conflicts SET closed_by = closed_by + 1 WHERE closed_by IS NOT NULL"),
    ),
    Tamper(
        "a conflict opened by another statement",
        "FACT_ALTERED",
        sql("UPDATE conflicts SET seq = seq - 1 WHERE closed_by IS NOT NULL"),
    ),
    Tamper(
        "a settled conflict forgotten",
        "FACT_ALTERED",
        sql("DELETE FROM conflicts WHERE closed_by IS NOT NULL"),
    ),
    Tamper("a settled conflict under another key", "FACT_ALTERED", of_copy(_another_key)),
    Tamper(
        "an act twice in the cache",
        "FACT_ALTERED",
        sql("INSERT INTO acts SELECT 999, tenant, target, seq, act FROM acts LIMIT 1"),
    ),
    Tamper("the last value that a key has retired", "RETIREMENT_FORGOTTEN", _with_oslo("DELETE FROM ledger")),
    Tamper(
        "a value refused until long ago",
        "RETIREMENT_FORGOTTEN",
        _with_oslo(f"UPDATE ledger SET until = {HOUR}"),
    ),
    Tamper("more values kept than an erasure kept", "FACT_ALTERED", of_copy(_one_more_kept)),
    Tamper(
        "when a tombstone was made",
        "WRITE_MISSING",
        sql("DELETE FROM contents WHERE seq = (SELECT tombstone FROM erasures)"),
    ),
    Tamper(
        "an erasure begun before it was asked for",
        "ERASURE_STATE_FALSE",
        of_copy(_begun_before_it_was_asked_for),
    ),
    Tamper(
        "a request without its hash",
        "FACT_ALTERED",
        sql("UPDATE idempotency SET body_tag = x'' WHERE answer <> ''"),
    ),
    Tamper("an opening given ahead of now", "TIME_IMPLAUSIBLE", _given("late")),
    Tamper("an opening given before there was anything", "TIME_IMPLAUSIBLE", _given("early")),
    Tamper("a backup made ahead of now", "TIME_IMPLAUSIBLE", _backup(_AHEAD, _AHEAD)),
    Tamper("a backup that ended before it was made", "TIME_IMPLAUSIBLE", _backup(_AHEAD - 3 * HOUR, 0)),
    Tamper(
        "a tenant's key of hashes removed",
        "GUARD_OFF",
        of_copy(_guard_key),
    ),
    Tamper(
        "the settings removed", "POLICY_CHANGED", of_copy(lambda copy: (copy.home / "config.toml").unlink())
    ),
    Tamper("the policy removed", "POLICY_CHANGED", of_copy(lambda copy: (copy.home / "policy.txt").unlink())),
    Tamper(
        "settings that are none",
        "RESIDUE_FILE",
        home_file("config.toml", lambda path: path.write_text("Zqxv Kumquat = likes tea")),
    ),
    Tamper("a stale bundle behind a URL", "ENTRY_ALTERED", _served),
)
