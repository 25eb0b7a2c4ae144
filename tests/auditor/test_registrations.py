"""Statements of other issuers in an audited log: judged by the registration policies in it, and by nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from auditor.audit import Audited, Places, audit
from auditor.evidence import Asked
from memory.model import SCOPES, Principal
from memory.wiring import init_home, open_home
from tlog.cose import PrivateKeySigner, make_signer
from tlog.keys import load_cose_key
from tlog.registration import (
    Issuer,
    Registration,
    document_of,
    document_path,
    format_registration,
    parse_registration,
)
from tlog.registration_log import sign_registration
from tlog.statement import sign_statement
from tlog.storage import DirectoryStorage
from tlog.trust import Trust, make_trust, parse_trust, trust_from_policy

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FOREIGN = "https://issuer.example"
ALICE = Principal("acme", "bot", "one", SCOPES)


def signer(seed: int) -> PrivateKeySigner:
    return make_signer(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


def statement(number: int, issuer: str = FOREIGN, seed: int = 1) -> bytes:
    return sign_statement(signer(seed), issuer, "subject", hashlib.sha256(b"%d" % number).digest())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose memory and whose `log serve`, a process of its own, write to one log."""
    folder = tmp_path_factory.mktemp("served")
    home, rules = folder / "home", folder / "rules.toml"
    rules.write_text(format_registration(Registration(1, (Issuer(FOREIGN, signer(1).key),))))
    with init_home(home) as made:
        made.memory(ALICE).remember("the office is in Berlin", key="city", value="Berlin")
        made.publish()
    command = [sys.executable, "-m", "memory.cli", "log", "serve", "--home", str(home), "--json"]
    command += ["--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--registration", str(rules), "--publish-every", "0.2"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 60)[0]
        url = json.loads(process.stdout.readline())["listening"]
        for number in range(3):
            answer = httpx.post(f"{url}/entries", content=statement(number), timeout=30)
            assert answer.status_code in (201, 202), answer.content
        refused = httpx.post(f"{url}/entries", content=statement(9, "https://other.example"), timeout=30)
        assert 400 <= refused.status_code < 500
        with open_home(home) as again:
            again.memory(ALICE).remember("the office is in Hamburg", key="city", value="Hamburg")
            again.publish()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    return home


@pytest.fixture
def home(served: Path, tmp_path: Path) -> Path:
    copied = tmp_path / "home"
    shutil.copytree(served, copied)
    return copied


def looked_at(home: Path, trust: Trust | None = None, **options: Any) -> Audited:
    believed = parse_trust((home / "trust.toml").read_text()) if trust is None else trust
    tenant = options.pop("tenant", None)
    return audit(
        Places(home, **options), Asked(believed, time.time_ns() // 1000), tenant=tenant, needles=None
    )


def codes(audited: Audited) -> set[tuple[str, object]]:
    return {(one.code, one.evidence.get("reason")) for one in audited.outcome.findings}


def append(home: Path, *entries: bytes) -> None:
    """Entries that get into the log past its policy, as its operator could put them there."""
    with open_home(home) as opened:
        opened.log().append(list(entries))
        opened.publish()


def test_statements_that_the_policy_admitted_are_counted_as_such(home: Path) -> None:
    audited = looked_at(home)
    assert audited.outcome.findings == ()
    assert audited.outcome.counts["foreign_statements"] == audited.outcome.counts["foreign_admitted"] == 3
    notes = {(note.text, note.count) for note in audited.outcome.checked}
    assert ("foreign statements: admitted by policy", 3) in notes
    assert ("registration policies in the log", 1) in notes
    assert looked_at(home, tenant="acme").outcome.findings == ()


def test_the_trust_file_that_is_handed_out_names_the_key_of_the_policies(home: Path) -> None:
    trust = parse_trust((home / "trust.toml").read_text())
    key = load_cose_key(home / "keys" / "registration.key").key
    assert [one.kid for one in trust.keys_for("registration")] == [key.key_id]
    said = subprocess.run(
        [sys.executable, "-m", "memory.cli", "log", "trust", "--home", str(home)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert parse_trust(said.stdout) == trust


def test_the_log_alone_tells_too(home: Path) -> None:
    trust = parse_trust((home / "trust.toml").read_text())
    asked = Asked(trust, time.time_ns() // 1000)
    audited = audit(Places(None, log=str(home / "log")), asked, tenant=None, needles=None)
    assert audited.outcome.findings == ()
    assert audited.outcome.counts["foreign_admitted"] == 3


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (statement(10, "https://other.example"), "issuer_unknown"),
        (statement(11, seed=2), "key_unknown"),
        (statement(12)[:-1] + b"\xff", "signature"),
    ],
    ids=["issuer", "key", "signature"],
)
def test_what_the_policy_did_not_admit_is_found(home: Path, entry: bytes, reason: str) -> None:
    append(home, entry)
    audited = looked_at(home)
    assert codes(audited) == {("STATEMENT_NOT_ADMITTED", reason)}
    assert audited.outcome.counts["foreign_admitted"] == 3
    assert audited.outcome.findings[0].where == f"log entry {audited.outcome.counts['entries'] - 1}"


def test_a_statement_from_before_any_policy_is_found(tmp_path: Path) -> None:
    with init_home(tmp_path / "home") as made:
        made.memory(ALICE).remember("the office is in Berlin", key="city", value="Berlin")
        made.publish()
    append(tmp_path / "home", statement(1))
    assert codes(looked_at(tmp_path / "home")) == {("STATEMENT_NOT_ADMITTED", "no_policy")}


def test_a_policy_of_a_key_that_nobody_trusts_admits_nothing(home: Path) -> None:
    """The thief of the log writes a policy of his own, which would take his statements."""
    config = open_config(home)
    rules = Registration(2, (Issuer("https://thief.example", signer(5).key),), own_issuer=config.issuer)
    DirectoryStorage(home / "log").create(document_path(digest_of(rules)), document_of(rules))
    append(
        home,
        sign_registration(signer(6), config.origin, rules),
        statement(20, "https://thief.example", 5),
    )
    assert codes(looked_at(home)) == {
        ("KEY_NOT_VALID", "key_unknown"),
        ("STATEMENT_NOT_ADMITTED", "issuer_unknown"),
    }


def test_an_old_policy_logged_again_is_found(home: Path) -> None:
    config = open_config(home)
    rules = Registration(1, (Issuer(FOREIGN, signer(1).key),), own_issuer=config.issuer)
    key = load_cose_key(home / "keys" / "registration.key")
    append(home, sign_registration(key, config.origin, rules))
    # The log holds that very entry already, so it takes another signature over other bytes to log it again.
    other = replace(rules, max_entry_bytes=60_000)
    DirectoryStorage(home / "log").create(document_path(digest_of(other)), document_of(other))
    append(home, sign_registration(key, config.origin, other))
    assert codes(looked_at(home)) == {("STATEMENT_NOT_ADMITTED", "number")}


def test_a_policy_signed_when_its_key_was_over_is_found(home: Path) -> None:
    trust = parse_trust((home / "trust.toml").read_text())
    ended = tuple(
        replace(one, not_after=one.not_before + 1) if one.use == "registration" else one for one in trust.keys
    )
    assert codes(looked_at(home, make_trust(trust.policy.text, ended))) == {("KEY_NOT_VALID", None)}


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"version = 1\n")])
def test_a_policy_without_its_document_judges_nothing(home: Path, spoil: Callable[[Path], object]) -> None:
    (document,) = (home / "log" / "registration").iterdir()
    document.chmod(0o600)
    spoil(document)
    found = looked_at(home).outcome.findings
    assert {(one.code, one.where) for one in found} >= {("ENTRY_ALTERED", "log registration/")}


