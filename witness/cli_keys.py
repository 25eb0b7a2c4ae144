"""`muniment witness init` and `rotate-key`: a witness's keys, made here or held elsewhere."""

from __future__ import annotations

import argparse
import os
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

from tlog.ascii import decode_base64
from tlog.cosignature import SIGNATURE_BYTES
from tlog.errors import MalformedError, RefusedError
from tlog.note import SignatureType, VerifierKey, make_verifier_key, parse_vkey, require_name
from witness.cli_output import answer, identity
from witness.marker import MARKER, KeySource, Marker, default_source
from witness.signers import (
    KEYS,
    RemoteCosigner,
    command_signer,
    find_agent_key,
    kind_name,
    load_cosigners,
)
from witness.ssh_agent import agent_of_environment
from witness.store import DATABASE, create_store, open_store, replace_marker

_PROBE = b"muniment witness: is this the key?\n"  # no cosignature begins so
_SSH_ED25519 = "ssh-ed25519"
_SSH_BLOB_BYTES = 51


def add_key_options(parser: argparse.ArgumentParser) -> None:
    """The options that say where a key lies, if not in a file that is made here."""
    parser.add_argument(
        "--ssh-agent", action="store_true", help="the Ed25519 key is held by the agent of SSH_AUTH_SOCK"
    )
    parser.add_argument(
        "--key-command", metavar="COMMAND", help="a command that signs its standard input, with --public-key"
    )
    parser.add_argument(
        "--public-key", metavar="KEY", help="the key that is held elsewhere: base64, or a line ssh-ed25519 …"
    )


def init(args: argparse.Namespace) -> int:
    """Makes the keys, then an empty state."""
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
    kinds = [SignatureType.COSIGNATURE_ED25519, *([SignatureType.MLDSA44] if args.mldsa else [])]
    keys = [_new_key(args, state, args.name, kinds[0])]
    keys += [_key_in_file(state, args.name, kind, default_file(kind)) for kind in kinds[1:]]
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    vkeys = [key.vkey for key, _ in keys]
    sources = [(key.vkey, source) for key, source in keys if source != default_source(key)]
    create_store(state, args.name, vkeys, sources)
    answer(args, {"name": args.name, "vkey": vkeys[0], "vkeys": vkeys}, "\n".join(vkeys))
    return 0


def rotate_key(args: argparse.Namespace) -> int:
    """Adds a key, with which the witness then cosigns too, or retires one."""
    with closing(open_store(args.state)) as store:
        marker = store.marker
    changed = _retired(marker, args.retire) if args.retire else _with_new_key(args, marker)
    replace_marker(args.state, marker, changed)
    added = [vkey for vkey in changed.vkeys if vkey not in marker.vkeys]
    retired = [vkey for vkey in marker.vkeys if vkey not in changed.vkeys]
    answer(
        args,
        {**identity(changed), "added": added, "retired": retired},
        "\n".join(
            (
                *(f"added    {vkey}" for vkey in added),
                *(f"retired  {vkey}" for vkey in retired),
                "restart the witness to cosign with the keys listed by `muniment witness status`",
            )
        ),
    )
    return 0


def default_file(kind: int) -> str:
    """The file of a witness's first key of this type."""
    return f"{kind_name(kind)}.key"


def _with_new_key(args: argparse.Namespace, marker: Marker) -> Marker:
    kind = SignatureType.MLDSA44 if args.mldsa else SignatureType.COSIGNATURE_ED25519
    load_cosigners(args.state, marker)  # a state with a key missing is mended first
    key, source = _new_key(args, args.state, marker.name, kind)
    if key.vkey in (*marker.vkeys, *marker.retired):
        raise RefusedError("witness: expected a key that this witness never had", code="exists")
    return Marker(
        marker.name,
        (*marker.vkeys, key.vkey),
        marker.database,
        (*marker.sources, (key.vkey, source)),
        marker.retired,
    )


