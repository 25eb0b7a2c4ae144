"""Keys, their root, the policy, the mirror and the next log, changed on one node: the others follow as they run."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import agreed, mirroring, wiring
from memory.home_names import COSE_KEYS
from memory.key_list import read_key_list
from memory.operator import Operator
from memory.principal import owner_from_environment
from memory.provenance import receipt
from memory.wiring import Home
from tlog.certificates import decode_key_list, sign_key_list
from tlog.claims import Caller
from tlog.cosignature import cosigned_message, make_cosignature_line
from tlog.errors import Error, MalformedError, UnavailableError, VerificationError
from tlog.fsck import fsck
from tlog.keys import load_cose_key, make_cosigner_key, make_root_key
from tlog.note import parse_note
from tlog.policy import verify_checkpoint
from tlog.statement import parse_statement
from tlog.verify import recognize, verify_files

WHO = owner_from_environment({})
LIFE = 1000 * 86_400


def remember(home: Home, text: str) -> str:
    fact_id: str = home.memory(WHO).remember(text)["id"]
    return fact_id


def kid(home: Home, use: str) -> bytes:
    return load_cose_key(home.path / "keys" / COSE_KEYS[use]).kid


def findings(home: Home) -> list[str]:
    audited = audit(Places(home.path), Asked(home.trust(), time.time_ns() // 1000), tenant=None, needles=None)
    assert audited.verified is not None
    return [one.code for one in audited.outcome.findings]


def holds(home: Home, data: bytes) -> bool:
    (verdict,) = verify_files([recognize("f", data)], Caller(home.trust(), time.time_ns() // 10**9))
    return bool(verdict.holds)


def code_of(work: Callable[[], Any]) -> str:
    with pytest.raises(Error) as caught:
        work()
    return caught.value.code


@pytest.mark.parametrize("rooted", [False, True])
def test_another_node_signs_with_the_new_keys_from_then_on(
    homes: list[Home], tmp_path: Path, rooted: bool
) -> None:
    first, second = homes
    root = make_root_key(tmp_path / "usb" / "root.key") if rooted else None
    before = remember(second, "one")
    second.publish()
    kept = receipt(second.parts(), WHO, before)
    if root is not None:
        Operator(first).certify(root, LIFE, 10)
    old = {use: kid(second, use) for use in COSE_KEYS}
    for at, use in enumerate(COSE_KEYS):
        done = Operator(homes[at % 2]).rotate(use, root, 10)
        assert (done["state"], done["ended"]) == ("rotated", [old[use].hex()])
    after = remember(second, "two")
    memory = first.memory(WHO)
    memory.forget(id=before, confirm=memory.forget_preview(id=before)["confirm"])
    first.publish()
    assert {use: kid(first, use) for use in COSE_KEYS} == {use: kid(second, use) for use in COSE_KEYS}
    assert all(kid(second, use) != old[use] for use in COSE_KEYS)
    entries = [parse_statement(entry).kid for entry in first.log().read_entries(0, 3)]
    assert entries == [old["issuer"], kid(first, "issuer"), kid(first, "issuer")]
    for home in homes:
        assert findings(home) == []
        assert holds(home, kept) and holds(home, receipt(home.parts(), WHO, after))
        keys = {path.name for path in (home.path / "keys").glob("*.key")}
        assert keys == {*COSE_KEYS.values(), "log.key", "index.key", "seal.key"}
    if rooted:
        assert first.public_storage().read("keys.cose") == (second.path / "keys.cose").read_bytes()


def test_an_offline_root_is_asked_by_one_node_and_answers_to_another(
    homes: list[Home], tmp_path: Path
) -> None:
    first, second = homes
    root = make_root_key(tmp_path / "usb" / "root.key")
    remember(first, "one")

    def signed(asked: Home) -> bytes:
        return sign_key_list(root, decode_key_list(Operator(asked).request_key_list(LIFE, 10)))

    Operator(second).install_key_list(signed(first), root.key, 10)
    old = kid(first, "issuer")
    assert Operator(first).rotate("issuer", None, 10)["state"] == "prepared"
    assert Operator(second).rotate("issuer", None, 10)["state"] == "prepared"
    assert (second.path / "keys" / "issuer.next.key").exists()
    told = Operator(second).install_key_list(signed(first), None, 10)
    assert (told["state"], told["to_end"]) == ("active", [old.hex()])
    remember(first, "two")
    assert kid(first, "issuer") == kid(second, "issuer") != old
    assert not (first.path / "keys" / "issuer.next.key").exists()
    Operator(first).install_key_list(signed(second), None, 10)
    second.publish()
    assert read_key_list(second.path, second.config).keys == read_key_list(first.path, first.config).keys
    assert findings(second) == []


def test_a_key_does_not_change_under_a_statement_that_another_node_is_writing(homes: list[Home]) -> None:
    first, second = homes
    remember(first, "one")
    before = kid(first, "issuer")
    told: list[Any] = []
    rotating = threading.Thread(target=lambda: told.append(Operator(first).rotate("issuer", None, 10)))
    with second.parts().store.write():
        rotating.start()
        rotating.join(1.0)
        assert rotating.is_alive()
        second.state.follow()
        assert kid(second, "issuer") == before
    rotating.join(30)
    assert told and told[0]["state"] == "rotated"
    # And where it takes longer than a key waits, nothing is changed, and the same command goes on.
    with second.parts().store.write():
        assert code_of(lambda: Operator(first).rotate("issuer", None, 10)) == "database_unavailable"
    assert Operator(second).rotate("issuer", None, 10)["state"] == "rotated"
    issuers = [key for key in read_key_list(second.path, second.config).keys if key.use == "issuer"]
    assert len(issuers) == 3


def test_a_new_log_takes_over_on_all_nodes(homes: list[Home], tmp_path: Path) -> None:
    first, second = homes
    before = remember(second, "one")
    second.publish()
    remember(second, "two, not published")
    told = Operator(first).prepare_succession(None)
    assert Operator(second).prepare_succession(None)["vkey"] == told["vkey"]
    done = Operator(first).succeed(None, 10)
    assert (done["vkey"], done["frozen"]["size"]) == (told["vkey"], 2)
    after = remember(second, "three")
    assert second.publish()["size"] == 2
    assert second.origin == first.origin == done["origin"]
    for home in homes:
        assert not (home.path / "keys" / "log.key").exists() and (home.path / "keys" / "log-2.key").exists()
        for one, place in ((before, 0), (after, 1)):
            assert home.memory(WHO).provenance(one)["receipt"]["entry"] == place
            assert holds(home, receipt(home.parts(), WHO, one))
        assert findings(home) == []
        assert (fsck(home.public_storage(1)).size, fsck(home.public_storage(2)).size) == (2, 2)
        assert not any(name.startswith("log-") for name in home.public_storage(1).names(""))
    memory = second.memory(WHO)
    gone = memory.forget(id=before, confirm=memory.forget_preview(id=before)["confirm"])
    assert gone["manifest"] == f"{second.config.log_storage}/log-2/erasures/1.cose"
    Operator(second).succeed("example.org/third", 10)
    remember(first, "four")
    first.publish()
    assert findings(first) == [] and first.config.origin == "example.org/third"
    with wiring.open_existing_home(second.path) as again:
        assert holds(again, receipt(again.parts(), WHO, after))


def test_a_node_that_comes_with_an_old_folder_is_brought_up(homes: list[Home], tmp_path: Path) -> None:
    first, second = homes
    old = tmp_path / "old"
    shutil.copytree(second.path, old)
    old.chmod(0o700)
    remember(first, "one")
    for use in COSE_KEYS:
        Operator(first).rotate(use, None, 10)
    Operator(first).succeed("example.org/next", 10)
    with wiring.open_existing_home(old) as third:
        remember(third, "two")
        assert third.publish()["size"] == 2
        assert third.origin == "example.org/next" and findings(third) == []
        assert {use: kid(third, use) for use in COSE_KEYS} == {use: kid(first, use) for use in COSE_KEYS}


def test_other_witnesses_are_asked_by_every_node(homes: list[Home], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(wiring, "_witnessed_heads", lambda policy, origin: [])
    first, second = homes
    remember(second, "one")
    second.publish()
    witness = make_cosigner_key(tmp_path / "w" / "key", "w.example")

    def cosign(note: bytes, *_: object) -> tuple[Any, ...]:
        key, at = witness.verifier_key, int(time.time())
        signature = witness.sign_bytes(cosigned_message(key, at, parse_note(note).text))
        return (make_cosignature_line(key, at, signature),)

    for home in homes:
        home.cosign_of = lambda policy: cosign
    late = second.log()
    text = f"witness w {witness.verifier_key.vkey}\nquorum w\n"
    first.set_policy(text, same_operator=("w",))
    # What was opened under the policy before publishes nothing.
    assert code_of(lambda: late.publish(10)) == "busy"
    assert second.publish()["state"] == "witnessed"
    note = second.public_storage().read("checkpoint")
    assert note is not None and verify_checkpoint(first.policy(), note, first.origin)
    assert second.trust().same_operator == ("w",) and second.policy() == first.policy()


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_every_node_announces_to_the_mirror_first(
    homes: list[Home], tmp_path: Path, place: Any, kind: str
) -> None:
    first, second = homes
    where = str(tmp_path / "mirror") if kind == "folder" else f"{place()['bucket']}-mirror"
    gone = remember(first, "one")
    first.publish()
    late = second.log()
    assert Operator(first).set_mirror(where)["size"] == 1
    assert code_of(lambda: late.publish(10)) == "busy"
    memory = second.memory(WHO)
    memory.forget(id=gone, confirm=memory.forget_preview(id=gone)["confirm"])
    second.publish()
    Operator(second).succeed(None, 10)
    remember(first, "two")
    first.publish()
    assert Operator(second).describe_mirror() == Operator(first).describe_mirror()
    for number, manifest in ((1, True), (2, False)):
        public = first.public_storage(number)
        mirror = mirroring.mirror_at(where, number, first.log_signer().verifier_key).storage
        assert fsck(mirror).size == fsck(public).size
        for name in public.names(""):
            if ".p/" not in name and name != "bucket":
                assert mirror.read(name) == public.read(name), name
        assert (mirror.read("erasures/1.cose") is not None) == manifest
    assert findings(first) == []


def test_a_mirror_in_the_place_of_the_log_is_none(homes: list[Home]) -> None:
    bucket = homes[0].config.log_storage or ""
    for where in (bucket, f"{bucket}/mirror", bucket.rpartition("/")[0]):
        with pytest.raises(MalformedError):
            Operator(homes[0]).set_mirror(where)


def test_an_older_key_list_takes_the_place_of_no_newer_one(homes: list[Home], tmp_path: Path) -> None:
    first, second = homes
    root = make_root_key(tmp_path / "usb" / "root.key")
    Operator(first).certify(root, LIFE, 10)
    older = first.public_storage().read("keys.cose")
    assert older is not None
    Operator(second).rotate("receipt", root, 10)
    newer = first.public_storage().read("keys.cose")
    with pytest.raises(UnavailableError):
        first.public_storage().replace("keys.cose", older)
    assert first.public_storage().read("keys.cose") == newer


def test_a_database_that_was_put_back_is_told_what_nodes_know(homes: list[Home]) -> None:
    first, second = homes
    remember(first, "one")
    first.publish()
    storage = first.state._storage  # type: ignore[attr-defined]
    before = storage.read("agreed")
    Operator(first).rotate("issuer", None, 10)
    newest = kid(first, "issuer")
    assert kid(second, "issuer") != newest
    storage.replace("agreed", before)
    # A node that knows more signs nothing before the database does, which a publication sees to.
    assert code_of(lambda: remember(first, "two")) == "nodes_differ"
    first.publish()
    remember(second, "three")
    second.publish()
    assert kid(second, "issuer") == newest and findings(second) == []


def test_a_node_that_knows_another_key_than_the_database_signs_nothing(homes: list[Home]) -> None:
    first, second = homes
    remember(first, "one")
    storage = first.state._storage  # type: ignore[attr-defined]
    before = storage.read("agreed")
    Operator(first).rotate("issuer", None, 10)
    storage.replace("agreed", before)
    Operator(second).rotate("issuer", None, 10)
    for work in (first.publish, lambda: remember(first, "two")):
        assert code_of(work) == "rolled_back"
    remember(second, "three")
    second.publish()
    assert findings(second) == []


def test_what_the_database_has_of_keys_opens_under_the_home_key_and_name_alone(homes: list[Home]) -> None:
    home = homes[0]
    Operator(home).rotate("issuer", None, 10)
    data = home.state._storage.read("agreed")  # type: ignore[attr-defined]
    state = agreed.decode(data)
    assert set(state.keys) == {"issuer.key"}
    key = (home.path / "keys" / "issuer.key").read_bytes()
    assert agreed.opened(home.path, "issuer.key", state.keys["issuer.key"]) == key
    assert key[30:80] not in data
    with pytest.raises(VerificationError):
        agreed.opened(home.path, "manifest.key", state.keys["issuer.key"])
    with pytest.raises(VerificationError):
        agreed.decode(data[:-1])
