"""`muniment witness`: set up a witness, tell it of logs, run it, look at what it holds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tlog.ascii import encode_base64
from tlog.cosignature import Cosigner
from tlog.errors import MalformedError, RefusedError
from tlog.note import SignatureType, parse_vkey, require_name
from witness.decide import KnownHead
from witness.store import DATABASE, MARKER, Evidence, LogRecord, Store, create_store, open_store

KEYS: Final = "keys"
_KEY_FILES: Final = {
    SignatureType.COSIGNATURE_ED25519: "ed25519.key",
    SignatureType.MLDSA44: "mldsa44.key",
}

Json = dict[str, Any]


def add_witness_commands(subparsers: Any) -> None:
    """Adds `witness` and what stands below it."""
    parser = subparsers.add_parser(
        "witness",
        help="run a witness for logs",
        description="Run a witness: it cosigns the heads of logs, and never two that contradict each other.",
    )
    commands = parser.add_subparsers(dest="witness_command", metavar="COMMAND", required=True)
    init = _add_command(commands, "init", "make keys and an empty state")
    init.add_argument(
        "--name", required=True, help="the witness's name, a schema-less URL such as w.example/1"
    )
    init.add_argument("--mldsa", action="store_true", help="make an ML-DSA-44 key beside the Ed25519 key")
    add_log = _add_command(commands, "add-log", "trust a log's key; a running witness sees it at once")
    add_log.add_argument("--vkey", required=True, help="the log's verifier key")
    add_log.add_argument("--origin", help="the log's origin, where it is not the key's name")
    serve = _add_command(commands, "serve", "answer requests until SIGTERM or Ctrl-C")
    serve.add_argument("--listen", required=True, metavar="HOST:PORT", help="port 0 lets the system choose")
    _add_command(commands, "status", "who the witness is and the last head of each log")
    _add_command(commands, "evidence", "refused checkpoints that contradict cosigned ones, with both notes")


def _add_command(commands: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_text, description=help_text)
    parser.add_argument("--state", required=True, metavar="DIR", type=Path, help="the witness's own folder")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    return parser


def run_witness(args: argparse.Namespace) -> int:
    """Runs one of them and gives its exit code; raises the errors of `tlog.errors`."""
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "init": _init,
        "add-log": _add_log,
        "serve": _serve,
        "status": _status,
        "evidence": _evidence,
    }
    return commands[args.witness_command](args)


def _init(args: argparse.Namespace) -> int:
    from tlog.keys import make_cosigner_key

    require_name(args.name, "witness name")
    state: Path = args.state
    for part in (MARKER, DATABASE, KEYS):
        # A key that once cosigned must never be met by an empty database.
        if (state / part).exists():
            raise RefusedError(
                f"witness: the folder already holds {part}, of a witness or of an init that was interrupted; "
                "use an empty folder",
                code="exists",
            )
    kinds = _KEY_FILES if args.mldsa else (SignatureType.COSIGNATURE_ED25519,)
    keys = [make_cosigner_key(state / KEYS / _KEY_FILES[kind], args.name, kind) for kind in kinds]
    vkeys = [key.verifier_key.vkey for key in keys]
    create_store(state, args.name, vkeys)
    _answer(args, {"name": args.name, "vkey": vkeys[0], "vkeys": vkeys}, "\n".join(vkeys))
    return 0


def _add_log(args: argparse.Namespace) -> int:
    key = parse_vkey(args.vkey)
    origin = key.name if args.origin is None else args.origin
    with closing(open_store(args.state)) as store:
        added = store.add_log(origin, key)
    text = "added" if added else "was known already"
    _answer(args, {"origin": origin, "vkey": key.vkey, "added": added}, text)
    return 0


def _serve(args: argparse.Namespace) -> int:
    from tlog.web import parse_listen

    host, port = parse_listen(args.listen)
    with closing(open_store(args.state)) as store:
        cosigners = _load_cosigners(args.state, store.marker.vkeys)
        from witness import server, service

        def announce(url: str) -> None:
            print(f"listening on {url}", file=sys.stderr, flush=True)  # noqa: T201 -- for people and scripts
            if args.json:
                _print_json({"listening": url, **_identity(store)})

        server.serve(service.Witness(store, cosigners), host, port, announce)
    return 0


def _load_cosigners(state: Path, vkeys: Sequence[str]) -> list[Cosigner]:
    from tlog.keys import load_cosigner_key

    kinds = [parse_vkey(vkey).kind for vkey in vkeys]
    files = [state / KEYS / name for kind, name in _KEY_FILES.items() if kind in kinds]
    cosigners: list[Cosigner] = [load_cosigner_key(file) for file in files]
    if [cosigner.verifier_key.vkey for cosigner in cosigners] != list(vkeys):
        raise MalformedError(f"witness: the files in {KEYS} are not the keys that {MARKER} names")
    return cosigners


def _status(args: argparse.Namespace) -> int:
    with closing(open_store(args.state)) as store:
        logs, evidence = store.logs(), store.evidence()
    found = [
        {**_describe(log), "evidence": sum(one.origin == log.origin for one in evidence)} for log in logs
    ]
    lines = [f"{log['origin']}  size {log['size']}  evidence {log['evidence']}" for log in found]
    _answer(args, {**_identity(store), "logs": found}, "\n".join((*store.marker.vkeys, *lines)))
    return 0


def _evidence(args: argparse.Namespace) -> int:
    with closing(open_store(args.state)) as store:
        evidence = store.evidence()
    _answer(
        args,
        {"evidence": [_describe_evidence(one) for one in evidence]},
        "\n".join(
            f"{one.kind} of {one.origin}, recorded at {one.recorded_at}\n\n"
            f"cosigned:\n{one.known_note.decode()}\nrefused:\n{one.note.decode()}"
            for one in evidence
        )
        or "none",
    )
    return 0


def _describe_evidence(one: Evidence) -> Json:
    return {
        "id": one.id,
        "kind": one.kind,
        "origin": one.origin,
        "recorded_at": one.recorded_at,
        "cosigned": {**_describe_head(one.known), "note": one.known_note.decode()},
        "refused": {**_describe_head(one.head), "note": one.note.decode()},
    }


def _identity(store: Store) -> Json:
    marker = store.marker
    return {"name": marker.name, "vkey": marker.vkeys[0], "vkeys": list(marker.vkeys)}


def _describe(log: LogRecord) -> Json:
    head = _describe_head(log.cosigned.head) if log.cosigned else {"size": None, "root": None}
    time = log.cosigned.time if log.cosigned else None
    return {"origin": log.origin, "vkeys": [key.vkey for key in log.keys], **head, "time": time}


def _describe_head(head: KnownHead) -> Json:
    return {"size": head.size, "root": encode_base64(head.root)}


def _answer(args: argparse.Namespace, document: Json, text: str) -> None:
    if args.json:
        _print_json(document)
    else:
        # Origins and names may hold any letter; a terminal must not be steered by them.
        shown = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
        print(shown, flush=True)  # noqa: T201 -- the command's answer


def _print_json(document: Json) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()
