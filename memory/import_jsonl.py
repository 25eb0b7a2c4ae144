"""Facts from a file of JSON lines, one a line: checked, and given an identity.

A line is an object with `text` and, where they apply, key, value, subject, valid_from, valid_until, client, source,
provisional, many, restatement. Running a file twice adds nothing: each line carries an idempotency key made from
its bytes and from how often the same bytes came before it, so it may be interrupted and run again at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from memory.import_report import Line
from tlog.errors import Error, MalformedError

MAX_LINE_BYTES: Final = 1024 * 1024
_TEXTS: Final = ("text", "key", "value", "subject", "client", "source")
_TIMES: Final = ("valid_from", "valid_until")
_FLAGS: Final = ("provisional", "many", "restatement")
FIELDS: Final = frozenset((*_TEXTS, *_TIMES, *_FLAGS))


def parse_lines(lines: Iterable[bytes]) -> Iterator[Line | tuple[int, Error]]:
    """Each line that is not blank, as a fact or as (number, why it is not one)."""
    seen: Counter[bytes] = Counter()
    for number, raw in enumerate(lines, 1):
        stripped = raw.strip()
        if not stripped:
            continue
        try:
            fields = _parse(stripped)
        except MalformedError as error:
            yield number, error
            continue
        digest = hashlib.sha256(stripped).digest()
        seen[digest] += 1
        client = fields.pop("client", None)
        fields["idempotency_key"] = f"jsonl:{digest.hex()}:{seen[digest]}"
        yield Line(number, client, fields)


def _parse(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_LINE_BYTES:
        raise MalformedError(f"expected a line of at most {MAX_LINE_BYTES} bytes")
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        raise MalformedError("expected a line to be one JSON object in UTF-8") from None
    if not isinstance(fields, dict):
        raise MalformedError("expected a line to be a JSON object")
    if not set(fields) <= FIELDS:
        raise MalformedError(f"expected only the fields {', '.join(sorted(FIELDS))}", code="unknown_argument")
    if "text" not in fields:
        raise MalformedError("expected a line to have a text")
    for name in _TEXTS:
        if not isinstance(fields.get(name, ""), str):
            raise MalformedError(f"expected {name} to be a string")
    for name in _FLAGS:
        if not isinstance(fields.get(name, False), bool):
            raise MalformedError(f"expected {name} to be true or false")
    for name in _TIMES:
        if isinstance(fields.get(name, ""), bool) or not isinstance(fields.get(name, ""), (str, int, float)):
            raise MalformedError(f"expected {name} to be a time")
    return fields
