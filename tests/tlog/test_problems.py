from __future__ import annotations

import json

import pytest

from tlog import cbor
from tlog.errors import MalformedError
from tlog.problems import (
    CONCISE_TYPE,
    JSON_TYPE,
    MAX_PROBLEM_BYTES,
    ConciseProblem,
    Problem,
    concise_problems,
    json_problem,
    parse_concise_problem,
)

PROBLEM = Problem(404, "gone_away", "it is not here", "/entries/x")


def test_in_json() -> None:
    media_type, body = json_problem(PROBLEM)
    assert media_type == JSON_TYPE
    assert json.loads(body) == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "code": "gone_away",
        "detail": "it is not here",
        "instance": "/entries/x",
    }
    assert "instance" not in json.loads(json_problem(Problem(404, "x", "y"))[1])


def test_in_cbor_with_the_titles_that_clients_know() -> None:
    concise = concise_problems({(404, "gone_away"): "Gone Away"})
    media_type, body = concise(PROBLEM)
    assert media_type == CONCISE_TYPE
    assert cbor.decode(body, max_bytes=1000) == {-1: "Gone Away", -2: "it is not here", -3: "/entries/x"}
    assert cbor.decode(concise(Problem(404, "x", "y"))[1], max_bytes=1000) == {-1: "Not Found", -2: "y"}
    assert parse_concise_problem(body) == ConciseProblem("Gone Away", "it is not here")


@pytest.mark.parametrize("members", [{}, {-1: 5, -2: b"x"}, {"a": "b"}, {-4: 404, -7: "c"}])
def test_reads_what_there_is(members: dict[int | str, object]) -> None:
    assert parse_concise_problem(cbor.encode(members)) == ConciseProblem(None, None)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xff not cbor", b"\x80", b"<html>", b"\xa0" * (MAX_PROBLEM_BYTES + 1)]
)
def test_refuses_what_is_none(data: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_concise_problem(data)
