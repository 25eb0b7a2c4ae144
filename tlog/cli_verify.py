"""`muniment verify …` over files alone. Nothing of a home or a log's service is loaded: most of its time is imports."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tlog.cli_output import read_file, read_regular_file, write_json
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from tlog.claims import DescribeManifest, LogCopy, OpenContent
    from tlog.trust import Trust
    from tlog.verify import Evidence, Verdict


def add_verify_command(subparsers: Any) -> None:
    """Adds `verify` to the parsers of `muniment`."""
    parser = subparsers.add_parser("verify", help="check receipts, proofs, manifests offline")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a receipt, proof, checkpoint or manifest")
    trust = parser.add_mutually_exclusive_group()
    trust.add_argument("--trust", metavar="FILE", help="a trust file: policy and keys")
    trust.add_argument("--policy", metavar="FILE", help="a C2SP tlog-policy: logs and witnesses")
    trust.add_argument("--log-key", metavar="VKEY", help="the public key of a log, no witnesses")
    parser.add_argument("--opening", metavar="FILE", help="what proves the content of an entry")
    parser.add_argument(
        "--log",
        metavar="DIR|URL|s3://…",
        help="the log's files: whether they have what a manifest says of itself",
    )


def run_verify(
    args: argparse.Namespace,
    *,
    open_content: OpenContent | None = None,
    describe_manifest: DescribeManifest | None = None,
) -> int:
    """Verifies files and gives the exit code: 0 all hold, 1 one does not, 2 one is not what can be verified."""
    from tlog.claims import Caller
    from tlog.verify import verify_files

    opening = None if args.opening is None else read_file(args.opening, 1 << 23)
    trust, now = _given_trust(args), int(time.time())
    log = None if args.log is None else _read_log(args.log)
    caller = Caller(trust, now, opening, open_content, describe_manifest, log)
    files, unread = _read_evidence(args.files)
    verdicts = (*verify_files(files, caller, args.opening or ""), *unread)
    holds = all(verdict.holds for verdict in verdicts)
    if args.json:
        write_json({"files": [_document(verdict) for verdict in verdicts], "holds": holds})
    else:
        sys.stdout.write("".join(map(_paragraph, verdicts)))
    if holds:
        return 0
    return 1 if any(not one.holds and one.kind != "unknown" for one in verdicts) else 2


def _read_log(place: str) -> LogCopy:
    from tlog.log_copy import read_copy

    return read_copy(place)


def _read_evidence(names: Sequence[str]) -> tuple[list[Evidence], tuple[Verdict, ...]]:
    """The files that can be read, and the verdicts on those that cannot: one of them keeps no other from its own."""
    from tlog.claims import Claim
    from tlog.verify import MAX_FILE_BYTES, Verdict, recognize

    files: list[Evidence] = []
    unread: list[Verdict] = []
    for name in names:
        try:
            files.append(recognize(name, read_regular_file(name, MAX_FILE_BYTES)))
        except MalformedError as error:
            if len(names) == 1:
                raise
            claim = Claim("unreadable", error.message.capitalize() + ".")
            unread.append(Verdict(name, "unknown", False, (), (), (claim,)))
    return files, tuple(unread)


def _given_trust(args: argparse.Namespace) -> Trust | None:
    from tlog.note import parse_vkey
    from tlog.policy import LogEntry, make_policy, parse_policy
    from tlog.trust import MAX_TRUST_BYTES, Trust, parse_trust

    if args.trust is not None:
        try:
            return parse_trust(read_file(args.trust, MAX_TRUST_BYTES).decode())
        except UnicodeDecodeError:
            raise MalformedError("trust: expected UTF-8") from None
    if args.policy is not None:
        return Trust(parse_policy(read_file(args.policy, 1 << 20)))
    if args.log_key is not None:
        return Trust(make_policy([LogEntry(parse_vkey(args.log_key))], [], [], None))
    return None


def _document(verdict: Verdict) -> dict[str, Any]:
    def claims(name: str) -> list[dict[str, str]]:
        return [{"code": claim.code, "text": claim.text} for claim in getattr(verdict, name)]

    document: dict[str, Any] = {"file": verdict.name, "kind": verdict.kind, "holds": verdict.holds}
    return document | {name: claims(name) for name in ("proved", "not_proved", "failed")}


def _paragraph(verdict: Verdict) -> str:
    outcome = "holds" if verdict.holds else "DOES NOT HOLD"
    lines = [f"{verdict.name} ({verdict.kind.replace('_', ' ')}): {outcome}"]
    for title, claims in (
        ("failed", verdict.failed),
        ("proved", verdict.proved),
        ("not proved", verdict.not_proved),
    ):
        lines += [f"  {title:<11} {claim.text} [{claim.code}]" for claim in claims]
    return "".join(f"{_visible(line)}\n" for line in lines)


def _visible(text: str) -> str:
    """`text` with control, bidirectional and unpaired characters written as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
