"""Checks of a log alone: its checkpoint under the caller's trust, and every file of it re-hashed to the root."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final

from auditor.evidence import Asked, Entries, LogFiles, Span
from auditor.findings import Finding, Note, Outcome
from tlog.cosignature import MAX_CLOCK_SKEW_SECONDS
from tlog.errors import Error, MalformedError
from tlog.merkle import Frontier, leaf_hash
from tlog.note import VerifierKey, parse_note
from tlog.policy import VerifiedCheckpoint, seen_at, verify_checkpoint
from tlog.tile import WIDTH, Tile, decode_bundle, encode_bundle, parse_path, tiles_at

CHECKPOINT: Final = "checkpoint"
MAX_FINDINGS: Final = 100
_SECOND: Final = 1_000_000
_MISSING: Final = "A tile of hashes is missing."
_CODES: Final = {
    "origin": "LOG_SIGNATURE",
    "log_signature": "LOG_SIGNATURE",
    "empty_root": "LOG_SIGNATURE",
    "cosignature": "QUORUM_NOT_MET",
    "quorum_not_met": "QUORUM_NOT_MET",
    "frozen": "LOG_FORK",
}


def check_checkpoint(files: LogFiles, asked: Asked) -> tuple[Outcome, VerifiedCheckpoint | None]:
    """The public checkpoint, once the caller's policy accepts it, with what there is to say about it."""
    data = files.read(CHECKPOINT)
    if not data:
        return _no_checkpoint(files, asked), None
    try:
        verified = verify_checkpoint(asked.trust.policy, data)
        asked.trust.check_frozen(verified.checkpoint)
    except Error as error:
        code = _CODES.get(error.code, "LOG_SIGNATURE")
        return Outcome((Finding(code, f"log {CHECKPOINT}", f"{error.message}.", _numbers(error)),)), None
    findings = [*_imposters(data, asked), *_age(verified, asked)]
    names = ", ".join(("the log", *verified.witnesses))
    text = f"signatures that hold on the checkpoint of {verified.checkpoint.size} entries: {names}"
    checked = Note("checkpoint", text, 1 + len(verified.cosignatures))
    not_checked = []
    if asked.trust.policy.quorum is None:
        text = "the policy asks for no witness: the log could show others another head"
        not_checked.append(Note("witnesses", text))
    shared = sorted(set(verified.witnesses) & set(asked.trust.same_operator))
    if shared:
        not_checked.append(Note("witnesses", f"run by the operator of the log itself: {', '.join(shared)}"))
    return Outcome(tuple(findings), (checked,), tuple(not_checked)), verified


def check_tree(files: LogFiles, verified: VerifiedCheckpoint, asked: Asked) -> tuple[Outcome, Entries]:
    """Every entry bundle and hash tile of the log, re-hashed up to the root of the checkpoint."""
    size, root = verified.checkpoint.size, verified.checkpoint.root
    entries, findings = _read_entries(files, size)
    if any(entry is None for entry in entries[:size]) or len(entries) < size:
        return Outcome(tuple(findings[:MAX_FINDINGS])), Entries(
            size, tuple(entries), leaves=_leading_leaves(entries)
        )
    leaves = [leaf_hash(entry) for entry in entries if entry is not None]
    levels = _levels(leaves)
    proved = _root(levels, size) == root
    tiles = list(_check_tiles(files, levels, size))
    if proved:
        findings += [Finding(_code(what), f"log {path}", what, {"hash": at}) for path, at, what in tiles]
    else:
        findings += _locate(files, leaves, verified, [path for path, _, _ in tiles])
    checked = Note("tree", "entries hashed up to the root of the checkpoint, and every tile compared", size)
    done = (checked,) if proved else ()
    span = Span(0, size, verified.checkpoint.origin, seen_at(asked.trust.policy, verified))
    spans = (span,) if proved else ()
    return Outcome(tuple(findings[:MAX_FINDINGS]), done), Entries(
        size, tuple(entries), proved, spans, leaves=tuple(leaves)
    )


def _leading_leaves(entries: Iterable[bytes | None]) -> tuple[bytes, ...]:
    """The leaf hashes up to the first entry that is missing: an earlier head may be among them."""
    return tuple(
        leaf_hash(entry) for entry in takewhile(lambda one: one is not None, entries) if entry is not None
    )


def _code(what: str) -> str:
    return "LOG_TRUNCATED" if what == _MISSING else "ENTRY_ALTERED"


def read_unproved(files: LogFiles) -> Entries:
    """The entries of a log that has no checkpoint to judge them by."""
    return Entries(0, tuple(_read_entries(files, 0)[0]))


