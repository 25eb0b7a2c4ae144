"""Where a report goes: the files that were asked for, each in the form that its name ends in."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tlog.errors import MalformedError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from auditor.report import Report
    from tlog.cose import CoseSigner
    from tlog.trust import Trust

FORMS: Final = (".json", ".html", ".cose")
_HOW: Final = "muniment audit --new-report-key FILE makes one"


def require_forms(paths: Sequence[Path], key: Path | None) -> None:
    """Returns if every name ends in a form there is, in a folder, and a key is given where one is signed.

    Asked before the audit, which may take hours.
    """
    if any(path.suffix not in FORMS for path in paths):
        raise MalformedError("expected the report to be a .html, .json or .cose file")
    if not all(path.absolute().parent.is_dir() for path in paths):
        raise MalformedError("expected the report to be in a folder that exists")
    if key is None and any(path.suffix == ".cose" for path in paths):
        raise MalformedError(f"expected --report-key FILE with a .cose report: your own key ({_HOW})")


def load_report_key(path: Path, trust: Trust, home: Path | None) -> CoseSigner:
    """The auditor's signer. RefusedError for a key of the operator: a report must not be signed by who is audited."""
    from tlog.certificates import USES
    from tlog.keys import load_cose_key

    if not path.exists():
        raise MalformedError(f"expected --report-key to be a key file that exists ({_HOW})")
    if home is not None and path.resolve().is_relative_to(home.resolve()):
        raise RefusedError(
            "the key lies in the home that is audited: a report is signed by the auditor's own",
            code="report_key",
        )
    signer = load_cose_key(path)
    for use in USES:
        if use != "report" and signer.kid in {one.kid for one in trust.keys_for(use)}:
            raise RefusedError(
                f"this is the operator's {use} key: a report is signed by the auditor's own",
                code="report_key",
            )
    return signer


def make_report_key(path: Path) -> str:
    """The lines that go into the trust files of those who shall believe reports signed by the new key in `path`."""
    from tlog.certificates import TrustedKey
    from tlog.keys import make_root_key
    from tlog.trust_text import format_key

    signer = make_root_key(path)
    lines = format_key(TrustedKey("report", signer.key, int(time.time())))
    return "\n".join(("[[key]]", *lines))


def write_reports(report: Report, paths: Sequence[Path], signer: CoseSigner | None) -> bytes:
    """The JSON report, once every file is written. Either a file has the whole report or it is as it was."""
    from auditor.report import to_document
    from auditor.report_cose import encode_report, sign_report
    from auditor.report_html import to_html

    document = encode_report(to_document(report))
    for path in paths:
        if path.suffix == ".html":
            _write(path, to_html(report).encode())
        elif path.suffix == ".cose" and signer is not None:
            origin = report.subject.get("origin")
            _write(path, sign_report(signer, document, None if origin is None else str(origin)))
        else:
            _write(path, document)
    return document


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        raise UnavailableError("the report can't be written to the given file", code="report") from None
