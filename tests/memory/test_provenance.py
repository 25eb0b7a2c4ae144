"""Provenance and receipts say what is proved under the state that really is, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory import erase, provenance, wiring
from memory.model import AGENT_SCOPES
from memory.principal import make_principal, owner_from_environment, with_all_scopes
from memory.provenance_text import LIMITS, provenance_text
from memory.remember import remember
from memory.scope import open_scope
from tlog import merkle
from tlog.ascii import decode_base64
from tlog.errors import Error, MalformedError, UnavailableError, VerificationError
from tlog.keys import make_cosigner_key
from tlog.note import parse_note
from tlog.policy import verify_checkpoint
from tlog.proof import parse_proof, verify_proof
from tlog.receipt import split_transparent, verify_receipt
from tlog.statement import verify_statement

ME = owner_from_environment({})
WITNESSED_AT = 1_900_000_000


@pytest.fixture
def home(tmp_path: Path) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


def write(home: wiring.Home, text: str = "The stand-up begins at 09:30.", **more: Any) -> Any:
    return remember(home.parts(), ME, {"text": text, **more})


def show(home: wiring.Home, id: str, caller: Any = ME) -> dict[str, Any]:
    return provenance.provenance(home.parts(), caller, id)


def limits(home: wiring.Home, id: str, caller: Any = ME) -> set[str]:
    return {limit["code"] for limit in show(home, id, caller)["limits"]}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "_witnessed_heads", lambda policy, origin: [])


def witnessed(home: wiring.Home, folder: Path, same_operator: tuple[str, ...] = ()) -> Any:
    """Gives the home a witness; the returned function sets whether it is up."""
    cosigner = make_cosigner_key(folder / "witness" / "w.key", "witness.example/one")
    state = {"up": True}

    def of(_: Any) -> Any:
        def cosign(note: bytes, *_: Any) -> Any:
            return (cosigner.cosign(parse_note(note).text, WITNESSED_AT),) if state["up"] else ()

        return cosign

    home.cosign_of = of
    text = f"witness one {cosigner.verifier_key.vkey} http://127.0.0.1:9\nquorum one\n"
    home.set_policy(text, same_operator=same_operator)
    return lambda up: state.update(up=up)


ALWAYS = {"not_truth", "issuer_key_in_process", "client_unauthenticated", "agent_asserted", "no_source"}


def test_a_new_fact_is_pending(home: wiring.Home) -> None:
    id = write(home)["id"]
    answer = show(home, id)
    assert answer["receipt"]["state"] == "pending"
    assert (answer["checkpoint"], answer["cosignatures"]) == (None, [])
    assert limits(home, id) == ALWAYS | {"pending"}


def test_a_published_fact_without_a_witness_is_logged(home: wiring.Home) -> None:
    id = write(home)["id"]
    home.publish()
    assert show(home, id)["receipt"]["state"] == "logged"
    assert limits(home, id) == ALWAYS | {"logged_unwitnessed"}


def test_a_witnessed_fact_has_no_limit_of_the_log_left(home: wiring.Home, tmp_path: Path) -> None:
    witnessed(home, tmp_path)
    id = write(home)["id"]
    home.publish()
    answer = show(home, id)
    assert answer["receipt"]["state"] == "witnessed"
    assert [one["witness"] for one in answer["cosignatures"]] == ["one"]
    assert answer["cosignatures"][0]["timestamp"] == WITNESSED_AT
    assert limits(home, id) == ALWAYS


def test_a_quorum_that_was_not_met_is_said(home: wiring.Home, tmp_path: Path) -> None:
    set_up = witnessed(home, tmp_path)
    write(home)
    home.publish()
    set_up(False)
    id = write(home, "The retrospective is on Friday.")["id"]
    with pytest.raises(UnavailableError):
        home.publish()
    assert show(home, id)["receipt"]["state"] == "logged"
    assert limits(home, id) == ALWAYS | {"logged_unwitnessed", "witness_quorum_not_met"}


def test_a_policy_that_asks_for_more_than_the_old_checkpoint_has_is_not_met(
    home: wiring.Home, tmp_path: Path
) -> None:
    id = write(home)["id"]
    home.publish()
    witnessed(home, tmp_path)
    assert "witness_quorum_not_met" in limits(home, id)
    with pytest.raises(UnavailableError):
        provenance.receipt(home.parts(), ME, id)


def test_witnesses_of_the_same_operator_are_said(home: wiring.Home, tmp_path: Path) -> None:
    witnessed(home, tmp_path, same_operator=("one",))
    id = write(home)["id"]
    home.publish()
    assert limits(home, id) == ALWAYS | {"witness_same_operator"}
    assert show(home, id)["cosignatures"][0]["same_operator"]


@pytest.mark.parametrize(("age_seconds", "stale"), [(3599, False), (3600, False), (3601, True)])
def test_a_checkpoint_older_than_the_bound_is_stale(tmp_path: Path, age_seconds: int, stale: bool) -> None:
    now = (WITNESSED_AT + age_seconds) * 1_000_000
    with wiring.open_home(tmp_path / "home", clock=lambda: now) as home:
        home.config = replace(home.config, max_checkpoint_age_seconds=3600)
        witnessed(home, tmp_path)
        id = write(home)["id"]
        home.publish()
        assert ("checkpoint_stale" in limits(home, id)) == stale


def test_what_the_caller_declared_is_said(home: wiring.Home) -> None:
    assert "value_inferred" in limits(home, write(home, key="a/b")["id"])
    assert "value_inferred" not in limits(home, write(home, "B.", key="a/c", value="B")["id"])
    dated = write(home, "Room 4.", key="room", value="4", valid_from="2026-01-01T00:00:00Z")
    assert "declared_valid_time" in limits(home, dated["id"])
    ends = write(home, "Room 5.", key="room5", value="5", valid_until="2999-01-01T00:00:00Z")
    assert "declared_valid_time" in limits(home, ends["id"])
    sourced = write(home, "C.", key="c", value="CC", source="minutes of Monday")
    assert "no_source" not in limits(home, sourced["id"])


def test_who_speaks_is_said(home: wiring.Home) -> None:
    known = make_principal("default", "default", "desk", authenticated=True)
    answer = remember(home.parts(), known, {"text": "Known."})
    found = limits(home, answer["id"])
    assert "agent_authenticated" in found
    assert not {"agent_asserted", "client_unauthenticated"} & found


def test_a_key_kept_elsewhere_is_not_in_the_process(home: wiring.Home) -> None:
    id = write(home)["id"]
    home.parts()
    (home.path / "keys" / "issuer.key").rename(home.path.parent / "elsewhere.key")
    # The home's own list of keys says whose signatures count; the key itself need not be there for that.
    assert "issuer_key_in_process" not in limits(home, id)
    (home.path.parent / "elsewhere.key").rename(home.path / "keys" / "issuer.key")
    assert "issuer_key_in_process" in limits(home, id)


def test_an_open_conflict_is_said(home: wiring.Home) -> None:
    id = write(home, "Heron.", key="room", value="Heron")["id"]
    assert "conflict_open" not in limits(home, id)
    other = with_all_scopes(make_principal("default", "default", "phone"))
    answer = remember(home.parts(), other, {"text": "Egret.", "key": "room", "value": "Egret"})
    assert answer["outcome"] == "conflict"
    assert "conflict_open" in limits(home, id)
    assert "conflict_open" in limits(home, answer["id"])


def test_a_held_fact_is_shown_to_a_reviewer_alone(home: wiring.Home) -> None:
    held = write(home, "Maybe Egret.", key="room", value="Egret", provisional=True)
    assert held["outcome"] == "held"
    assert "held" in limits(home, held["id"])
    assert show(home, held["id"])["fact"]["value"] == "Egret"
    agent = replace(ME, scopes=AGENT_SCOPES)
    answer = show(home, held["id"], agent)
    assert {"held", "content_not_opened"} <= limits(home, held["id"], agent)
    assert "Egret" not in repr(answer)
    assert answer["fact"]["status"] == "held"


def test_a_reaffirmed_fact_stays_marked(home: wiring.Home) -> None:
    write(home, "Heron.", key="room", value="Heron")
    write(home, "Egret.", key="room", value="Egret")
    echo = write(home, "Heron again.", key="room", value="Heron")
    assert echo["reaffirm"]
    again = write(
        home, "Heron it is.", key="room", value="Heron", reaffirm=echo["reaffirm"], reason="moved back"
    )
    assert again["outcome"] == "superseded"
    assert "reaffirmed" in limits(home, again["id"])


def forget(home: wiring.Home, **selector: Any) -> Any:
    preview = erase.preview(home.parts(), ME, **selector)
    return erase.execute(home.parts(), ME, preview["confirm"], **selector)


def test_an_erased_fact_keeps_its_statement_and_receipt_and_nothing_else(home: wiring.Home) -> None:
    id = write(home, "Dana Scully lives in Elm Street.", subject="Dana Scully")["id"]
    forget(home, id=id)
    home.publish()
    answer = show(home, id)
    assert answer["fact"]["status"] == "erased"
    assert "content_erased" in limits(home, id)
    assert not {"no_source", "client_unauthenticated"} & limits(home, id)
    assert [one["act"] for one in answer["history"]] == ["stored", "erases"]
    assert answer["origin"] is None
    assert "Dana" not in repr(answer) and "cli" not in {one["client"] for one in answer["history"]}
    assert not answer["statement"]["opened"]
    entry, receipts = split_transparent(provenance.receipt(home.parts(), ME, id))
    verify_receipt(receipts[0], entry, home.receipt_signer().key)


def test_a_fact_whose_successor_was_erased_is_not_shown(home: wiring.Home) -> None:
    old = write(home, "Heron room.", key="room", value="Heron")["id"]
    new = write(home, "Egret room.", key="room", value="Egret")["id"]
    forget(home, id=new)
    answer = show(home, old)
    assert "content_erased" in limits(home, old)
    assert "Heron" not in repr(answer)


def confirmed(home: wiring.Home) -> str:
    held = write(home, "Egret room.", key="room", value="Egret", provisional=True)["id"]
    home.memory(ME).confirm(held)
    return str(held)


def resolved(home: wiring.Home) -> str:
    desk = with_all_scopes(make_principal("default", "default", "desk"))
    told = {"text": "Egret room.", "key": "room", "value": "Egret"}
    kept = remember(home.parts(), desk, told)["id"]
    (conflict,) = home.memory(ME).conflicts()["conflicts"]
    home.memory(ME).resolve(conflict["id"], kept)
    return str(kept)


def reaffirmed(home: wiring.Home) -> str:
    write(home, "Egret room.", key="room", value="Egret")
    last = write(home, "Bittern room.", key="room", value="Bittern")["id"]
    refused = write(home, "Egret room.", key="room", value="Egret")["id"]
    home.memory(ME).reaffirm(refused, "it moved back")
    assert show(home, last)["fact"]["status"] == "superseded"
    return str(refused)


@pytest.mark.parametrize("let_through", [confirmed, resolved, reaffirmed])
def test_a_fact_whose_successor_was_let_through_and_erased_is_not_shown(
    home: wiring.Home, let_through: Callable[[wiring.Home], str]
) -> None:
    """The statement that ended it is still there; what took its place is not, and with it since when."""
    old = write(home, "Heron room.", key="room", value="Heron")["id"]
    new = let_through(home)
    with home.parts().store.read_whole() as view:
        ended = [fact.id for fact in view.facts_of_key(1, key_tag(home, view), ("superseded",))]
    forget(home, id=new)
    with home.parts().store.read_whole() as view:
        lost = [fact.id for fact in view.facts_of_key(1, key_tag(home, view)) if fact.end_erased]
    assert lost and set(lost) <= set(ended) and (old in lost or let_through is reaffirmed)
    for id in lost:
        answer = show(home, id)
        assert {"content_erased", "content_not_opened"} <= limits(home, id)
        assert answer["origin"] is None
        assert not any(word in repr(answer) for word in ("Heron", "Bittern", "Egret"))


def key_tag(home: wiring.Home, view: Any) -> bytes:
    scope = open_scope(view, home.parts().vault, ME)
    assert scope is not None
    return scope.key_tag("room")


def test_history_tells_what_was_done_to_a_fact(home: wiring.Home) -> None:
    old = write(home, "Heron room.", key="room", value="Heron")["id"]
    new = write(home, "Egret room.", key="room", value="Egret")["id"]
    told = show(home, old)["history"]
    assert [(one["act"], one["id"]) for one in told] == [("stored", old), ("retires", new)]
    assert show(home, new)["history"][0]["on"] == {"retires": [old]}


@pytest.mark.parametrize("id", ["a" * 26, "", "x", "A" * 26, "../..", None])
def test_an_unknown_id_is_an_error(home: wiring.Home, id: Any) -> None:
    write(home)
    with pytest.raises(MalformedError):
        show(home, id)


def test_another_tenant_or_agent_sees_nothing(home: wiring.Home) -> None:
    id = write(home)["id"]
    for tenant, agent in [("other", "default"), ("default", "other")]:
        other = with_all_scopes(make_principal(tenant, agent, "cli"))
        with pytest.raises(MalformedError) as caught:
            show(home, id, other)
        assert caught.value.code == "unknown_id"
        remember(home.parts(), other, {"text": "Something else."})
        with pytest.raises(MalformedError):
            show(home, id, other)
        with pytest.raises(MalformedError):
            provenance.receipt(home.parts(), other, id)


def test_the_shown_proof_leads_from_the_entry_to_the_shown_root(home: wiring.Home) -> None:
    ids = [write(home, f"Fact {number}.")["id"] for number in range(5)]
    home.publish()
    answer = show(home, ids[2])
    entry = decode_base64(answer["statement"]["entry"], "entry")
    path = tuple(decode_base64(one, "hash") for one in answer["receipt"]["path"])
    root = decode_base64(answer["checkpoint"]["root"], "root")
    merkle.verify_inclusion(answer["receipt"]["entry"], 5, merkle.leaf_hash(entry), path, root)
    statement = verify_statement(entry, home.trust().key("issuer", bytes.fromhex(answer["statement"]["kid"])))
    assert statement.payload_hash.hex() == answer["statement"]["commitment"]


def test_a_receipt_waits_for_a_checkpoint(home: wiring.Home) -> None:
    id = write(home)["id"]
    for format in provenance.FORMATS:
        with pytest.raises(UnavailableError) as caught:
            provenance.receipt(home.parts(), ME, id, format)
        assert caught.value.code == "pending"
    home.publish()
    later = write(home, "Later.")["id"]
    with pytest.raises(UnavailableError):
        provenance.receipt(home.parts(), ME, later)


def test_a_cose_receipt_carries_the_cosigned_checkpoint(home: wiring.Home, tmp_path: Path) -> None:
    witnessed(home, tmp_path)
    ids = [write(home, f"Fact {number}.")["id"] for number in range(3)]
    home.publish()
    entry, receipts = split_transparent(provenance.receipt(home.parts(), ME, ids[1]))
    verified = verify_receipt(receipts[0], entry, home.trust().key("receipt", home.receipt_signer().kid))
    assert (verified.index, verified.size, verified.size_signed) == (1, 3, True)
    assert verified.checkpoint is not None
    checkpoint = verify_checkpoint(home.policy(), verified.checkpoint, home.origin)
    assert checkpoint.checkpoint.root == verified.root
    assert len(checkpoint.cosignatures) == 1


def test_a_tlog_proof_carries_the_entry(home: wiring.Home) -> None:
    ids = [write(home, f"Fact {number}.")["id"] for number in range(3)]
    home.publish()
    proof = parse_proof(provenance.receipt(home.parts(), ME, ids[2], "tlog-proof"))
    assert proof.extra is not None
    assert verify_proof(proof, proof.extra, home.policy()).checkpoint.size == 3
    with pytest.raises(VerificationError):
        verify_proof(proof, proof.extra + b"\0", home.policy())


def test_a_receipt_says_nothing_of_the_content(home: wiring.Home) -> None:
    id = write(home, "Dana Scully is here.", key="dana/place", value="here", subject="Dana Scully")["id"]
    home.publish()
    for format in provenance.FORMATS:
        data = provenance.receipt(home.parts(), ME, id, format).lower()
        assert b"dana" not in data and b"here" not in data


def test_an_unknown_format_is_an_error(home: wiring.Home) -> None:
    id = write(home)["id"]
    with pytest.raises(MalformedError, match="cose"):
        provenance.receipt(home.parts(), ME, id, "pdf")


def test_without_the_scope_nothing_is_read(home: wiring.Home) -> None:
    id = write(home)["id"]
    writer = replace(ME, scopes=frozenset({"memory:write"}))
    for call in (show, lambda home, id, caller: provenance.receipt(home.parts(), caller, id)):
        with pytest.raises(Error) as caught:
            call(home, id, writer)
        assert caught.value.code == "forbidden"


def test_a_store_that_does_not_open_its_statement_is_an_error(home: wiring.Home) -> None:
    id = write(home)["id"]
    with home.parts().store.write() as txn:
        txn.connection.execute("UPDATE contents SET salt = zeroblob(32)")
    with pytest.raises(VerificationError):
        show(home, id)


def test_a_log_that_lacks_the_entry_is_an_error(home: wiring.Home) -> None:
    ids = [write(home, f"Fact {number}.")["id"] for number in range(3)]
    home.publish()
    with home.parts().store.write_whole() as txn:
        txn.connection.execute("UPDATE events SET entry_index = 2 - entry_index")
    with pytest.raises(VerificationError):
        show(home, ids[0])


def test_every_limit_has_a_plain_sentence() -> None:
    assert all(text.endswith(".") and len(text) > 20 for text in LIMITS.values())


def test_the_answer_reads_as_text(home: wiring.Home, tmp_path: Path) -> None:
    witnessed(home, tmp_path)
    id = write(home, "Heron room.", key="room", value="Heron", source="the plan")["id"]
    pending = provenance_text(show(home, id))
    assert "receipt     pending" in pending
    home.publish()
    text = provenance_text(show(home, id))
    assert "cosigned    one at" in text and "says        Heron" in text and "source the plan" in text
    forget(home, id=id)
    assert "(content not shown)" in provenance_text(show(home, id))
