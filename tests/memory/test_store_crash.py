"""kill -9 at random moments: every acknowledged fact is there, once, whole, and the store goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memory import event, timeline, wiring
from memory.key_view import timeline_events
from memory.model import SCOPES, Principal
from memory.publish import drain
from tlog.statement import parse_statement

REPOSITORY = Path(__file__).resolve().parents[2]
KILLS = 30
ME = Principal("default", "default", "writer", SCOPES)
WRITER = """
import itertools, json, sys
from memory import wiring
from memory.model import SCOPES, Principal
home = wiring.open_home(sys.argv[1])
memory = home.memory(Principal("default", "default", "writer", SCOPES))
for number in itertools.count():
    name = f"{sys.argv[2]}-{number}"
    answer = memory.remember(f"fact {name}", key=f"k/{number % 7}", value=f"v-{name}")
    sys.stdout.write(json.dumps({"id": answer["id"], "name": name}) + "\\n")
    sys.stdout.flush()
    if number % 5 == 4:
        home.publish()
"""


def write_until_killed(home: Path, run: int, after_seconds: float) -> list[dict[str, str]]:
    """What a writing process had acknowledged when it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(home), str(run)],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    time.sleep(after_seconds)
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.readlines()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    whole = [line for line in lines if line.endswith(b"\n")]
    return [json.loads(line) for line in whole]


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    choose = random.Random(20)
    acknowledged: list[dict[str, str]] = []
    home_path = tmp_path / "home"
    for run in range(KILLS):
        acknowledged += write_until_killed(home_path, run, choose.random() * 0.08)
    assert len(acknowledged) >= KILLS
    with wiring.open_home(home_path) as home:
        store = home.parts().store
        assert store.check() == ()
        home.publish()
        with store.read() as view:
            tenant_id = view.rows("SELECT id FROM tenants")[0][0]
            rows = view.events(tenant_id, 0, 100_000)
            names = [event.decode_content(row.content)["text"] for row in rows if row.content is not None]
            statuses = dict(view.rows("SELECT e.commitment, f.status FROM facts f JOIN events e USING (seq)"))
        # Each acknowledged fact, once; at most one more a run, which was durable but not yet acknowledged.
        ids = [row.id for row in rows]
        assert len(set(ids)) == len(ids)
        assert {one["id"] for one in acknowledged} <= set(ids)
        assert {f"fact {one['name']}" for one in acknowledged} <= set(names)
        assert len(names) == len(set(names)) <= len(acknowledged) + KILLS
        # Numbers are dense, contents open their statements, statuses are the fold of the statements.
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        assert [row.tenant_seq for row in rows] == list(range(1, len(rows) + 1))
        for row in rows:
            assert row.content is not None
            assert row.content_salt is not None
            event.open_content(row.commitment, row.link, row.link_salt, row.content, row.content_salt)
        states = timeline.fold(timeline_events(rows))
        assert statuses == {commitment: state.status for commitment, state in states.items()}
        # The log has every statement once, and nothing else.
        log = home.log()
        assert drain(store, log) == 0
        assert log.head().size == len(rows)
        entries = [log.read_entry(index) for index in range(len(rows))]
        assert [parse_statement(entry).payload_hash for entry in entries] == [row.commitment for row in rows]
        assert [row.entry_index for row in rows] == list(range(len(rows)))
        # And memory goes on.
        answer = home.memory(ME).remember("fact after all that", key="k/0", value="v-after")
        assert answer["outcome"] in ("superseded", "stored")


def test_the_check_sees_a_lost_fact(tmp_path: Path) -> None:
    """The control: take the last writes away, and the comparison above fails."""
    acknowledged = write_until_killed(tmp_path / "home", 0, 0.05)
    with wiring.open_home(tmp_path / "home") as home:
        store = home.parts().store
        with store.write() as txn:
            seq = txn.view.rows("SELECT max(seq) FROM facts")[0][0]
            for table in ("facts", "contents", "events"):
                txn.connection.execute(f"DELETE FROM {table} WHERE seq >= ?", (min(seq, len(acknowledged)),))
        with store.read() as view:
            rows = view.events(1, 0, 100_000)
        assert not {one["id"] for one in acknowledged} <= {row.id for row in rows}
