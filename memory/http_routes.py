"""The operations of `muniment batch` as HTTP resources: one table, from which routes and document are made.

What somebody wrote (texts, keys, subjects, names) travels in bodies alone. A path and a query stand in the logs of
every proxy on the way, where no erasure reaches them, so a path has random ids in it and nothing else; reads that
need a key or words are POSTs (docs/decisions/0075).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from memory import http_schemas as schemas
from memory.http_schemas import Schema, arguments, flag, text

_READ, _WRITE, _FORGET = "memory:read", "memory:write", "memory:forget"
_PURGE, _REVIEW, _GRANT = "memory:purge", "memory:review", "memory:grant"


@dataclass(frozen=True, slots=True)
class Route:
    """One resource and method. `operation` is that of `memory.batch`; `body` is None where there is none.

    `path_id` is the argument that the id in the path is; `query` are the arguments that stand in the query.
    `listed` is the list of the answer that pages are made of, and `listed_by` the time its items are ordered by.
    `scope` is what a token needs at least.
    """

    name: str
    method: str
    path: str
    operation: str
    summary: str
    answer: Schema
    scope: str
    body: Schema | None = None
    path_id: str | None = None
    query: Schema = field(default_factory=dict)
    listed: str | None = None
    listed_by: str = "recorded_at"
    takes_idempotency_key: bool = False

    @property
    def has_pages(self) -> bool:
        """Whether the answer comes in pages."""
        return self.listed is not None

    @property
    def is_single(self) -> bool:
        """Whether it can be asked whether it has changed."""
        return self.method == "GET"


_ID: Final = arguments({})
_OWNER: Final = {"owner": schemas.READING["owner"]}
_KEY: Final = {"key": text("the key")}

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "remember",
        "POST",
        "/v1/facts",
        "remember",
        "Write a fact",
        schemas.REMEMBERED,
        _WRITE,
        schemas.REMEMBER,
        takes_idempotency_key=True,
    ),
    Route(
        "recall",
        "POST",
        "/v1/recall",
        "recall",
        "Find facts by words",
        schemas.RECALLED,
        _READ,
        arguments(
            {
                "query": {"type": "string", "maxLength": 262_144, "description": "any words"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
                "include_history": flag("also what is no longer true"),
                **schemas.READING,
            },
            ("query",),
        ),
    ),
    Route(
        "get",
        "POST",
        "/v1/get",
        "get",
        "The current value(s) of a key",
        schemas.CURRENT,
        _READ,
        arguments({**_KEY, **schemas.READING}, ("key",)),
    ),
    Route(
        "history",
        "POST",
        "/v1/history",
        "history",
        "The whole story of a key",
        schemas.HISTORY,
        _READ,
        arguments({**_KEY, **schemas.READING, **schemas.PAGE}, ("key",)),
        listed="facts",
    ),
    Route(
        "provenance",
        "GET",
        "/v1/facts/{id}/provenance",
        "provenance",
        "Where a fact comes from, how far it is proved, and the limits of that",
        schemas.PROVENANCE,
        _READ,
        path_id="id",
    ),
    Route(
        "provenanceOf",
        "POST",
        "/v1/facts/{id}/provenance",
        "provenance",
        "The same, of another agent's fact by its grant",
        schemas.PROVENANCE,
        _READ,
        arguments(_OWNER, ("owner",)),
        path_id="id",
    ),
    Route(
        "receipt",
        "GET",
        "/v1/facts/{id}/receipt",
        "receipt",
        "The receipt of a fact, in base64",
        schemas.RECEIPT_FILE,
        _READ,
        path_id="id",
        query={"format": {"type": "string", "enum": ["cose", "tlog-proof"]}},
    ),
    Route(
        "retract",
        "POST",
        "/v1/facts/{id}/retract",
        "retract",
        "Say that a fact is no longer true",
        schemas.DONE,
        _WRITE,
        _ID,
        path_id="id",
    ),
    Route(
        "conflicts",
        "GET",
        "/v1/conflicts",
        "conflicts",
        "Facts on which clients disagree",
        schemas.CONFLICTS,
        _READ,
        query=schemas.PAGE,
        listed="conflicts",
        listed_by="opened_at",
    ),
    Route(
        "conflictsOf",
        "POST",
        "/v1/conflicts",
        "conflicts",
        "The same, of another agent's memory by its grant",
        schemas.CONFLICTS,
        _READ,
        arguments({**_OWNER, **schemas.PAGE}, ("owner",)),
        listed="conflicts",
        listed_by="opened_at",
    ),
    Route(
        "resolve",
        "POST",
        "/v1/conflicts/{id}/resolve",
        "resolve",
        "Settle a conflict",
        schemas.DONE,
        _REVIEW,
        arguments({"keep": schemas.identifier("the fact that holds")}, ("keep",)),
        path_id="conflict",
    ),
    Route(
        "review",
        "GET",
        "/v1/review",
        "review",
        "What is held or refused and waits for a person",
        schemas.REVIEW,
        _REVIEW,
        query=schemas.PAGE,
        listed="facts",
    ),
    Route(
        "confirm",
        "POST",
        "/v1/review/{id}/confirm",
        "confirm",
        "Serve a held fact from now on",
        schemas.DONE,
        _REVIEW,
        _ID,
        path_id="id",
    ),
    Route(
        "discard",
        "POST",
        "/v1/review/{id}/discard",
        "discard",
        "Drop a held or refused write",
        schemas.DONE,
        _REVIEW,
        _ID,
        path_id="id",
    ),
    Route(
        "reaffirm",
        "POST",
        "/v1/review/{id}/reaffirm",
        "reaffirm",
        "Say that a refused value holds again",
        schemas.DONE,
        "memory:reaffirm",
        arguments({"reason": text("why it holds again")}, ("reason",)),
        path_id="id",
    ),
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
            {**schemas.SELECTOR, "confirm": text("the token of the preview of the same request", 128)},
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
        "export",
        "POST",
        "/v1/export",
        "export_subject",
        "What is held on a person, for that person",
        schemas.EXPORT,
        _REVIEW,
        arguments({"subject": text("the person")}, ("subject",)),
    ),
    Route(
        "grants",
        "GET",
        "/v1/grants",
        "grants",
        "Reading rights made and given",
        schemas.GRANTS,
        _READ,
    ),
    Route(
        "grant",
        "POST",
        "/v1/grants",
        "grant",
        "Let another agent of the tenant read",
        schemas.DONE,
        _GRANT,
        arguments({"reader": text("the agent", 256)}, ("reader",)),
    ),
    Route(
        "revoke",
        "POST",
        "/v1/grants/{id}/revoke",
        "revoke",
        "End a grant",
        schemas.DONE,
        _GRANT,
        _ID,
        path_id="id",
    ),
    Route("publish", "POST", "/v1/publish", "publish", "Publish now", schemas.PUBLISHED, _WRITE, _ID),
    Route("status", "GET", "/v1/status", "status", "Counts and the state of the log", schemas.STATUS, _READ),
)
