"""Who asks is bound by the host and can only narrow."""

from __future__ import annotations

import pytest

from memory import principal
from memory.model import AGENT_SCOPES, SCOPES, Principal
from tlog.errors import MalformedError, RefusedError


def test_an_empty_environment_gives_the_defaults() -> None:
    assert principal.agent_from_environment({}) == Principal("default", "default", "cli", AGENT_SCOPES)


def test_the_environment_binds_tenant_agent_and_client() -> None:
    environment = {"MUNIMENT_TENANT": "acme", "MUNIMENT_AGENT": "planner", "MUNIMENT_CLIENT": "desk"}
    assert principal.agent_from_environment(environment) == Principal("acme", "planner", "desk")


def test_the_owner_has_every_scope_and_an_agent_has_not() -> None:
    assert principal.owner_from_environment({}).scopes == SCOPES
    assert not {"memory:purge", "memory:reaffirm", "memory:review"} & AGENT_SCOPES


def test_as_splits_at_the_first_two_slashes() -> None:
    caller = principal.parse_as("acme/planner/desk/left")
    assert (caller.tenant, caller.agent, caller.client) == ("acme", "planner", "desk/left")
    assert caller.scopes == SCOPES
    assert not caller.authenticated


@pytest.mark.parametrize(
    "text", ["", "acme", "acme/planner", "/planner/desk", "acme//desk", "acme/planner/", None]
)
def test_as_refuses_what_names_nobody(text: str) -> None:
    with pytest.raises(MalformedError):
        principal.parse_as(text)


@pytest.mark.parametrize("name", ["", "*", "x" * 257, "a\ud800", 7, None])
def test_refuses_what_cannot_be_a_name(name: object) -> None:
    with pytest.raises(MalformedError, match="agent"):
        principal.check_name("agent", name)


@pytest.mark.parametrize(
    "name", ["x" * 256, "ünïcødé 名前", "../etc/passwd", "a'; drop", "%", " ", "**", "a\0b"]
)
def test_names_are_opaque(name: str) -> None:
    assert principal.check_name("agent", name) == name


def test_a_message_never_repeats_the_name() -> None:
    with pytest.raises(MalformedError) as caught:
        principal.check_name("client", "secret-name\ud800")
    assert "secret" not in str(caught.value)


def test_require_refuses_a_missing_scope() -> None:
    agent = principal.make_principal("t", "a", "c")
    principal.require(agent, "memory:write")
    with pytest.raises(RefusedError) as caught:
        principal.require(agent, "memory:purge")
    assert caught.value.code == "forbidden"


def test_narrowing_never_adds_a_scope() -> None:
    agent = principal.make_principal("t", "a", "c")
    assert principal.narrowed(agent, SCOPES) == agent
    assert principal.narrowed(agent, frozenset({"memory:read", "memory:purge"})).scopes == {"memory:read"}


def test_unknown_scopes_are_refused() -> None:
    with pytest.raises(MalformedError):
        principal.make_principal("t", "a", "c", frozenset({"memory:everything"}))
