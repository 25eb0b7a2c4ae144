"""A manifest that somebody was given, beside the one that the log has."""

from __future__ import annotations

from pathlib import Path

from auditor.evidence import LogFiles
from auditor.findings import Finding, Note, Outcome
from auditor.manifests import FOLDER as MANIFESTS
from auditor.manifests import decode_manifest
from tlog.errors import MalformedError


def compare_given(path: Path, files: LogFiles) -> Outcome:
    """A manifest that somebody was given, against the one that the log has under its number."""
    try:
        data = path.read_bytes()
        manifest = decode_manifest(data)
    except OSError:
        raise MalformedError("expected a manifest that can be read") from None
    except MalformedError as error:
        raise MalformedError(f"expected a file that is a manifest: {error.message}") from None
    where = f"log {MANIFESTS}{manifest.number}.cose"
    if files.read(f"{MANIFESTS}{manifest.number}.cose") == data:
        return Outcome(checked=(Note("manifest", "given manifest that the log has, byte for byte", 1),))
    what = "The manifest that was given is not the one that the log has under its number."
    return Outcome((Finding("MANIFEST_ALTERED", where, what),))
