"""`muniment log …` over a home that is handed in."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from tlog.cli_keys import COMMANDS, LogOperator, add_key_commands, run_key_command
from tlog.cli_output import answer, read_file
from tlog.cli_serve import ServedHome, add_serve_command, run_serve
from tlog.errors import MalformedError, UnavailableError, VerificationError

if TYPE_CHECKING:
    from tlog.log import Log
    from tlog.policy import Policy
    from tlog.trust import Trust

PUBLISH_SECONDS: Final = 10.0


class LogHome(Protocol):
    """What the log commands need of a home."""

    def log_vkey(self) -> str: ...

    def log(self) -> Log: ...

    def frozen_logs(self) -> Iterable[Log]:
        """The logs that this one took the place of, the oldest first, each to be closed."""

    def publish(self, deadline_seconds: float) -> Mapping[str, Any]:
        """Size, root and state, once all that is signed is in the log and its checkpoint public."""

    def policy(self) -> Policy: ...

    def set_policy(self, text: str) -> Policy: ...

    def trust(self) -> Trust: ...


# muniment log


def add_log_commands(subparsers: Any) -> None:
    """Adds `log` with its commands to the parsers of `muniment`."""
    parser = subparsers.add_parser("log", help="publish, look at and check the log")
    commands = parser.add_subparsers(dest="log_command", metavar="COMMAND", required=True)
    publish = commands.add_parser("publish", help="log what is signed, have it cosigned, make it public")
    publish.add_argument("--deadline", type=float, default=PUBLISH_SECONDS, metavar="SECONDS")
    checkpoint = commands.add_parser("checkpoint", help="the public checkpoint")
    commands.add_parser("vkey", help="the log's public key")
    policy = commands.add_parser("policy", help="the policy that checkpoints have to satisfy")
    policy.add_argument("--set", metavar="FILE", help="the policy from now on (C2SP tlog-policy)")
    trust = commands.add_parser("trust", help="the trust file to hand out to verifiers")
    for one in (checkpoint, policy, trust):
        one.add_argument("-o", "--output", metavar="FILE", help="write it there")
    commands.add_parser("fsck", help="derive the root again from every file of the log")
    commands.add_parser("status", help="what is committed and what is public")
    add_serve_command(commands)
    add_key_commands(commands)


def run_log(args: argparse.Namespace, home: LogHome, operator: LogOperator | None = None) -> int:
    """Runs one `log` command and gives its exit code; `operator` is for those about keys, mirror and successor."""
    if args.log_command in COMMANDS:
        return run_key_command(args, operator)
    commands: dict[str, Callable[[argparse.Namespace, LogHome], int]] = {
        "publish": _publish,
        "checkpoint": _checkpoint,
        "vkey": _vkey,
        "policy": _policy,
        "trust": _trust,
        "fsck": _fsck,
        "status": _status,
        "serve": _serve,
    }
    return commands[args.log_command](args, home)


def _publish(args: argparse.Namespace, home: LogHome) -> int:
    if not 0 < args.deadline < 3600:
        raise MalformedError("expected a deadline of more than 0 and less than 3600 seconds")
    published = dict(home.publish(args.deadline))
    _say_limit(home.policy())
    text = f"{published['state']}: {published['size']} entries, root {published['root']}\n"
    return answer(args, published, text)


def _checkpoint(args: argparse.Namespace, home: LogHome) -> int:
    from tlog.checkpoint import parse_checkpoint
    from tlog.note import parse_note

    data = home.log().checkpoint()
    if data is None:
        raise UnavailableError("nothing is published yet (muniment log publish)", code="no_checkpoint")
    checkpoint = parse_checkpoint(parse_note(data).text)
    note = data.decode()
    return answer(args, {"origin": checkpoint.origin, **_head(checkpoint), "note": note}, note)


def _vkey(args: argparse.Namespace, home: LogHome) -> int:
    vkey = home.log_vkey()
    return answer(args, {"vkey": vkey, "origin": vkey.partition("+")[0]}, f"{vkey}\n")


def _policy(args: argparse.Namespace, home: LogHome) -> int:
    if args.set is not None:
        policy = home.set_policy(read_file(args.set, 1 << 20).decode("utf-8", "surrogateescape"))
    else:
        policy = home.policy()
    names = [witness.name for witness in policy.witnesses]
    return answer(args, {"policy": policy.text, "quorum": policy.quorum, "witnesses": names}, policy.text)


def _trust(args: argparse.Namespace, home: LogHome) -> int:
    trust = home.trust()
    certified = "root" if trust.roots else "inline"
    if not trust.roots:
        sys.stderr.write("muniment: the trust file lists the keys themselves; no root certifies them\n")
    return answer(args, {"trust": trust.text, "keys": certified}, trust.text)


def _fsck(args: argparse.Namespace, home: LogHome) -> int:
    _say_limit(home.policy())
    frozen = []
    for old in home.frozen_logs():
        frozen.append({"origin": old.settings.origin, **_check_log(old, home.policy())})
        old.close()
    found = _check_log(home.log(), home.policy())
    lines = [f"whole: {found['size']} entries, {found['files']} files"]
    lines += [
        f"whole: {one['size']} entries, {one['files']} files ({one['origin']}, ended)" for one in frozen
    ]
    doubled = sum(one["doubled"] for one in (found, *frozen))
    if doubled:
        lines.append(f"{doubled} entries stand in the log twice")
    text = "".join(f"{line}\n" for line in lines)
    answer(args, {**found, "frozen": frozen}, text)
    return 1 if doubled else 0


def _check_log(log: Log, policy: Policy) -> dict[str, Any]:
    """What fsck found of one log; an error names the log's file that is at fault."""
    from tlog.ascii import encode_base64
    from tlog.fsck import fsck
    from tlog.policy import verify_checkpoint

    try:
        checked = fsck(log.public, log.private)
        checkpoint = log.checkpoint()
        if checkpoint is not None:
            verify_checkpoint(policy, checkpoint, log.settings.origin)
    except VerificationError as error:
        path = error.fields.get("path")
        where = "" if path is None or str(path) in error.message else f": {path}"
        fields = {name: value for name, value in error.fields.items() if isinstance(value, str | int)}
        fields |= {"origin": log.settings.origin}
        raise VerificationError(f"{error.message}{where}", code=error.code, **fields) from None
    return {
        "size": checked.size,
        "root": encode_base64(checked.root),
        "published_size": checked.published_size,
        "files": checked.files,
        "doubled": checked.doubled,
    }


