"""An erasure in a database that is looked at: what it takes to be called complete, and what keeps it from that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from erasing import check_of, manifest_of
from postgres_server import Server, name_of, owner, pg_home
from ticking import Clock

from auditor.audit import Places, audit
from auditor.evidence import Asked
from auditor.pg_gone import Erased, RowsLeft, count_rows
from auditor.pg_looked import look_for
from auditor.pg_wal import look_at_wal
from auditor.pg_words import scan_rows
from memory import doctor, pg_vacuum, pg_wal, wiring
from memory.pg_store import PgStore

pytestmark = pytest.mark.postgres


@pytest.fixture
def home(postgres: Server, tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    clock.now = time.time_ns() // 1000 - 60_000_000
    with pg_home(postgres, tmp_path / "home", clock) as opened:
        name = name_of(opened)
        with postgres.connect(name) as connection:
            connection.execute("CREATE EXTENSION pageinspect")
        opened.write_config(replace(opened.config, database_checker=postgres.dsn(name, "postgres")))
        yield opened
    postgres.drop_databases()


def live(home: wiring.Home) -> None:
    me = home.memory(owner())
    me.remember("something else", key="other", value="1", subject="Xaver")
    me.remember("Otto wohnt in Xanten an der Lippe", key="otto", value="Xanten an der Lippe", subject="Otto")
    me.remember("Otto wohnt in Rheinberg", key="otto", value="Rheinberg am Rhein", subject="Otto")


def erase(home: wiring.Home, subject: str = "Otto", **more: Any) -> Any:
    me = home.memory(owner())
    answer = me.forget(subject=subject, confirm=me.forget_preview(subject=subject, **more)["confirm"], **more)
    return manifest_of(home, answer)


def results(manifest: Any) -> dict[str, str]:
    return {one["kind"]: one["result"] for one in manifest.document["systems"]}


def test_an_erasure_that_a_checker_looks_at_is_complete(home: wiring.Home, postgres: Server) -> None:
    live(home)
    with postgres.connect(name_of(home)) as connection:
        connection.execute("ANALYZE")
        (wrapped,) = [
            bytes(row[0])
            for row in connection.execute("SELECT wrapped FROM muniment.content_keys WHERE seq = 2")
        ]
        kept = connection.execute(
            "SELECT count(*) FROM pg_stats WHERE schemaname = 'muniment' AND attname IN ('wrapped', 'salt')"
        ).fetchone()
    assert kept == (0,), "the server samples no keys and no boxes"
    manifest = erase(home)
    assert manifest.document["why"] == []
    assert manifest.state == "closed_complete"
    assert set(results(manifest).values()) == {"verified"}
    assert {"heap", "wal", "replica"} <= results(manifest).keys()
    for name in ("rows", "residue", "free_space"):
        counts = check_of(manifest, name)["counts"]
        assert counts["controls_found"] == counts["controls_planted"] > 0, name
    assert "database_copies" in manifest.document["limits"]
    files = [
        path for part in ("base", "pg_wal") for path in (postgres.folder / part).rglob("*") if path.is_file()
    ]
    with postgres.connect() as connection:
        connection.execute("CHECKPOINT")
    assert not any(wrapped in path.read_bytes() for path in files), "also not in the log of the server"
    found = audit(Places(home.path), Asked(home.trust(), home.clock()), tenant=None, needles=None).outcome
    assert found.findings == ()


def test_a_part_that_is_too_large_is_not_called_rewritten(
    home: wiring.Home, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(home)
    monkeypatch.setattr(pg_vacuum, "MAX_REWRITTEN_BYTES", 0)
    manifest = erase(home)
    assert results(manifest)["heap"] == "not_verified"
    assert "not_rewritten" in manifest.document["why"] and manifest.state == "inconclusive"
    pages = check_of(manifest, "free_space")
    assert pages["result"] == "found", "what a vacuum leaves is seen"
    assert {one["class"] for one in pages["residue"]} >= {"RESIDUE_FREE_SPACE"}

    # Nobody looks: then the word of the vacuum stands alone, and it says what it did not do.
    home.write_config(replace(home.config, database_checker=None))
    alone = erase(home, subject="Xaver")
    assert results(alone)["heap"] == "not_verified"
    assert check_of(alone, "free_space")["result"] == "not_run"

    # Whoever looks again has chosen the time: then no part is too large.
    name = name_of(home)
    home.write_config(replace(home.config, database_checker=postgres.dsn(name, "postgres")))
    again = home.memory(owner()).look_again(manifest.document["request"].hex(), ["Rheinberg am Rhein"])
    assert manifest_of(home, again).document["why"] == []


def test_a_part_that_somebody_keeps_reading_is_not_called_rewritten(
    home: wiring.Home, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(home)
    monkeypatch.setattr(pg_vacuum, "_LOCK_MILLISECONDS", 50)
    store = home.parts().store
    assert isinstance(store, PgStore)
    with postgres.connect(name_of(home)) as reader, reader.transaction():
        reader.execute(
            "LOCK TABLE muniment.vectors_0, muniment.facts_0, muniment.facts_1 IN ACCESS SHARE MODE"
        )
        assert store.clear_pages(0.0, pg_vacuum.TAKEN_FROM, 1).not_rewritten == 1
        reader.execute("LOCK TABLE muniment.facts IN ACCESS EXCLUSIVE MODE")
        left = store.clear_pages(0.0, ("words",), 1)
        assert left.pinned == 1 and not left.is_done
    assert store.clear_pages(0.0, pg_vacuum.TAKEN_FROM, 1).is_done


def test_what_else_keeps_the_log_keeps_an_erasure_open_until_it_is_over(
    home: wiring.Home, postgres: Server, clock: Clock
) -> None:
    live(home)
    with postgres.connect() as connection:
        connection.execute("SELECT pg_create_physical_replication_slot('kept', true)")
        try:
            manifest = erase(home)
        finally:
            connection.execute("SELECT pg_drop_replication_slot('kept')")
    lines = {one["kind"]: one for one in manifest.document["systems"]}
    assert [lines[kind]["result"] for kind in ("wal", "replica")] == ["not_verified"] * 2
    assert manifest.document["why"] == ["copies_remain"] and manifest.state == "inconclusive"

    # An archive that the operator declares is waited for, and no longer.
    home.write_config(replace(home.config, database_copies="2d"))
    reference = manifest.document["request"].hex()

    def again() -> Any:
        me = home.memory(owner())
        return manifest_of(home, me.look_again(reference, ["Rheinberg am Rhein"]))

    waiting = again()
    assert waiting.document["why"] == ["backups_remain"] and waiting.state == "awaiting_backups"
    clock.now += 3 * 86_400_000_000
    over = again()
    assert over.state == "closed_complete"
    assert "copies_declared" in over.document["limits"]


def test_who_may_not_look_verifies_nothing(home: wiring.Home) -> None:
    live(home)
    home.write_config(replace(home.config, database_checker=home.config.database))
    manifest = erase(home)
    assert manifest.state == "inconclusive"
    assert manifest.document["why"] == ["copies_remain", "scan_not_available"]
    assert check_of(manifest, "free_space")["result"] == "not_run"
    assert check_of(manifest, "rows")["result"] == "clean", "that the rows are gone is looked at by any role"


def test_what_came_back_is_seen_in_rows_and_pages(home: wiring.Home, postgres: Server) -> None:
    live(home)
    manifest = erase(home)
    dsn = home.config.database or ""
    erased = Erased(1, (2, 3), ledger=(1,), texts=(b"wrapped once",))
    assert count_rows(dsn, erased) == RowsLeft(0, 10, 10)
    rows = (
        "words (tenant, term, seq, places) VALUES (1, 7, 3, 1)",
        "subject_keys (tenant, subject, wrapped) VALUES (1, 'x', 'wrapped once')",
        "grants (tenant, seq, owner_tag, reader_tag) VALUES (1, 2, 'x', 'x')",
    )
    with postgres.connect(name_of(home)) as connection:
        for row in rows:
            connection.execute(f"INSERT INTO muniment.{row}")
        assert count_rows(dsn, erased).remaining == len(rows)
        looked = look_for(home.config.database_checker or "", dsn, erased, None)
        assert looked.found == looked.planted
        # Their entries in indexes are seen as soon as they are there; the rows, once they are dead.
        assert looked.residue == {"RESIDUE_INDEX": 2, "RESIDUE_FREE_SPACE": 1}
        connection.execute("DELETE FROM muniment.words WHERE term = 7")
        assert look_for(home.config.database_checker or "", dsn, erased, None).residue["RESIDUE_ROW"] == 1
    assert manifest.state == "closed_complete"


@pytest.mark.parametrize(
    "copy",
    [
        "CREATE TABLE public.spare AS SELECT * FROM muniment.content_keys; DELETE FROM public.spare",
        "INSERT INTO muniment.meta SELECT 'spare ' || seq, wrapped FROM muniment.content_keys",
        "SELECT lo_from_bytea(0, salt) FROM muniment.content_boxes",
    ],
)
def test_a_copy_that_somebody_made_beside_the_store_is_found(
    home: wiring.Home, postgres: Server, copy: str
) -> None:
    live(home)
    with postgres.connect(name_of(home)) as connection:
        connection.execute(copy)
    manifest = erase(home)
    pages = check_of(manifest, "free_space")
    assert pages["residue"] == [{"class": "RESIDUE_ROW", "count": 2}], "of each of both records"
    assert manifest.document["why"] == ["residue_found"] and manifest.state == "inconclusive"


def test_a_word_in_the_clear_in_a_row_is_found(home: wiring.Home, postgres: Server) -> None:
    live(home)
    dsn = home.config.database or ""
    text = "Rheinberg am Rhein"
    me = home.memory(owner())
    me.remember("a thing about Ida", key="ida", value="Wesel an der Lippe", subject="Ida")

    def hits(words: str) -> int:
        return sum(hit.count for hit in scan_rows(dsn, [words], canary="discarded").hits)

    assert hits(text) == 0
    with postgres.connect(name_of(home)) as connection:
        connection.execute(
            "INSERT INTO muniment.meta VALUES ('note', %s)", (b"\x72" + text.upper().encode(),)
        )
    assert hits(text) == 1
    manifest = erase(home)
    assert check_of(manifest, "residue")["result"] == "found" and manifest.state == "inconclusive"


def test_the_log_is_looked_at_page_by_page(postgres: Server) -> None:
    with postgres.connect() as connection:
        before = look_at_wal(connection, 1 << 62)
        assert 0 < before.older < before.pages or before.older == before.pages
        since = pg_wal.empty_log(postgres.dsn("postgres", "postgres"))
        assert look_at_wal(connection, since).older == 0
        connection.execute("SELECT pg_logical_emit_message(false, 'x', 'y'), pg_switch_wal()")
        (later,) = connection.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
        assert look_at_wal(connection, int(later)).older > 0, "of a later place what was written since is old"


def test_what_others_put_into_the_schema_does_not_run_as_the_checker(
    home: wiring.Home, postgres: Server
) -> None:
    live(home)
    with postgres.connect(name_of(home), "muniment") as connection:
        connection.execute(
            "CREATE TABLE muniment.ran (who text); GRANT SELECT ON muniment.ran TO muniment_whole"
        )
        for name, takes, gives in (
            ("mod", "numeric, bigint", "numeric"),
            ("pg_size_bytes", "text", "bigint"),
            ("get_byte", "bytea, integer", "integer"),
            ("length", "bytea", "integer"),
        ):
            body = f"'INSERT INTO muniment.ran VALUES (current_user); SELECT 1::{gives}'"
            connection.execute(
                f"CREATE FUNCTION muniment.{name}({takes}) RETURNS {gives} LANGUAGE sql AS {body}"
            )
        assert erase(home).state == "closed_complete"
        doctor.examine(home.path)
        assert connection.execute("SELECT who FROM muniment.ran").fetchall() == []
