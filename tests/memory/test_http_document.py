"""The OpenAPI document holds against the server, by a tool that did not write it, with authentication."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from serving import client_for, served, token_for

from memory import batch, wiring
from memory.http_routes import ROUTES
from memory.http_schemas import ID_PATTERN
from memory.wiring import Home

SET_UP = ("text", "words that were found by nobody", "π and 水")
TIMES = ("now", "2026-05-04T09:30:00Z", "1790000000")
CURSOR = base64.urlsafe_b64encode(b"2026-05-04T09:30:00Z/" + b"a" * 26).decode().rstrip("=")
# What a body may be is said by its schema as far as a schema can: that a value needs its key, that an erasure needs
# something to erase, and others of the kind are said by the answer.
RELATED = {
    "remember",
    "forgetPreview",
    "forget",
    "hold",
    "retention",
    "deny",
    "history",
    "recall",
    "conflictsOf",
    "provenanceOf",
}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


def test_every_operation_of_batch_is_a_resource() -> None:
    assert {route.operation for route in ROUTES} == set(batch.OPERATIONS)
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    for route in ROUTES:
        operation = batch.OPERATIONS[route.operation]
        taken = set(route.query) | ({route.path_id} if route.path_id else set())
        taken |= set(route.body["properties"]) if route.body is not None else set()
        extra = {"limit", "cursor"} if route.has_pages else set()
        assert taken - extra <= operation.required | operation.optional, route.name
        assert operation.required <= taken, route.name


def test_nothing_that_somebody_wrote_stands_in_a_path_or_a_query() -> None:
    for route in ROUTES:
        assert set(route.query) <= {"limit", "cursor", "format", "number"}, route.name
        if "number" in route.query:
            pattern = re.compile(route.query["number"]["pattern"])
            assert pattern.search("12") and not any(map(pattern.search, ("", "x", "1x", "x1", "-1", "1/")))
        assert route.path.count("{") == (1 if route.path_id else 0)


def test_every_argument_of_batch_can_be_said_over_http() -> None:
    for name, operation in batch.OPERATIONS.items():
        taken: set[str] = set()
        for route in ROUTES:
            if route.operation == name:
                taken |= set(route.query) | ({route.path_id} if route.path_id else set())
                taken |= set(route.body["properties"]) if route.body is not None else set()
        assert operation.required | operation.optional <= taken, name


# Of each operation, right and wrong.
EXAMPLES = 60 if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else 4


def test_the_document_holds_against_generated_requests(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    schemathesis.openapi.format("visible-text", st.sampled_from(SET_UP))
    schemathesis.openapi.format("muniment-time", st.sampled_from(TIMES))
    schemathesis.openapi.format("page-cursor", st.just(CURSOR))
    modes = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    token = token_for(home)
    with (
        served(home, monkeypatch, publish_seconds=3600.0) as found,
        client_for(found["listening"], token) as client,
    ):
        made = client.post("/v1/facts", json={"text": "a fact", "key": "a/key", "value": "one"}).json()
        client.post("/v1/publish")
        schema = schemathesis.openapi.from_url(f"{found['listening']}/openapi.json")
        asked = {
            (operation.ok().label, mode.value): ask_generated(operation.ok(), mode, token, made["id"])
            for operation in schema.get_all_operations()
            for mode in modes
        }
        labels = {label for label, _ in asked}
        assert len(labels) == len(ROUTES)
        assert {label for (label, mode), count in asked.items() if count} == labels
        assert client.get("/readyz").status_code == 200


def ask_generated(operation: Any, mode: Any, token: str, known: str) -> int:
    """How many generated requests were answered as the document says. Now and then about a fact that there is."""
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    count = 0
    excluded = [positive_data_acceptance] if operation.definition.raw["operationId"] in RELATED else []

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def holds(case: Any) -> None:
        nonlocal count
        count += 1
        named = str((case.path_parameters or {}).get("id", ""))
        if count % 2 and re.fullmatch(ID_PATTERN, named) and mode.value == "positive":
            case.path_parameters["id"] = known
        case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, excluded_checks=excluded)

    # An operation that nothing wrong can be asked of has no negative cases.
    with contextlib.suppress(Unsatisfiable):
        holds()
    return count


def test_ids_of_the_document_are_ids() -> None:
    import re

    from memory.model import fact_id

    generator = random.Random(1)
    assert all(re.fullmatch(ID_PATTERN, fact_id(generator.randbytes(32))) for _ in range(100))
