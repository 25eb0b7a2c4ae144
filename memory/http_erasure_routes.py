"""The resources of erasing: requests with their previews and what follows them, legal holds, retention.

What follows a request is the tenant's affair and not one agent's, so it needs the wider right. A request is named by
its random reference alone: the number of its manifest, which commands take too, anybody could count up to.
"""

from __future__ import annotations

from typing import Final

from memory import http_schemas as schemas
from memory.http_route import Route
from memory.http_schemas import arguments, flag, text
from memory.manifest_fields import DENIALS

_FORGET, _PURGE = "memory:forget", "memory:purge"
_CODE: Final = {"code": {"type": "string", "enum": sorted(DENIALS), "description": "why it is denied"}}
_RECIPIENTS: Final = {"type": "array", "items": {"type": "string", "pattern": schemas.REQUEST_PATTERN}}

ERASURE_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "forgetPreview",
        "POST",
        "/v1/forget/preview",
        "forget_preview",
        "What an erasure would take, and the token that confirms it",
        schemas.PREVIEW,
        _FORGET,
        arguments(schemas.SELECTOR),
    ),
    Route(
        "forget",
        "POST",
        "/v1/forget",
        "forget",
        "Erase what a preview showed",
        schemas.ERASED,
        _FORGET,
        arguments(
            {**schemas.SELECTOR, "confirm": schemas.CONFIRM},
            ("confirm",),
        ),
    ),
    Route("holds", "GET", "/v1/holds", "holds", "Legal holds in force", schemas.HOLDS, _PURGE),
    Route(
        "hold",
        "POST",
        "/v1/holds",
        "hold",
        "Keep records from being used or erased",
        schemas.HELD,
        _PURGE,
        arguments(
            {
                **schemas.SCOPE,
                "authority": text("who says so"),
                "review_by": schemas.time("when to look at it again"),
            },
            ("authority", "review_by"),
        ),
    ),
    Route(
        "release",
        "POST",
        "/v1/holds/{id}/release",
        "release",
        "End a legal hold",
        schemas.DONE,
        _PURGE,
        arguments({"authority": text("who says so")}, ("authority",)),
        path_id="id",
    ),
    Route(
        "retention",
        "POST",
        "/v1/retention",
        "retention",
        "Count, or erase, what is past its time in this memory",
        schemas.RETENTION,
        _FORGET,
        arguments(
            {
                "superseded_older_than": {"type": "string", "pattern": "^[0-9]{1,9}[smhdw]$"},
                "apply": flag("erase it"),
            }
        ),
    ),
    Route(
        "request",
        "POST",
        "/v1/requests/{id}",
        "request",
        "How a request stands, and the token for what may go of it now",
        schemas.REQUESTED,
        _PURGE,
        arguments({}),
        path_id="request",
        id_pattern=schemas.REQUEST_PATTERN,
    ),
    Route(
        "manifest",
        "GET",
        "/v1/requests/{id}/manifest",
        "manifest",
        "A signed manifest of a request, in base64: the one of a number, or the last",
        schemas.MANIFEST,
        _FORGET,
        path_id="request",
        id_pattern=schemas.REQUEST_PATTERN,
        query={"number": {"type": "string", "pattern": "^[1-9][0-9]{0,17}$"}},
    ),
    Route(
        "forgetRest",
        "POST",
        "/v1/requests/{id}/forget",
        "forget_rest",
        "Erase what a hold had kept of a request",
        schemas.ERASED,
        _PURGE,
        arguments({"confirm": schemas.CONFIRM, "identifiers": schemas.IDENTIFIERS}, ("confirm",)),
        path_id="request",
        id_pattern=schemas.REQUEST_PATTERN,
    ),
    Route(
        "told",
        "POST",
        "/v1/requests/{id}/told",
        "told",
        "Note that recipients were told of an erasure",
        schemas.FOLLOWED,
        _PURGE,
        arguments(
            {"recipients": {**_RECIPIENTS, "minItems": 1, "maxItems": 1000}},
            ("recipients",),
        ),
        path_id="request",
        id_pattern=schemas.REQUEST_PATTERN,
    ),
    Route(
        "deny",
        "POST",
        "/v1/forget/deny",
        "deny",
        "Deny a request: nothing is erased, and a manifest says why",
        schemas.DENIED,
        _PURGE,
        arguments(
            {**{name: one for name, one in schemas.SELECTOR.items() if name != "guard"}, **_CODE}, ("code",)
        ),
    ),
    Route(
        "denyRest",
        "POST",
        "/v1/requests/{id}/deny",
        "deny_rest",
        "Deny what a hold has kept of a request",
        schemas.FOLLOWED,
        _PURGE,
        arguments(_CODE, ("code",)),
        path_id="request",
        id_pattern=schemas.REQUEST_PATTERN,
    ),
    Route(
        "withdraw",
        "POST",
        "/v1/requests/{id}/withdraw",
        "withdraw",
        "Say that a request was withdrawn by whoever asked",
        schemas.FOLLOWED,
        _PURGE,
        arguments({}),
        path_id="request",
        id_pattern=schemas.REQUEST_PATTERN,
    ),
)
