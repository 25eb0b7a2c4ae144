"""Where each trouble that users of other memories reported is tried on this one: the list, held against the tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent

# where it was reported: the trouble in few words, and the tests that try it here
TROUBLES = {
    # MCP servers and hosts
    "servers#1819": ("many calls in one turn", "test_a_thousand_calls_at_once_are_each_answered"),
    "servers#4797": (
        "two processes discard each other's writes",
        "test_two_over_stdio_and_one_over_http_on_one_home_lose_nothing",
        "test_two_servers_on_one_home_lose_nothing",
    ),
    "servers#3953": (
        "a read returns everything",
        "test_a_broad_query_stays_within_its_budget",
        "test_a_broad_query_stays_within_its_budget_and_leads_on",
    ),
    "astraeus#2": (
        "an answer above the host's limit",
        "test_without_a_budget_it_is_four_thousand_tokens",
        "test_cursors_lead_to_each_fact_once_whatever_is_written_meanwhile",
        "test_a_broad_query_stays_within_its_budget_and_leads_on",
    ),
    "servers#2044": (
        "an optional field that is null",
        "test_each_argument_may_be_null_as_if_it_were_not_given",
        "test_what_is_left_out_of_a_fact_breaks_no_search",
    ),
    "servers#3498": (
        "a tag is found inside other words",
        "test_a_tag_is_found_as_a_word_and_not_inside_another",
        "test_a_tag_is_a_word_and_no_piece_of_one",
    ),
    "servers#4662": (
        "a query without a bound",
        "test_a_query_of_a_megabyte_is_an_error",
        "test_any_query_is_answered",
        "test_any_query_has_an_answer_or_a_clear_error",
    ),
    "codebase-memory-mcp#1375": (
        "ends at 10 MiB",
        "test_a_real_server_answers_each_of_them_and_goes_on",
        "test_a_text_longer_than_the_budget_is_cut_and_says_so",
        "test_a_text_as_long_as_may_be_is_answered_in_part",
    ),
    "hindsight#1544": (
        "a limit taken for a budget",
        "test_a_limit_counts_facts_and_a_budget_tokens",
        "test_a_broad_query_stays_within_its_budget_and_leads_on",
    ),
    "hindsight#888": (
        "a bad id is no error; a write is not readable yet",
        "test_an_answer_that_is_no_success_never_looks_like_one",
        "test_a_written_fact_is_readable_at_once_and_an_erased_one_gone_in_the_same_process",
        "test_what_is_not_there_is_no_success",
    ),
    "hindsight#1228": (
        "a reader may delete",
        "test_a_read_only_caller_cannot_forget",
        "test_who_may_only_read_erases_nothing",
        "test_over_http_each_has_what_is_theirs_and_no_more",
    ),
    "LongMemory#215": (
        "the scope is lost on a restart",
        "test_a_restart_and_the_command_line_give_the_same_answer",
    ),
    "LongMemory#32": (
        "the user is an argument",
        "test_who_asks_is_never_an_argument",
        "test_who_asks_and_where_is_no_argument",
    ),
    "meho#1797": (
        "a leak by resource address",
        "test_two_callers_of_a_tenant_see_each_their_own_on_every_way_in",
        "test_over_http_each_has_what_is_theirs_and_no_more",
        "test_no_address_has_content",
    ),
    "agentmemory#926": (
        "an argument is dropped in silence",
        "test_who_asks_is_never_an_argument",
        "test_who_asks_and_where_is_no_argument",
    ),
    "agentmemory#842": (
        "deleted 0, success",
        "test_an_answer_that_is_no_success_never_looks_like_one",
        "test_an_unknown_id_is_never_erased_with_success",
        "test_what_is_not_there_is_no_success",
    ),
    "graphiti#1791": (
        "empty for want of the right scope",
        "test_an_empty_answer_says_which_scope_was_searched",
        "test_an_empty_scope_says_which_was_searched",
        "test_an_empty_scope_is_named",
    ),
    "mcp-memory-service#474": (
        "a model loads before the first answer",
        "test_the_first_requests_are_answered_before_anything_is_opened_or_published",
    ),
    "basic-memory#625": (
        "a write overwrites in silence",
        "test_love_then_hate_on_one_key",
        "test_a_correction_replaces_and_keeps_the_story",
    ),
    "basic-memory#148": (
        "command line and server disagree",
        "test_a_restart_and_the_command_line_give_the_same_answer",
    ),
    "MemMachine#320": (
        "a name that begins another",
        "test_scopes_with_like_names_share_nothing",
        "test_over_http_each_has_what_is_theirs_and_no_more",
    ),
    "memento-mcp#118": (
        "a list arrives as text",
        "test_a_list_that_arrives_as_text_is_an_error_that_says_so",
        "test_what_is_not_there_is_no_success",
    ),
    "statewave#236": (
        "a superseded fact comes back",
        "test_coffee_is_past_once_it_is_tea",
        "test_a_correction_replaces_and_keeps_the_story",
    ),
    "microsoft-agentic-harness#339": (
        "a correction destroys history",
        "test_a_fact_is_remembered_corrected_and_proved",
        "test_love_then_hate_on_one_key",
        "test_a_correction_replaces_and_keeps_the_story",
    ),
    "AionUi#3365": (
        "an event stream that a client cannot read",
        "test_an_event_stream_is_for_who_prefers_one",
    ),
    "mcpm.sh#264": ("words on standard output", "test_standard_output_carries_the_protocol_alone"),
    "claude-ai-mcp#153": (
        "no dialog in the client",
        "test_the_second_erases_once_with_the_token_alone",
        "test_what_is_erased_is_in_no_answer_of_the_same_process",
    ),
    # Memories
    "servers#1481": (
        "a torn file",
        "test_a_torn_wal_loses_only_what_was_torn",
        "test_a_correction_that_is_killed_and_torn_leaves_the_old_or_the_new",
    ),
    "mem0#7196": ("locked", "test_a_writer_among_readers"),
    "memobase#143": (
        "the same name five times",
        "test_the_same_name_five_times_is_there_once",
        "test_a_correction_replaces_and_keeps_the_story",
    ),
    "shodh#109": (
        "the same request twice",
        "test_the_same_request_again_is_one_fact_with_one_receipt",
        "test_a_request_that_is_sent_again_is_one_fact",
    ),
    "mem0#4536": (
        "love, then hate",
        "test_love_then_hate_on_one_key",
        "test_a_correction_replaces_and_keeps_the_story",
    ),
    "mem0#5193": (
        "coffee, then tea",
        "test_coffee_is_past_once_it_is_tea",
        "test_a_correction_replaces_and_keeps_the_story",
    ),
    "mem0#4573": ("an answer fed back", "test_an_answer_that_is_fed_back_is_no_new_fact"),
    "memobase#109": (
        "a stale client",
        "test_a_stale_client_does_not_undo_a_correction",
        "test_a_correction_replaces_and_keeps_the_story",
    ),
    "mem0#3928": (
        "all of one user, and no other's",
        "test_a_tenant_is_all_its_agents_and_no_other_tenant",
        "test_over_http_each_has_what_is_theirs_and_no_more",
    ),
    "LongMemory#186": (
        "found after an erasure in the same process",
        "test_a_written_fact_is_readable_at_once_and_an_erased_one_gone_in_the_same_process",
        "test_what_is_erased_is_in_no_answer_of_the_same_process",
    ),
    "langgraphjs#2721": (
        "scopes that look alike",
        "test_scopes_with_like_names_share_nothing",
        "test_cut_elsewhere_two_names_are_two_scopes",
        "test_over_http_each_has_what_is_theirs_and_no_more",
    ),
    "graphiti#1269": ("a UUID as a tenant", "test_a_uuid_is_a_tenant_like_any_other"),
    "openclaw#20730": (
        "scripts without spaces",
        "test_finds_words_in_scripts_without_spaces",
        "test_scripts_without_spaces_are_found",
    ),
    "ccrecall#23": (
        "queries with signs of a grammar",
        "test_any_query_is_answered",
        "test_an_empty_query_finds_nothing",
        "test_any_query_has_an_answer_or_a_clear_error",
    ),
    "servers#692": (
        "homes of any name",
        "test_homes_of_any_name_are_made",
        "test_a_relative_home_and_the_environment",
        "test_a_read_only_home_is_a_clear_error",
        "test_a_home_may_be_called_and_lie_anywhere",
    ),
    "servers#3074": (
        "answers that do not fit their schema",
        "test_wrong_values_are_errors_that_repeat_nothing",
        "test_a_fact_is_remembered_corrected_and_proved",
    ),
    "hindsight#3876": (
        "killed in a supersession",
        "test_what_was_answered_before_a_kill_is_there_after_it",
        "test_a_correction_that_is_killed_and_torn_leaves_the_old_or_the_new",
    ),
}


@pytest.fixture(scope="module")
def defined() -> set[str]:
    """The name of every test function of the project."""
    found: set[str] = set()
    for path in TESTS.glob("*/test_*.py"):
        found.update(re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE))
    return found


@pytest.mark.parametrize("where", TROUBLES)
def test_each_trouble_is_tried(where: str, defined: set[str]) -> None:
    _, *tests = TROUBLES[where]
    assert tests and set(tests) <= defined, set(tests) - defined


def test_the_protocol_sdk_is_known_to_one_module() -> None:
    """A change of its version is a change of that module."""
    memory = TESTS.parent / "memory"
    known = {
        path.name
        for path in memory.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
        )
        if name.split(".")[0] in ("mcp", "mcp_types")
    }
    assert known == {"mcp_server.py"}