def _no_checkpoint(files: LogFiles, asked: Asked) -> Outcome:
    note = Note("checkpoint", "the log has no public checkpoint: nothing in it is proved")
    if not any(read_unproved(files).entries):
        return Outcome(not_checked=(note,))
    # Whoever can remove a file must not be able to turn a finding into a remark.
    code = "LOG_TRUNCATED" if asked.trust.policy.quorum is None else "QUORUM_NOT_MET"
    what = "The log has entries, and no checkpoint that covers them is public."
    return Outcome((Finding(code, f"log {CHECKPOINT}", what),), not_checked=(note,))


def _imposters(data: bytes, asked: Asked) -> Iterator[Finding]:
    """Lines that bear the name of a known key or its id, but not both: no signer writes one."""
    policy = asked.trust.policy
    keys: list[VerifierKey] = [log.key for log in policy.logs] + [one.key for one in policy.witnesses]
    known = {(key.name, key.key_id) for key in keys}
    names, ids = {key.name for key in keys}, {key.key_id for key in keys}
    for number, line in enumerate(parse_note(data).signatures, start=1):
        if (line.name, line.key_id) not in known and (line.name in names or line.key_id in ids):
            what = "A signature line bears the name of a known key with the id of another, or the reverse."
            yield Finding("LOG_SIGNATURE", f"log {CHECKPOINT} signature line {number}", what)


def _age(verified: VerifiedCheckpoint, asked: Asked) -> Iterator[Finding]:
    bound = asked.trust.max_checkpoint_age_seconds
    times = [cosignature.timestamp for cosignature in verified.cosignatures]
    now = asked.now // _SECOND
    if bound is not None and (not times or now - max(times) > bound):
        age = {"age_seconds": now - max(times)} if times else {}
        what = "No cosignature on the checkpoint is as young as the trust file asks for."
        yield Finding("CHECKPOINT_STALE", f"log {CHECKPOINT}", what, {"bound_seconds": bound, **age})
    for cosignature in verified.cosignatures:
        if cosignature.timestamp > now + MAX_CLOCK_SKEW_SECONDS:
            what = "A cosignature is dated in the future."
            yield Finding("TIME_IMPLAUSIBLE", f"log {CHECKPOINT}", what, {"time": cosignature.timestamp})


