"""`muniment audit`: what a home, or a log, is found to be by somebody who trusts neither."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from auditor.cli_monitor import add_follow_options, follow_options, run_follow
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from auditor.findings import Note
    from tlog.trust import Trust

HOME_VARIABLE: Final = "MUNIMENT_HOME"
TRUST: Final = "trust.toml"
MAX_NEEDLE_BYTES: Final = 256 * 1024 * 1024


def add_audit_command(subparsers: Any) -> None:
    """Adds `audit` to the commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "audit",
        help="check memory, log, witnesses and erasures",
        description="Check a home, its log and its erasures from the files alone. Nothing is written to them.",
    )
    parser.add_argument("--home", metavar="DIR", default=None, help="the home to audit (else MUNIMENT_HOME)")
    parser.add_argument(
        "--bundle",
        metavar="DIR",
        default=None,
        help="audit a bundle that `export --evidence` wrote; so does --home",
    )
    parser.add_argument(
        "--log",
        metavar="URL|DIR|s3://BUCKET/PREFIX",
        help="the log to judge by, where it is not the home's own; a bucket is read with your own credentials",
    )
    trusted = parser.add_mutually_exclusive_group()
    trusted.add_argument("--trust", metavar="FILE", type=Path, help="whom you trust: a trust file")
    trusted.add_argument(
        "--policy", metavar="FILE", type=Path, help="whom you trust: a policy of log and witnesses"
    )
    parser.add_argument(
        "--receipts",
        metavar="DIR",
        type=Path,
        help="what clients were given: answers (JSON), receipts, proofs, checkpoints",
    )
    parser.add_argument("--tenant", metavar="NAME", help="audit one tenant without reading the others")
    parser.add_argument(
        "--needles", metavar="FILE|-", help="texts to search for, one a line; - is standard input"
    )
    parser.add_argument(
        "--also", metavar="PATH", type=Path, action="append", default=[], help="search here, too"
    )
    parser.add_argument(
        "--pages",
        metavar="DSN",
        help="look at the pages of the home's database, too, by a superuser's connection",
    )
    parser.add_argument(
        "--manifest",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="compare a manifest you were given",
    )
    parser.add_argument(
        "--state", metavar="DIR", type=Path, help="your folder of heads seen by earlier audits"
    )
    _add_report_options(parser)
    add_follow_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--report",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="write the report: .html to read, .json for programs, .cose signed; may be given several times",
    )
    parser.add_argument(
        "--report-key", metavar="FILE", type=Path, help="your own key, which signs a .cose report"
    )
    parser.add_argument(
        "--new-report-key",
        metavar="FILE",
        type=Path,
        help="make such a key, and print what makes others believe it",
    )


