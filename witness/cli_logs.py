"""`muniment witness add-log`, `remove-log`, `import-logs`, `status` and `evidence`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tlog.errors import MalformedError, RefusedError
from tlog.note import parse_vkey
from tlog.storage import DirectoryStorage
from witness.cli_keys import describe_keys
from witness.cli_output import answer, describe_evidence, describe_log, identity
from witness.loglist import MAX_LIST_BYTES, MAX_REQUESTS_PER_DAY, parse_log_list
from witness.records import Evidence, Terms
from witness.store import open_store


def add_log(args: argparse.Namespace) -> int:
    """Trusts a key for an origin."""
    key = parse_vkey(args.vkey)
    origin = key.name if args.origin is None else args.origin
    terms = None
    if args.requests_per_day is not None:
        if not 1 <= args.requests_per_day <= MAX_REQUESTS_PER_DAY:
            raise MalformedError("requests per day: expected 1 to 2^31-1")
        terms = Terms(args.requests_per_day, args.contact or "")
    with closing(open_store(args.state)) as store:
        added = store.add_log(origin, key, terms)
    text = "added" if added else "was known already"
    answer(args, {"origin": origin, "vkey": key.vkey, "added": added}, text)
    return 0


def remove_log(args: argparse.Namespace) -> int:
    """Cosigns nothing more of a log, and keeps its last head."""
    with closing(open_store(args.state)) as store:
        removed = store.remove_log(args.origin)
    if not removed:
        raise RefusedError("witness: no log of this origin is cosigned here", code="unknown_origin")
    answer(
        args,
        {"origin": args.origin, "removed": True},
        "removed; its last head is kept, should the log come back",
    )
    return 0


def import_logs(args: argparse.Namespace) -> int:
    """Takes over every log of a list, or none if anything is wrong with it."""
    listed = parse_log_list(_read(args.file))
    with closing(open_store(args.state)) as store:
        rows = [(one.origin, one.key, Terms(one.requests_per_day, one.contact)) for one in listed]
        added = store.import_logs(rows)
    answer(
        args,
        {"listed": len(listed), "added": added},
        f"{len(listed)} logs listed, {added} of them new",
    )
    return 0


def status(args: argparse.Namespace) -> int:
    """Who the witness is, its keys and its logs."""
    with closing(open_store(args.state)) as store:
        logs, evidence, marker = store.logs(), store.evidence(), store.marker
    found = [describe_log(log, evidence) for log in logs]
    lines = [
        f"{log['origin']}  size {log['size']}  evidence {log['evidence']}{'' if log['vkeys'] else '  removed'}"
        for log in found
    ]
    document = {**identity(marker), "keys": describe_keys(marker), "logs": found}
    answer(args, document, "\n".join((*marker.vkeys, *lines)))
    return 0


def evidence(args: argparse.Namespace) -> int:
    """Refused heads, each beside the cosigned one that it contradicts."""
    with closing(open_store(args.state)) as store:
        kept = store.evidence()
    if args.keep:
        _keep(DirectoryStorage(args.keep), kept)
    answer(
        args,
        {"evidence": [describe_evidence(one) for one in kept]},
        "\n".join(
            f"{one.kind} of {one.origin}, recorded at {one.recorded_at}\n\n"
            f"cosigned:\n{one.known_note.decode()}\nrefused:\n{one.note.decode()}"
            for one in kept
        )
        or "none",
    )
    return 0


def _keep(storage: DirectoryStorage, kept: Iterable[Evidence]) -> None:
    """Writes both notes of each as files, to be verified and published."""
    for one in kept:
        storage.create(f"{one.kind}-{one.id}/cosigned.note", one.known_note)
        storage.create(f"{one.kind}-{one.id}/refused.note", one.note)


def _read(file: str) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read(MAX_LIST_BYTES + 1)
        with Path(file).open("rb") as opened:
            return opened.read(MAX_LIST_BYTES + 1)
    except OSError as error:
        raise MalformedError(f"log list: can't be read: {error.strerror}") from None
