"""Keys of a home change: what was signed stays, what a thief signs with an old one does not count."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from auditor.audit import Audited, Places, audit
from auditor.evidence import Asked
from memory import home_state, key_rotation, wiring
from memory.home_names import COSE_KEYS
from memory.key_list import read_key_list, retired_keys
from memory.model import SCOPES, Principal
from memory.operator import Operator
from memory.provenance import receipt
from memory.wiring import Home, init_home, open_home
from tlog.certificates import decode_key_list, sign_key_list, verify_key_list
from tlog.claims import Caller
from tlog.cosignature import cosigned_message, make_cosignature_line
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.keys import KeyCosigner, load_cose_key, make_cosigner_key, make_root_key
from tlog.note import SignatureLine, parse_note
from tlog.policy import LogEntry, WitnessEntry, make_policy
from tlog.statement import sign_statement
from tlog.trust import Trust, parse_trust
from tlog.verify import recognize, verify_files

USES = tuple(COSE_KEYS)
WHO = Principal("acme", "bot", "one", SCOPES)
LIFE = 1000 * 86_400


class Clock:
    """The clock of homes and of their witness, in microseconds; a day later after each step."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1000

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def pass_day(self) -> None:
        self.now += 86_400_000_000


class Witnessed:
    """A home with one witness in this process, and what a test does to it."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.path = Clock(), folder / "home"
        self.witness: KeyCosigner = make_cosigner_key(folder / "w" / "key", "w.example")
        self.answers = True
        init_home(self.path).close()
        self.home = self.open()
        logs = [LogEntry(self.home.log_signer().verifier_key)]
        policy = make_policy(logs, [WitnessEntry("w", self.witness.verifier_key)], [], "w")
        self.home.set_policy(policy.text)
        self.operator = Operator(self.home)

    def open(self, path: Path | None = None) -> Home:
        home = open_home(path or self.path, clock=self.clock)
        home.cosign_of = lambda policy: self._cosign
        return home

    def _cosign(self, note: bytes, *_: object) -> tuple[SignatureLine, ...]:
        if not self.answers:
            return ()
        key, at = self.witness.verifier_key, self.clock.now // 1_000_000
        text = parse_note(note).text
        signature = self.witness.sign_bytes(cosigned_message(key, at, text))
        return (make_cosignature_line(key, at, signature),)

    def remember(self, text: str, home: Home | None = None) -> str:
        answer: dict[str, Any] = (home or self.home).memory(WHO).remember(text)
        fact_id: str = answer["id"]
        return fact_id

    def receipt(self, fact_id: str, form: str = "cose") -> bytes:
        return receipt(self.home.parts(), WHO, fact_id, form)

    def trust(self) -> Trust:
        return parse_trust((self.path / "trust.toml").read_text())

    def audit(self, trust: Trust | None = None, **places: Any) -> Audited:
        asked = Asked(trust or self.trust(), self.clock.now)
        return audit(Places(self.path, **places), asked, tenant=None, needles=None)

    def codes(self, trust: Trust | None = None, **places: Any) -> set[str]:
        return {finding.code for finding in self.audit(trust, **places).outcome.findings}

    def checks(self, **places: Any) -> set[str]:
        return {note.check for note in self.audit(**places).outcome.checked}

    def verdict(self, data: bytes, trust: Trust | None = None) -> Any:
        (verdict,) = verify_files(
            [recognize("f", data)], Caller(trust or self.trust(), self.clock.now // 1_000_000)
        )
        return verdict


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "_witnessed_heads", lambda policy, origin: [])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Witnessed]:
    made = Witnessed(tmp_path)
    yield made
    made.home.close()


@pytest.fixture
def root(tmp_path: Path) -> Any:
    return make_root_key(tmp_path / "usb" / "root.key")


# Rotation


@pytest.mark.parametrize("rooted", [False, True])
def test_every_key_changes_and_what_was_signed_stays(world: Witnessed, root: Any, rooted: bool) -> None:
    first = world.remember("one")
    world.home.publish()
    kept = [world.receipt(first), world.receipt(first, "tlog-proof")]
    signer = root if rooted else None
    if rooted:
        world.operator.certify(root, LIFE, 5)
    before = {use: load_cose_key(world.path / "keys" / name).kid for use, name in COSE_KEYS.items()}
    pending = world.remember("signed by the old key, logged while it is changed")
    for use in USES:
        world.clock.pass_day()
        done = world.operator.rotate(use, signer, 5)
        assert (done["state"], done["ended"]) == ("rotated", [before[use].hex()])
    world.clock.pass_day()
    last = world.remember("signed by the new key")
    world.home.publish()
    now = {use: load_cose_key(world.path / "keys" / name).kid for use, name in COSE_KEYS.items()}
    assert not set(before.values()) & set(now.values())
    for data in [*kept, *(world.receipt(one) for one in (first, pending, last))]:
        assert world.verdict(data).holds, world.verdict(data)
    assert world.codes() == set()
    trust = world.trust()
    assert (len(trust.roots), len(trust.keys)) == ((1, 0) if rooted else (0, 6))
    assert sorted(path.name for path in (world.path / "keys").glob("*.key")) == [
        "index.key",
        "issuer.key",
        "log.key",
        "manifest.key",
        "receipt.key",
    ]


def test_an_erasure_before_and_after_the_manifest_key_changed(world: Witnessed) -> None:
    memory = world.home.memory(WHO)
    for number in range(2):
        fact_id = world.remember(f"secret {number}")
        preview = memory.forget_preview(id=fact_id)
        memory.forget(id=fact_id, confirm=preview["confirm"])
        world.clock.pass_day()
        world.operator.rotate("manifest", None, 5)
    world.home.publish()
    assert world.codes() == set()


def test_another_process_signs_with_the_new_key_from_then_on(world: Witnessed) -> None:
    other = world.open()
    world.remember("one", other)
    world.operator.rotate("issuer", None, 5)
    fact_id = world.remember("two", other)
    other.publish()
    entry = world.home.log().read_entry(1)
    from tlog.statement import parse_statement

    assert parse_statement(entry).kid == load_cose_key(world.path / "keys" / "issuer.key").kid
    world.clock.pass_day()
    assert world.verdict(world.receipt(fact_id)).holds
    assert world.codes() == set()
    other.close()


def test_a_key_does_not_change_under_a_statement_that_is_being_written(world: Witnessed) -> None:
    """What the old key has signed is committed, and then published, before its end is written down."""
    writer = world.open()
    path = world.path / "keys" / "issuer.key"
    before = path.read_bytes()
    rotating = threading.Thread(target=world.operator.rotate, args=("issuer", None, 5))
    with writer.parts().store.write():
        rotating.start()
        rotating.join(0.5)
        assert rotating.is_alive()
        assert path.read_bytes() == before
    rotating.join(30)
    assert not rotating.is_alive()
    assert path.read_bytes() != before
    writer.close()


STEPS = {
    "make_cose_key": home_state,
    "_store": key_rotation,
    "_activate": key_rotation,
    "replace_key": home_state,
    "_complete": key_rotation,
    "_with_ends": key_rotation,
}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_rotation_that_was_cut_short_is_completed(
    world: Witnessed, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    class Stop(Exception):
        pass

    world.remember("one")
    world.home.publish()
    old = load_cose_key(world.path / "keys" / "issuer.key").kid
    real = getattr(STEPS[step], step)

    def stopping(*args: Any) -> Any:
        if after:
            real(*args)
        raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(STEPS[step], step, stopping)
        with pytest.raises(Stop):
            world.operator.rotate("issuer", None, 5)
    world.home.close()
    world.home = world.open()
    world.operator = Operator(world.home)
    world.remember("whatever became of it, this is signed by a key in the list")
    world.home.publish()
    assert world.codes() == set()
    if step != "_complete" or not after:
        assert Operator(world.home).rotate("issuer", None, 5)["state"] == "rotated"
    found = read_key_list(world.path, world.home.config)
    issuers = [key for key in found.keys if key.use == "issuer"]
    assert len(issuers) == 2, "one rotation, not two"
    assert [key.kid for key in issuers if key.until] == [old]
    assert world.codes() == set()


def test_a_rotation_waits_for_its_witnesses(world: Witnessed) -> None:
    world.remember("one")
    world.answers = False
    with pytest.raises(UnavailableError) as caught:
        world.operator.rotate("issuer", None, 1)
    assert caught.value.code == "witness_quorum_not_met"
    found = read_key_list(world.path, world.home.config)
    assert len(retired_keys(world.path, found)) == 1
    world.answers = True
    assert world.operator.rotate("issuer", None, 5)["state"] == "rotated"
    assert retired_keys(world.path, read_key_list(world.path, world.home.config)) == ()


def test_a_use_that_has_no_key_is_refused(world: Witnessed) -> None:
    with pytest.raises(MalformedError):
        world.operator.rotate("log", None, 5)


# A thief of an old key


@pytest.mark.parametrize("rooted", [False, True])
def test_what_a_thief_signs_with_an_old_key_is_found(world: Witnessed, root: Any, rooted: bool) -> None:
    """The thief's statement says that it was recorded long ago, and the publisher even logs it."""
    world.remember("one")
    world.home.publish()
    if rooted:
        world.operator.certify(root, LIFE, 5)
    shutil.copy(world.path / "keys" / "issuer.key", world.path.parent / "stolen.key")
    (world.path.parent / "stolen.key").chmod(0o600)
    thief = load_cose_key(world.path.parent / "stolen.key")
    world.clock.pass_day()
    world.operator.rotate("issuer", root if rooted else None, 5)
    assert world.codes() == set()
    world.clock.pass_day()
    config = world.home.config
    forged = sign_statement(thief, config.issuer, config.subject, b"c" * 32)
    (index,) = world.home.log().append([forged])
    world.home.publish()
    assert "KEY_NOT_VALID" in world.codes()
    log = world.home.log()
    path = log.prove_inclusion(index, log.head().size)
    from tlog.proof import TlogProof, format_proof

    proof = TlogProof(index, path, log.checkpoint() or b"", forged)
    verdict = world.verdict(format_proof(proof))
    assert {claim.code for claim in verdict.failed} == {"key_not_valid"}