def _say_limit(policy: Policy) -> None:
    """Says what a log cannot promise without witnesses, wherever it is looked at."""
    if not policy.witnesses or policy.quorum is None:
        sys.stderr.write(
            "muniment: no witness has to cosign this log: who has its key can show other readers another one\n"
        )


def _status(args: argparse.Namespace, home: LogHome) -> int:
    from tlog.checkpoint import parse_checkpoint
    from tlog.note import parse_note

    log, policy = home.log(), home.policy()
    _say_limit(policy)
    head, data = log.head(), log.checkpoint()
    published = None if data is None else parse_checkpoint(parse_note(data).text)
    size = published.size if published else 0
    found = {
        "origin": log.settings.origin,
        **_head(head),
        "published": _head(published) if published else None,
        "unpublished": head.size - size,
        "quorum": policy.quorum,
        "witnesses": [witness.name for witness in policy.witnesses],
    }
    text = f"{found['origin']}: {head.size} entries, of which {size} are published\n"
    return answer(args, found, text)


def _serve(args: argparse.Namespace, home: LogHome) -> int:
    # Serving asks more of a home than the other commands do.
    return run_serve(args, cast("ServedHome", home))


def _head(head: Any) -> dict[str, Any]:
    from tlog.ascii import encode_base64

    return {"size": head.size, "root": encode_base64(head.root)}
