"""What has to be true after a storm: of each write, of store and log, of every head that was public, and of audits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import seaweed
from home_nodes import dsn

from memory import wiring
from memory.config import format_config, parse_config

if TYPE_CHECKING:
    from storm import Storm

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@dataclass
class Written:
    """One write, and what it was answered with in the end."""

    key: str
    value: str
    status: int = 0
    answer: dict[str, Any] = field(default_factory=dict)


def require_right(storm: Storm, folder: Path, written: list[Written], seen: list[bytes]) -> None:
    """Fails if a write that was acknowledged is missing or there twice, or if store, log and heads do not agree."""
    from tlog.checkpoint import parse_checkpoint
    from tlog.note import parse_note

    # A node that nothing ever happened to: past the proxies.
    home_folder = folder / "homes" / "0"
    settings = parse_config((home_folder / "config.toml").read_bytes())
    direct = replace(settings, database=dsn([storm.primary.port]))
    (home_folder / "config.toml").write_bytes(format_config(direct))
    with wiring.open_existing_home(home_folder) as home:
        log = home.log()
        size = log.head().size
        entries = list(log.read_entries(0, size))
        roots = {n: log.root_at(n) for n in {parse_checkpoint(parse_note(one).text).size for one in seen}}
    heads = [parse_checkpoint(parse_note(one).text) for one in seen]
    assert [head.size for head in heads] == sorted(head.size for head in heads), (
        "the public saw an older head"
    )
    assert all(head.root == roots[head.size] for head in heads), "two heads of two histories were public"
    assert heads[-1].size == size
    with storm.primary.connect("memory") as connection:
        rows = connection.execute(
            "SELECT entry_index, entry FROM muniment.events ORDER BY entry_index NULLS LAST"
        ).fetchall()
    assert [index for index, _ in rows] == list(range(size)), "store and log are not of one length"
    assert [bytes(entry) for _, entry in rows] == entries, "a statement stands elsewhere in the log"
    # Each write made one statement, whether it was stored, held or refused, however often it was sent; what agrees
    # with something makes none.
    made = [one for one in written if one.answer.get("outcome") != "agreed"]
    assert len(rows) == len(made), f"{len(rows)} statements of {len(made)} writes"
    require_acknowledged(home_folder, written)
    # All of it: the store in the database and the log in the bucket; and the log as the public has it.
    copy = copy_of(storm.bucket, folder / "copy")
    trust = home_folder / "trust.toml"
    require_clean("--home", str(home_folder), "--trust", str(trust), "--state", str(folder / "state"))
    require_clean("--log", str(copy), "--trust", str(trust))
    require_clean("--log", f"s3://{seaweed.BUCKET}/log", "--trust", str(trust))


def require_clean(*arguments: str) -> None:
    """Fails unless an audit, in a process of its own, finds nothing."""
    audit = subprocess.run(
        [sys.executable, "-m", "memory.cli", "audit", "--json", *arguments],
        capture_output=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert audit.returncode == 0, (arguments[0], audit.stdout[-3000:], audit.stderr[-2000:])


def require_acknowledged(home: Path, written: list[Written]) -> None:
    """Fails unless each write that was stored stands once, none stands twice, and nothing stands that nobody wrote."""
    from memory.principal import agent_from_environment

    stands: Counter[tuple[str, str]] = Counter()
    with wiring.open_existing_home(home) as opened:
        memory = opened.memory(agent_from_environment({"MUNIMENT_TENANT": "storm"}))
        for key in {one.key for one in written}:
            stands.update((key, fact["value"]) for fact in memory.history(key)["facts"])
    for one in written:
        assert one.status in (200, 201, 202, 409), (one.status, one.answer.get("code"))
        times = stands.pop((one.key, one.value), 0)
        assert times == 1 or (times == 0 and one.status != 201), (
            f"a write of status {one.status}: {times} times"
        )
    assert not stands


def copy_of(bucket: Any, folder: Path) -> Path:
    """The log's public files, as a CDN would have them."""
    for name in bucket.names(""):
        stood = bucket.get(name)
        if stood is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(stood.data)
    return folder
