"""C2SP tlog-tiles: paths, which tiles there are, and their contents."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlog.errors import Error, MalformedError, VerificationError
from tlog.merkle import (
    Frontier,
    leaf_hash,
    prove_consistency,
    prove_inclusion,
    prove_subtree,
    tree_root,
    verify_consistency,
    verify_inclusion,
)
from tlog.tile import (
    MAX_ENTRY_BYTES,
    WIDTH,
    Tile,
    bundle_path,
    decode_bundle,
    decode_tile,
    encode_bundle,
    grow,
    hash_reader,
    hash_tile_path,
    parse_path,
    partial_tiles,
    tile_at,
    tiles_at,
    tiles_for_growth,
    verified_hash_reader,
)

BOUNDARIES = (0, 1, 2, 255, 256, 257, 300, 511, 512, 513, 600, 700, 65535, 65536, 65537, 66000, 70000)
LEAVES = [leaf_hash(b"entry-%d" % number) for number in range(70000)]


def build(sizes: list[int]) -> dict[Tile, bytes]:
    """The hash tiles of a log that grew through these sizes."""
    files: dict[Tile, bytes] = {}
    before = 0
    for size in sizes:
        for tile, data in grow(before, LEAVES[before:size], files.__getitem__):
            assert files.setdefault(tile, data) == data
        before = size
    return files


@pytest.fixture(scope="module")
def large() -> dict[Tile, bytes]:
    return build([size for size in BOUNDARIES if size])


# Paths


@pytest.mark.parametrize(
    ("tile", "path"),
    [
        (Tile(0, 0), "tile/0/000"),
        (Tile(0, 0, 1), "tile/0/000.p/1"),
        (Tile(0, 999), "tile/0/999"),
        (Tile(0, 1000), "tile/0/x001/000"),
        (Tile(0, 1234067), "tile/0/x001/x234/067"),
        (Tile(1, 1234067, 255), "tile/1/x001/x234/067.p/255"),
        (Tile(63, 5), "tile/63/005"),
        (Tile(None, 1234067, 7), "tile/entries/x001/x234/067.p/7"),
        (Tile(None, 0), "tile/entries/000"),
        (Tile(0, 2**63 - 1), "tile/0/x009/x223/x372/x036/x854/x775/807"),
    ],
)
def test_paths(tile: Tile, path: str) -> None:
    assert tile.path == path
    assert parse_path(path) == tile


def test_path_functions() -> None:
    assert hash_tile_path(0, 2, 88) == "tile/0/002.p/88"
    assert hash_tile_path(1, 2) == "tile/1/002"
    assert bundle_path(2, 88) == "tile/entries/002.p/88"
    assert Tile(0, 2, 88).full == Tile(0, 2)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "tile",
        "tile/0",
        "tile/0/",
        "/tile/0/000",
        "tile/0/000/",
        "tile/0/000\n",
        "tile/0/0",
        "tile/0/0000",
        "tile/0/x000",
        "tile/0/x000/001",
        "tile/0/x000/x001/001",
        "tile/0/001/000",
        "tile/0/X001/000",
        "tile/00/000",
        "tile/01/000",
        "tile/64/000",
        "tile/100/000",
        "tile/-1/000",
        "tile/+0/000",
        "tile/entry/000",
        "tile/8/0/000",
        "tile/0/000.p",
        "tile/0/000.p/",
        "tile/0/000.p/0",
        "tile/0/000.p/01",
        "tile/0/000.p/256",
        "tile/0/000.p/1000",
        "tile/0/000.p/1/",
        "tile/0/x009/x223/x372/x036/x854/x775/808",
        "tile/0/" + "x001/" * 5000 + "000",
        "tile/0/٠٠٠",
        "tile/٠/000",
        "tile/0/../000",
    ],
)
def test_rejects_other_spellings_of_a_path(path: str) -> None:
    with pytest.raises(MalformedError):
        parse_path(path)


@given(st.text(alphabet="tile/0123456789xp.entris", max_size=40))
def test_any_path_that_parses_is_the_one_written(path: str) -> None:
    try:
        tile = parse_path("tile/" + path)
    except MalformedError:
        return
    assert tile.path == "tile/" + path


@given(st.none() | st.integers(0, 63), st.integers(0, 2**63 - 1), st.integers(1, 256))
def test_path_round_trip(level: int | None, index: int, width: int) -> None:
    assert parse_path(Tile(level, index, width).path) == Tile(level, index, width)


@pytest.mark.parametrize(
    "numbers", [(-1, 0, 1), (64, 0, 1), (0, -1, 1), (0, 2**63, 1), (0, 0, 0), (0, 0, 257)]
)
def test_rejects_tiles_that_cannot_be(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(MalformedError):
        Tile(*numbers)


# Which tiles there are


def test_tiles_of_the_specification() -> None:
    assert [tile.path for tile in tiles_at(256)] == ["tile/entries/000", "tile/0/000", "tile/1/000.p/1"]
    levels: dict[int | None, list[int]] = {}
    for tile in tiles_at(70000):
        levels.setdefault(tile.level, []).append(tile.width)
    assert levels == {None: [256] * 273 + [112], 0: [256] * 273 + [112], 1: [256, 17], 2: [1]}
    assert not list(tiles_at(0))


def test_partial_tiles() -> None:
    assert partial_tiles(0) == ()
    assert partial_tiles(256) == (Tile(1, 0, 1),)
    assert partial_tiles(65536) == (Tile(2, 0, 1),)
    assert partial_tiles(600) == (Tile(None, 2, 88), Tile(0, 2, 88), Tile(1, 0, 2))


def test_tile_at_a_size() -> None:
    assert tile_at(0, 0, 255) == Tile(0, 0, 255)
    assert tile_at(0, 0, 256) == tile_at(0, 0, 70000) == Tile(0, 0)
    assert tile_at(0, 1, 256) is None
    assert tile_at(None, 1, 300) == Tile(None, 1, 44)
    assert tile_at(1, 0, 255) is None
    assert tile_at(1, 0, 65536) == Tile(1, 0)


@given(st.integers(0, 70000), st.integers(0, 70000))
def test_growth_writes_what_the_new_size_has_and_the_old_had_not(one: int, other: int) -> None:
    old, new = sorted((one, other))
    assert set(tiles_for_growth(old, new)) == set(tiles_at(new)) - set(tiles_at(old))


@given(st.integers(0, 2**63 - 1))
def test_partial_tiles_are_the_partial_ones(size: int) -> None:
    expected = {None: size % 256} | {level: size >> 8 * level & 255 for level in range(8)}
    found = {tile.level: tile.width for tile in partial_tiles(size)}
    assert found == {level: width for level, width in expected.items() if width}
    for tile in partial_tiles(size):
        assert tile_at(tile.level, tile.index, size) == tile


@pytest.mark.parametrize(("old", "new"), [(2, 1), (-1, 1), (0, 2**63)])
def test_rejects_growth_backwards(old: int, new: int) -> None:
    with pytest.raises(MalformedError):
        tiles_for_growth(old, new)


# Growing


def test_full_tiles_are_full_and_partial_ones_of_every_published_size_exist(large: dict[Tile, bytes]) -> None:
    for tile, data in large.items():
        assert len(data) == 32 * tile.width
    for size in BOUNDARIES:
        assert {tile for tile in tiles_at(size) if tile.level is not None} <= set(large)
    assert large[Tile(0, 2, 88)] == large[Tile(0, 2)][: 88 * 32]
    assert len(large[Tile(1, 0)]) == 8192 and large[Tile(1, 1, 1)] == large[Tile(1, 1, 17)][:32]


@settings(max_examples=20)
@given(st.lists(st.integers(1, 1500), min_size=1, max_size=6))
def test_growth_in_any_steps_is_the_same_log(steps: list[int]) -> None:
    files: dict[Tile, bytes] = {}
    size = 0
    for step in steps:
        written = list(grow(size, LEAVES[size : size + step], files.__getitem__))
        wanted = tiles_for_growth(size, size + step)
        assert [tile for tile, _ in written] == [tile for tile in wanted if tile.level is not None]
        files.update(written)
        size += step
        root = tree_root(size, hash_reader(size, files.__getitem__))
        assert root == Frontier().extend(LEAVES[:size]).root()


def test_growth_by_nothing_writes_nothing() -> None:
    assert list(grow(300, [], lambda tile: b"")) == []


def test_growth_on_a_damaged_partial_tile_is_refused() -> None:
    with pytest.raises(VerificationError):
        list(grow(300, LEAVES[300:301], lambda tile: bytes(31)))


# Bundles


@pytest.mark.parametrize(
    ("entries", "data"),
    [
        ([b""], b"\0\0"),
        ([b"a"], b"\0\1a"),
        ([b"a", b"", b"bc"], b"\0\1a\0\0\0\2bc"),
        ([bytes(MAX_ENTRY_BYTES)], b"\xff\xff" + bytes(MAX_ENTRY_BYTES)),
    ],
)
def test_bundles(entries: list[bytes], data: bytes) -> None:
    assert encode_bundle(entries) == data
    assert decode_bundle(data, len(entries)) == tuple(entries)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=WIDTH), st.data())
def test_bundle_round_trip_and_every_other_length_fails(entries: list[bytes], data: st.DataObject) -> None:
    encoded = encode_bundle(entries)
    assert decode_bundle(encoded, len(entries)) == tuple(entries)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for wrong in (encoded[:cut], encoded + b"\0", encoded + b"\0\0"):
        with pytest.raises(MalformedError):
            decode_bundle(wrong, len(entries))
    with pytest.raises(MalformedError):
        decode_bundle(encoded, len(entries) - 1)


def test_rejects_an_entry_of_65536_bytes() -> None:
    with pytest.raises(MalformedError) as raised:
        encode_bundle([b"small", bytes(MAX_ENTRY_BYTES + 1)])
    assert raised.value.code == "too_large"


@pytest.mark.parametrize("count", [0, 257])
def test_rejects_bundles_of_no_or_too_many_entries(count: int) -> None:
    with pytest.raises(MalformedError):
        encode_bundle([b""] * count)


# Reading


def test_tiles_of_tessera(vectors: Path) -> None:
    log = vectors / "tessera/log"

    def read_tile(tile: Tile) -> bytes:
        return (log / tile.path).read_bytes()

    for size in range(1, 16):
        root = b64decode((log / f"checkpoint.{size}").read_text().split("\n")[2])
        for read in (hash_reader(size, read_tile), verified_hash_reader(size, root, read_tile)):
            assert tree_root(size, read) == root
            bundle = decode_bundle(read_tile(Tile(None, 0, size)), size)
            for index, entry in enumerate(bundle):
                verify_inclusion(index, size, leaf_hash(entry), prove_inclusion(index, size, read), root)


def test_proofs_of_a_large_log_read_only_tiles_of_its_size(large: dict[Tile, bytes]) -> None:
    for size in BOUNDARIES[1:]:
        root = Frontier().extend(LEAVES[:size]).root()
        exist = set(tiles_at(size))

        def read_tile(tile: Tile, exist: set[Tile] = exist) -> bytes:
            assert tile in exist
            return large[tile]

        for read in (hash_reader(size, read_tile), verified_hash_reader(size, root, read_tile)):
            assert Frontier.from_reader(size, read).root() == root
            for index in {0, size // 3, size - 1}:
                verify_inclusion(index, size, LEAVES[index], prove_inclusion(index, size, read), root)
            for old in {1, size // 2 or 1, size}:
                old_root = Frontier().extend(LEAVES[:old]).root()
                verify_consistency(old, size, old_root, root, prove_consistency(old, size, read))


def test_reader_fetches_each_tile_once(large: dict[Tile, bytes]) -> None:
    fetched: list[str] = []

    def read_tile(tile: Tile) -> bytes:
        fetched.append(tile.path)
        return large[tile]

    read = hash_reader(70000, read_tile)
    needed = ["tile/0/001", "tile/0/273.p/112", "tile/1/000", "tile/1/001.p/17"]
    for _ in range(2):
        prove_inclusion(300, 70000, read)
        assert sorted(fetched) == needed
    fetched.clear()
    root = Frontier().extend(LEAVES).root()
    read = verified_hash_reader(70000, root, read_tile)
    for _ in range(2):
        prove_inclusion(300, 70000, read)
        assert sorted(fetched) == [*needed, "tile/2/000.p/1"], "the root needs level 2 as well"


def test_tile_that_failed_is_asked_for_again(large: dict[Tile, bytes]) -> None:
    root = Frontier().extend(LEAVES[:600]).root()
    for spoiled in (Tile(0, 2, 88), Tile(1, 0, 2), Tile(0, 0)):
        answers = {spoiled: bytes(32 * spoiled.width)}
        read = verified_hash_reader(600, root, lambda tile, answers=answers: answers.get(tile, large[tile]))
        with pytest.raises(VerificationError):
            prove_inclusion(3, 600, read)
        answers.clear()
        assert prove_inclusion(3, 600, read) == prove_inclusion(3, 600, hash_reader(600, large.__getitem__))


@pytest.mark.parametrize("node", [(0, 600), (0, 601), (1, 300), (9, 1), (10, 0), (8, 2), (63, 0)])
def test_node_not_complete_at_the_size_is_refused(large: dict[Tile, bytes], node: tuple[int, int]) -> None:
    with pytest.raises(MalformedError):
        hash_reader(600, large.__getitem__)([node])


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b"<html>"]
)
def test_tile_of_another_length_is_refused(
    large: dict[Tile, bytes], change: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(VerificationError) as raised:
        tree_root(600, hash_reader(600, lambda tile: change(large[tile])))
    assert raised.value.code == "tile"
    with pytest.raises(VerificationError):
        decode_tile(Tile(0, 0), change(large[Tile(0, 0)]))


@settings(max_examples=40)
@given(st.sampled_from([300, 600, 65537, 66000, 70000]), st.data())
def test_no_changed_tile_is_believed(large: dict[Tile, bytes], size: int, data: st.DataObject) -> None:
    """A server that changes one hash of one tile: the reader fails or the answer is right."""
    root = Frontier().extend(LEAVES[:size]).root()
    index = data.draw(st.integers(0, size - 1))
    needed: set[Tile] = set()

    def honest(tile: Tile) -> bytes:
        needed.add(tile)
        return large[tile]

    proof = prove_inclusion(index, size, verified_hash_reader(size, root, honest))
    changed = data.draw(st.sampled_from(sorted(needed, key=lambda tile: tile.path)))
    at = data.draw(st.integers(0, changed.width - 1)) * 32

    def hostile(tile: Tile) -> bytes:
        right = large[tile]
        return right[:at] + bytes(32) + right[at + 32 :] if tile == changed else right

    with pytest.raises(VerificationError) as raised:
        prove_inclusion(index, size, verified_hash_reader(size, root, hostile))
    assert raised.value.code == "tile"
    assert proof == prove_inclusion(index, size, hash_reader(size, large.__getitem__))


def test_another_root_is_not_believed(large: dict[Tile, bytes]) -> None:
    for size in (256, 600):
        with pytest.raises(VerificationError):
            prove_subtree(0, 1, size, verified_hash_reader(size, bytes(32), large.__getitem__))


def test_errors_carry_the_path_and_no_content(large: dict[Tile, bytes]) -> None:
    with pytest.raises(Error) as raised:
        decode_tile(Tile(0, 2, 88), b"secret")
    assert raised.value.fields == {"path": "tile/0/002.p/88"}
    assert "secret" not in raised.value.message
