"""What an audit lets a statement and a manifest say is what their writers may: lists that must not drift apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from auditor import home_files, manifest_form, statement_form
from auditor.manifest_form import check_form
from auditor.manifests import decode_manifest
from memory import event, manifest_fields, store_backup

REPOSITORY = Path(__file__).resolve().parent.parent.parent
STATEMENT = (REPOSITORY / "docs" / "formats" / "statement.md").read_text()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (manifest_form._REASONS, manifest_fields.REASONS),
        (manifest_form._LIMITS, manifest_fields.LIMITS),
        (manifest_form._COUNTS, manifest_fields.COUNTS),
        (manifest_form._RESIDUE, manifest_fields.RESIDUE),
    ],
)
def test_the_words_of_manifests_are_the_same(theirs: str, ours: frozenset[str]) -> None:
    assert set(theirs.split()) == ours


def test_each_field_takes_what_a_manifest_may_have_and_no_word_more() -> None:
    for name, words in (("state", manifest_fields.STATES), ("basis", manifest_fields.BASES)):
        judge = manifest_form._FIELDS[name]
        assert all(map(judge, words)) and not judge("kumquat") and not judge("")
    systems = manifest_form._FIELDS["systems"]
    for kind in manifest_fields.KINDS:
        for method in manifest_fields.METHODS:
            for result in manifest_fields.RESULTS:
                assert systems([{"kind": kind, "method": method, "erased": 0, "result": result}])


def test_the_flags_are_those_of_the_documents() -> None:
    (told,) = re.findall(r"^Flags: (.*?)\n\n", STATEMENT, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([a-z_]+)`", told)) == statement_form._FLAGS


def test_every_detail_and_act_of_a_link_has_its_rule() -> None:
    from auditor.act_targets import _RULES

    assert {name for details in statement_form._DETAILS.values() for name in details} == event.DETAILS
    assert {*_RULES, "erases"} == event.ACTS


def test_the_spaces_of_backup_keys_are_those_there_are() -> None:
    spaces = {"record", "tenant", "meta", "made", *store_backup.HASHED}
    assert set(home_files._SPACES.split("|")) == spaces


@pytest.mark.parametrize("version", ["0", "0.1.0", "3.54.1.0", "1.0rc1", "0.2.0.dev3+g12ab34", "2.0.0.post1"])
def test_a_version_is_one(version: str) -> None:
    assert manifest_form._VERSION.fullmatch(version)


@pytest.mark.parametrize("version", ["", "likes green tea", "kumquat", "1.kumquat", "1.0+kumquat", "1" * 40])
def test_a_text_is_no_version(version: str) -> None:
    assert not manifest_form._VERSION.fullmatch(version)


def test_a_manifest_as_it_is_written_has_its_form(copy: Any) -> None:
    document = decode_manifest((copy.home / "log" / "erasures" / "1.cose").read_bytes()).document
    now = document["times"]["closed_at"] + 3_600_000_000
    assert list(check_form(document, "here", now, ())) == []
    for name in document.keys() - {"previous", "erased", "claim"}:
        lacking = {other: value for other, value in document.items() if other != name}
        assert any(one.code == "MANIFEST_ALTERED" for one in check_form(lacking, "here", now, ())), name
