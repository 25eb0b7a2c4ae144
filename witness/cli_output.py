"""How the commands of a witness answer: text for people, one JSON document with --json."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from tlog.ascii import encode_base64
from witness.decide import KnownHead
from witness.marker import Marker
from witness.records import Evidence, LogRecord

Json = dict[str, Any]


def answer(args: argparse.Namespace, document: Json, text: str) -> None:
    """Prints the one or the other."""
    if args.json:
        print_json(document)
    else:
        print(printable(text), flush=True)  # noqa: T201 -- the command's answer


def print_json(document: Json) -> None:
    """Prints one document on one line."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def printable(text: str) -> str:
    """The text, with what could steer a terminal spelled out: origins and names may hold any letter."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def identity(marker: Marker) -> Json:
    """Who the witness is."""
    return {"name": marker.name, "vkey": marker.vkeys[0], "vkeys": list(marker.vkeys)}


def describe_log(log: LogRecord, evidence: Sequence[Evidence]) -> Json:
    """A log and its last head; one that was removed has no vkeys."""
    head = describe_head(log.cosigned.head) if log.cosigned else {"size": None, "root": None}
    return {
        "origin": log.origin,
        "vkeys": [key.vkey for key in log.keys],
        **head,
        "time": log.cosigned.time if log.cosigned else None,
        "requests_per_day": log.terms.requests_per_day if log.terms else None,
        "contact": log.terms.contact if log.terms else None,
        "evidence": sum(one.origin == log.origin for one in evidence),
    }


def describe_evidence(one: Evidence) -> Json:
    """A refused head beside the cosigned one, each with its note."""
    return {
        "id": one.id,
        "kind": one.kind,
        "origin": one.origin,
        "recorded_at": one.recorded_at,
        "cosigned": {**describe_head(one.known), "note": one.known_note.decode()},
        "refused": {**describe_head(one.head), "note": one.note.decode()},
    }


def describe_head(head: KnownHead) -> Json:
    """Size and root."""
    return {"size": head.size, "root": encode_base64(head.root)}