def test_a_row_that_claims_an_older_place_is_not_believed(world: Witnessed) -> None:
    """The thief with the whole store says that the statement stands where an old one does."""
    import apsw

    from memory import vfs

    world.remember("one")
    world.home.publish()
    stolen = load_cose_key(world.path / "keys" / "issuer.key")
    world.operator.rotate("issuer", None, 5)
    world.clock.pass_day()
    world.remember("two")
    world.home.publish()
    world.home.close()
    connection = apsw.Connection(str(world.path / "store.db"), vfs=vfs.register())
    commitment = connection.execute("SELECT commitment FROM events WHERE seq = 2").get
    config = world.home.config
    forged = sign_statement(stolen, config.issuer, config.subject, bytes(commitment))
    connection.execute("UPDATE events SET entry = ?, entry_index = 0 WHERE seq = 2", (forged,))
    connection.close()
    assert "KEY_NOT_VALID" in world.codes()


@pytest.fixture
def succeeded(world: Witnessed, root: Any) -> Witnessed:
    """A home of which a root certifies the keys: its first log has ended, and a key of issuers after that."""
    world.operator.certify(root, LIFE, 5)
    world.remember("one")
    world.home.publish()
    world.clock.pass_day()
    world.operator.succeed(None, 5)
    world.home.close()
    world.home = world.open()
    world.operator = Operator(world.home)
    world.clock.pass_day()
    world.operator.rotate("issuer", root, 5)
    world.clock.pass_day()
    world.remember("two")
    world.home.publish()
    return world


