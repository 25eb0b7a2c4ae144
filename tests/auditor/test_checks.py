"""Each check of values, on statements made for it: what is right passes, and each single wrong has its code."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from auditor import (
    checks_caches,
    checks_facts,
    checks_guard,
    checks_store,
    erasure,
    manifest_claims,
    manifest_form,
)
from auditor.checks import check_store
from auditor.checks_signatures import check_signatures
from auditor.erasure import check_erasures, decode_manifest
from auditor.evidence import (
    ActRow,
    Asked,
    ConflictRow,
    Entries,
    ErasureRow,
    EventRow,
    FactRow,
    LogFiles,
    RequestRow,
    Statement,
    StoreRows,
    TenantRow,
)
from auditor.findings import SEVERITIES, Finding, Note, Outcome, merge, verdict
from auditor.fold import Fold, fold
from auditor.manifests import Manifest
from auditor.opening import open_statements
from auditor.report import MAX_FINDINGS_PER_CODE, Report, to_document, to_text
from memory import event
from tlog import cbor
from tlog.cose import CWT_CLAIMS, CWT_ISS, CWT_SUB, CoseSigner, sign1
from tlog.errors import MalformedError
from tlog.keys import make_cose_key
from tlog.statement import sign_statement
from tlog.trust import Trust, TrustedKey, make_trust

NOW = 1_790_000_000_000_000
SECOND = 1_000_000
HOUR = (NOW - 1000 * SECOND) // 3_600_000_000 * 3_600_000_000
TENANT = bytes(range(16))


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> CoseSigner:
    return make_cose_key(tmp_path_factory.mktemp("keys") / "issuer.key")


@pytest.fixture(scope="session")
def asked(signer: CoseSigner) -> Asked:
    keys = tuple(TrustedKey(use, signer.key, 0) for use in ("issuer", "manifest"))
    return Asked(make_trust("quorum none\n", keys), NOW)


@dataclass
class World:
    """Statements made one after the other, as a store would hold them, all of them logged."""

    signer: CoseSigner
    events: list[EventRow] = field(default_factory=list)
    facts: dict[int, FactRow] = field(default_factory=dict)
    links: list[event.Link] = field(default_factory=list)

    def add(
        self,
        kind: str = "write",
        acts: Mapping[str, Sequence[bytes]] | None = None,
        details: Mapping[str, Any] | None = None,
        content: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> bytes:
        """The commitment of a new statement; `changes` are of its row."""
        seq = len(self.events) + 1
        at = NOW - (1000 - seq) * SECOND
        if kind == "write":
            details = {"outcome": "stored"} if details is None else details
            content = {
                "tenant": "acme",
                "agent": "bot",
                "client": "one",
                "text": f"t{seq}",
                "valid_from": at,
                "recorded_at": at,
                **(content or {}),
            }
        content = {"recorded_at": at, **(content or {})}
        link = event.Link(
            kind, seq, TENANT, seq, {k: tuple(v) for k, v in (acts or {}).items()}, details or {}
        )
        encoded, data = link.encode(), event.encode_content(content)
        salts = changes.pop("salts", (os.urandom(32), os.urandom(32)))
        made = event.commit(encoded, salts[0], data, salts[1])
        entry = sign_statement(self.signer, "issuer", "store", made.commitment)
        row = EventRow(
            seq, 1, seq, made.commitment, encoded, salts[0], made.content_hash, entry, seq - 1, data, salts[1]
        )
        self.events.append(row._replace(**changes))
        self.links.append(link)
        if kind == "write":
            tag = hashlib.sha256(str(content.get("text")).encode()).digest()
            self.facts[seq] = FactRow(
                seq,
                1,
                b"a" * 32,
                None,
                None,
                tag,
                "active",
                content["valid_from"],
                int("valid_from_declared" in content.get("flags", ())),
                None,
                content["recorded_at"],
                None,
                None,
                0,
            )
        return made.commitment

    def spoil(self, at: int, /, **changes: Any) -> None:
        self.events[at - 1] = self.events[at - 1]._replace(**changes)

    def erase(self, seq: int) -> None:
        self.spoil(seq, content=None, content_salt=None)
        self.facts.pop(seq, None)

    def rows(self, **changes: Any) -> StoreRows:
        acts = {
            (self._seq(target), seq, act)
            for seq, link in enumerate(self.links, start=1)
            for act, targets in link.acts.items()
            for target in targets
        }
        whole = StoreRows(
            tenants=(TenantRow(1, TENANT, "acme", len(self.events)),),
            events=tuple(self.events),
            facts=tuple(self.facts.values()),
            acts=tuple(ActRow(1, *act) for act in sorted(acts)),
            meta={"recorded_at": NOW - (1000 - len(self.events)) * SECOND},
        )
        return replace(whole, **changes)

    def entries(self) -> Entries:
        return Entries(len(self.events), tuple(row.entry for row in self.events), True)

    def statements(self) -> tuple[Statement, ...]:
        return open_statements(self.rows())[1]

    def _seq(self, commitment: bytes) -> int:
        return next((row.seq for row in self.events if row.commitment == commitment), 0)


@pytest.fixture
def world(signer: CoseSigner) -> World:
    return World(signer)


def no_files(manifests: Mapping[str, bytes] | None = None) -> LogFiles:
    files = dict(manifests or {})
    return LogFiles(files.get, tuple(files))


def check(world: World, asked: Asked, **changes: Any) -> set[tuple[str, str]]:
    """Code and place of every finding about the rows of a world."""
    outcome, _ = check_store(world.rows(**changes), no_files(), world.entries(), None, asked)
    return places(outcome)


def places(outcome: Outcome) -> set[tuple[str, str]]:
    return {(finding.code, finding.where) for finding in outcome.findings}


def test_the_numbers_of_what_is_lost_are_no_gap(world: World) -> None:
    world.add()
    gone = [world.add(), world.add()]
    world.add()
    world.add("lost", details={"count": 2, "statements": gone})
    del world.events[1:3]
    rows, statements = world.rows(), world.statements()
    rows = replace(rows, tenants=(replace(rows.tenants[0], last_seq=5),))
    assert checks_store.check_sequences(rows, statements).findings == ()
    del world.events[1]
    fewer = checks_store.check_sequences(rows, world.statements()).findings
    assert {finding.code for finding in fewer} == {"SEQUENCE_GAP"}


def test_a_sound_world_has_no_findings(world: World, asked: Asked) -> None:
    first = world.add()
    world.add(acts={"retires": [first]}, details={"outcome": "superseded"})
    at = world.facts[2].recorded_at
    world.facts[1] = world.facts[1]._replace(status="superseded", replaced_by=2, replaced_at=at)
    assert check(world, asked) == set()


# The fold


@pytest.mark.parametrize(
    ("outcome", "acts", "status"),
    [
        ("stored", [], "active"),
        ("superseded", [], "active"),
        ("history", [], "history"),
        ("conflict", [], "conflict"),
        ("held", [], "held"),
        ("refused", [], "refused"),
        ("no such outcome", [], "unknown"),
        ("stored", [("write", "retires")], "superseded"),
        ("stored", [("retract", "retracts")], "retracted"),
        ("stored", [("write", "conflicts")], "conflict"),
        ("conflict", [("resolve", "keeps")], "active"),
        ("held", [("confirm", "confirms")], "active"),
        ("held", [("confirm", "dates")], "history"),
        ("stored", [("corroborate", "corroborates")], "active"),
        ("held", [("discard", "discards")], "discarded"),
        ("refused", [("reaffirm", "lifts")], "active"),
        ("refused", [("write", "lifts")], "refused"),
        ("stored", [("write", "conflicts"), ("resolve", "retires")], "superseded"),
        ("stored", [("write", "retires"), ("resolve", "keeps")], "active"),
    ],
)
def test_the_status_of_a_write_follows_from_the_acts_on_it(
    world: World, outcome: str, acts: list[tuple[str, str]], status: str
) -> None:
    made = world.add(details={"outcome": outcome})
    for kind, act in acts:
        world.add(kind, {act: [made]}, {"outcome": "stored"} if kind == "write" else {})
    assert fold(world.statements()).writes[made].status == status


def test_the_fold_keeps_who_ended_a_write_and_when(world: World) -> None:
    made = world.add()
    world.add("retract", {"retracts": [made]})
    folded = fold(world.statements()).writes[made]
    assert (folded.replaced_by, folded.replaced_at) == (2, NOW - 998 * SECOND)
    world.erase(2)
    folded = fold(world.statements()).writes[made]
    assert (folded.replaced_by, folded.replaced_at) == (2, None)


@pytest.mark.parametrize(("flags", "moved"), [((), True), (("valid_from_declared",), False)])
def test_what_was_withheld_holds_from_when_it_was_let_through(
    world: World, flags: tuple[str, ...], moved: bool
) -> None:
    made = world.add(details={"outcome": "held"}, content={"flags": list(flags)})
    before = fold(world.statements()).writes[made].starts_at
    world.add("confirm", {"confirms": [made]})
    after = fold(world.statements()).writes[made].starts_at
    assert after == (NOW - 998 * SECOND if moved else before)


# Statements


def test_a_salt_used_twice_is_found(world: World, asked: Asked) -> None:
    salt = os.urandom(32)
    world.add(salts=(salt, os.urandom(32)))
    world.add(salts=(os.urandom(32), salt))
    assert check(world, asked) == {("SALT_REUSED", "store.db events seq 2, salt of the content")}


@pytest.mark.parametrize("moved", [-5000 * SECOND, 5000 * SECOND])
def test_a_time_out_of_order_is_found(world: World, asked: Asked, moved: int) -> None:
    world.add()
    at = NOW - 998 * SECOND + moved
    world.add("retract", content={"recorded_at": at})
    world.add()
    assert {code for code, _ in check(world, asked)} >= {"TIME_IMPLAUSIBLE"}


def test_a_time_after_the_cosignature_of_its_checkpoint_is_found(world: World, asked: Asked) -> None:
    world.add()
    rows, statements = world.rows(), world.statements()
    seen = NOW // SECOND - 900
    args = (rows, statements, seen, world.entries(), asked)
    assert checks_store.check_times(*args).findings == ()
    early = checks_store.check_times(rows, statements, seen - 1000, world.entries(), asked)
    assert places(early) == {("TIME_IMPLAUSIBLE", "store.db events seq 1")}


def test_acts_must_name_what_came_before(world: World, asked: Asked) -> None:
    world.add("retract", {"retracts": [bytes(32)]})
    assert ("ORDER_ALTERED", "store.db events seq 1") in check(world, asked)


def test_a_reference_logged_before_its_target_is_found(world: World, asked: Asked) -> None:
    made = world.add()
    world.add("retract", {"retracts": [made]})
    world.spoil(1, entry_index=1)
    world.spoil(2, entry_index=0)
    swapped = Entries(2, (world.events[1].entry, world.events[0].entry), True)
    outcome, _ = check_store(world.rows(), no_files(), swapped, None, asked)
    assert ("ORDER_ALTERED", "store.db events seq 2") in places(outcome)


def test_one_statement_logged_twice_is_found(world: World, asked: Asked) -> None:
    world.add()
    doubled = Entries(2, (world.events[0].entry,) * 2, True)
    outcome, _ = check_store(world.rows(), no_files(), doubled, None, asked)
    assert ("ORDER_ALTERED", "log entry 1") in places(outcome)


@pytest.mark.parametrize("numbers", [(2,), (1, 3), (1, 1)])
def test_numbers_with_a_gap_are_found(world: World, asked: Asked, numbers: tuple[int, ...]) -> None:
    for _ in numbers:
        world.add()
    for row, number in zip(list(world.events), numbers, strict=True):
        world.spoil(row.seq, seq=number)
    found = checks_store.check_sequences(world.rows(), world.statements())
    assert ("SEQUENCE_GAP", "store.db events") in places(found)


def test_the_place_of_a_fault_is_told_apart(world: World) -> None:
    """Link, content and entry are each judged for themselves."""
    world.add()
    faults = {
        "link_salt": "store.db events seq 1",
        "content_salt": "store.db contents seq 1",
        "entry": "store.db events seq 1",
    }
    for name, where in faults.items():
        spoiled = World(world.signer, list(world.events), dict(world.facts), list(world.links))
        spoiled.spoil(1, **{name: b"\x01" * 32})
        outcome, statements = open_statements(spoiled.rows())
        assert places(outcome) == {("FACT_ALTERED", where)}, name
        assert (statements[0].content is None) == (name == "content_salt")


def test_promises_are_counted_until_they_are_broken(world: World, asked: Asked) -> None:
    world.add()
    world.add()
    none = Entries(0)
    young = checks_store.check_promises(world.statements(), none, asked)
    assert (young.findings, young.counts["promises"]) == ((), 2)
    late = replace(asked, now=NOW + 86_400 * SECOND)
    broken = checks_store.check_promises(world.statements(), none, late)
    assert places(broken) == {("PROMISE_BROKEN", f"store.db events seq {seq}") for seq in (1, 2)}
    world.erase(1)  # its own time is gone, and it is no younger for that
    erased = checks_store.check_promises(world.statements(), none, late)
    assert places(erased) == places(broken)


def test_an_opening_and_a_tombstone_exclude_each_other(world: World) -> None:
    made = world.add()
    world.add("erase", {"erases": [made]}, {"number": 1, "count": 1})
    both = checks_facts.check_opened(world.statements(), fold(world.statements()))
    assert places(both) == {("ERASED_STILL_PRESENT", "store.db contents seq 1")}
    world.erase(1)
    assert checks_facts.check_opened(world.statements(), fold(world.statements())).findings == ()
    neither = checks_facts.check_opened(world.statements(), Fold({}, {}))
    assert places(neither) == {("WRITE_MISSING", "store.db events seq 1")}


def test_a_fact_whose_end_is_erased_must_be_marked(world: World, asked: Asked) -> None:
    first = world.add()
    second = world.add(acts={"retires": [first]}, details={"outcome": "superseded"})
    at = world.facts[2].recorded_at
    world.facts[1] = world.facts[1]._replace(status="superseded", replaced_by=2, replaced_at=at)
    world.add("erase", {"erases": [second]}, {"number": 1, "count": 1})
    world.erase(2)
    statements = world.statements()
    unmarked = checks_facts.check_facts(world.rows(), statements, fold(statements))
    assert places(unmarked) == {("RETIRED_RETURNED", "store.db facts seq 1")}
    world.facts[1] = world.facts[1]._replace(end_erased=1)
    assert checks_facts.check_facts(world.rows(), statements, fold(statements)).findings == ()


def test_conflicts_are_open_as_long_as_facts_are_in_them(world: World) -> None:
    world.add(details={"outcome": "conflict"})
    world.facts[1] = world.facts[1]._replace(status="conflict", key_tag=b"k" * 32)
    found = checks_caches.check_caches(world.rows(), world.statements())
    assert places(found) == {("FACT_ALTERED", "store.db facts seq 1")}


@pytest.mark.parametrize("closed_by", [None, 2])
def test_a_conflict_without_a_fact_of_its_key_still_has_the_hash_of_the_key(
    world: World, closed_by: int | None
) -> None:
    world.add(details={"outcome": "conflict"})
    world.add()
    row = ConflictRow(1, 1, world.facts[1].agent_tag, b"k" * 32, closed_by)
    world.facts[1] = world.facts[1]._replace(status="superseded", key_tag=b"k" * 32)
    if closed_by is not None:
        assert checks_caches.check_caches(world.rows(conflicts=(row,)), world.statements()).findings == ()
    world.facts.clear()
    found = checks_caches.check_caches(world.rows(conflicts=(row,)), world.statements())
    assert ("RESIDUE_ROW", "store.db conflicts seq 1") in places(found)


@pytest.mark.parametrize("guard", ["keep", "erase", "expire"])
def test_the_hash_of_an_erased_request_is_there_only_where_it_was_kept(world: World, guard: str) -> None:
    made = world.add()
    world.add("erase", {"erases": [made]}, {"number": 1, "count": 1, "guard": guard})
    world.erase(1)
    rows = world.rows(requests=(RequestRow(1, 1, 1, b"", ""),))
    found = places(checks_caches.check_caches(rows, world.statements()))
    assert found == (set() if guard == "keep" else {("RESIDUE_ROW", "store.db idempotency row 1")})


def keyed(world: World, value: str, retires: bytes | None = None, **more: Any) -> bytes:
    acts: dict[str, list[bytes]] = {} if retires is None else {"retires": [retires]}
    return world.add(
        acts={**acts, **more.pop("acts", {})},
        details=more.pop("details", {"outcome": "superseded" if retires else "stored"}),
        content={"key": "city", "value": value, **more},
    )


def returned(world: World) -> set[tuple[str, str]]:
    return places(checks_guard.check_returned(world.statements()))


def test_a_retired_value_that_comes_back_is_found(world: World) -> None:
    first = keyed(world, "Berlin")
    second = keyed(world, "Hamburg", first)
    keyed(world, "Berlin", second)
    assert returned(world) == {("RETIRED_RETURNED", "store.db events seq 3")}


def test_returned_values_are_looked_for_in_every_store(world: World, asked: Asked) -> None:
    keyed(world, "Berlin", keyed(world, "Hamburg", keyed(world, "Berlin")))
    assert ("RETIRED_RETURNED", "store.db events seq 3") in check(world, asked)


def test_a_retracted_value_that_comes_back_is_found(world: World) -> None:
    world.add("retract", {"retracts": [keyed(world, "Berlin")]})
    keyed(world, "Berlin")
    assert returned(world) == {("RETIRED_RETURNED", "store.db events seq 3")}


def test_a_retracted_past_retires_nothing(world: World) -> None:
    past = keyed(world, "Berlin", details={"outcome": "history"})
    world.add("retract", {"retracts": [past]})
    keyed(world, "Berlin")
    assert returned(world) == set()


@pytest.mark.parametrize(
    "more",
    [
        {"flags": ["reaffirmed"]},
        {"details": {"outcome": "refused", "reason": "echo"}},
        {"details": {"outcome": "history"}},
        {"details": {"outcome": "held", "reason": "provisional"}},
        {"key": "another"},
        {"agent": "another"},
    ],
)
def test_a_retired_value_may_come_back_in_these_ways(world: World, more: dict[str, Any]) -> None:
    keyed(world, "Hamburg", keyed(world, "Berlin"))
    keyed(world, "Berlin", **more)
    assert returned(world) == set()


def test_a_reaffirmed_value_is_current_until_it_is_retired_again(world: World) -> None:
    second = keyed(world, "Hamburg", keyed(world, "Berlin"))
    refused = keyed(world, "Berlin", details={"outcome": "refused", "reason": "echo"})
    third = keyed(world, "Berlin", second, acts={"lifts": [refused]})
    assert returned(world) == set()
    fourth = keyed(world, "Bremen", third)
    keyed(world, "Berlin", fourth)
    assert returned(world) == {("RETIRED_RETURNED", "store.db events seq 6")}


@pytest.mark.parametrize(("guard", "found"), [("erase", False), ("expire", False), ("keep", True)])
def test_an_erasure_says_what_becomes_of_the_guard(world: World, guard: str, found: bool) -> None:
    keyed(world, "Hamburg", keyed(world, "Berlin"))
    world.add("erase", {}, {"number": 1, "count": 0, "guard": guard})
    keyed(world, "Berlin")
    assert bool(returned(world)) == found


# Erasures


ANNOUNCED = (os.urandom(32), os.urandom(32))
"""The salts of the statement that announces a manifest."""


def announced_content(seq: int) -> bytes:
    return event.encode_content({"recorded_at": NOW - (1000 - seq) * SECOND})


def manifest_of(signer: CoseSigner, world: World, seq: int, **changes: Any) -> bytes:
    """A manifest of a tombstone, by its parts; `changes` are of the document."""
    row, link = world.events[seq - 1], world.links[seq - 1]
    count = len(link.acts.get("erases", ()))
    document: dict[Any, Any] = {
        "schema": 2,
        "number": link.details["number"],
        "request": link.details["request"],
        "state": "closed_complete",
        "why": [],
        "basis": "data_subject",
        "scope": {"kind": "id", "count": count, "derived": 0},
        "guard": {"disposition": "erase", "entries": 0},
        "erased": {},
        "tombstone": {
            "entry": row.entry,
            "link": row.link,
            "link_salt": row.link_salt,
            "content_hash": row.content_hash,
        },
        "announcement": {
            "seq": seq + 1,
            "tenant_seq": seq + 1,
            "link_salt": ANNOUNCED[0],
            "content_hash": event.content_hash(announced_content(seq + 1), ANNOUNCED[1]),
        },
        "systems": [
            {"kind": kind, "method": "delete", "erased": 0, "result": "verified"} for kind in ("store", "wal")
        ],
        "tools": {"muniment": "0.1.0", "sqlite": "3.50.0", "apsw": "3.50.0.0"},
        "checks": [
            {"check": name, "result": "clean", "counts": {"controls_planted": 1, "controls_found": 1}}
            for name in ("structure", "residue", "free_space")
        ],
        "limits": sorted(manifest_claims._LIMITS),
        "log": {"origin": "example/log"},
        "times": {"started_at": 0, "erased_at": HOUR, "closed_at": HOUR},
        **changes,
    }
    document = {name: value for name, value in document.items() if value is not None}
    return sign1(
        signer, {CWT_CLAIMS: {CWT_ISS: "issuer", CWT_SUB: "store"}, 16: "manifest"}, cbor.encode(document)
    )


@dataclass
class Erased:
    """A world with one erasure in it, all four of its parts agreeing."""

    world: World
    files: dict[str, bytes]
    row: ErasureRow

    def check(self, asked: Asked) -> set[tuple[str, str]]:
        rows = self.world.rows(erasures=(self.row,), meta={"erasure.manifest": self.tip()})
        outcome = check_erasures(rows, self.world.statements(), no_files(self.files), asked)
        return places(outcome)

    def tip(self) -> bytes:
        return cbor.encode([1, self.world.links[-1].details["digest"]])


@pytest.fixture
def make_erased(signer: CoseSigner) -> Callable[..., Erased]:
    def make(targets: int = 1, **changes: Any) -> Erased:
        world = World(signer)
        made = [world.add() for _ in range(targets)]
        request = os.urandom(16)
        details = {
            "number": 1,
            "count": targets,
            "request": request,
            "guard": "erase",
            "basis": "data_subject",
        }
        tombstone = world.add("erase", {"erases": made} if made else {}, details)
        for seq in range(1, targets + 1):
            world.erase(seq)
        data = manifest_of(signer, world, targets + 1, **changes)
        digest = hashlib.sha256(data).digest()
        world.add("manifest", {}, {"number": 1, "erasure": tombstone, "digest": digest}, salts=ANNOUNCED)
        document = decode_manifest(data).document
        detail = {name: document.get(name) for name in ("basis", "scope", "guard", "erased")}
        row = ErasureRow(
            1,
            1,
            request,
            str(document["state"]),
            targets + 1,
            cbor.encode({**detail, "started_at": 1}),
            digest,
        )
        return Erased(world, {"erasures/1.cose": data}, row)

    return make


IN_A_DATABASE = [
    {"kind": kind, "method": "delete", "erased": 0, "result": "verified"} for kind in ("store", "heap", "wal")
]
LOOKED_AT: list[dict[str, Any]] = [
    {"check": name, "result": "clean", "counts": {"controls_planted": 1, "controls_found": 1}}
    for name in ("structure", "residue", "free_space")
]
UNCONTROLLED = {"check": "rows", "result": "clean", "counts": {"remaining": 0}}


def test_an_erasure_whose_parts_agree_has_no_findings(
    make_erased: Callable[..., Erased], asked: Asked
) -> None:
    assert make_erased().check(asked) == set()
    assert make_erased(3).check(asked) == set()
    rows = UNCONTROLLED | {"counts": LOOKED_AT[0]["counts"]}
    assert make_erased(systems=IN_A_DATABASE, checks=[*LOOKED_AT, rows]).check(asked) == set()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"systems": [{"kind": "store", "result": "failed"}]}, "ERASURE_STATE_FALSE"),
        ({"systems": IN_A_DATABASE}, "ERASURE_STATE_FALSE"),
        ({"systems": IN_A_DATABASE, "checks": [*LOOKED_AT, UNCONTROLLED]}, "ERASURE_STATE_FALSE"),
        ({"checks": [{"check": "residue", "result": "inconclusive"}]}, "ERASURE_STATE_FALSE"),
        ({"checks": []}, "ERASURE_STATE_FALSE"),
        ({"why": ["wal_pinned"]}, "ERASURE_STATE_FALSE"),
        ({"systems": []}, "MANIFEST_INCOMPLETE"),
        ({"scope": {"kind": "id", "count": 0, "derived": 0}}, "MANIFEST_INCOMPLETE"),
        ({"scope": {"kind": "id", "count": 9, "derived": 0}}, "MANIFEST_INCOMPLETE"),
        ({"request": bytes(16)}, "MANIFEST_ALTERED"),
        ({"basis": "operator"}, "MANIFEST_ALTERED"),
        ({"guard": {"disposition": "keep", "entries": 0}}, "MANIFEST_ALTERED"),
        ({"number": 2}, "MANIFEST_ALTERED"),
        ({"previous": bytes(32)}, "MANIFEST_ALTERED"),
        ({"tombstone": {}}, "MANIFEST_ALTERED"),
        ({"announcement": {}}, "MANIFEST_ALTERED"),
        ({"log": {"origin": "example/log", "before": b"no head"}}, "MANIFEST_ALTERED"),
        ({"state": "closed_denied", "why": ["unfounded"]}, "ERASURE_STATE_FALSE"),
        ({"state": "closed_partial", "why": ["wal_pinned"]}, "ERASURE_STATE_FALSE"),
        ({"state": "closed_partial"}, "ERASURE_STATE_FALSE"),
        ({"state": "failed", "why": ["wal_pinned"]}, "ERASURE_STATE_FALSE"),
        ({"state": "awaiting_backups", "why": ["wal_pinned"]}, "ERASURE_STATE_FALSE"),
        ({"state": "awaiting_recipients", "why": ["backups_remain"]}, "ERASURE_STATE_FALSE"),
        ({"state": "awaiting_recipients", "why": ["recipients_remain"]}, "ERASURE_STATE_FALSE"),
        ({"state": "inconclusive"}, "ERASURE_STATE_FALSE"),
        ({"systems": "none", "checks": 5, "scope": [], "why": None}, "MANIFEST_INCOMPLETE"),
    ],
)
def test_a_manifest_that_says_something_else_is_found(
    make_erased: Callable[..., Erased], asked: Asked, changes: dict[str, Any], code: str
) -> None:
    assert (code, "log erasures/1.cose") in make_erased(**changes).check(asked)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "closed_partial", "why": ["legal_claims", "legal_hold"]},
        {"state": "failed", "why": ["content_present"]},
        {"state": "awaiting_backups", "why": ["backups_remain", "mentions_elsewhere"]},
        {"state": "withdrawn", "why": ["wal_pinned"]},
        {"state": "inconclusive", "why": ["legal_hold", "wal_pinned"]},
    ],
)
def test_a_state_that_its_reasons_leave_is_none(
    make_erased: Callable[..., Erased], asked: Asked, changes: dict[str, Any]
) -> None:
    assert make_erased(**changes).check(asked) == set()


def test_an_erasure_of_nothing_is_found(make_erased: Callable[..., Erased], asked: Asked) -> None:
    for guard in ({"disposition": "erase", "entries": 0}, {"disposition": "keep", "entries": 3}):
        found = {code for code, _ in make_erased(0, guard=guard).check(asked)}
        assert {"ERASURE_EMPTY_SCOPE", "ERASURE_STATE_FALSE"} <= found


def test_hashes_of_retired_values_may_be_all_that_was_erased(
    make_erased: Callable[..., Erased], asked: Asked
) -> None:
    assert make_erased(0, guard={"disposition": "erase", "entries": 2}).check(asked) == set()


def test_a_manifest_says_times_to_the_hour(make_erased: Callable[..., Erased], asked: Asked) -> None:
    at = make_erased().world.statements()[1].recorded_at
    assert at is not None and at % 3_600_000_000
    hour = at - at % 3_600_000_000
    for times, right in (
        ({"started_at": 0, "erased_at": hour}, True),
        ({"started_at": 0, "erased_at": at}, False),
        ({"started_at": 1, "erased_at": hour}, False),
    ):
        found = make_erased(times=times).check(asked)
        assert (("ERASURE_STATE_FALSE", "store.db erasures 1") not in found) == right


def _checked(*names: str) -> list[dict[str, Any]]:
    counts = {"controls_planted": 1, "controls_found": 1}
    return [{"check": name, "result": "clean", "counts": counts} for name in names]


def test_a_manifest_of_schema_1_is_judged_by_its_own_form(
    make_erased: Callable[..., Erased], asked: Asked
) -> None:
    at = make_erased().world.statements()[1].recorded_at
    assert at is not None
    first: dict[str, Any] = {
        "schema": 1,
        "announcement": None,
        "times": {"started_at": 7, "erased_at": at, "closed_at": at},
        "checks": _checked("structure", "residue"),
    }
    assert make_erased(**first).check(asked) == set()
    for change in (
        {"schema": 2},
        {"note": 1},
        {"checks": _checked("structure")},
        {"announcement": {"seq": 1}},
        {"times": {"started_at": 7, "erased_at": at - 3600 * SECOND, "closed_at": at}},
        {"state": "for Alice"},
    ):
        assert make_erased(**first | change).check(asked), change


@pytest.mark.parametrize(
    ("content", "right"),
    [
        ({"recorded_at": 5}, True),
        ({"recorded_at": 6}, False),
        ({"recorded_at": 5, "text": "Alice"}, False),
    ],
)
def test_a_tombstone_in_a_manifest_of_schema_1_opens_to_a_time_alone(
    content: dict[str, Any], right: bool
) -> None:
    salt = bytes(32)
    opened = event.encode_content(content)
    logged = opened if "text" in content else event.encode_content({"recorded_at": 5})
    tombstone = {"content_hash": event.content_hash(logged, salt), "content": opened, "content_salt": salt}
    assert manifest_form._is_time_alone(tombstone) == right
    assert not manifest_form._is_time_alone({**tombstone, "content_salt": None})


def test_a_manifest_of_schema_1_after_one_of_schema_2_is_found(signer: CoseSigner) -> None:
    documents = {
        number: Manifest(number, "issuer", b"", {"schema": schema, "previous": bytes(32)}, bytes(32), b"")
        for number, schema in ((1, 2), (2, 1))
    }
    assert [one.code for one in erasure._check_previous({2: documents[2], 1: documents[1]})] == [
        "MANIFEST_ALTERED",
        "MANIFEST_ALTERED",
    ]


def test_a_manifest_of_a_stranger_is_found(
    make_erased: Callable[..., Erased], asked: Asked, tmp_path: Path
) -> None:
    stranger = make_cose_key(tmp_path / "stranger.key")
    erased = make_erased()
    document = manifest_of(stranger, erased.world, 2)
    assert ("KEY_NOT_VALID", "log erasures/1.cose") in replace(
        erased, files={"erasures/1.cose": document}
    ).check(asked)


@pytest.mark.parametrize("data", [b"", b"\xd2\x84", os.urandom(300)])
def test_a_file_that_is_no_manifest_is_found(
    make_erased: Callable[..., Erased], asked: Asked, data: bytes
) -> None:
    erased = make_erased()
    assert ("MANIFEST_ALTERED", "log erasures/1.cose") in replace(
        erased, files={"erasures/1.cose": data}
    ).check(asked)
    with pytest.raises(MalformedError):
        decode_manifest(data)


def test_an_erasure_under_way_is_not_yet_a_finding(make_erased: Callable[..., Erased], asked: Asked) -> None:
    erased = make_erased()
    erased.world.events.pop()
    erased.world.links.pop()
    waiting = replace(erased, files={}, row=replace(erased.row, state="executing", manifest_digest=None))
    rows = waiting.world.rows(erasures=(waiting.row,))
    outcome = check_erasures(rows, waiting.world.statements(), no_files(), asked)
    assert outcome.findings == ()
    later = replace(asked, now=NOW + 7200 * SECOND)
    outcome = check_erasures(rows, waiting.world.statements(), no_files(), later)
    assert {finding.code for finding in outcome.findings} == {"TOMBSTONE_WITHOUT_MANIFEST"}


def test_no_manifest_of_the_older_form_follows_a_newer_one() -> None:
    def chain(*schemas: int) -> set[str]:
        made = {
            number: Manifest(
                number, "", b"", {"schema": schema, "previous": bytes([number - 1])}, bytes([number]), b""
            )
            for number, schema in enumerate(schemas, 1)
        }
        made[1] = replace(made[1], document={"schema": schemas[0]})
        return {finding.where for finding in erasure._check_previous(made)}

    assert chain(1, 1, 2, 2) == set()
    assert chain(1, 2, 1, 2) == {"log erasures/3.cose"}


def test_tombstones_are_numbered_and_chained(world: World, asked: Asked) -> None:
    first = world.add("erase", {}, {"number": 1, "count": 0})
    world.add("erase", {}, {"number": 3, "previous": first, "count": 0})
    world.add("erase", {}, {"number": 4, "previous": first, "count": 0})
    found = places(check_erasures(world.rows(), world.statements(), no_files(), asked))
    assert ("SEQUENCE_GAP", "store.db events seq 2") in found
    assert ("ORDER_ALTERED", "store.db events seq 3") in found


def test_a_tombstone_that_swallows_another_is_found(world: World, asked: Asked) -> None:
    first = world.add("erase", {}, {"number": 1, "count": 0})
    world.add("erase", {"erases": [first]}, {"number": 2, "previous": first, "count": 1})
    assert ("ERASURE_STATE_FALSE", "store.db events seq 2") in check(world, asked)


# What an audit says


def test_the_verdict_follows_from_the_findings() -> None:
    control = Finding("CONTROL_FAILED", "somewhere", "Nothing was found.")
    other = Finding("FACT_ALTERED", "somewhere", "Something was found.")
    assert verdict([]) == "clean"
    assert verdict([control]) == "inconclusive"
    assert verdict([control, other]) == "findings"


def test_every_code_has_a_severity() -> None:
    assert set(SEVERITIES.values()) == {"critical", "high", "medium"}
    assert len(SEVERITIES) >= 39


def test_outcomes_are_merged_in_order_and_counts_are_added() -> None:
    one = Outcome((Finding("FACT_ALTERED", "a", "A."),), counts={"n": 1})
    two = Outcome((Finding("FACT_ALTERED", "b", "B."),), counts={"n": 2, "m": 1})
    merged = merge([one, two])
    assert [finding.where for finding in merged.findings] == ["a", "b"]
    assert merged.counts == {"n": 3, "m": 1}


def test_a_report_of_very_many_findings_stays_readable() -> None:
    many = tuple(Finding("FACT_ALTERED", f"row {n}", "It differs.") for n in range(1000))
    report = Report(Outcome((*many, Finding("CHECKPOINT_STALE", "log", "Old."))), "2030-01-01T00:00:00Z")
    document = to_document(report)
    assert len(document["findings"]) == MAX_FINDINGS_PER_CODE + 1
    assert document["counts"]["findings"] == 1001
    assert document["counts"]["findings_left_out"] == 1000 - MAX_FINDINGS_PER_CODE
    assert "more; --json or --report has them" in to_text(report)


def test_the_text_says_what_was_and_was_not_checked() -> None:
    outcome = Outcome(checked=(Note("a", "things looked at", 3),), not_checked=(Note("b", "not looked at"),))
    text = to_text(Report(outcome, "2030-01-01T00:00:00Z", {"origin": "example/log", "size": 9}))
    assert text.startswith("CLEAN")
    for line in ("Log example/log, 9 entries.", "a: 3 things looked at", "b: not looked at"):
        assert line in text


def test_with_no_issuer_key_signatures_are_not_checked(world: World) -> None:
    world.add()
    trust: Trust = make_trust("quorum none\n")
    outcome = check_signatures(world.statements(), world.entries(), Asked(trust, NOW))
    assert outcome.findings == ()
    assert [note.check for note in outcome.not_checked] == ["signatures"]
