"""A backup, erasures, a restore: the store serves at once, an audit finds nothing, and what was erased stays so."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor import home_contents
from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import backup, restore, wiring
from memory.principal import make_principal, with_all_scopes
from tlog.errors import RefusedError, VerificationError

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, Clock, forget, found_in, is_closed, lose_store, manifest_of, write

DANA, FOX = "Dana Scully", "Fox Mulder"
DAY = 86_400_000_000
DESK = with_all_scopes(make_principal("default", "default", "desk"))
ACME = with_all_scopes(make_principal("acme", "default", "cli"))


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time_ns() // 1000)


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home", clock=clock) as opened:
        write(opened, "Dana is in Elm Street.", key="dana/address", value="Elm Street", subject=DANA)
        write(opened, "Fox has the basement.", key="fox/office", value="basement", subject=FOX)
        write(opened, "Dana has a dog, Queequeg.", key="dana/dog", value="Queequeg", subject=DANA)
        opened.publish()
        yield opened


def move(home: wiring.Home, street: str = "Oak Lane", **more: Any) -> Any:
    text = f"Dana is in {street}."
    return write(home, text, key="dana/address", value=street, subject=DANA, **more)


def back_up(home: wiring.Home) -> Path:
    return Path(backup.backup(home, home.path.parent, 90 * DAY)["file"])


def lose_and_restore(home: wiring.Home, file: Path, on_missing: Any = restore.refuse) -> Any:
    lose_store(home)
    return restore.restore(home, file, on_missing)


def findings(home: wiring.Home) -> list[Any]:
    home.publish()
    home.close()
    made = audit(Places(home.path), Asked(home.trust(), home.clock() + 10_000_000), tenant=None, needles=None)
    return [(one.code, one.where, one.what) for one in made.outcome.findings]


# Erasures of every kind after the backup, in several orders


def by_subject(home: wiring.Home) -> None:
    forget(home, subject=DANA)


def partly_held(home: wiring.Home) -> None:
    assert is_closed(home, forget(home, subject=FOX), "closed_partial")


def what_came_later(home: wiring.Home) -> None:
    made = write(home, "Fox is at the Gunmen's.", key="fox/place", value="Gunmen", subject=FOX)
    forget(home, id=made["id"])


def of_another_tenant(home: wiring.Home) -> None:
    write(home, "Acme has a new tenant.", ACME)
    assert is_closed(home, forget(home, ACME, tenant=True))


ORDERS: tuple[tuple[Callable[[wiring.Home], None], ...], ...] = (
    (by_subject,),
    (partly_held, by_subject),
    (what_came_later, partly_held, what_came_later),
    (by_subject, of_another_tenant, what_came_later),
)


@pytest.mark.parametrize(
    ("order", "published"),
    [(ORDERS[0], True), (ORDERS[1], False), (ORDERS[2], True), (ORDERS[3], False)],
)
def test_nothing_is_missing_after_erasures(
    home: wiring.Home, order: tuple[Callable[[wiring.Home], None], ...], published: bool
) -> None:
    kept = write(home, "Fox is on leave.", key="fox/leave", value="yes", subject=FOX)
    home.memory(ME).hold(authority="Court", review_by="2100-01-01T00:00:00Z", id=kept["id"])
    file = back_up(home)
    for erase in order:
        erase(home)
        if published:
            home.publish()
    with home.parts().store.read_whole() as view:
        before = view.rows("SELECT seq, tenant_seq, commitment, link, link_salt, content_hash FROM events")
        acts = view.rows("SELECT tenant, target, seq, act FROM acts ORDER BY 3, 2, 4")
    done = lose_and_restore(home, file)
    assert done["lost"] == 0
    with home.parts().store.read_whole() as view:
        # Statement by statement what it was, however much of it the backup did not have.
        columns = "seq, tenant_seq, commitment, link, link_salt, content_hash"
        assert view.rows(f"SELECT {columns} FROM events ORDER BY seq") == before
        assert view.rows("SELECT tenant, target, seq, act FROM acts ORDER BY 3, 2, 4") == acts
    assert findings(home) == []
    gone = {"Gunmen", "new tenant"} | ({"Queequeg", "Elm Street"} if by_subject in order else set())
    assert found_in(home, *gone) == set()


def test_retention_after_a_backup_is_done_again(home: wiring.Home) -> None:
    move(home)
    file = back_up(home)
    assert home.memory(ME).retention("0s", apply=True)["removed"] == 1
    assert lose_and_restore(home, file)["lost"] == 0
    assert found_in(home, "Elm Street") == set()
    assert home.memory(ME).get("dana/address")["current"] == "Oak Lane"
    assert move(home, "Elm Street")["reason"] == "echo"
    assert findings(home) == []


# What was written after the backup and erased since


def test_no_older_value_comes_back_with_a_restore(home: wiring.Home) -> None:
    file = back_up(home)
    moved = move(home)
    forget(home, id=moved["id"])
    before = home.memory(ME).get("dana/address")
    assert before["current"] is None
    lose_and_restore(home, file)
    after = home.memory(ME).get("dana/address")
    assert after["current"] is None and after["active"] == []
    assert home.memory(ME).recall("Elm Street")["facts"] == []
    # It was retired, and stays refused.
    assert move(home, "Elm Street")["reason"] == "echo"
    assert findings(home) == []


@pytest.mark.parametrize("guard", ["keep", "erase", "expire=2099-01-01T00:00:00Z"])
def test_what_a_request_kept_stays_refused_though_it_was_retired_since(home: wiring.Home, guard: str) -> None:
    file = back_up(home)
    move(home)
    forget(home, key="dana/address", guard=guard)
    with home.parts().store.read_whole() as view:
        before = view.rows("SELECT key_tag, value_tag, source, expires_at FROM ledger")
    lose_and_restore(home, file)
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT key_tag, value_tag, source, expires_at FROM ledger") == before
    assert len(before) == (0 if guard == "erase" else 1)
    assert findings(home) == []
    assert move(home, "Elm Street")["outcome"] == ("stored" if guard == "erase" else "refused")


def test_hashes_that_a_later_request_erased_are_not_kept_after_all(home: wiring.Home) -> None:
    file = back_up(home)
    move(home)
    forget(home, key="dana/address", guard="keep")
    forget(home, subject=DANA, guard="erase")
    lose_and_restore(home, file)
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM ledger") == [(0,)]
    assert findings(home) == []


def test_a_conflict_that_came_later_is_open_again(home: wiring.Home) -> None:
    file = back_up(home)
    other = home.memory(DESK).remember("She is in Oak Lane.", key="dana/address", value="Oak Lane")
    assert other["outcome"] == "conflict"
    forget(home, id=other["id"])
    before = home.memory(ME).get("dana/address")
    lose_and_restore(home, file)
    after = home.memory(ME).get("dana/address")
    assert [one["status"] for one in after["active"]] == [one["status"] for one in before["active"]]
    assert after["conflict"] == before["conflict"]
    assert findings(home) == []


# What is lost all the same


def test_writes_that_are_lost_have_to_be_declared_and_no_others(home: wiring.Home) -> None:
    file = back_up(home)
    write(home, "Lost in the log.")
    forget(home, key="dana/dog")
    home.publish()
    write(home, "Lost before it came to the log.")
    forget(home, key="dana/address")
    with pytest.raises(RefusedError) as caught:
        lose_and_restore(home, file)
    assert (caught.value.code, caught.value.fields["missing"]) == ("statements_missing", 2)
    assert lose_and_restore(home, file, restore.declare)["lost"] == 2
    with home.parts().store.read_whole() as view:
        (seq,) = view.one("SELECT max(seq) FROM events") or (0,)
        link = view.links([seq])[seq]
    assert (link.kind, link.details["count"], len(link.details["statements"])) == ("lost", 2, 1)
    write(home, "What comes next.")
    found = findings(home)
    assert [code for code, _, _ in found] == ["WRITE_LOST"]
    assert found_in(home, "Queequeg", "Elm Street") == set()


def test_a_second_loss_is_restored_from_the_same_backup(home: wiring.Home) -> None:
    file = back_up(home)
    forget(home, key="dana/dog")
    lose_and_restore(home, file)
    forget(home, key="dana/address")
    home.publish()
    assert lose_and_restore(home, file)["lost"] == 0
    assert findings(home) == []
    # The backups that it came from are known, and told of.
    answer = forget(home, subject=FOX)
    assert is_closed(home, answer)
    assert [one["backup"].hex() for one in manifest_of(home, answer).document["backups"]] == [file.stem]
    assert findings(home) == []


def test_newer_backups_are_known_to_a_store_that_an_older_one_was_restored_to(home: wiring.Home) -> None:
    """What is erased then was in them, too, and a manifest that does not say so would be found to lack it."""
    first, second = back_up(home), back_up(home)
    lose_and_restore(home, first)
    told = manifest_of(home, forget(home, subject=DANA)).document["backups"]
    assert [(one["backup"].hex(), one["count"]) for one in told] == [(first.stem, 2), (second.stem, 2)]
    lose_and_restore(home, second)
    assert found_in(home, DANA, FOX) == (set() if home.config.database else {FOX})
    assert home.memory(ME).get("fox/office")["current"] == "basement"
    assert findings(home) == []
    third = back_up(home)
    forget(home, subject=FOX)
    # Their keys went, and what was listed of backups is there.
    lose_and_restore(home, third)
    assert findings(home) == []


def test_a_statement_about_the_store_is_not_lost(home: wiring.Home, clock: Clock) -> None:
    file = back_up(home)
    clock.now += 2 * DAY
    moved = move(home)
    forget(home, id=moved["id"])
    home.publish()
    clock.now += 2 * DAY
    forget(home, key="dana/dog")
    home.publish()
    with home.parts().store.read_whole() as view:
        kinds = [link.kind for link in view.links(range(1, 20)).values()]
    assert kinds.count("state") == 2
    assert lose_and_restore(home, file)["lost"] == 0
    clock.now += 2 * DAY
    assert findings(home) == []


def test_recipients_of_what_was_erased_are_not_forgotten(home: wiring.Home) -> None:
    file = back_up(home)
    (fact,) = home.memory(ME).get("dana/dog")["active"]
    home.memory(ME).give_opening(fact["id"])
    answer = forget(home, key="dana/dog")
    assert len(manifest_of(home, answer).document["recipients"]) == 1
    lose_and_restore(home, file)
    assert findings(home) == []


# What is sealed


def test_what_is_sealed_says_nothing_without_the_keys(home: wiring.Home) -> None:
    """Nor does its name tell which entry of the log it is about."""
    back_up(home)
    moved = move(home)
    forget(home, id=moved["id"], guard="keep")
    (path,) = (home.path / "log" / "sealed").iterdir()
    data = path.read_bytes()
    with home.parts().store.read_whole() as view:
        events = view.rows("SELECT commitment, link, link_salt, content_hash FROM events")
    assert not any(part in data or part.hex() in path.name for row in events for part in row)


def test_a_sealed_file_that_was_changed_is_refused(home: wiring.Home) -> None:
    file = back_up(home)
    forget(home, id=move(home)["id"])
    (path,) = (home.path / "log" / "sealed").iterdir()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(VerificationError):
        lose_and_restore(home, file)


def test_without_what_is_sealed_the_statement_is_lost(home: wiring.Home) -> None:
    file = back_up(home)
    forget(home, id=move(home)["id"])
    home.publish()
    (path,) = (home.path / "log" / "sealed").iterdir()
    path.unlink()
    with pytest.raises(RefusedError):
        lose_and_restore(home, file)
    lose_and_restore(home, file, restore.declare)
    assert [code for code, _, _ in findings(home)] == ["WRITE_LOST"]


def test_a_text_in_the_place_of_a_sealed_file_is_found(home: wiring.Home) -> None:
    back_up(home)
    forget(home, id=move(home)["id"])
    (path,) = (home.path / "log" / "sealed").iterdir()
    assert home_contents.holds_its_kind(home.path, f"log/sealed/{path.name}")
    texts = (b"muniment-sealed/1\n" + b"Dana is in Elm Street, for good.", "Дана в лесу. ".encode() * 20, b"")
    for content in texts:
        path.write_bytes(content)
        assert not home_contents.holds_its_kind(home.path, f"log/sealed/{path.name}")


def test_nothing_is_sealed_before_there_is_a_backup(home: wiring.Home) -> None:
    forget(home, id=move(home)["id"])
    assert not (home.path / "log" / "sealed").exists()