def test_a_policy_that_no_entry_commits_to_is_found(home: Path) -> None:
    data = b"likes green tea"
    path = home / "log" / "registration" / f"{hashlib.sha256(data).hexdigest()}.toml"
    path.write_bytes(data)
    assert codes(looked_at(home)) == set(), "it may be on its way into the log"
    os.utime(path, (time.time() - 3600,) * 2)
    assert codes(looked_at(home)) == {("RESIDUE_FILE", None)}


def test_a_policy_that_is_taken_and_in_no_tile_yet_is_none_too_many(home: Path) -> None:
    with open_home(home) as opened:
        origin = opened.origin
        rules = parse_registration(next((home / "log" / "registration").glob("*.toml")).read_text())
        more = replace(rules, number=2, payload="any")
        entry = sign_registration(load_cose_key(home / "keys" / "registration.key"), origin, more)
        opened.log().append([entry])
    data = document_of(more)
    path = home / "log" / "registration" / f"{hashlib.sha256(data).hexdigest()}.toml"
    path.write_bytes(data)
    os.utime(path, (time.time() - 3600,) * 2)
    assert codes(looked_at(home)) == set()
    for staged in (home / "log-state" / "staging").iterdir():
        staged.unlink()
    assert ("RESIDUE_FILE", None) in codes(looked_at(home))


def test_without_a_key_for_policies_nothing_of_others_is_admitted(home: Path) -> None:
    trust = parse_trust((home / "trust.toml").read_text())
    without = make_trust(trust.policy.text, tuple(key for key in trust.keys if key.use != "registration"))
    assert codes(looked_at(home, without)) == {
        ("KEY_NOT_VALID", "key_unknown"),
        ("STATEMENT_NOT_ADMITTED", "no_policy"),
    }


def test_with_a_policy_alone_it_is_said_that_they_were_not_judged(home: Path) -> None:
    audited = looked_at(home, trust_from_policy((home / "policy.txt").read_text()))
    assert audited.outcome.findings == ()
    assert [note.count for note in audited.outcome.not_checked if note.check == "registration"] == [4]


def test_the_own_store_cannot_pass_off_a_write_as_anothers(home: Path) -> None:
    """A write is taken out of the store, and a policy is logged after it that would admit its issuer."""
    config = open_config(home)
    own = load_cose_key(home / "keys" / "issuer.key")
    rules = Registration(2, (Issuer(config.issuer, own.key),), own_issuer="urn:somebody-else")
    DirectoryStorage(home / "log").create(document_path(digest_of(rules)), document_of(rules))
    key = load_cose_key(home / "keys" / "registration.key")
    hidden = sign_statement(own, config.issuer, config.subject, hashlib.sha256(b"hidden").digest())
    append(home, sign_registration(key, config.origin, rules), hidden)
    assert {code for code, _ in codes(looked_at(home))} == {"WRITE_MISSING"}


def open_config(home: Path) -> Any:
    with open_home(home) as opened:
        return opened.config


def digest_of(rules: Registration) -> bytes:
    return hashlib.sha256(document_of(rules)).digest()
