"""Logs that publish tiles and ask nobody: one of Go's, one of ours, and some that lie."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlog.client import folder_reader
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.note import format_note, parse_vkey
from tlog.tile import decode_bundle, encode_bundle, grow, tiles_for_growth
from witness.feeder import REFRESH_SECONDS, Fed, Follower, feed, wait_seconds
from witness.service import Witness

TESSERA_VKEY = "example.com/log/testdata+33d7b496+AeHTu4Q3hEIMHNqc6fASMsq3rKNx280NI+oO5xCFkkSx"


class Site:
    """The files of a simulated log, as a server of tiles has them."""

    def __init__(self, log: Any) -> None:
        self.files: dict[str, bytes] = {}
        self.publish(log, 0)

    def publish(self, log: Any, size: int) -> None:
        """Grows the files to the log's head at `size`."""
        self.files = {path: data for path, data in self.files.items() if path != "checkpoint"}
        tiles: dict[str, bytes] = {}
        for tile, data in grow(0, log.leaves[:size], lambda tile: b""):
            tiles[tile.path] = data
        self.files |= tiles
        self.files["checkpoint"] = format_note(log.note(size))

    def __call__(self, path: str) -> bytes | None:
        return self.files.get(path)


@pytest.fixture
def big(sim: Any) -> Any:
    return sim.Log([b"entry %d" % number for number in range(700)])


@pytest.fixture
def fed(store: Any, witness: Witness, clock: Any) -> Callable[[Any], Fed]:
    return lambda read: feed(read, store, witness, clock())


def test_a_log_is_followed_as_it_grows(big: Any, fed: Any, store: Any, clock: Any) -> None:
    site = Site(big)
    for size in (3, 3, 255, 256, 257, 511, 700):
        site.publish(big, size)
        outcome = fed(site)
        assert outcome.size == size
        assert store.log(big.origin).cosigned.head.root == big.checkpoint(size).root
    assert fed(site) == Fed(big.origin, "unchanged", 700)


def test_an_unchanged_head_is_cosigned_again_after_a_while(
    big: Any, fed: Any, store: Any, clock: Any
) -> None:
    site = Site(big)
    site.publish(big, 5)
    assert fed(site).outcome == "cosigned"
    clock.now += REFRESH_SECONDS - 1
    assert fed(site).outcome == "unchanged"
    clock.now += 1
    assert fed(site).outcome == "cosigned"
    assert store.log(big.origin).cosigned.time == clock.now


def test_follows_a_log_that_go_wrote_and_signed(
    vectors: Path, tmp_path: Path, store: Any, fed: Any, clock: Any
) -> None:
    folder = tmp_path / "log"
    shutil.copytree(vectors / "tessera" / "log", folder)
    key = parse_vkey(TESSERA_VKEY)
    store.add_log("example.com/log/testdata", key)
    for size in range(16):
        shutil.copyfile(folder / f"checkpoint.{size}", folder / "checkpoint")
        assert fed(folder_reader(folder)) == Fed("example.com/log/testdata", "cosigned", size)
    assert store.log("example.com/log/testdata").cosigned.head.size == 15
    assert store.evidence() == ()


def code_of(fed: Any, read: Any) -> str:
    with pytest.raises(Error) as caught:
        fed(read)
    return caught.value.code


def test_a_rollback_is_noticed_and_nothing_is_cosigned(big: Any, fed: Any, store: Any) -> None:
    site = Site(big)
    site.publish(big, 300)
    fed(site)
    site.publish(big, 299)
    assert code_of(fed, site) == code_of(fed, site) == "rolled_back"
    assert store.log(big.origin).cosigned.head.size == 300
    (kept,) = store.evidence()
    assert (kept.kind, kept.known.size, kept.note) == ("unproven", 300, format_note(big.note(299)))
    assert kept.known_note == format_note(big.note(300))


