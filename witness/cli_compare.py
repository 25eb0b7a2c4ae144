"""`muniment witness compare`: for auditors, whether all witnesses see one and the same log."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from tlog.ascii import encode_base64
from tlog.checkpoint import Checkpoint, open_checkpoint
from tlog.errors import MalformedError, UnavailableError, VerificationError
from tlog.merkle import HashReader
from tlog.note import MAX_NOTE_BYTES, format_note
from tlog.policy import MAX_POLICY_BYTES, LogEntry, Policy, parse_policy
from tlog.storage import DirectoryStorage
from tlog.tile_reader import PathReader, VerifiedTiles
from witness.cli_output import Json, answer
from witness.compare import Comparison, SplitView, View, compare_heads
from witness.wire import origin_digest

ITSELF = "itself"


def compare(args: argparse.Namespace) -> int:
    """0 if all that was seen is of one log, 1 on a split view, 3 where too little could be compared."""
    policy = parse_policy(_read(args.policy, MAX_POLICY_BYTES))
    logs = [log for log in policy.logs if args.origin in (None, log.key.name)]
    if not logs:
        raise MalformedError("compare: expected a policy that lists the log")
    if len(logs) > 1 and args.log:
        raise MalformedError("compare: expected --origin beside --log, for a policy of several logs")
    kept = DirectoryStorage(args.keep) if args.keep else None
    results = [_compare_log(args, policy, log, kept) for log in logs]
    answer(args, {"logs": [document for _, document in results]}, "\n".join(map(_text, results)))
    if any(comparison.splits for comparison, _ in results):
        return 1
    compared = all(len(document["seen_by"]) > 1 and not document["unproved"] for _, document in results)
    return 0 if compared else 3


def _compare_log(
    args: argparse.Namespace, policy: Policy, log: LogEntry, kept: DirectoryStorage | None
) -> tuple[Comparison, Json]:
    origin = log.key.name
    keys = [one.key for one in policy.logs if one.key.name == origin]

    def view(data: bytes, name: str) -> View:
        opened = open_checkpoint(data, keys, origin)
        return View((name,), opened.checkpoint, format_note(opened.note))

    views, silent = _views_of_witnesses(policy, origin, args.deadline)
    views += [view(_read(file, MAX_NOTE_BYTES), file) for file in args.note]
    with _reader(args.log or log.url) as read:
        try:
            published = read("checkpoint")
            views += [view(published, ITSELF)] if published else []
        except (MalformedError, UnavailableError, VerificationError) as error:
            silent.append(f"{ITSELF}: {error.message}")
        earlier = kept.read(f"{origin_digest(origin).hex()}.note") if kept else None
        views += [view(earlier, f"{ITSELF} (earlier)")] if earlier else []
        comparison = compare_heads(views, _reader_of(read))
    if kept:
        _keep(kept, origin, comparison)
    return comparison, _describe(origin, views, silent, comparison)


def _views_of_witnesses(policy: Policy, origin: str, deadline_seconds: float) -> tuple[list[View], list[str]]:
    """What the witnesses serve, and which of them served nothing that holds."""
    from witness.client import fetch_heads

    heads = sorted(fetch_heads(policy, origin, deadline_seconds), key=lambda head: head.names)
    heard = {name for head in heads for name in head.names}
    silent = [one.name for one in policy.witnesses if one.url and one.name not in heard]
    views = [View(head.names, head.opened.checkpoint, format_note(head.opened.note)) for head in heads]
    return views, silent


def _reader_of(read: PathReader) -> Callable[[Checkpoint], HashReader]:
    return lambda head: VerifiedTiles(read, head.size, head.root).read_hashes


@contextmanager
def _reader(place: str | None) -> Iterator[PathReader]:
    """A reader of the log's files at a URL or in a folder; of none where no place is known."""
    from tlog.bucket_reader import BucketReader, is_bucket
    from tlog.client import UrlReader, folder_reader, limit_of

    if place is None:
        yield lambda path: None
    elif is_bucket(place):
        yield BucketReader(place, limit_of)
    elif "://" in place:
        reader = UrlReader(place)
        try:
            yield reader
        finally:
            reader.close()
    else:
        yield folder_reader(place)


def _keep(storage: DirectoryStorage, origin: str, comparison: Comparison) -> None:
    """Keeps the largest consistent head, to compare with the next time, and the notes of a split view."""
    if comparison.consistent and not comparison.splits:
        largest = comparison.consistent[0]
        storage.replace(f"{origin_digest(origin).hex()}.note", largest.note)
    for split in comparison.splits:
        name = sha256(split.smaller.note + split.larger.note).hexdigest()[:16]
        storage.create(f"split-{name}/smaller.note", split.smaller.note)
        storage.create(f"split-{name}/larger.note", split.larger.note)


def _describe(origin: str, views: Sequence[View], silent: Sequence[str], comparison: Comparison) -> Json:
    return {
        "origin": origin,
        "split": bool(comparison.splits),
        "seen_by": [name for view in views for name in view.seen_by],
        "silent": list(silent),
        "consistent": [_describe_view(view) for view in comparison.consistent],
        "unproved": [_describe_view(view) for view in comparison.unproved],
        "splits": [_describe_split(split) for split in comparison.splits],
    }


def _describe_view(view: View) -> Json:
    checkpoint = view.checkpoint
    return {"seen_by": list(view.seen_by), "size": checkpoint.size, "root": encode_base64(checkpoint.root)}


def _describe_split(split: SplitView) -> Json:
    return {
        "kind": split.kind,
        "smaller": {**_describe_view(split.smaller), "note": split.smaller.note.decode()},
        "larger": {**_describe_view(split.larger), "note": split.larger.note.decode()},
        "implied_root": encode_base64(split.implied_root) if split.implied_root else None,
    }


def _text(result: tuple[Comparison, Json]) -> str:
    comparison, document = result
    lines = [
        f"{document['origin']}: {'SPLIT VIEW' if comparison.splits else 'no split view'}",
        *(f"  size {one.checkpoint.size}  {', '.join(one.seen_by)}" for one in comparison.consistent),
        *(f"  not compared: size {v.checkpoint.size}  {', '.join(v.seen_by)}" for v in comparison.unproved),
        *(f"  nothing from {name}" for name in document["silent"]),
    ]
    for split in comparison.splits:
        for side in (split.smaller, split.larger):
            lines.append(f"\nseen by {', '.join(side.seen_by)}:\n{side.note.decode()}")
    return "\n".join(lines)


def _read(file: str, limit: int) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read(limit + 1)
        with Path(file).open("rb") as opened:
            return opened.read(limit + 1)
    except OSError as error:
        raise MalformedError(f"compare: a file can't be read: {error.strerror}") from None
