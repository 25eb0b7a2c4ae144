"""An audit of the very bytes that an earlier one judged judges nothing again, and notices each byte that is another."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tampering as by
from copies import Copy, copy_of

from auditor import audit as audits
from auditor import kept
from auditor.report import Report, to_document
from memory.wiring import open_home
from tlog.trust import make_trust

NOW = time.time_ns() // 1000
DAY = 86_400_000_000


@pytest.fixture(scope="module")
def published(original: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The home with everything in the log and a hold in force, and the folder of one clean audit of it."""
    folder = tmp_path_factory.mktemp("published")
    copy = copy_of(folder, original)
    by.state(copy, "hold", {"holds": [11]}, authority="court", review_by=NOW + 90 * DAY)
    with open_home(copy.home) as home:
        home.publish()
    copy.sql("UPDATE facts SET on_hold = 1 WHERE seq = 11")
    assert copy.audit(state=folder / "state").outcome.findings == ()
    return folder / "home", folder / "state"


@pytest.fixture
def whole(published: tuple[Path, Path], tmp_path: Path) -> Copy:
    return copy_of(tmp_path, *published)


def document(audited: Any) -> dict[str, Any]:
    made = to_document(Report(audited.outcome, "", {}, audited.exhibits, NOW // 1_000_000, "caller"))
    return {**made, "checked": {one["check"] for one in made["checked"]}}


def test_nothing_is_judged_again_and_the_same_is_said(whole: Copy, tmp_path: Path, judged: list[int]) -> None:
    again = whole.audit(state=tmp_path / "state")
    assert not judged
    assert again.outcome.findings == ()
    shutil.copytree(tmp_path / "state", tmp_path / "other", ignore=shutil.ignore_patterns("*.verified"))
    fresh = whole.audit(state=tmp_path / "other")
    assert judged == [1]
    ours, theirs = document(again), document(fresh)
    assert ours.pop("checked") - theirs.pop("checked") == {"unchanged"}
    assert ours == theirs
    assert whole.audit(state=tmp_path / "state").outcome == again.outcome
    assert judged == [1]


def test_what_was_verified_then_is_not_said_to_be_verified_now(whole: Copy, tmp_path: Path) -> None:
    size = by.size_of(whole)
    for check in ("signatures", "links"):
        noted = whole.audit(state=tmp_path / "state").outcome.checked
        assert [note.count for note in noted if note.check == check] == [0, size]


def _free_byte(copy: Copy) -> None:
    data = bytearray((copy.home / "store.db").read_bytes())
    data[data.rindex(bytes(64)) + 3] = 1
    (copy.home / "store.db").write_bytes(data)


def _behind(copy: Copy) -> None:
    with (copy.home / "store.db").open("ab") as file:
        file.write(b"x" * 4096)


def _manifest(copy: Copy) -> None:
    by.flip(next((copy.home / "log" / "erasures").glob("*.cose")))


def _frame(copy: Copy) -> None:
    (copy.home / "store.db-wal").write_bytes(b"left behind" * 400)


CHANGES: dict[str, Callable[[Copy], object]] = {
    "a fact": lambda copy: copy.sql("UPDATE facts SET status = 'active' WHERE seq = 1"),
    "a content": lambda copy: copy.sql("UPDATE contents SET content = x'a0' WHERE seq = 2"),
    "a link": lambda copy: copy.sql("UPDATE events SET link_salt = zeroblob(32) WHERE seq = 2"),
    "the ledger": lambda copy: copy.sql("DELETE FROM ledger"),
    "a word": lambda copy: copy.sql("INSERT INTO search (rowid, body) VALUES (9, 'more')"),
    "a free byte": _free_byte,
    "behind the end": _behind,
    "a frame": _frame,
    "a manifest": _manifest,
    "a manifest that is gone": lambda copy: next((copy.home / "log" / "erasures").glob("*.cose")).unlink(),
    "an entry": lambda copy: by.flip(by.bundle_of(copy)),
    "a tile": lambda copy: by.flip(by.tile_of(copy)),
    "an entry that no checkpoint covers": lambda copy: by.append(copy, b"more"),
    "a file of the home": lambda copy: (copy.home / "notes.txt").write_text("x"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_found_as_without_an_earlier_audit(whole: Copy, tmp_path: Path, name: str) -> None:
    CHANGES[name](whole)
    found = whole.codes(state=tmp_path / "state")
    assert found
    assert found >= whole.codes()


@pytest.mark.parametrize(
    "options",
    [
        {"tenant": "acme"},
        {"needles": ["Kumquat of Uji"]},
        {"also": (Path(__file__),), "needles": ["Kumquat of Uji"]},
        {"now": NOW - DAY},
        {"now": NOW + 91 * DAY},
    ],
)
def test_another_question_is_asked_anew(
    whole: Copy, tmp_path: Path, judged: list[int], options: dict[str, Any]
) -> None:
    found = whole.codes(state=tmp_path / "state", **options)
    assert judged
    assert found == whole.codes(**options)


@pytest.mark.parametrize("alone", [False, True])
def test_another_question_leaves_what_was_said(
    whole: Copy, tmp_path: Path, judged: list[int], alone: bool
) -> None:
    """Of the log alone, or for texts: the next audit of the home is none of all its rows."""
    asked, state = audits.Asked(whole.trust, time.time_ns() // 1000), tmp_path / "state"
    places = audits.Places(None, log=str(whole.home / "log")) if alone else audits.Places(whole.home)
    needles = None if alone else ["Kumquat of Uji"]
    found = audits.audit(replace(places, state=state), asked, tenant=None, needles=needles)
    assert found.outcome.findings == ()
    judged.clear()
    assert whole.codes(state=state) == set()
    assert not judged


def test_the_moment_at_which_a_hold_is_due_is_noticed(whole: Copy, tmp_path: Path) -> None:
    assert whole.codes(state=tmp_path / "state", now=NOW + 89 * DAY) == set()
    assert whole.codes(state=tmp_path / "state", now=NOW + 91 * DAY) == {"HOLD_OVERDUE"}


def test_the_end_of_a_key_is_noticed(whole: Copy, tmp_path: Path, judged: list[int]) -> None:
    end = NOW // 1_000_000 + 1000
    trust = make_trust(
        whole.trust.policy.text, tuple(replace(key, not_after=end) for key in whole.trust.keys)
    )
    state = tmp_path / "state"
    assert (
        whole.codes(state=state, trust=trust)
        == whole.codes(state=state, trust=trust, now=NOW + 999_000_000)
        == set()
    )
    assert len(judged) == 1
    assert "KEY_NOT_VALID" in whole.codes(state=state, trust=trust, now=(end + 1) * 1_000_000)


@pytest.mark.parametrize(("later", "ends", "again"), [(60, None, False), (-60, None, True), (60, 30, True)])
def test_a_newer_cosignature_alone_changes_nothing(
    whole: Copy, tmp_path: Path, judged: list[int], later: int, ends: int | None, again: bool
) -> None:
    """Unless it is an older one, or a key ended before it."""
    note, at = by.checkpoint_of(whole).read_bytes(), time.time_ns() // 1_000_000_000 + 100
    (cosigner,), trust = by.witnessed(whole, tmp_path, at=at)
    if ends is not None:
        keys = tuple(replace(key, not_after=at + ends) for key in trust.keys)
        trust = make_trust(trust.policy.text, keys)
    options = {"trust": trust, "now": (at + 40) * 1_000_000, "state": tmp_path / "new"}
    assert whole.codes(**options) <= {"POLICY_CHANGED"}
    judged.clear()
    parsed = by.parse_note(note)
    lines = (*parsed.signatures, cosigner.cosign(parsed.text, at + later))
    by.checkpoint_of(whole).write_bytes(by.format_note(by.Note(parsed.text, lines)))
    found = whole.codes(**{**options, "now": (at + 70) * 1_000_000})
    assert bool(judged) == again
    assert ("KEY_NOT_VALID" in found) == (ends is not None)


def test_other_code_judges_anew(
    whole: Copy, tmp_path: Path, judged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "code", lambda: "other")
    assert whole.codes(state=tmp_path / "state") == set()
    assert judged == [1]
    assert whole.codes(state=tmp_path / "state") == set()
    assert judged == [1]


def test_the_code_is_told_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept.code()
    for name in ("auditor", "tlog", "memory"):
        shutil.copytree(
            Path(__file__).parents[2] / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    monkeypatch.setattr(kept, "files", lambda name: tmp_path / name)
    kept.code.cache_clear()
    assert kept.code() == before
    kept.code.cache_clear()
    with (tmp_path / "auditor" / "fold.py").open("a") as file:
        file.write("#\n")
    assert kept.code() != before
    kept.code.cache_clear()


@pytest.mark.parametrize("module", ["platform", "apsw", "cryptography", "cbor2"])
def test_the_code_is_told_by_what_it_calls(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """A library that lets a signature pass, and then no more, is other code."""
    kept.code.cache_clear()
    before = kept.code()
    replaced: dict[str, tuple[str, object]] = {
        "platform": ("platform.python_version", lambda: "0"),
        "apsw": ("apsw.sqlite_lib_version", lambda: "0"),
        "cryptography": ("cryptography.__version__", "0"),
        "cbor2": ("version", lambda name: "0"),
    }
    name, value = replaced[module]
    monkeypatch.setattr(f"auditor.kept.{name}", value)
    kept.code.cache_clear()
    assert kept.code() != before
    kept.code.cache_clear()


def test_an_audit_with_a_finding_keeps_nothing(whole: Copy, tmp_path: Path, judged: list[int]) -> None:
    (whole.home / "notes.txt").write_text("x")
    assert whole.codes(state=tmp_path / "new") == {"RESIDUE_FILE"}
    (whole.home / "notes.txt").unlink()
    judged.clear()
    assert whole.codes(state=tmp_path / "new") == set()
    assert judged == [1]