def test_a_key_that_ended_after_a_log_did_lets_audits_be_repeated(
    succeeded: Witnessed, tmp_path: Path
) -> None:
    state = tmp_path / "auditor"
    assert [succeeded.checks(state=state) >= {"unchanged"} for _ in range(2)] == [False, True]


def test_a_log_that_ended_is_clean_alone(succeeded: Witnessed, tmp_path: Path) -> None:
    """The key list beside it is as old as its end, and the one of the trust file goes on from that."""
    alone, state = Places(None, log=str(succeeded.path / "log")), tmp_path / "auditor"
    asked = Asked(succeeded.trust(), succeeded.clock.now)
    (known,) = asked.trust.key_lists
    assert known != (succeeded.path / "log" / "keys.cose").read_bytes()
    for places in (alone, replace(alone, state=state), replace(alone, state=state)):
        assert audit(places, asked, tenant=None, needles=None).outcome.findings == ()


def test_an_older_key_list_beside_the_log_is_found(world: Witnessed, root: Any, tmp_path: Path) -> None:
    world.operator.certify(root, LIFE, 5)
    world.remember("one")
    world.home.publish()
    older, old_trust = (world.path / "log" / "keys.cose").read_bytes(), world.trust()
    world.clock.pass_day()
    world.operator.rotate("issuer", root, 5)
    newest = world.trust()
    state = tmp_path / "auditor"
    assert world.codes(old_trust, state=state) == set()
    (world.path / "log" / "keys.cose").write_bytes(older)
    assert world.codes(newest) == {"KEY_NOT_VALID"}
    # Whoever holds the older trust file finds it if it has audited before.
    assert "KEY_NOT_VALID" in world.codes(old_trust, state=state)
    (world.path / "log" / "keys.cose").unlink()
    assert "KEY_NOT_VALID" in world.codes(old_trust)
    (world.path / "log" / "keys.cose").write_bytes(b"junk")
    assert "KEY_NOT_VALID" in world.codes(old_trust)