def _read_entries(files: LogFiles, size: int) -> tuple[list[bytes | None], list[Finding]]:
    """The entries of every bundle, past the checkpoint too; None for each that can't be read."""
    entries: list[bytes | None] = []
    findings: list[Finding] = []
    listed = _listed(files, size)
    needed = -(-size // WIDTH)
    for index in range(needed):
        width = min(WIDTH, size - index * WIDTH)
        # The widest one there is: entries past the checkpoint stand in a wider bundle than it asks for.
        # A log in use was listed before its head was read, so what the head needs may not be in the list yet.
        widest = max([width, *listed.get(index, ())])
        read = _read_bundle(files, Tile(None, index, widest), findings)
        entries += read if read is not None else [None] * width
        if len(findings) >= MAX_FINDINGS:
            # A head over billions of entries with no files behind it must not be counted one by one.
            return entries, findings
    for index in sorted(index for index in listed if index >= needed):
        if len(entries) != index * WIDTH:
            break
        read = _read_bundle(files, Tile(None, index, max(listed[index])), findings)
        if read is None:
            break
        entries += read
    findings += _narrower(files, listed, entries)
    return entries, findings


def _narrower(
    files: LogFiles, listed: dict[int, set[int]], entries: Sequence[bytes | None]
) -> Iterator[Finding]:
    """Partial bundles of earlier sizes: each must be the beginning of the one that came after it."""
    for index, widths in sorted(listed.items()):
        for width in sorted(widths)[:-1]:
            tile = Tile(None, index, width)
            expected = entries[index * WIDTH : index * WIDTH + width]
            whole = [entry for entry in expected if entry is not None]
            data = files.read(tile.path)
            if data is not None and len(whole) == width and data != encode_bundle(whole):
                yield Finding(
                    "ENTRY_ALTERED", f"log {tile.path}", "It is not the beginning of a wider bundle."
                )


def _read_bundle(files: LogFiles, tile: Tile, findings: list[Finding]) -> list[bytes | None] | None:
    data, width = files.read(tile.path), tile.width
    if data is None and width < WIDTH:
        # A log may drop a partial bundle once the full one stands.
        data, width = files.read(tile.full.path), WIDTH
    if data is None:
        findings.append(Finding("LOG_TRUNCATED", f"log {tile.path}", "A bundle of entries is missing."))
        return None
    try:
        return list(decode_bundle(data, width))
    except MalformedError as error:
        findings.append(Finding("ENTRY_ALTERED", f"log {tile.path}", f"{error.message}."))
        return None


def _listed(files: LogFiles, size: int) -> dict[int, set[int]]:
    """Index and widths of the bundles there are, or must be where files can't be listed."""
    widths: dict[int, set[int]] = {}
    tiles: Iterable[Tile] = tiles_at(size) if files.names is None else _tiles(files.names)
    for tile in tiles:
        if tile.level is None:
            widths.setdefault(tile.index, set()).add(tile.width)
        elif files.names is None:
            break  # bundles come first
    return widths


def _tiles(names: Iterable[str]) -> Iterator[Tile]:
    for name in names:
        try:
            yield parse_path(name)
        except MalformedError:
            continue


def _check_tiles(
    files: LogFiles, levels: Sequence[Sequence[bytes]], size: int
) -> Iterator[tuple[str, int, str]]:
    """Path, place and fault of each hash tile that is not what the entries make it."""
    needed = {tile for tile in tiles_at(size) if tile.level is not None}
    there = (
        needed if files.names is None else {tile for tile in _tiles(files.names) if tile.level is not None}
    )
    for tile in sorted(there | needed, key=lambda tile: (tile.level or 0, tile.index, tile.width)):
        row = levels[tile.level] if tile.level is not None and tile.level < len(levels) else []
        start = tile.index * WIDTH
        expected = row[start : start + tile.width]
        data = files.read(tile.path)
        if data is None:
            if tile in needed and files.read(tile.full.path) is None:
                yield tile.path, 0, _MISSING
        elif len(expected) < tile.width:
            yield tile.path, 0, "A tile of hashes goes beyond the entries there are."
        elif data != b"".join(expected):
            at = next(
                (n for n, each in enumerate(expected) if data[32 * n : 32 * n + 32] != each), tile.width
            )
            yield tile.path, at, "A tile holds a hash that its entries do not have."


def _levels(leaves: Sequence[bytes]) -> list[Sequence[bytes]]:
    """The rows of hashes that tiles are cut from: level L has one for each full subtree of 256**L leaves."""
    levels = [leaves]
    while len(levels[-1]) >= WIDTH:
        row = levels[-1]
        full = len(row) // WIDTH
        levels.append([_subtree(row[at * WIDTH : at * WIDTH + WIDTH]) for at in range(full)])
    return levels


def _root(levels: Sequence[Sequence[bytes]], size: int) -> bytes:
    """The root over the first `size` leaves, whose full subtrees were hashed already."""
    full = size // WIDTH
    whole = Frontier().extend(levels[1][:full]).hashes if full else ()
    edge = Frontier().extend(levels[0][full * WIDTH : size]).hashes
    return Frontier(size, (*whole, *edge)).root()


def _subtree(hashes: Sequence[bytes]) -> bytes:
    return Frontier(0, ()).extend(hashes).root()


def _locate(
    files: LogFiles, leaves: Sequence[bytes], verified: VerifiedCheckpoint, wrong: Sequence[str]
) -> Iterator[Finding]:
    """Which entries keep the log from its root, as far as the tiles still tell."""
    size, root = verified.checkpoint.size, verified.checkpoint.root
    stated = _stated_leaves(files, size)
    if stated is not None and _subtree(stated) == root:
        for index in [n for n in range(size) if stated[n] != leaves[n]][:MAX_FINDINGS]:
            bundle = Tile(None, index // WIDTH, min(WIDTH, size - index // WIDTH * WIDTH)).path
            what = "An entry is not the one that the checkpoint commits to."
            yield Finding("ENTRY_ALTERED", f"log {bundle} entry {index}", what, {"index": index})
        return
    what = "The entries do not lead to the root of the checkpoint, and the tiles do not tell which of them is wrong."
    yield Finding("ENTRY_ALTERED", "log", what, {"tiles_that_differ": len(wrong), "size": size})


def _stated_leaves(files: LogFiles, size: int) -> list[bytes] | None:
    """The leaf hashes that the tiles of level 0 state; None if one of them can't be read."""
    leaves: list[bytes] = []
    for index in range(-(-size // WIDTH)):
        width = min(WIDTH, size - index * WIDTH)
        data = files.read(Tile(0, index, width).path) or files.read(Tile(0, index).path) or b""
        if len(data) < 32 * width:
            return None
        leaves += [data[at : at + 32] for at in range(0, 32 * width, 32)]
    return leaves


def _numbers(error: Error) -> dict[str, str | int]:
    return {name: value for name, value in error.fields.items() if isinstance(value, int)}
