"""What `verify` says of files, and with which exit code, given what the caller trusts."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tlog import cose
from tlog.claims import Caller
from tlog.cli_verify import add_verify_command, run_verify
from tlog.cose_keys import CoseSigner, decode_key_set, make_signer
from tlog.errors import MalformedError, VerificationError
from tlog.log import Log, LogSettings
from tlog.note import SignatureLine, SignatureType, parse_note
from tlog.policy import GroupEntry, LogEntry, Policy, WitnessEntry, make_policy
from tlog.proof import TlogProof, format_proof
from tlog.receipt import Consistency, Inclusion, make_transparent, sign_consistency_receipt, sign_receipt
from tlog.statement import sign_statement
from tlog.storage import MemoryStorage
from tlog.trust import Trust, TrustedKey, make_trust
from tlog.verify import MANIFEST_TYP, Verdict, recognize, verify_files

ORIGIN = "example.org/log"
ISSUER = "issuer-5f1d"
SUBJECT = "store-77aa"
NOW = 1_790_000_000
DOCUMENT = b"\xa1\x61\x6e\x01"


def cose_signer(seed: int) -> CoseSigner:
    return make_signer(Ed25519PrivateKey.from_private_bytes(bytes((seed,)) * 32))


ISSUER_KEY, RECEIPT_KEY, MANIFEST_KEY, STRANGER = (cose_signer(seed) for seed in (11, 12, 13, 14))


@dataclass(frozen=True)
class Made:
    """A small witnessed log, and the files that its operator hands out for entry 3."""

    policy: Policy
    trust: Trust
    log: Log
    files: Mapping[str, bytes]
    signers: tuple[Any, ...]


@pytest.fixture(scope="module")
def made(seed_signer: Callable[[str, int, int], Any]) -> Made:
    log_signer = seed_signer(ORIGIN, SignatureType.ED25519, 1)
    witnesses = [
        seed_signer(f"w{number}.example", SignatureType.COSIGNATURE_ED25519, number) for number in (2, 3)
    ]
    policy = make_policy(
        [LogEntry(log_signer.verifier_key)],
        [WitnessEntry(f"w{number}", one.verifier_key) for number, one in enumerate(witnesses, 1)],
        [],
        "w1",
    )

    def cosign(note: bytes, *_: object) -> tuple[SignatureLine, ...]:
        return tuple(one.cosign(parse_note(note).text, NOW - 100) for one in witnesses)

    log = Log(MemoryStorage(), MemoryStorage(), LogSettings(ORIGIN, (log_signer,), cosign, policy))
    entries = [sign_statement(ISSUER_KEY, ISSUER, SUBJECT, bytes((number,)) * 32) for number in range(7)]
    log.append(entries)
    note = log.publish(5).note
    inclusion = Inclusion(3, 7, log.head().root, log.prove_inclusion(3, 7))
    receipt = sign_receipt(RECEIPT_KEY, ISSUER, SUBJECT, inclusion, note)
    bare = sign_receipt(RECEIPT_KEY, ISSUER, SUBJECT, inclusion, None)
    manifest = cose.sign1(
        MANIFEST_KEY,
        {cose.CWT_CLAIMS: {1: ISSUER, 2: SUBJECT}, cose.TYP: MANIFEST_TYP},
        DOCUMENT,
    )
    files = {
        "checkpoint": note,
        "proof": format_proof(TlogProof(3, inclusion.path, note, entries[3])),
        "proof_alone": format_proof(TlogProof(3, inclusion.path, note)),
        "statement": entries[3],
        "other": entries[4],
        "receipt": receipt,
        "receipt_bare": bare,
        "transparent": make_transparent(entries[3], [receipt]),
        "transparent_bare": make_transparent(entries[3], [bare]),
        "manifest": manifest,
    }
    keys = tuple(
        TrustedKey(use, signer.key, NOW - 1000)
        for use, signer in (("issuer", ISSUER_KEY), ("receipt", RECEIPT_KEY), ("manifest", MANIFEST_KEY))
    )
    trust = make_trust(policy.text, keys)
    return Made(policy, trust, log, files, (log_signer, *witnesses))


def judge(made: Made, names: str, trust: Trust | None, **more: Any) -> list[Verdict]:
    files = [recognize(name, made.files[name]) for name in names.split()]
    return verify_files(files, Caller(trust, NOW, **more))


def codes(verdict: Verdict, what: str) -> set[str]:
    return {claim.code for claim in getattr(verdict, what)}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("checkpoint", "checkpoint"),
        ("proof", "tlog_proof"),
        ("statement", "statement"),
        ("receipt", "receipt"),
        ("receipt_bare", "receipt"),
        ("transparent", "transparent_statement"),
        ("manifest", "manifest"),
    ],
)
def test_recognizes_each_kind(made: Made, name: str, kind: str) -> None:
    assert recognize(name, made.files[name]).kind == kind


def test_with_a_trust_file_everything_is_proved(made: Made) -> None:
    expected = {
        "checkpoint": {"log_signature", "witnessed"},
        "proof": {"log_signature", "witnessed", "inclusion", "issuer_signature"},
        "statement": {"issuer_signature"},
        "receipt": {"log_signature", "witnessed", "inclusion", "receipt_signature"},
        "receipt_bare": {"receipt_signature"},
        "transparent": {"log_signature", "witnessed", "inclusion", "receipt_signature", "issuer_signature"},
        "transparent_bare": {"receipt_signature", "issuer_signature"},
        "manifest": {"manifest_signature"},
    }
    for verdict in judge(made, " ".join(expected), made.trust):
        assert codes(verdict, "proved") == expected[verdict.name]
        assert verdict.holds != verdict.name.endswith("bare")
        assert not verdict.failed


def test_a_receipt_without_checkpoint_holds_where_no_witness_is_asked_for(made: Made) -> None:
    unwitnessed = make_trust(make_policy(made.policy.logs, [], [], None).text, made.trust.keys)
    for name in ("receipt_bare", "transparent_bare"):
        (_, verdict) = judge(made, f"statement {name}", unwitnessed)
        assert verdict.holds
        (_, verdict) = judge(made, f"statement {name}", made.trust)
        assert not verdict.holds
        assert "witness_quorum_not_met" in codes(verdict, "not_proved")


def test_with_a_policy_alone_what_cose_keys_signed_is_not_proved(made: Made) -> None:
    for verdict in judge(made, "proof receipt transparent statement", Trust(made.policy)):
        assert "issuer_signature" not in codes(verdict, "proved")
        assert "receipt_signature" not in codes(verdict, "proved")
        assert verdict.holds == (
            verdict.name != "statement"
        )  # the checkpoint proves that they are in the log
        assert not verdict.failed
    (verdict,) = judge(made, "transparent", Trust(made.policy))
    assert {"issuer_key_unknown", "receipt_key_unknown"} <= codes(verdict, "not_proved")
    for name in ("receipt_bare", "transparent_bare", "manifest"):
        (verdict,) = judge(made, name, Trust(made.policy))
        assert not verdict.holds


def test_with_a_log_key_alone_witnesses_are_not_proved(made: Made) -> None:
    trust = Trust(make_policy(made.policy.logs, [], [], None))
    for verdict in judge(made, "checkpoint proof transparent", trust):
        assert verdict.holds
        assert "logged_unwitnessed" in codes(verdict, "not_proved")
        assert "witnessed" not in codes(verdict, "proved")


def test_without_trust_nothing_holds(made: Made) -> None:
    names = "checkpoint proof statement receipt transparent transparent_bare manifest"
    for verdict in judge(made, names, None):
        assert not verdict.holds
        assert not verdict.proved
        assert not verdict.failed


def test_says_what_is_never_proved(made: Made) -> None:
    (transparent, statement) = judge(made, "transparent statement", made.trust)
    assert {"not_truth", "content_not_opened"} <= codes(transparent, "not_proved")
    assert "pending" in codes(statement, "not_proved")
    assert "pending" not in codes(transparent, "not_proved")


# Trust that is not enough


def without(trust: Trust, use: str, *instead: TrustedKey) -> Trust:
    kept = tuple(one for one in trust.keys if one.use != use)
    return make_trust(trust.policy.text, (*kept, *instead))


@pytest.mark.parametrize("use", ["issuer", "receipt"])
def test_a_key_that_is_not_among_those_given_fails(made: Made, use: str) -> None:
    trust = without(made.trust, use, TrustedKey(use, STRANGER.key, 0))
    (verdict,) = judge(made, "transparent", trust)
    assert codes(verdict, "failed") == {"key_unknown"}
    assert not verdict.holds


@pytest.mark.parametrize("use", ["issuer", "receipt"])
@pytest.mark.parametrize(("not_before", "not_after"), [(NOW - 99, None), (0, NOW - 101)])
def test_a_key_counts_at_the_time_the_witnesses_saw(
    made: Made, use: str, not_before: int, not_after: int | None
) -> None:
    signer = {"issuer": ISSUER_KEY, "receipt": RECEIPT_KEY}[use]
    (verdict,) = judge(
        made, "transparent", without(made.trust, use, TrustedKey(use, signer.key, not_before, not_after))
    )
    assert codes(verdict, "failed") == {"key_not_valid"}
    valid = without(made.trust, use, TrustedKey(use, signer.key, NOW - 100, NOW - 100))
    assert judge(made, "transparent", valid)[0].holds


def test_what_no_witness_dates_counts_as_signed_now(made: Made) -> None:
    ended = without(made.trust, "issuer", TrustedKey("issuer", ISSUER_KEY.key, 0, NOW - 1))
    (verdict,) = judge(made, "statement", ended)
    assert codes(verdict, "failed") == {"key_not_valid"}


def test_a_key_of_another_issuer_does_not_count(made: Made) -> None:
    other = without(made.trust, "issuer", TrustedKey("issuer", ISSUER_KEY.key, 0, None, "somebody else"))
    assert codes(judge(made, "statement", other)[0], "failed") == {"key_unknown"}


def test_a_quorum_that_is_not_met_fails(made: Made, seed_signer: Callable[..., Any]) -> None:
    other = seed_signer("w9.example", SignatureType.COSIGNATURE_ED25519, 9)
    policy = make_policy(made.policy.logs, [WitnessEntry("w9", other.verifier_key)], [], "w9")
    for verdict in judge(made, "checkpoint proof transparent", Trust(policy)):
        assert codes(verdict, "failed") == {"witness_quorum_not_met"}
        assert not verdict.holds


def test_another_log_fails(made: Made, seed_signer: Callable[..., Any]) -> None:
    policy = make_policy([LogEntry(seed_signer(ORIGIN, SignatureType.ED25519, 8).verifier_key)], [], [], None)
    for verdict in judge(made, "checkpoint proof transparent", Trust(policy)):
        assert codes(verdict, "failed") == {"log_signature"}


def test_a_quorum_of_the_operators_own_witnesses_is_named(made: Made) -> None:
    for names, told in ((("w1",), True), (("w2",), False), (("w1", "w2"), True), ((), False)):
        trust = make_trust(made.policy.text, made.trust.keys, same_operator=names)
        (verdict,) = judge(made, "checkpoint", trust)
        assert ("witness_same_operator" in codes(verdict, "not_proved")) == told


@pytest.mark.parametrize(("ahead", "holds"), [(300, True), (301, False), (10**9, False)])
@pytest.mark.parametrize("name", ["checkpoint", "proof"])
def test_a_cosignature_of_the_future_does_not_hold(made: Made, name: str, ahead: int, holds: bool) -> None:
    at = NOW - 100  # when it was cosigned
    (verdict,) = verify_files([recognize(name, made.files[name])], Caller(made.trust, at - ahead))
    assert verdict.holds == holds
    assert ("time_implausible" in codes(verdict, "failed")) != holds


@pytest.mark.parametrize(("age", "stale"), [(99, True), (100, False), (None, False)])
def test_an_old_checkpoint_is_named(made: Made, age: int | None, stale: bool) -> None:
    trust = make_trust(made.policy.text, made.trust.keys, max_checkpoint_age_seconds=age)
    (verdict,) = judge(made, "proof", trust)
    assert ("checkpoint_stale" in codes(verdict, "not_proved")) == stale
    assert verdict.holds
    unwitnessed = make_trust(
        make_policy(made.policy.logs, [], [], None).text, max_checkpoint_age_seconds=10**6
    )
    assert "checkpoint_stale" in codes(judge(made, "proof", unwitnessed)[0], "not_proved")


# Evidence that does not hold


@pytest.mark.parametrize("name", ["checkpoint", "proof", "statement", "transparent", "manifest"])
def test_no_altered_byte_holds(made: Made, name: str) -> None:
    policy = make_policy(
        made.policy.logs, made.policy.witnesses, [GroupEntry("both", 2, ("w1", "w2"))], "both"
    )
    trust = make_trust(policy.text, made.trust.keys)
    whole = made.files[name]
    assert verify_files([recognize(name, whole)], Caller(trust, NOW))[0].holds
    for at in range(len(whole)):
        data = whole[:at] + bytes((whole[at] ^ 4,)) + whole[at + 1 :]
        assert not verify_files([recognize(name, data)], Caller(trust, NOW))[0].holds, at
    for data in (whole + b"\n", whole + b"\0", whole[:-1], b"\n" + whole):
        assert not verify_files([recognize(name, data)], Caller(trust, NOW))[0].holds


def test_a_receipt_for_another_entry_does_not_hold(made: Made) -> None:
    wrong = make_transparent(made.files["other"], [made.files["receipt"]])
    (verdict,) = verify_files([recognize("wrong", wrong)], Caller(made.trust, NOW))
    assert not verdict.holds
    assert verdict.failed
    (verdict,) = verify_files([recognize("wrong", wrong)], Caller(Trust(made.policy), NOW))
    assert codes(verdict, "failed") == {"checkpoint"}


def test_a_receipt_beside_a_checkpoint_of_another_size_does_not_hold(made: Made) -> None:
    log = made.log
    inclusion = Inclusion(3, 5, log.root_at(5), log.prove_inclusion(3, 5))
    receipt = sign_receipt(RECEIPT_KEY, ISSUER, SUBJECT, inclusion, made.files["checkpoint"])
    data = make_transparent(made.files["statement"], [receipt])
    (verdict,) = verify_files([recognize("t", data)], Caller(made.trust, NOW))
    assert codes(verdict, "failed") == {"checkpoint"}


def test_of_two_receipts_both_have_to_hold(made: Made) -> None:
    log = made.log
    bad = sign_receipt(
        STRANGER, ISSUER, SUBJECT, Inclusion(3, 5, log.root_at(5), log.prove_inclusion(3, 5)), None
    )
    data = make_transparent(made.files["statement"], [made.files["receipt"], bad])
    (verdict,) = verify_files([recognize("t", data)], Caller(made.trust, NOW))
    assert not verdict.holds


def test_a_consistency_receipt_proves_nothing_about_an_entry(made: Made) -> None:
    log = made.log
    consistency = Consistency(3, 7, log.head().root, log.prove_consistency(3, 7))
    receipt = sign_consistency_receipt(RECEIPT_KEY, ISSUER, SUBJECT, consistency, made.files["checkpoint"])
    files = [recognize("c", receipt), recognize("s", made.files["statement"])]
    assert not verify_files(files, Caller(made.trust, NOW))[0].holds


def test_a_proof_whose_entry_is_exchanged_does_not_hold(made: Made) -> None:
    log = made.log
    proof = TlogProof(3, log.prove_inclusion(3, 7), made.files["checkpoint"], made.files["other"])
    (verdict,) = verify_files([recognize("p", format_proof(proof))], Caller(made.trust, NOW))
    assert codes(verdict, "failed") == {"proof"}


# Several files


@pytest.mark.parametrize("name", ["receipt", "proof_alone"])
def test_a_receipt_or_proof_finds_its_statement_among_the_files(made: Made, name: str) -> None:
    (alone,) = judge(made, name, made.trust)
    assert not alone.holds
    assert "statement_missing" in codes(alone, "not_proved")
    assert not judge(made, f"{name} other", made.trust)[0].holds
    assert judge(made, f"other {name} statement", made.trust)[1].holds
    assert judge(made, f"{name} transparent", made.trust)[0].holds


def test_each_file_is_judged_for_itself(made: Made) -> None:
    verdicts = verify_files(
        [recognize("good", made.files["proof"]), recognize("bad", b"\xd2\x84"), recognize("text", b"hello")],
        Caller(made.trust, NOW),
    )
    assert [(one.kind, one.holds) for one in verdicts] == [
        ("tlog_proof", True),
        ("statement", False),
        ("unknown", False),
    ]


# Openings and manifests


def open_number_three(opening: bytes, commitment: bytes) -> Mapping[str, Any]:
    if opening != b"opening of 3":
        raise MalformedError("expected an opening")
    if commitment != b"\x03" * 32:
        raise VerificationError("opens another", code="opening")
    return {"kind": "write", "seq": 4}


def test_an_opening_proves_the_content_of_its_statement(made: Made) -> None:
    more = {"opening": b"opening of 3", "open_content": open_number_three}
    for name in ("proof", "transparent", "statement"):
        (verdict,) = judge(made, name, made.trust, **more)
        assert "content_opened" in codes(verdict, "proved")
        assert "content_not_opened" not in codes(verdict, "not_proved")
    both = judge(made, "other statement", made.trust, **more)
    assert [one.holds for one in both] == [True, True]


def test_an_opening_that_opens_nothing_does_not_hold(made: Made) -> None:
    more = {"opening": b"opening of 3", "open_content": open_number_three}
    verdicts = judge(made, "other", made.trust, **more)
    assert [(one.kind, one.holds) for one in verdicts] == [("statement", True), ("opening", False)]
    more["opening"] = b"no opening"
    assert codes(judge(made, "statement", made.trust, **more)[0], "failed") == {"bad_input"}


def test_a_manifest_is_described_and_its_word_is_not_proof(made: Made) -> None:
    def describe(data: bytes) -> Mapping[str, Any]:
        assert DOCUMENT in data
        claim = {"code": "x", "text": "X."}
        return {"proved": [claim], "said": [claim], "not_proved": [{"code": "logged", "text": "Y."}]}

    (verdict,) = judge(made, "manifest", made.trust, describe_manifest=describe)
    assert codes(verdict, "proved") == {"manifest_signature", "x"}
    assert codes(verdict, "not_proved") == {"said_x", "logged"}
    (verdict,) = judge(made, "manifest", without(made.trust, "manifest"), describe_manifest=describe)
    assert not verdict.holds


# Outside receipts


def test_outside_transparent_statements_hold_with_their_keys(vectors: Path) -> None:
    folder = vectors / "cose" / "receipts"
    for name in ("ed", "es"):
        keys = decode_key_set((folder / f"{name}.keyset.cbor").read_bytes())
        trust = make_trust("quorum none\n", tuple(TrustedKey("receipt", key, 0) for key in keys))
        for path in sorted(folder.glob(f"{name}-*.transparent.cose")):
            (verdict,) = verify_files([recognize(path.name, path.read_bytes())], Caller(trust, NOW))
            assert verdict.holds, verdict
            assert {"receipt_without_checkpoint", "receipt_size"} <= codes(verdict, "not_proved")


# The command


@pytest.fixture
def folder(made: Made, tmp_path: Path) -> Path:
    for name, data in made.files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "trust.toml").write_text(made.trust.text)
    (tmp_path / "policy.txt").write_text(made.policy.text)
    (tmp_path / "note.txt").write_bytes(b"hello\n")
    altered = bytearray(made.files["transparent"])
    altered[100] ^= 1
    (tmp_path / "altered").write_bytes(altered)
    return tmp_path


def run(folder: Path, arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    parser = argparse.ArgumentParser()
    add_verify_command(parser.add_subparsers())
    words = [str(folder / word) if (folder / word).exists() else word for word in arguments.split()]
    args = parser.parse_args(["verify", *(word for word in words if word != "--json")])
    args.json = "--json" in words
    code = run_verify(args)
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("proof transparent --trust trust.toml", 0),
        ("proof --policy policy.txt", 0),
        ("statement --policy policy.txt", 1),
        ("proof", 1),
        ("altered --trust trust.toml", 1),
        ("proof altered --trust trust.toml", 1),
        ("note.txt --trust trust.toml", 2),
        ("note.txt altered --trust trust.toml", 1),
        ("proof note.txt --trust trust.toml", 2),
    ],
)
def test_exit_codes(folder: Path, capsys: pytest.CaptureFixture[str], arguments: str, expected: int) -> None:
    code, out = run(folder, arguments, capsys)
    assert code == expected
    assert out.count("\n") > 1
    code, out = run(folder, f"{arguments} --json", capsys)
    assert code == expected
    document = json.loads(out)
    assert document["holds"] == (expected == 0)
    assert all(
        {"file", "kind", "holds", "proved", "not_proved", "failed"} == set(one) for one in document["files"]
    )


def test_a_log_key_alone(folder: Path, made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    vkey = made.policy.logs[0].key.vkey
    assert run(folder, f"proof --log-key {vkey}", capsys)[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        "nothing-there --trust trust.toml",
        "proof --trust policy.txt",
        "proof --policy trust.toml",
        "proof --log-key x",
    ],
)
def test_bad_input_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    with pytest.raises(MalformedError):
        run(folder, arguments, capsys)


def test_control_characters_of_evidence_do_not_reach_the_terminal(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], seed_signer: Callable[..., Any]
) -> None:
    signer = seed_signer("log\u202eevil", SignatureType.ED25519, 1)
    log = Log(MemoryStorage(), MemoryStorage(), LogSettings("log\u202eevil", (signer,)))
    (tmp_path / "checkpoint").write_bytes(log.publish(5).note)
    _, out = run(tmp_path, f"checkpoint --log-key {signer.verifier_key.vkey}", capsys)
    assert "\u202e" not in out
    assert "\\u202e" in out


def test_verifying_loads_nothing_heavy(folder: Path) -> None:
    code = (
        "import argparse, sys\n"
        "from tlog.cli_verify import add_verify_command, run_verify\n"
        "parser = argparse.ArgumentParser(); add_verify_command(parser.add_subparsers())\n"
        "args = parser.parse_args(['verify', *sys.argv[1:]]); args.json = True\n"
        "status = run_verify(args)\n"
        "heavy = {'pycose', 'httpx', 'pydantic', 'fastapi', 'uvicorn', 'apsw', 'sqlite3', 'asyncio', 'mcp', 'ssl'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
        "sys.exit(status)"
    )
    names = ("proof", "transparent", "checkpoint", "manifest", "statement")
    command = [sys.executable, "-c", code, *(str(folder / name) for name in names)]
    done = subprocess.run([*command, "--trust", str(folder / "trust.toml")], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b"[]\n"