# The root


def test_a_home_says_whether_a_root_certifies_its_keys(world: Witnessed, root: Any) -> None:
    assert Operator(world.home).describe_keys()["root"] is None
    assert not world.trust().roots
    found = world.operator.certify(root, LIFE, 5)
    assert found["root"] == root.kid.hex()
    assert {key["use"] for key in found["keys"]} == set(USES)
    trust = world.trust()
    assert trust.roots[0].key == root.key and not trust.keys
    data = (world.path / "log" / "keys.cose").read_bytes()
    assert verify_key_list(data, root.key) == read_key_list(world.path, world.home.config)
    with pytest.raises(RefusedError) as caught:
        world.operator.certify(root, LIFE, 5)
    assert caught.value.code == "nothing_to_certify"


def test_a_root_that_is_kept_offline(world: Witnessed, root: Any) -> None:
    """Nothing but a request and an answer travel; the home never sees the root's key."""
    request = world.operator.request_key_list(LIFE, 5)
    world.operator.install_key_list(sign_key_list(root, decode_key_list(request)), root.key, 5)
    fact_id = world.remember("one")
    world.home.publish()
    world.clock.pass_day()
    assert world.operator.rotate("issuer", None, 5)["state"] == "prepared"
    before = load_cose_key(world.path / "keys" / "issuer.key").kid
    world.remember("still signed by the key that is certified")
    request = world.operator.request_key_list(LIFE, 5)
    found = world.operator.install_key_list(sign_key_list(root, decode_key_list(request)), None, 5)
    assert (found["state"], found["to_end"]) == ("active", [before.hex()])
    world.clock.pass_day()
    request = world.operator.request_key_list(LIFE, 5)
    found = world.operator.install_key_list(sign_key_list(root, decode_key_list(request)), None, 5)
    assert (found["state"], found["to_end"]) == ("installed", [])
    world.clock.pass_day()
    assert world.verdict(world.receipt(fact_id)).holds
    assert world.codes() == set()


def test_what_a_root_did_not_sign_is_not_installed(world: Witnessed, root: Any, tmp_path: Path) -> None:
    stranger = make_root_key(tmp_path / "usb" / "stranger.key")
    request = decode_key_list(world.operator.request_key_list(LIFE, 5))
    with pytest.raises(MalformedError):
        world.operator.install_key_list(sign_key_list(root, request), None, 5)
    with pytest.raises(VerificationError):
        world.operator.install_key_list(sign_key_list(stranger, request), root.key, 5)
    for other in (replace(request, store="another"), replace(request, keys=request.keys[:2])):
        with pytest.raises(VerificationError):
            world.operator.install_key_list(sign_key_list(root, other), root.key, 5)
    assert world.home.config.root is None
    assert not (world.path / "keys.cose").exists()
    world.operator.certify(root, LIFE, 5)
    with pytest.raises(RefusedError) as caught:
        world.operator.install_key_list(sign_key_list(stranger, request), stranger.key, 5)
    assert caught.value.code == "root_exists"
    with pytest.raises(RefusedError):
        world.operator.rotate("issuer", stranger, 5)
    longer = tuple(replace(key, not_after=(key.not_after or 0) + 1) for key in request.keys)
    with pytest.raises(VerificationError) as refused:
        world.operator.install_key_list(sign_key_list(root, replace(request, number=9, keys=longer)), None, 5)
    assert refused.value.code == "key_list"


def test_a_crash_between_the_home_and_the_public_is_completed(
    world: Witnessed, root: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.operator.certify(root, LIFE, 5)
    real: Callable[[Any, str, bytes], None] = type(world.home.files).replace

    def stopping(storage: Any, path: str, data: bytes) -> None:
        if storage.folder.name == "log" and path == "keys.cose":
            raise UnavailableError("stopped")
        real(storage, path, data)

    with monkeypatch.context() as patched:
        patched.setattr(type(world.home.files), "replace", stopping)
        with pytest.raises(UnavailableError):
            world.operator.rotate("issuer", root, 5)
    certified = (world.path / "keys.cose").read_bytes()
    assert (world.path / "log" / "keys.cose").read_bytes() != certified
    world.remember("one")
    world.home.publish()
    assert (world.path / "log" / "keys.cose").read_bytes() == certified
    assert world.codes() == set()
