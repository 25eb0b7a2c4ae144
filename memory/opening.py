"""What proves the content of one entry: written for whoever asks, checked by `muniment verify --opening`.

The file is one JSON object: `format`, `commitment`, `link`, `link_salt`, `content`, `content_salt`, the bytes in
base64. Whoever holds it can prove the content for ever, so giving it away is recorded.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from memory import event
from tlog.errors import MalformedError

FORMAT: Final = "muniment-opening/1"
MAX_OPENING_BYTES: Final = 4 * 1024 * 1024
_FIELDS: Final = ("commitment", "link", "link_salt", "content", "content_salt")


def format_opening(fields: dict[str, bytes]) -> bytes:
    """The file for the five byte strings of an opening."""
    document = {"format": FORMAT} | {name: base64.b64encode(fields[name]).decode("ascii") for name in _FIELDS}
    return json.dumps(document, indent=1).encode("ascii") + b"\n"


def parse_opening(data: bytes) -> dict[str, bytes]:
    """The five byte strings of an opening file; MalformedError if it is not one."""
    if len(data) > MAX_OPENING_BYTES:
        raise MalformedError(f"expected an opening of at most {MAX_OPENING_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedError("expected an opening to be a JSON object") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise MalformedError(f"expected an opening of the format {FORMAT}")
    if set(document) != {"format", *_FIELDS}:
        raise MalformedError(f"expected an opening to have {', '.join(_FIELDS)} and nothing else")
    return {name: _bytes(document[name]) for name in _FIELDS}


def open_with(data: bytes, commitment: bytes) -> dict[str, Any]:
    """Link and content that the opening file proves for `commitment`; VerificationError if it opens another."""
    fields = parse_opening(data)
    event.open_content(
        commitment, fields["link"], fields["link_salt"], fields["content"], fields["content_salt"]
    )
    link = event.decode_link(fields["link"])
    return {"kind": link.kind, "seq": link.seq, "content": event.decode_content(fields["content"])}


def _bytes(text: object) -> bytes:
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (ValueError, binascii.Error):
        data = b""
    if not data or base64.b64encode(data).decode("ascii") != text:
        raise MalformedError("expected the fields of an opening to be canonical base64")
    return data
