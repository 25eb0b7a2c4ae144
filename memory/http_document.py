"""The OpenAPI document of the HTTP API, made from the table of routes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from memory.http_answers import JSON, OUTCOMES
from memory.http_route import Route
from memory.http_routes import ROUTES
from memory.http_schemas import PROBLEM, Schema
from tlog.problems import JSON_TYPE

_TOKEN: Final = "token"
_FOR_ALL: Final = (400, 401, 403, 421, 429, 500, 503)
_RETRY: Final[Schema] = {"schema": {"type": "integer"}, "description": "seconds to wait"}
_ETAG: Final[Schema] = {"schema": {"type": "string"}, "description": "of this answer, for If-None-Match"}
_CHALLENGE: Final[Schema] = {
    "schema": {"type": "string"},
    "description": "what token is needed, and from whom",
}
_HEADERS: Final[dict[int, Schema]] = {
    401: {"WWW-Authenticate": _CHALLENGE},
    403: {"WWW-Authenticate": _CHALLENGE},
    429: {"Retry-After": _RETRY},
    503: {"Retry-After": _RETRY},
}


def describe(*, needs_token: bool) -> Schema:
    """The whole document."""
    paths: Schema = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    document: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": "Muniment",
            "version": "1",
            "summary": "Agent memory that can prove what it kept, what it corrected and what it erased",
        },
        "paths": paths,
        "components": {"schemas": {"Problem": PROBLEM}},
    }
    if needs_token:
        document["components"]["securitySchemes"] = {_TOKEN: {"type": "http", "scheme": "bearer"}}
        document["security"] = [{_TOKEN: []}]
    return document


def _operation(route: Route) -> Schema:
    operation: Schema = {
        "operationId": route.name,
        "summary": route.summary,
        "description": f"Needs the scope {route.scope}.",
        "responses": _responses(route),
    }
    parameters = _parameters(route)
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": bool(route.body["required"]),
            "content": {JSON: {"schema": route.body}},
        }
    return operation


def _parameters(route: Route) -> list[Schema]:
    found: list[Schema] = []
    if route.path_id is not None:
        found.append({"name": "id", "in": "path", "required": True, "schema": _id_schema(route)})
    for name, schema in route.query.items():
        found.append({"name": name, "in": "query", "required": False, "schema": schema})
    if route.is_single:
        # Whatever it says, it is one that does not match.
        found.append(
            {"name": "If-None-Match", "in": "header", "required": False, "schema": {"type": "string"}}
        )
    if route.takes_idempotency_key:
        text = {"type": "string", "pattern": "^[ -~]{1,256}$"}
        found.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": text})
    return found


def _id_schema(route: Route) -> Schema:
    return {"type": "string", "pattern": route.id_pattern, "description": "whose"}


def _responses(route: Route) -> Schema:
    """What it may be answered with, each with its schema."""
    found: Schema = {}
    for status in _statuses(route):
        if status == 304:
            found["304"] = {"description": HTTPStatus(status).phrase, "headers": {"ETag": _ETAG}}
        elif status < 300:
            headers = {"headers": {"ETag": _ETAG}} if route.is_single else {}
            content = {JSON: {"schema": route.answer}}
            found[str(status)] = {"description": HTTPStatus(status).phrase, **headers, "content": content}
        else:
            found[str(status)] = _problem(status)
    if route.operation == "remember":
        found["409"]["content"][JSON] = {"schema": route.answer}
    return found


def _problem(status: int) -> Schema:
    headers = {"headers": _HEADERS[status]} if status in _HEADERS else {}
    content: dict[str, Any] = {JSON_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": HTTPStatus(status).phrase, **headers, "content": content}


def _statuses(route: Route) -> list[int]:
    found = {*_FOR_ALL, 404, 409, 410}
    found |= set(OUTCOMES.values()) if route.operation == "remember" else {200}
    if route.body is not None:
        found |= {408, 413, 415}
    if route.takes_idempotency_key:
        found.add(422)
    if route.is_single:
        found.add(304)
    return sorted(found)
