"""The manifests of a request, for whoever may erase: the signed bytes, as they lie beside the tiles."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from memory.erase_found import document_of, rows_of, unknown
from memory.manifest import decode_manifest
from memory.principal import require
from memory.recovery import manifest_path
from memory.replay import read_public
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.parts import Parts

_MAX_DIGITS: Final = 18


def read_manifest(
    parts: Parts, principal: Principal, reference: object, number: object = None
) -> dict[str, Any]:
    """A manifest of a request of the caller's tenant: the one of this number, or the last.

    A manifest of another request is answered as one that is not there.
    """
    require(principal, "memory:forget")
    with parts.store.read() as view:
        rows = rows_of(view, parts, principal, reference)
    wanted = document_of(rows[-1])["number"] if number is None else _check_number(number)
    data = read_public(parts.home, manifest_path(wanted))
    manifest = None if data is None else decode_manifest(data)
    if manifest is None or manifest.document["request"] != rows[0].request:
        raise unknown()
    return {
        "request": rows[0].request.hex(),
        "number": manifest.number,
        "state": manifest.state,
        "digest": manifest.digest.hex(),
        "manifest": base64.b64encode(manifest.raw).decode("ascii"),
    }


def _check_number(number: object) -> int:
    text = str(number) if isinstance(number, str | int) and not isinstance(number, bool) else ""
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS) or text.startswith("0"):
        raise MalformedError("expected the number of a manifest, from 1")
    return int(text)