def _retired(marker: Marker, vkey: str) -> Marker:
    if vkey not in marker.vkeys:
        raise RefusedError("witness: expected the vkey of a key that cosigns now", code="unknown_key")
    if len(marker.vkeys) == 1:
        raise RefusedError(
            "witness: this is its only key; add another one first, with `rotate-key`", code="only_key"
        )
    return Marker(
        marker.name,
        tuple(one for one in marker.vkeys if one != vkey),
        marker.database,
        tuple((one, source) for one, source in marker.sources if one != vkey),
        (*marker.retired, vkey),
    )


def _new_key(args: argparse.Namespace, state: Path, name: str, kind: int) -> tuple[VerifierKey, KeySource]:
    if args.ssh_agent and args.key_command:
        raise MalformedError("witness: expected --ssh-agent or --key-command, not both")
    if args.ssh_agent:
        return _key_of_agent(args, name, kind)
    if args.key_command:
        return _key_of_command(args, name, kind)
    if args.public_key:
        raise MalformedError("witness: --public-key goes with --ssh-agent or --key-command")
    return _key_in_file(state, name, kind, _free_file(state, kind))


def _key_in_file(state: Path, name: str, kind: int, file: str) -> tuple[VerifierKey, KeySource]:
    from tlog.keys import make_cosigner_key

    key = make_cosigner_key(state / KEYS / file, name, kind).verifier_key
    return key, KeySource("file", (file,))


def _free_file(state: Path, kind: int) -> str:
    number = 1
    file = default_file(kind)
    while (state / KEYS / file).exists():
        number += 1
        file = f"{kind_name(kind)}-{number}.key"
    return file


def _key_of_agent(args: argparse.Namespace, name: str, kind: int) -> tuple[VerifierKey, KeySource]:
    if kind != SignatureType.COSIGNATURE_ED25519:
        raise MalformedError("witness: an ssh-agent holds no ML-DSA-44 key")
    agent = agent_of_environment()
    wanted = _public_key(args.public_key) if args.public_key else None
    public_key = find_agent_key(agent, wanted).public_key
    key = make_verifier_key(name, kind, public_key)
    RemoteCosigner(key, lambda message: agent.sign(public_key, message)).sign_bytes(_PROBE)
    return key, KeySource("agent")


def _key_of_command(args: argparse.Namespace, name: str, kind: int) -> tuple[VerifierKey, KeySource]:
    words = shlex.split(args.key_command)
    if not words or not args.public_key:
        raise MalformedError("witness: expected a command, and --public-key with the key it signs with")
    if os.sep in words[0]:
        words[0] = os.path.abspath(words[0])  # the service starts it from another folder
    key = make_verifier_key(name, kind, _public_key(args.public_key))
    RemoteCosigner(key, command_signer(words, SIGNATURE_BYTES[kind])).sign_bytes(_PROBE)
    return key, KeySource("command", tuple(words))


def _public_key(text: str) -> bytes:
    """The raw key in base64, in a line of OpenSSH, or in the file that holds such a line."""
    words = text.split()
    if words[:1] == [_SSH_ED25519] and len(words) > 1:
        blob = decode_base64(words[1], "public key")
        if len(blob) != _SSH_BLOB_BYTES:
            raise MalformedError("public key: expected a line ssh-ed25519 BASE64")
        return blob[-32:]
    return decode_base64(text, "public key")


def describe_keys(marker: Marker) -> list[dict[str, Any]]:
    """Each key of the witness: its type, where it lies, whether it still cosigns."""
    described = []
    for vkey in (*marker.vkeys, *marker.retired):
        source = marker.source(vkey) if vkey in marker.vkeys else None
        described.append(
            {
                "vkey": vkey,
                "kind": kind_name(parse_vkey(vkey).kind),
                "held_by": source.kind if source else None,
                "cosigns": source is not None,
            }
        )
    return described
