"""The erasures of one request, found again by its reference; and how many requests of a tenant wait for somebody."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from memory import store_requests
from memory.manifest import decode_manifest
from memory.model import Principal
from memory.scope import open_scope
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import ErasureRow
    from memory.store_read import Snapshot

_REQUEST: Final = re.compile(r"[0-9a-f]{32}|[1-9][0-9]{0,17}")
_REFERENCE_CHARACTERS: Final = 32


def rows_of(view: Snapshot, parts: Parts, principal: Principal, reference: object) -> tuple[ErasureRow, ...]:
    """The erasures of a request of the caller's tenant, or of one that has no name any more, for its owner.

    The reference is 32 hexadecimal digits, or the number of a manifest of it that is the last of its erasure. Raises
    MalformedError with code `unknown_id` if there is none.
    """
    wanted = _check_reference(reference)
    scope = open_scope(view, parts.vault, principal)
    if len(wanted) == _REFERENCE_CHARACTERS:
        found = store_requests.of_request(view, bytes.fromhex(wanted))
    else:
        numbered = (one for one in view.erasures() if _number(one) == int(wanted))
        found = tuple(row for one in numbered for row in store_requests.of_request(view, one.request))
    found = tuple(row for row in found if row.tombstone_seq is not None and row.manifest is not None)
    if not found:
        raise unknown()
    tenant_id = found[0].tenant_id
    nameless = not view.tenant_by_id(tenant_id).name and "memory:purge" in principal.scopes
    if not nameless and (scope is None or scope.tenant_id != tenant_id):
        raise unknown()
    return found


def unknown() -> MalformedError:
    """The answer to a reference that stands for nothing of the caller's."""
    return MalformedError("expected the reference of an erasure of this tenant", code="unknown_id")


def document_of(row: ErasureRow) -> dict[str, Any]:
    """What the last manifest of an erasure says."""
    assert row.manifest is not None  # `rows_of` gives none without
    return dict(decode_manifest(row.manifest).document)


def _number(row: ErasureRow) -> int | None:
    return None if row.manifest is None else decode_manifest(row.manifest).number


def _check_reference(request: object) -> str:
    if not isinstance(request, str) or not _REQUEST.fullmatch(request):
        raise MalformedError(
            "expected request to be the reference of an erasure, 32 hexadecimal digits, or the number of its manifest"
        )
    return request