@pytest.mark.parametrize(("size", "code"), [(300, "fork"), (400, "proof")])
def test_a_fork_is_refused_and_both_notes_are_kept(
    big: Any, fed: Any, store: Any, size: int, code: str
) -> None:
    site = Site(big)
    site.publish(big, 300)
    fed(site)
    forked = Site(big.fork_at(100))
    forked.publish(big.fork_at(100), size)
    assert code_of(fed, forked) == code
    (evidence,) = store.evidence()
    assert (evidence.known.size, evidence.head.size) == (300, size)
    assert store.log(big.origin).cosigned.head.root == big.checkpoint(300).root


def test_tiles_that_do_not_lead_to_the_root_are_not_believed(big: Any, fed: Any, store: Any) -> None:
    site = Site(big)
    site.publish(big, 300)
    fed(site)
    site.publish(big, 600)
    for path in ("tile/0/001", "tile/0/002.p/88"):
        right = site.files[path]
        site.files[path] = right[:-1] + bytes((right[-1] ^ 1,))
        assert code_of(fed, site) == "tile"
        site.files[path] = right[:-32]
        assert code_of(fed, site) == "tile"
        del site.files[path]
        assert code_of(fed, site) == "tile_missing"
        site.files[path] = right
    # The log signed a head that nothing it serves leads to: kept, though the tiles may only have been late.
    (kept,) = store.evidence()
    assert (kept.kind, kept.known.size, kept.note) == ("unproven", 300, format_note(big.note(600)))
    assert fed(site).size == 600


def test_what_is_no_checkpoint_of_a_known_log_is_refused(big: Any, fed: Any, sim: Any, store: Any) -> None:
    site = Site(big)
    with pytest.raises(RefusedError, match="add-log"):
        fed(Site(sim.Log([b"x"], "log.example/unknown")))
    site.files["checkpoint"] = sim.tampered(big.note(0))
    assert code_of(fed, site) == "log_signature"
    for garbage in (b"", b"hello\n", b"\xff"):
        site.files["checkpoint"] = garbage
        with pytest.raises(MalformedError):
            fed(site)
    del site.files["checkpoint"]
    with pytest.raises(UnavailableError):
        fed(site)
    store.remove_log(big.origin)
    site.publish(big, 3)
    assert code_of(fed, site) == "unknown_origin"


def test_lines_of_others_do_not_make_the_request_too_large(big: Any, fed: Any, sim: Any) -> None:
    site = Site(big)
    note = big.note(5)
    strangers = tuple(
        sim.make_cosigner(f"witness.example/{number}", 50 + number % 100, 6).cosign(note.text, 1)
        for number in range(60)
    )
    site.publish(big, 5)
    site.files["checkpoint"] = format_note(type(note)(note.text, (*note.signatures, *strangers)))
    assert len(site.files["checkpoint"]) > 128 * 1024
    assert fed(site).size == 5


# Pace


def test_failures_are_waited_out_ever_longer() -> None:
    waits = [wait_seconds(60, failures, 0.5) for failures in range(10)]
    assert waits[:4] == [60, 120, 240, 480]
    assert waits[-1] == wait_seconds(60, 10_000, 0.5) == 3600
    assert wait_seconds(7200, 5, 0.5) == 7200
    assert wait_seconds(60, 0, 0.0) == 54
    assert wait_seconds(60, 0, 1.0) == pytest.approx(66)


def test_a_follower_goes_on_after_failures_and_stops_when_told() -> None:
    outcomes: list[Any] = []
    stop = threading.Event()

    def feed_once() -> Fed:
        if len(outcomes) < 3:
            raise VerificationError("no", code="tile")
        if len(outcomes) == 5:
            stop.set()
        return Fed("o", "unchanged", len(outcomes))

    Follower("u", feed_once, 0.001, lambda url, outcome: outcomes.append(outcome)).run(stop)
    assert [type(one) for one in outcomes] == [VerificationError] * 3 + [Fed] * 3


def test_the_simulated_site_has_the_tiles_of_a_log(big: Any) -> None:
    site = Site(big)
    site.publish(big, 700)
    expected = {tile.path for tile in tiles_for_growth(0, 700) if tile.level is not None}
    assert set(site.files) == expected | {"checkpoint"}
    assert decode_bundle(encode_bundle([b"a"]), 1) == (b"a",)
