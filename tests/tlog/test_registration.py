"""Registration policies: the document, one decision, the policy in the log, and all decisions made again."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa
from hypothesis import given
from hypothesis import strategies as st

from tlog import cose, log_metrics, registration, scrapi, web
from tlog.cose import ED25519, EDDSA, ES256, ML_DSA_44, make_signer, sign1, sign1_detached
from tlog.errors import Error, MalformedError, RefusedError, VerificationError
from tlog.intake import Intake
from tlog.log import Log, LogSettings, open_log
from tlog.note import SignatureType
from tlog.receipt import Inclusion as ReceiptInclusion
from tlog.receipt import make_transparent, sign_receipt
from tlog.registrar import FILE, Registrar
from tlog.registration import (
    MAX_ISSUERS,
    REGISTRATION_TYP,
    Issuer,
    Registration,
    document_of,
    document_path,
    entry_id_of,
    format_registration,
    judge,
    parse_registration,
)
from tlog.registration_log import Decision, Operator, replay, sign_registration
from tlog.statement import sign_statement
from tlog.storage import DirectoryStorage, MemoryStorage

ORIGIN = "log.example/registration"
ISSUER = "https://issuer.example"
OWN = "urn:uuid:00000000-0000-4000-8000-000000000001"
HEADERS = {cose.CWT_CLAIMS: {cose.CWT_ISS: ISSUER, cose.CWT_SUB: "subject"}}


def ed25519_signer(seed: int, algorithm: int = EDDSA) -> cose.PrivateKeySigner:
    return make_signer(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32), algorithm)


SIGNER = ed25519_signer(1)
OTHER = ed25519_signer(2)
OPERATOR = ed25519_signer(3)
P256 = make_signer(ec.derive_private_key(7, ec.SECP256R1()))
MLDSA = make_signer(mldsa.MLDSA44PrivateKey.from_seed_bytes(b"\x05" * 32))
RULES = Registration(1, (Issuer(ISSUER, SIGNER.key), Issuer(ISSUER, P256.key), Issuer(ISSUER, MLDSA.key)))


def envelope(n: int, signer: cose.PrivateKeySigner = SIGNER, issuer: str = ISSUER) -> bytes:
    return sign_statement(signer, issuer, "subject", hashlib.sha256(b"%d" % n).digest())


# The document


@pytest.mark.parametrize(
    "registration",
    [
        Registration(1, ()),
        RULES,
        Registration(7, (Issuer('a " \\ \x7f \u00e9', OTHER.key),), (ES256,), "any", 1024, OWN),
    ],
)
def test_a_document_is_read_back(registration: Registration) -> None:
    text = format_registration(registration)
    assert parse_registration(text) == registration
    assert format_registration(parse_registration(text)) == text
    assert document_of(registration) == text.encode()


@given(
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40), unique=True, max_size=6),
    st.booleans(),
)
def test_any_issuer_name_is_read_back(names: list[str], own: bool) -> None:
    own_issuer = names.pop() if own and names else None
    registration = Registration(3, tuple(Issuer(name, SIGNER.key) for name in names), own_issuer=own_issuer)
    assert parse_registration(format_registration(registration)) == registration


def test_defaults_are_strict() -> None:
    assert parse_registration("version = 1\n") == Registration(1, ())
    assert Registration(1, ()).payload == "hash"


KEY = format_registration(RULES).partition('cose_key = "')[2].partition('"')[0]
ISSUER_TABLE = f'[[issuer]]\nname = "x"\ncose_key = "{KEY}"\n'


@pytest.mark.parametrize(
    "text",
    ["", "version = 2\n", "version = true\n", "version = 1\nnumber = 0\n", "version = 1\nnumber = 1.0\n",
     "version = 1\nunknown = 1\n", "version = 1\nalgorithms = []\n", "version = 1\nalgorithms = [-7, -7]\n",
     "version = 1\nalgorithms = [-35]\n", "version = 1\nalgorithms = [true]\n", "version = 1\nalgorithms = -7\n",
     'version = 1\npayload = "some"\n', "version = 1\npayload = 1\n", "version = 1\nmax_entry_bytes = 0\n",
     "version = 1\nmax_entry_bytes = 65536\n", 'version = 1\nown_issuer = ""\n', "version = 1\nown_issuer = 1\n",
     "version = 1\nissuer = 1\n", "version = 1\nissuer = [1]\n", 'version = 1\n[[issuer]]\nname = "x"\n',
     f'version = 1\n[[issuer]]\ncose_key = "{KEY}"\n', f'version = 1\n[[issuer]]\nname = ""\ncose_key = "{KEY}"\n',
     'version = 1\n[[issuer]]\nname = "x"\ncose_key = "AA=="\n',
     'version = 1\n[[issuer]]\nname = "x"\ncose_key = "?"\n',
     f"version = 1\n{ISSUER_TABLE}extra = 1\n", f"version = 1\n{ISSUER_TABLE}{ISSUER_TABLE}",
     f'version = 1\nown_issuer = "x"\n{ISSUER_TABLE}', "version = 1\n" + "[[issuer]]\n" * (MAX_ISSUERS + 1),
     "version = 1\nnumber = " + "9" * 5000 + "\n", "a = " + "[" * 5000, "\x00"],
)  # fmt: skip
def test_refuses_another_document(text: str) -> None:
    with pytest.raises(MalformedError):
        parse_registration(text)


# One decision


def code_of(statement: bytes, registration: Registration = RULES) -> str:
    with pytest.raises(Error) as caught:
        judge(statement, registration)
    return caught.value.code


@pytest.mark.parametrize("signer", [SIGNER, P256, MLDSA])
def test_takes_statements_of_registered_issuers(signer: cose.PrivateKeySigner) -> None:
    statement = envelope(1, signer)
    admitted = judge(statement, RULES)
    assert (admitted.entry, admitted.issuer, admitted.subject) == (statement, ISSUER, "subject")
    assert admitted.entry_id == hashlib.sha256(statement).digest() == entry_id_of(statement)


def test_takes_payloads_that_are_no_hash_only_where_that_is_said() -> None:
    statement = sign1(SIGNER, HEADERS, b"a payload")
    assert code_of(statement) == "payload_kind"
    assert judge(statement, replace(RULES, payload="any")).entry == statement


def test_what_is_unprotected_changes_nothing() -> None:
    statement = envelope(1)
    message = cose.decode_sign1(statement)
    loose = cose.encode_sign1(message.protected, {99: b"x"}, message.payload, message.signature)
    receipt = sign_receipt(OTHER, ORIGIN, "subject", ReceiptInclusion(0, 1, b"\x00" * 32, ()), None)
    assert judge(loose, RULES) == judge(statement, RULES)
    assert judge(make_transparent(statement, [receipt]), RULES) == judge(statement, RULES)


def test_each_refusal_has_its_reason() -> None:
    good = cose.decode_sign1(envelope(1))
    assert good.payload is not None
    bad_signature = cose.encode_sign1(good.protected, {}, good.payload, bytes(64))
    bare = cose.encode_protected({cose.ALG: EDDSA})
    refused = {
        b"": "bad_input",
        b"not a COSE message": "bad_input",
        sign1_detached(SIGNER, HEADERS, b"x" * 32): "payload_missing",
        cose.encode_sign1(bare, {}, b"payload", b"signature"): "confirmation_missing",
        sign1(SIGNER, {}, b"no claims"): "confirmation_missing",
        sign1(SIGNER, {cose.CWT_CLAIMS: {cose.CWT_ISS: ISSUER}}, b"no subject"): "bad_input",
        bad_signature: "signature",
        envelope(1, OTHER): "key_unknown",
        envelope(1, SIGNER, "https://stranger.example"): "issuer_unknown",
        sign1(SIGNER, {**HEADERS, cose.TYP: REGISTRATION_TYP}, b"x"): "reserved_type",
    }
    assert {code_of(statement): code for statement, code in refused.items()} == {
        code: code for code in refused.values()
    }
    assert code_of(envelope(1), replace(RULES, algorithms=(ES256,))) == "algorithm"
    assert code_of(envelope(1), replace(RULES, max_entry_bytes=100)) == "too_large"
    assert code_of(envelope(1), Registration(1, ())) == "issuer_unknown"


@pytest.mark.parametrize("label", sorted(cose.LEGACY_LABELS))
def test_a_statement_with_a_label_of_a_draft_is_refused(label: int) -> None:
    headers = {15: {1: ISSUER, 2: "s"}, 258: -16}
    assert judge(cose.sign1(SIGNER, headers, b"\1" * 32), RULES)
    for value in (1, -16, "text/plain", {1: "x"}):
        with pytest.raises(MalformedError, match="draft"):
            judge(cose.sign1(SIGNER, {**headers, label: value}, b"\1" * 32), RULES)
    with pytest.raises(MalformedError, match="draft"):
        judge(cose.sign1(SIGNER, headers, b"\1" * 32, unprotected={label: 1}), RULES)


def test_a_key_of_another_type_or_algorithm_is_refused() -> None:
    # The same Ed25519 key, registered for EdDSA alone, and a statement that says Ed25519.
    assert code_of(envelope(1, ed25519_signer(1, ED25519))) == "algorithm"
    message = cose.decode_sign1(envelope(1))
    headers = {**message.headers, cose.ALG: ES256}
    forged = cose.encode_sign1(cose.encode_protected(headers), {}, message.payload, message.signature)
    assert code_of(forged) == "algorithm"


def test_what_claims_to_be_of_the_own_store_is_refused() -> None:
    rules = replace(RULES, own_issuer=OWN)
    assert code_of(envelope(1, SIGNER, OWN), rules) == "issuer_unknown"


def test_a_long_refusal_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode = cose.decode_sign1
    monkeypatch.setattr(cose, "decode_sign1", lambda data: decoded.append(len(data)) or decode(data))
    bare = cose.encode_protected({cose.ALG: EDDSA})
    code_of(cose.encode_sign1(bare, {}, b"x" * 40_000, b"signature"))
    assert decoded == []
    code_of(cose.encode_sign1(bare, {}, b"x" * 40, b"signature"))
    assert len(decoded) == 1


def rules_for(statement: bytes, key: cose.CoseKey) -> Registration:
    """A policy that takes any payload of whoever the statement says it is of, under the key of the vectors."""
    issuer, kid = "nobody", None
    with suppress(Error):
        headers: Any = cose.decode_sign1(statement).headers
        issuer, kid = headers.get(cose.CWT_CLAIMS, {}).get(cose.CWT_ISS, issuer), headers.get(cose.KID)
    return Registration(1, (Issuer(issuer, replace(key, kid=kid)),), payload="any")


def test_hostile_messages_are_judged_as_the_vectors_say(vectors: Path) -> None:
    found = json.loads((vectors / "cose" / "hostile.json").read_text())
    key = cose.CoseKey(1, bytes.fromhex(found["ed25519_public_hex"]))
    cases = [case for case in found["cases"] if not case["file"].startswith("r")]
    assert len(cases) == 29
    for case in cases:
        statement = bytes.fromhex(case["hex"])
        rules = rules_for(statement, key)
        if case["expect"] in ("accept", "accept-strip"):
            entry = judge(statement, rules).entry
            message = cose.decode_sign1(statement)
            assert cose.decode_sign1(entry).unprotected == {}
            assert entry == cose.encode_sign1(message.protected, {}, message.payload, message.signature)
        else:
            code_of(statement, rules)


# The policy in the log


class Failing(Exception):
    """The process ends here."""


@pytest.fixture
def make_log(seed_signer: Callable[[str, int, int], Any]) -> Callable[..., Log]:
    def make(public: Any, private: Any, failpoint: Callable[[str], None] = lambda name: None) -> Log:
        settings = LogSettings(ORIGIN, (seed_signer(ORIGIN, SignatureType.ED25519, 9),), failpoint=failpoint)
        log = Log(public, private, settings)
        log.recover()
        return log

    return make


@pytest.fixture
def log(make_log: Callable[..., Log]) -> Log:
    return make_log(MemoryStorage(), MemoryStorage())


def decisions(log: Log, keys: Sequence[cose.CoseKey] = (OPERATOR.key,)) -> list[Decision]:
    entries = log.read_entries(0, log.head().size)
    read = lambda digest: log.public.read(document_path(digest))  # noqa: E731
    return list(replay(entries, read, Operator(ORIGIN, tuple(keys))))


def outcomes(log: Log) -> list[str]:
    return [decision.code or decision.outcome for decision in decisions(log)]


def test_a_log_without_a_policy_takes_nothing(log: Log) -> None:
    registrar = Registrar(log)
    assert registrar.current() is None
    log.append([envelope(1, OTHER, OWN)])
    assert outcomes(log) == ["before_policy"]


def test_a_policy_is_an_entry_and_its_document_is_public(log: Log) -> None:
    in_force = Registrar(log).set_policy(RULES, OPERATOR)
    assert (in_force.index, in_force.registration) == (0, RULES)
    entry = log.read_entry(0)
    (name,) = log.public.names("registration/")
    document = log.public.read(name)
    assert document == document_of(RULES)
    assert name == document_path(hashlib.sha256(document).digest())
    assert cose.decode_sign1(entry).payload == hashlib.sha256(document).digest()
    assert decisions(log) == [Decision(0, "policy", None)]


def test_the_same_rules_again_change_nothing(log: Log) -> None:
    first = Registrar(log).set_policy(RULES, OPERATOR)
    assert Registrar(log).set_policy(replace(RULES, number=99), OPERATOR) == first
    assert log.head().size == 1


def test_rules_that_come_back_are_a_new_policy(log: Log) -> None:
    registrar = Registrar(log)
    numbers = [
        registrar.set_policy(rules, OPERATOR).registration.number
        for rules in (RULES, replace(RULES, payload="any"), RULES)
    ]
    assert numbers == [1, 2, 3]
    assert outcomes(log) == ["policy"] * 3


def test_another_registrar_sees_a_change(log: Log) -> None:
    one, two = Registrar(log), Registrar(log)
    one.set_policy(RULES, OPERATOR)
    assert two.current() == one.current()
    two.set_policy(replace(RULES, payload="any"), OPERATOR)
    found = one.current()
    assert found is not None
    assert (found.index, found.registration.payload) == (1, "any")


def test_a_crash_before_the_append_is_repaired_by_the_next(make_log: Callable[..., Log]) -> None:
    public, private = MemoryStorage(), MemoryStorage()

    def crash(name: str) -> None:
        if name == "staged":
            raise Failing

    with pytest.raises(Failing):
        Registrar(make_log(public, private, crash)).set_policy(RULES, OPERATOR)
    log = make_log(public, private)
    assert log.head().size == 0
    assert private.read(FILE) is not None
    in_force = Registrar(log).current()
    assert in_force is not None
    assert (in_force.index, log.head().size) == (0, 1)
    assert outcomes(log) == ["policy"]


def test_a_lost_private_file_does_not_restart_the_numbers(log: Log) -> None:
    Registrar(log).set_policy(RULES, OPERATOR)
    log.append([envelope(1)])
    log.private.remove((FILE,))
    found = Registrar(log).set_policy(replace(RULES, payload="any"), OPERATOR)
    assert (found.index, found.registration.number) == (2, 2)
    assert outcomes(log) == ["policy", "admitted", "policy"]


# All decisions


def test_replays_each_decision_by_the_policy_before_it(log: Log) -> None:
    registrar = Registrar(log)
    own = replace(RULES, own_issuer=OWN)
    log.append([envelope(0, OTHER, OWN)])
    registrar.set_policy(own, OPERATOR)
    log.append([envelope(1), envelope(2, OTHER, OWN), sign1(SIGNER, HEADERS, b"free text")])
    registrar.set_policy(replace(own, payload="any"), OPERATOR)
    log.append([sign1(SIGNER, HEADERS, b"more text"), envelope(3, OTHER)])
    assert decisions(log) == [
        Decision(0, "before_policy"),
        Decision(1, "policy", None),
        Decision(2, "admitted", 1),
        Decision(3, "own", 1),
        Decision(4, "refused", 1, "payload_kind"),
        Decision(5, "policy", 1),
        Decision(6, "admitted", 5),
        Decision(7, "refused", 5, "key_unknown"),
    ]


def test_a_policy_that_the_operator_did_not_sign_is_none(log: Log) -> None:
    Registrar(log).set_policy(RULES, OPERATOR)
    loose = replace(RULES, number=2, issuers=(Issuer(ISSUER, OTHER.key),))
    digest = hashlib.sha256(document_of(loose)).digest()
    log.public.create(document_path(digest), document_of(loose))
    foreign = sign_registration(OPERATOR, "another.example/log", loose)
    message = cose.decode_sign1(sign_registration(OPERATOR, ORIGIN, loose))
    forged = cose.encode_sign1(message.protected, {}, message.payload, bytes(64))
    log.append([sign_registration(SIGNER, ORIGIN, loose), foreign, forged, envelope(1, OTHER)])
    assert outcomes(log) == ["policy", "key_unknown", "issuer_unknown", "signature", "key_unknown"]


def test_an_old_policy_does_not_come_back(log: Log) -> None:
    registrar = Registrar(log)
    first = registrar.set_policy(replace(RULES, payload="any"), OPERATOR)
    registrar.set_policy(RULES, OPERATOR)
    # The same policy, signed by another key of the operator's: another entry, the number of before.
    again = sign_registration(ed25519_signer(4), ORIGIN, first.registration)
    log.append([again, sign1(SIGNER, HEADERS, b"free text")])
    keys = (OPERATOR.key, ed25519_signer(4).key)
    assert [one.code or one.outcome for one in decisions(log, keys)][2:] == ["number", "payload_kind"]


@pytest.mark.parametrize("change", [lambda data: None, lambda data: data + b"# more\n"])
def test_a_missing_or_altered_document_stops_the_replay(
    log: Log, change: Callable[[bytes], bytes | None]
) -> None:
    Registrar(log).set_policy(RULES, OPERATOR)
    log.append([envelope(1)])
    entries = list(log.read_entries(0, 2))

    def read(digest: bytes) -> bytes | None:
        data = log.public.read(document_path(digest))
        assert data is not None
        return change(data)

    with pytest.raises(VerificationError) as caught:
        list(replay(entries, read, Operator(ORIGIN, (OPERATOR.key,))))
    assert caught.value.code == "document"


def test_an_entry_with_unprotected_headers_is_named(log: Log) -> None:
    Registrar(log).set_policy(RULES, OPERATOR)
    message = cose.decode_sign1(envelope(1))
    kept = cose.encode_sign1(message.protected, {99: 1}, message.payload, message.signature)
    log.append([kept])
    assert outcomes(log) == ["policy", "unprotected"]


# Through the intake


@pytest.fixture
def running(log: Log) -> Iterator[Callable[[Log], Intake]]:
    started: list[Intake] = []

    def start(log: Log, max_unpublished: int = 10_000) -> Intake:
        intake = Intake(log, Registrar(log), lambda: 0, max_unpublished)
        intake.start()
        started.append(intake)
        return intake

    yield start
    for intake in started:
        intake.stop()


def test_all_that_the_intake_took_is_admitted_again(log: Log, running: Callable[[Log], Intake]) -> None:
    Registrar(log).set_policy(RULES, OPERATOR)
    intake = running(log)
    futures = []
    for n in range(50):
        signer = (SIGNER, OTHER, P256)[n % 3]
        try:
            futures.append(intake.submit(envelope(n, signer)))
        except RefusedError:
            assert signer is OTHER
    accepted = [future.result(20) for future in futures]
    assert sorted(one.index for one in accepted) == list(range(1, 34))
    assert outcomes(log) == ["policy"] + ["admitted"] * 33
    for one in accepted:
        assert log.read_entry(one.index) == one.entry


def test_a_statement_taken_twice_has_one_entry(log: Log, running: Callable[[Log], Intake]) -> None:
    Registrar(log).set_policy(RULES, OPERATOR)
    intake = running(log)
    results = [intake.submit(envelope(1)).result(20) for _ in range(3)]
    together = [intake.submit(envelope(2)) for _ in range(5)]
    assert {one.index for one in results} == {1}
    assert {future.result(20).index for future in together} == {2}
    assert log.head().size == 3


def test_a_second_signature_is_refused_and_names_the_first(
    log: Log, running: Callable[[Log], Intake]
) -> None:
    Registrar(log).set_policy(RULES, OPERATOR)
    intake = running(log)
    first, second = envelope(1, P256), envelope(1, P256)
    assert first != second
    accepted = intake.submit(first).result(20)
    with pytest.raises(RefusedError) as caught:
        intake.submit(second).result(20)
    assert caught.value.code == "signed_twice"
    assert str(caught.value.fields["instance"]).startswith("/entries/")
    assert intake.submit(first).result(20) == accepted
    assert log.head().size == 2


def test_pushes_back_when_too_much_is_unpublished(log: Log) -> None:
    published = 0
    Registrar(log).set_policy(RULES, OPERATOR)
    intake = Intake(log, Registrar(log), lambda: published, max_unpublished=3)
    intake.start()
    try:
        for n in range(2):
            intake.submit(envelope(n)).result(20)
        with pytest.raises(Error) as caught:
            intake.submit(envelope(9))
        assert (caught.value.code, caught.value.fields["retry_after_seconds"]) == ("queue_full", 10)
        published = 3
        intake.reload()
        intake.submit(envelope(9)).result(20)
    finally:
        intake.stop()


class Slow(Registrar):
    """A registrar that waits, once it is told to, before it looks for the policy."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def block(self) -> None:
        self.entered.clear()
        self.go_on.clear()

    def deciding(self) -> Any:
        self.entered.set()
        assert self.go_on.wait(20)
        return super().deciding()


