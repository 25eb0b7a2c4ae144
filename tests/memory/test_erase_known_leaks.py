"""What deletions of other stores are known to have left, tried on ours; each test names the reports.

Others of these reports are tried elsewhere: vectors whose bit alone is cleared and graphs beside a store
(chroma 7662, sqlite-vec 54 and 178) in tests/auditor/test_vectors_left.py; paths that forget part of the recipe (mdk
756) in test_erase_grid.py; derived records (graphiti 1491) and systems that are not to be reached (fides 2048) in
test_erase.py and test_erase_systems.py; carving (ollama 16543) in tests/interop/peer_residue.py.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from memory import wiring
from memory.principal import make_principal, with_all_scopes
from tlog.errors import Error

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, check_of, files_of, forget, found_in, manifest_of, write

DANA, FOX = "Dana Scully", "Fox Mulder"
ACME = with_all_scopes(make_principal("acme-of-quimby", "default", "cli"))
REPOSITORY = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Aftermath:
    """A home in which 26 of 31 documents of one person were erased after all else had happened to them."""

    home: wiring.Home
    gone: frozenset[str]
    ids: tuple[str, ...]
    answer: Any
    rows_before: dict[str, int]
    asked_before: Any


def counted(home: wiring.Home) -> dict[str, int]:
    """Rows of each table that the schema has, by a connection of its own."""
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    with home.parts().store.read_whole() as view:
        return {name: view.rows(f'SELECT count(*) FROM "{name}"')[0][0] for (name,) in view.rows(tables)}


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    chance, folder = random.Random(31), tmp_path_factory.mktemp("aftermath")
    words = ["".join(chance.choices("bcdfghjklmnp", k=12)) for _ in range(31 + 26)]
    with wiring.open_home(folder / "home") as home:
        ids = [
            write(home, f"Document {word} of a quarterly.", key=f"doc/{word}", value=word, subject=DANA)["id"]
            for word in words[:31]
        ]
        for old, word in zip(words[:26], words[31:], strict=True):
            # Each is corrected once: the value before stays in its history until it is erased.
            ids.append(
                write(home, f"Now {word} of a quarterly.", key=f"doc/{old}", value=word, subject=DANA)["id"]
            )
        long = "".join(f"line {number} {words[5]}{chance.randrange(10**6)}\n" for number in range(4200))
        ids.append(write(home, long, key="doc/log", value="see text", subject=DANA)["id"])
        write(home, f"{FOX} has the basement.", key="fox/office", value="basement", subject=FOX)
        memory = home.memory(ME)
        asked = memory.recall("quarterly", limit=100)
        before = counted(home)
        taken = [*ids[:26], *ids[31:]]
        answer = forget(home, id=taken, guard="erase")
        yield Aftermath(home, frozenset({*words[:26], *words[31:]}), tuple(taken), answer, before, asked)


def test_no_document_that_was_deleted_is_in_any_file(aftermath: Aftermath) -> None:
    """chroma-core/chroma 3793: of 31 documents 26 were deleted, and their texts stayed in a queue of the store."""
    assert aftermath.answer["state"] == "closed_complete"
    assert len(aftermath.gone) == 52 and found_in(aftermath.home, *aftermath.gone) == set()


def test_queues_hold_nothing_of_it_however_little_is_written_since(aftermath: Aftermath) -> None:
    """chroma-core/chroma 7659: a queue was purged only once enough was written after the deletion.

    Nothing has been published yet: all of it waits in the outbox and in what a publication stages.
    """
    with aftermath.home.parts().store.read_whole() as view:
        waiting = view.rows("SELECT entry FROM events WHERE entry_index IS NULL")
    assert len(waiting) >= len(aftermath.ids)
    write(aftermath.home, "One more.")
    aftermath.home.publish()
    assert found_in(aftermath.home, *aftermath.gone) == set()


def test_no_search_serves_it_in_this_process_or_another(aftermath: Aftermath) -> None:
    """mem0ai/mem0 3695, CaviraOSS/LongMemory 186: a search, or a cache of one, still served what was deleted."""
    assert {fact["id"] for fact in aftermath.asked_before["facts"]} & set(aftermath.ids)
    command = [sys.executable, "-m", "memory.cli", "recall", "quarterly", "--limit", "100", "--json"]
    done = subprocess.run(
        [*command, "--home", str(aftermath.home.path)], cwd=REPOSITORY, capture_output=True, check=True
    )
    here = aftermath.home.memory(ME).recall("quarterly", limit=100)
    for answer in (here, json.loads(done.stdout)):
        assert len(answer["facts"]) == 5
        assert not {fact["id"] for fact in answer["facts"]} & set(aftermath.ids)
    for word in sorted(aftermath.gone)[:5]:
        assert aftermath.home.memory(ME).history(f"doc/{word}")["facts"] == []


def test_no_table_has_it_whichever_tables_there_are(aftermath: Aftermath) -> None:
    """mem0ai/mem0 6525, FoxRick/Collie 117: a journal that no list of tables named kept every value."""
    connection = apsw.Connection(str(aftermath.home.path / "store.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.execute("CREATE VIRTUAL TABLE temp.every USING fts5vocab('main', 'search', 'row')")
        names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        tables = [*(name for (name,) in connection.execute(names)), "every"]
        assert len(tables) > 12
        cells = [
            repr(row).lower() for name in tables for row in connection.execute(f'SELECT * FROM "{name}"')
        ]
    finally:
        connection.close()
    whole = "\n".join(cells)
    assert "basement" in whole
    assert {word for word in aftermath.gone if word in whole} == set()


def test_a_long_chat_leaves_no_line_of_it(aftermath: Aftermath) -> None:
    """ollama/ollama 16543: some 127 KB of chats could be read from free pages."""
    runs = re.compile(rb"line \d+ [a-z]{12}\d+")
    assert not [data for data in files_of(aftermath.home.path).values() if runs.search(data)]


def test_a_manifest_counts_what_somebody_else_counts(aftermath: Aftermath) -> None:
    """major7apps/pensyve 264: a report told of deleted edges, and none was."""
    after = counted(aftermath.home)
    document = manifest_of(aftermath.home, aftermath.answer).document
    # The tombstone and the manifest, and what was written since, have contents of their own.
    with aftermath.home.parts().store.read_whole() as view:
        new = view.rows("SELECT count(*) FROM contents WHERE seq > ?", aftermath.rows_before["events"])[0][0]
        new_facts = view.rows("SELECT count(*) FROM facts WHERE seq > ?", aftermath.rows_before["events"])[0][
            0
        ]
    assert aftermath.rows_before["contents"] - (after["contents"] - new) == document["erased"]["contents"]
    gone = aftermath.rows_before["facts"] - (after["facts"] - new_facts)
    assert gone == document["erased"]["facts"] == len(aftermath.ids)
    assert document["scope"]["count"] == len(aftermath.ids)
    assert check_of(manifest_of(aftermath.home, aftermath.answer), "structure")["counts"]["remaining"] == 0


def test_others_are_as_they_were(aftermath: Aftermath) -> None:
    """mem0ai/mem0 3746: to delete everything of one user deleted everything of everybody."""
    memory = aftermath.home.memory(ME)
    assert memory.get("fox/office")["current"] == "basement"
    assert len(memory.recall("document quarterly", limit=100)["facts"]) == 5


def test_a_tenant_that_is_dropped_leaves_no_file_of_its_own(tmp_path: Path) -> None:
    """chroma-core/chroma 5259: a collection was dropped, and the folder of its index stayed."""
    with wiring.open_home(tmp_path / "home") as home:
        write(home, "A first fact.")
        home.publish()
        before = set(files_of(home.path))
        write(home, f"{DANA} is in Elm Street.", ACME, key="dana/address", value="Elm Street")
        assert {name for name in set(files_of(home.path)) - before if name.startswith("keys/guard/")}
        assert forget(home, ACME, tenant=True)["state"] == "closed_complete"
        home.publish()
        new = {
            name for name in set(files_of(home.path)) - before if not name.startswith(("log/", "log-state/"))
        }
        assert new <= {"store.db-wal", "store.db-shm", ".locks/erase"}
        assert found_in(home, "acme-of-quimby", "Elm Street", DANA) == set()


def test_a_transcript_of_a_client_is_a_system_that_keeps_the_request_open(tmp_path: Path) -> None:
    """anthropics/claude-code 93780 and 89547: a session was deleted, and its transcript stayed."""
    transcript = tmp_path / "session.jsonl"
    transcript.write_text(json.dumps({"said": f"{DANA} is in Elm Street."}) + "\n")
    answers = {
        "adapter": "{'before': 1, 'erased': 1}",  # it says that it has erased, and has not
        "counter": "{'count': left} if sys.argv[1] == 'count' else {'found': left}",
    }
    for name, answer in answers.items():
        program = tmp_path / name
        program.write_text(
            f"#!{sys.executable}\nimport json, sys\njson.load(sys.stdin)\n"
            f"left = open({str(transcript)!r}).read().count('Elm Street')\nprint(json.dumps({answer}))\n"
        )
        program.chmod(0o700)
    with wiring.open_home(tmp_path / "home") as home:
        home.write_config(
            replace(home.config, systems=(f"transcript {tmp_path}/adapter | {tmp_path}/counter",))
        )
        write(home, f"{DANA} is in Elm Street.", key="dana/address", value="Elm Street", subject=DANA)
        erased = forget(home, subject=DANA)
        assert erased["state"] == "inconclusive"
        (system,) = [
            one for one in manifest_of(home, erased).document["systems"] if one["kind"] == "transcript"
        ]
        assert system["result"] == "failed"


def _say(path: str, pipe: Any) -> None:
    import logging
    from contextlib import redirect_stderr, redirect_stdout
    from io import StringIO

    said = StringIO()
    logging.basicConfig(level=logging.DEBUG, stream=said, force=True)
    with redirect_stderr(said), redirect_stdout(said), wiring.open_home(path) as home:
        write(home, f"{DANA} is in Elm Street.", key="dana/address", value="Elm Street", subject=DANA)
        home.publish()
        forget(home, subject=DANA)
        for call in (lambda: forget(home, subject=DANA), lambda: home.memory(ME).retract("Elm Street")):
            try:
                call()
            except Error as error:
                logging.getLogger("caller").error("failed: %s", error)
    pipe.send(said.getvalue())


def test_nothing_that_is_logged_has_any_of_it(tmp_path: Path) -> None:
    """QwenLM/qwen-code 11762: a log that all sessions share kept the prompts of one that was deleted."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_say, args=(str(tmp_path / "home"), theirs))
    process.start()
    said = ours.recv()
    process.join()
    assert process.exitcode == 0 and said.count("failed: ") == 2
    assert not [word for word in (DANA, "Elm Street", "dana/address", "Scully") if word in said]


def test_words_of_it_are_no_longer_in_the_index(aftermath: Aftermath) -> None:
    """MemTensor/MemOS 2331, qdrant/qdrant 2550: the row was gone, and what is searched stayed until much later."""
    with aftermath.home.parts().store.read_whole() as view:
        view_rows = view.rows("SELECT name FROM sqlite_schema WHERE name = 'search'")
    assert view_rows == [("search",)]
    for word in sorted(aftermath.gone):
        assert aftermath.home.memory(ME).recall(word)["facts"] == []
