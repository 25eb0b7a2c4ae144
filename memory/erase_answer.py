"""What an erasure is answered with, once its manifest is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory.log_places import public_name
from memory.manifest_text import REASONS, STATES, sentences

if TYPE_CHECKING:
    from memory.erase_record import Finished
    from memory.erase_selection import Mentioned
    from memory.parts import Parts


def describe(parts: Parts, finished: Finished, mentions: Mentioned) -> dict[str, Any]:
    """What a finished erasure is answered with; `mentions` are the records beside it that name its subject."""
    document = finished.document
    none: dict[str, Any] = {"result": "not_run", "counts": {}}
    residue = next((check for check in document["checks"] if check["check"] == "residue"), none)
    hits = {"found": residue.get("residue", [])}
    return {
        "erased": document["scope"]["count"],
        "derived": document["scope"]["derived"],
        "state": document["state"],
        "message": STATES[document["state"]],
        "why": sentences(REASONS, document["why"]),
        "guard": document["guard"]["disposition"],
        "ledger": document["guard"]["entries"],
        **mentions.shape(),
        "openings": document["scope"].get("openings", 0),
        "held": document["scope"].get("held", 0),
        "backups": len(document.get("backups", ())),
        "manifest": public_name(parts.home.path, parts.home.config, finished.file),
        "number": document["number"],
        "request": document["request"].hex(),
        "residue": {"result": residue["result"], **residue["counts"], **hits},
        "checks": {check["check"]: check["result"] for check in document["checks"]},
    }