def test_a_policy_that_changes_under_way_is_the_one_that_counts(log: Log) -> None:
    registrar = Registrar(log)
    registrar.set_policy(RULES, OPERATOR)
    slow = Slow(log)
    intake = Intake(log, slow, lambda: 0)
    intake.start()
    slow.block()
    future = intake.submit(envelope(1))  # judged by the first policy
    assert slow.entered.wait(20)
    registrar.set_policy(replace(RULES, issuers=()), OPERATOR)
    slow.go_on.set()
    with pytest.raises(RefusedError):
        future.result(20)
    intake.stop()
    assert outcomes(log) == ["policy", "policy"]


def test_policies_and_statements_of_many_threads_replay(
    tmp_path: Path, make_log: Callable[..., Log], running: Callable[[Log], Intake]
) -> None:
    def one_log() -> Log:
        return make_log(DirectoryStorage(tmp_path / "log"), DirectoryStorage(tmp_path / "state"))

    loose = replace(RULES, issuers=(*RULES.issuers, Issuer(ISSUER, OTHER.key)))
    Registrar(one_log()).set_policy(RULES, OPERATOR)
    intakes = [running(one_log()) for _ in range(2)]

    def submit(n: int) -> None:
        intake = intakes[n % 2]
        try:
            intake.submit(envelope(n, (SIGNER, OTHER)[n // 2 % 2])).result(30)
        except RefusedError as error:
            assert error.code == "key_unknown"
            intake.reload()

    with ThreadPoolExecutor(9) as pool:
        done = pool.map(submit, range(120))
        registrar = Registrar(one_log())
        for rules in (loose, RULES, loose, RULES):
            registrar.set_policy(rules, OPERATOR)
        list(done)
    found = outcomes(one_log())
    assert set(found) == {"policy", "admitted"}
    assert found.count("policy") == 5
    assert found.count("admitted") >= 60


def test_stopping_tells_whoever_waits(log: Log) -> None:
    Registrar(log).set_policy(RULES, OPERATOR)
    intake = Intake(log, Registrar(log), lambda: 0)
    intake.start()
    futures = [intake.submit(envelope(n)) for n in range(20)]
    intake.stop()
    assert sorted(future.result(20).index for future in futures) == list(range(1, 21))
    with pytest.raises(Error) as caught:
        intake.submit(envelope(99)).result(20)
    assert caught.value.code == "stopping"


def test_a_client_that_has_gone_is_not_logged(log: Log) -> None:
    Registrar(log).set_policy(RULES, OPERATOR)
    slow = Slow(log)
    intake = Intake(log, slow, lambda: 0)
    intake.start()
    slow.block()
    first = intake.submit(envelope(1))
    assert slow.entered.wait(20)
    gone, there = intake.submit(envelope(2)), intake.submit(envelope(3))
    assert gone.cancel()
    slow.go_on.set()
    assert (first.result(20).index, there.result(20).index) == (1, 2)
    intake.stop()
    assert log.head().size == 3


def test_open_log_and_registrar_agree_after_publication(
    tmp_path: Path, seed_signer: Callable[[str, int, int], Any]
) -> None:
    signer = seed_signer(ORIGIN, SignatureType.ED25519, 9)
    folders = DirectoryStorage(tmp_path / "log"), DirectoryStorage(tmp_path / "state")
    log = open_log(*folders, ORIGIN, (signer,))
    Registrar(log).set_policy(RULES, OPERATOR)
    log.append([envelope(n) for n in range(300)])
    log.publish(5)
    log.close()
    again = open_log(*folders, ORIGIN, (signer,))
    assert outcomes(again) == ["policy"] + ["admitted"] * 300
    again.close()


def test_ml_dsa_needs_its_algorithm_in_the_policy() -> None:
    assert judge(envelope(1, MLDSA), RULES).issuer == ISSUER
    assert code_of(envelope(1, MLDSA), replace(RULES, algorithms=(EDDSA,))) == "algorithm"
    assert ML_DSA_44 in RULES.algorithms


# The page


def test_the_page_describes_what_there_is() -> None:
    page = (Path(__file__).resolve().parent.parent.parent / "docs" / "formats" / "scrapi.md").read_text(
        "utf-8"
    )
    example = page.partition("    version = 1\n")[2].partition("\n\n|")[0]
    text = "version = 1\n" + "".join(f"{line[4:]}\n" for line in example.splitlines())
    parsed = parse_registration(text)
    assert format_registration(parsed) == text
    words = {
        *registration._FIELDS,
        "name",
        "cose_key",
        "before_policy",
        "policy",
        "own",
        "admitted",
        "refused",
    }
    words |= {
        *scrapi._REJECTED,
        "bad_input",
        "payload_missing",
        "confirmation_missing",
        "algorithm",
        "number",
    }
    words -= {"no_policy"}
    assert not [word for word in words if f"`{word}`" not in page]
    names = re.findall(r'"(muniment_[a-z_]+)"', inspect.getsource(log_metrics) + inspect.getsource(web))
    assert len(names) == 12
    assert not [name for name in names if f"`{name}`" not in page]