def run_audit(args: argparse.Namespace) -> int:
    """Audits and reports; 0 is clean, 1 findings or inconclusive. Raises the errors of `tlog.errors`."""
    from auditor.report_files import load_report_key, require_forms, write_reports

    if args.new_report_key is not None:
        return _new_report_key(args)
    _require_together(args)
    if args.follow is not None:
        return run_follow(args, _trust(args, None)[0])
    from auditor.audit import Places, audit
    from auditor.bundle import is_bundle
    from auditor.evidence import Asked
    from auditor.findings import Outcome, merge
    from auditor.pg_copy import database_of
    from auditor.progress import told_on
    from auditor.report import Report, Trusted, to_text
    from tlog.replay import cores

    require_forms(args.report, args.report_key)
    home = _home(args)
    if home is None and (args.tenant is not None or args.also):
        # Nobody may take it for searched, or for what one tenant has, because nothing was said of it.
        raise MalformedError(
            "expected --home or --bundle with --tenant and --also: a log has no tenants, and no files"
        )
    if args.pages is not None and (home is None or database_of(home) is None):
        raise MalformedError("expected --pages with a home whose store is a database")
    trust, note = _trust(args, home)
    signer = None if args.report_key is None else load_report_key(args.report_key, trust, home)
    needles = None if args.needles is None else _needles(args.needles)
    now = time.time_ns() // 1000
    also, manifests = tuple(args.also), tuple(args.manifest)
    with _ended_in_order(), told_on(sys.stderr) as tell:
        places = Places(home, args.log, also, manifests, args.state, args.receipts, tell, cores(), args.pages)
        audited = audit(places, Asked(trust, now), tenant=args.tenant, needles=needles)
    outcome = merge([audited.outcome, Outcome(not_checked=() if note is None else (note,))])
    made_at = datetime.fromtimestamp(now // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    kind = "log" if home is None else "bundle" if is_bundle(home) else "home"
    subject: dict[str, str | int] = {"evidence": kind}
    if audited.verified is not None:
        checkpoint = audited.verified.checkpoint
        subject |= {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
    whose: Trusted = "caller" if note is None else "home"
    report = Report(outcome, made_at, subject, audited.exhibits, now // 1_000_000, whose)
    document = write_reports(report, args.report, signer)
    sys.stdout.write(document.decode() if args.json else to_text(report) + "\n")
    sys.stdout.flush()
    return 0 if report.verdict == "clean" else 1


def _require_together(args: argparse.Namespace) -> None:
    """Returns unless options are given that would be passed over: whoever gives one believes that it counts."""
    if args.follow is None:
        if follow_options(args):
            raise MalformedError(f"expected --follow URL with {', '.join(follow_options(args))}")
        return
    audits = (
        "home",
        "bundle",
        "log",
        "receipts",
        "tenant",
        "needles",
        "also",
        "pages",
        "manifest",
        "report",
        "report_key",
    )
    given = [f"--{name.replace('_', '-')}" for name in audits if getattr(args, name)]
    if given:
        raise MalformedError(
            f"expected --follow without {', '.join(given)}: it looks at heads, and audits nothing"
        )


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Whoever ends the audit meanwhile ends it as an error would: what it copied is destroyed first."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _new_report_key(args: argparse.Namespace) -> int:
    """Makes the key; for people on standard error, what is to be done with it."""
    from auditor.report_files import make_report_key

    lines = make_report_key(args.new_report_key)
    if args.json:
        sys.stdout.write(json.dumps({"trust": lines + "\n"}) + "\n")
    else:
        sys.stderr.write(
            "keep the file to yourself; these lines go into the trust file of whoever reads reports\n"
        )
        sys.stdout.write(lines + "\n")
    return 0


def _home(args: argparse.Namespace) -> Path | None:
    """The home that is meant. It must be there: an audit makes nothing."""
    if args.bundle is not None:
        return _bundle(args)
    given = args.home or os.environ.get(HOME_VARIABLE)
    if not given and args.log is not None:
        return None
    if not given:
        from platformdirs import user_data_path

        given = user_data_path("muniment", appauthor=False)
        if not Path(given).is_dir():
            raise MalformedError(
                "expected --home DIR, --bundle DIR or --log: there is no home where one would be"
            )
    home = Path(given).expanduser()
    if not home.is_dir():
        raise MalformedError("expected the home to be a folder that exists")
    return home


def _bundle(args: argparse.Namespace) -> Path:
    """The folder of a bundle, which has to be one: what has lost its list must not pass for a home."""
    from tlog.bundles import NAME

    if args.home is not None:
        raise MalformedError("expected --home or --bundle, not both")
    folder = Path(args.bundle).expanduser()
    if not (folder / NAME).is_file():
        raise MalformedError(f"expected a bundle: a folder with a {NAME}")
    return folder


def _trust(args: argparse.Namespace, home: Path | None) -> tuple[Trust, Note | None]:
    """Whom the caller trusts; without a word of theirs whom the home trusts, which the report then says."""
    from auditor.findings import Note
    from auditor.home_contents import read_plain
    from tlog.trust import parse_trust, trust_from_policy

    if args.trust is not None:
        return parse_trust(_read_text(args.trust, "a trust file")), None
    if args.policy is not None:
        return trust_from_policy(_read_text(args.policy, "a policy file")), None
    if home is None:
        raise MalformedError("expected --trust or --policy: a log does not say whom to trust")
    text = "the trust came from the home itself, and not from you: give --trust with a file you hold"
    what = "a trust file, given or in the home"
    return parse_trust(_read_text(home / TRUST, what, read_plain)), Note("trust", text)


def _needles(source: str) -> list[str]:
    """The texts to search for; they stay in memory."""
    if source == "-":
        data = sys.stdin.buffer.read(MAX_NEEDLE_BYTES + 1)
    else:
        try:
            with open(source, "rb") as file:
                data = file.read(MAX_NEEDLE_BYTES + 1)
        except OSError:
            raise MalformedError("expected a file of texts to search for that can be read") from None
    if len(data) > MAX_NEEDLE_BYTES:
        raise MalformedError("expected at most 256 MiB of texts to search for")
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise MalformedError("expected the texts to search for in UTF-8, one a line") from None
    needles = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not needles:
        raise MalformedError("expected at least one text to search for")
    return needles


def _read_text(path: Path, what: str, read: Callable[[Path], bytes] = Path.read_bytes) -> str:
    try:
        # Bytes that are not UTF-8 are the policy parser's to judge: a policy is read as octets.
        return read(path).decode("utf-8", "surrogateescape")
    except OSError:
        raise MalformedError(f"expected {what} that can be read") from None
