"""The guess attack: whoever has everything that an erasure left, keys included, can confirm no guess with it."""

from __future__ import annotations

import base64
import hashlib
import inspect
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import canon, import_jsonl, import_report, wiring
from memory.model import Principal
from memory.principal import make_principal, with_all_scopes
from memory.scope import Scope, make_scope
from memory.search import scope_token
from memory.vault import Vault
from tlog import cbor
from tlog.errors import RefusedError

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, Clock, check_of, files_of, forget, found_in, manifest_of, write

DANA = "Dana Scully"
KEY = "dana/phone"
TEXT = "Dana Scully has the number 202-555-0143."
VALUE = "202-555-0143"
CLIENT = "dana-laptop"
LAPTOP = with_all_scopes(make_principal("default", "default", CLIENT))
PHONE = with_all_scopes(make_principal("default", "default", "dana-phone"))
LINE = json.dumps({"text": TEXT, "key": KEY, "value": VALUE, "subject": DANA, "client": CLIENT})
IDEMPOTENCY_KEY = "dana-1"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home", clock=clock) as opened:
        yield opened


# What the attacker can compute


class Attacker:
    """Has every file of the home, and recomputes each hash that can be made of a guess with the keys in it."""

    def __init__(self, home: wiring.Home) -> None:
        home.close()
        self.whole = b"\n".join(files_of(home.path).values())
        self._keys = home.path / "keys"

    def confirms(self, *tags: bytes) -> bool:
        """Whether one of the hashes is in a file, as bytes or in a usual form of them."""
        return any(form in self.whole for tag in tags for form in _forms(tag))

    def scopes(self) -> Iterator[Scope]:
        """A scope under each tenant key that is there, for the agent that everybody knows."""
        for path in sorted((self._keys / "guard").glob("*.key")):
            tenant = wiring_tenant(bytes.fromhex(path.stem))
            yield make_scope(Vault(self._keys), tenant, "default")

    def confirms_guess(self, guess: Callable[[Scope], Iterator[bytes]]) -> bool:
        """Whether a hash that a guess makes under one of the keys is in a file."""
        return any(self.confirms(*guess(scope)) for scope in self.scopes())


def wiring_tenant(number: bytes) -> Any:
    from memory.rows import TenantRow

    return TenantRow(0, number, "")


def _forms(tag: bytes) -> Iterator[bytes]:
    for data in (tag, tag[:16]):
        yield data
        yield data.hex().encode()
        yield base64.b64encode(data).rstrip(b"=")
        yield base64.urlsafe_b64encode(data).rstrip(b"=")
        yield base64.b32encode(data).rstrip(b"=").lower()


def plain(*guesses: str) -> list[bytes]:
    """Unkeyed hashes of a guess, which nothing should ever have made."""
    made = [guess.encode() for guess in guesses] + [cbor.encode([guess]) for guess in guesses]
    return [hash(data).digest() for data in made for hash in (hashlib.sha256, hashlib.sha1, hashlib.md5)]


def key_hashes(scope: Scope, guess: str) -> Iterator[bytes]:
    yield scope.key_tag(guess)
    yield from (scope.word_tag(word) for word in canon.key_words(guess))
    yield from plain(guess, canon.canonical_key(guess))


def subject_hashes(scope: Scope, guess: str) -> Iterator[bytes]:
    yield scope.subject_tag(guess)
    yield from plain(guess, canon.canonical_key(guess))


def value_hashes(scope: Scope, guess: str) -> Iterator[bytes]:
    for form in canon.value_forms(guess):
        yield scope.value_tag(form)
        yield from plain(form.form)
    yield from plain(guess)


def text_hashes(scope: Scope, guess: str) -> Iterator[bytes]:
    yield scope.text_tag(guess)
    yield from plain(guess, canon.canonical_text(guess))


def client_hashes(scope: Scope, guess: str) -> Iterator[bytes]:
    """What only the client and things that are known go into: the idempotency keys here are no secrets."""
    for key in (IDEMPOTENCY_KEY, *line_keys()):
        yield scope.request_tag(guess, key)
    yield from plain(guess)


def line_keys() -> list[str]:
    (line,) = import_jsonl.parse_lines([LINE.encode()])
    assert isinstance(line, import_report.Line)
    return [line.arguments["idempotency_key"]]


def line_hashes(scope: Scope, guess: str) -> Iterator[bytes]:
    """A guessed line of an imported file, said by a client that is known."""
    yield from (scope.request_tag(CLIENT, key) for key in line_keys())
    yield from plain(guess)
    arguments = {"text": TEXT, "key": KEY, "value": VALUE, "subject": DANA}
    yield scope.bound_tag("body", cbor.encode(arguments))


ATTACKS: dict[str, tuple[Callable[[Scope, str], Iterator[bytes]], str]] = {
    "key": (key_hashes, KEY),
    "subject": (subject_hashes, DANA),
    "value": (value_hashes, VALUE),
    "text": (text_hashes, TEXT),
    "client": (client_hashes, CLIENT),
    "line": (line_hashes, LINE),
}


def confirmed(home: wiring.Home) -> set[str]:
    """Which guesses about Dana the files of the home confirm; it can be used afterwards."""
    attacker = Attacker(home)
    return {
        name
        for name, (hashes, guess) in ATTACKS.items()
        if attacker.confirms_guess(lambda scope, hashes=hashes, guess=guess: hashes(scope, guess))  # type: ignore[misc]
    }


def test_the_attack_knows_every_hash_that_the_vault_makes() -> None:
    """A hash that is added to the scope and not to the attack would not be looked for."""
    made = {
        name for name, _ in inspect.getmembers(Scope) if name.endswith("_tag") and not name.startswith("_")
    }
    assert made == {
        *(
            "agent_tag",
            "key_tag",
            "subject_tag",
            "text_tag",
            "value_tag",
            "word_tag",
            "request_tag",
            "bound_tag",
        )
    }


# Everything that may be left


def import_line(home: wiring.Home, line: str = LINE) -> Any:
    lines = import_jsonl.parse_lines(io.BytesIO(line.encode()))

    def memory_of(client: str | None) -> Any:
        assert client is not None
        return home.memory(with_all_scopes(make_principal("default", "default", client)))

    return import_report.remember_lines(lines, memory_of, lambda _: None).describe()


def live_through(home: wiring.Home) -> None:
    """Of everything that leaves a keyed hash: a conflict, a correction, an echo with a token, requests."""
    assert import_line(home)["outcomes"] == {"stored": 1}
    dispute = write(home, "It is 202-555-0199.", PHONE, key=KEY, value="202-555-0199", subject=DANA)
    assert dispute["outcome"] == "conflict"
    memory = home.memory(ME)
    (conflict,) = memory.conflicts()["conflicts"]
    memory.resolve(conflict["id"], dispute["id"])
    request = {"key": "dana/desk", "value": "B 12", "subject": DANA, "idempotency_key": IDEMPOTENCY_KEY}
    write(home, "Dana Scully sits at B 12.", LAPTOP, **request)
    echo = write(home, f"Ring {VALUE}.", LAPTOP, key=KEY, value=VALUE, subject=DANA)
    assert echo["outcome"] == "refused" and echo["reaffirm"]
    write(home, "Fox Mulder has the basement.", key="fox/office", value="basement", subject="Fox Mulder")
    home.publish()


def test_nothing_left_of_an_erased_person_confirms_a_guess(home: wiring.Home) -> None:
    live_through(home)
    assert confirmed(home) == set(ATTACKS), "the attack has to succeed before, or it shows nothing after"
    # A second preview leaves a token behind that nobody redeems.
    home.memory(LAPTOP).forget_preview(subject=DANA)
    answer = forget(home, LAPTOP, subject=DANA, guard="erase")
    assert answer["state"] == "closed_complete", answer["why"]
    home.publish()
    assert confirmed(home) == set()


@pytest.mark.parametrize("selector", [{"key": KEY}, {"all": True}])
def test_nothing_left_of_an_erased_key_or_scope_confirms_a_guess(
    home: wiring.Home, selector: dict[str, Any]
) -> None:
    live_through(home)
    answer = forget(home, guard="erase", **selector)
    assert answer["state"] == "closed_complete", answer["why"]
    kept = {"subject", "client"} if "key" in selector else set()
    assert confirmed(home) == kept


@pytest.mark.parametrize("guard", ["keep", "expire=2040-01-01T00:00:00Z"])
def test_what_is_kept_of_the_ledger_is_declared_and_confirms_what_it_must(
    home: wiring.Home, guard: str
) -> None:
    live_through(home)
    document = manifest_of(home, forget(home, subject=DANA, guard=guard)).document
    assert "ledger_kept" in document["limits"]
    kept = {"key", "subject", "value"}
    if guard == "keep":
        assert "requests_kept" in document["limits"]
        kept |= {"client", "line"}
    else:
        assert "requests_kept" not in document["limits"]
    assert confirmed(home) == kept


def test_a_conflict_that_nobody_settled_leaves_no_hash(home: wiring.Home) -> None:
    """Its row is keyed by a hash that would outlive the facts that were in it, whatever the guard."""
    first = write(home, TEXT, LAPTOP, key=KEY, value=VALUE)
    second = write(home, "It is 7.", PHONE, key=KEY, value="202-555-0199")
    assert "key" in confirmed(home)
    forget(home, id=first["id"], guard="erase")
    assert "key" in confirmed(home), "the other fact of the key is kept, and with it its hash"
    assert home.memory(ME).conflicts()["conflicts"] == [], "one side is not a conflict"
    forget(home, id=second["id"], guard="erase")
    assert confirmed(home) == set()
    assert home.memory(ME).conflicts()["conflicts"] == []


def test_a_preview_that_is_never_confirmed_confirms_no_client(home: wiring.Home) -> None:
    """What a token is bound to has the caller's name in it, and all else that goes in can be known."""
    write(home, TEXT, LAPTOP, key=KEY, value=VALUE)
    token = home.memory(LAPTOP).forget_preview(key=KEY)["confirm"]
    assert token
    with home.parts().store.read_whole() as view:
        (bound,) = (row[0] for row in view.rows("SELECT bound FROM tokens"))
        scope = make_scope(home.parts().vault, view.tenant_by_id(1), "default")
    from memory import erase_selection

    request = erase_selection.parse_request(0, key=KEY)
    with home.parts().store.read_whole() as view:
        digest = erase_selection.select(view, scope, request).digest()
    assert bound not in {
        scope.bound_tag("forget", CLIENT, "key", guard, "", digest) for guard in ("keep", "erase")
    }


# Requests


def test_a_retry_of_what_was_erased_with_its_hashes_is_a_new_write(home: wiring.Home) -> None:
    import_line(home)
    forget(home, subject=DANA, guard="erase")
    assert import_line(home)["outcomes"] == {"stored": 1}


def test_a_retry_of_what_was_erased_and_kept_refused_answers_erased(home: wiring.Home) -> None:
    import_line(home)
    document = manifest_of(home, forget(home, subject=DANA, guard="keep")).document
    assert document["guard"]["requests"] == 1 and "requests_kept" in document["limits"]
    again = import_line(home)
    assert (again["new"], again["known"], again["erased"], again["not_taken"]) == (0, 1, 1, [])
    with pytest.raises(RefusedError):
        write(home, TEXT, LAPTOP, key=KEY, value=VALUE, subject=DANA, idempotency_key=line_keys()[0])
    assert found_in(home, DANA, VALUE) == set()


def test_without_requests_nothing_of_them_is_declared(home: wiring.Home) -> None:
    write(home, TEXT, key=KEY, value=VALUE)
    document = manifest_of(home, forget(home, key=KEY)).document
    assert document["guard"] == {"disposition": "keep", "entries": 0}
    assert "requests_kept" not in document["limits"]


# Times


def test_an_erased_correction_leaves_no_time_of_its_own(home: wiring.Home, clock: Clock) -> None:
    old = write(home, "It runs in eu-west-1.", key="api/region", value="eu-west-1")
    new = write(home, "It runs in us-east-2.", key="api/region", value="us-east-2")
    with home.parts().store.read_whole() as view:
        at = view.rows("SELECT replaced_at FROM facts WHERE seq = 1")[0][0]
    assert at % 3_600_000_000, "the clock of this test must not stand at a whole hour"
    forget(home, id=new["id"])
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT replaced_at, end_erased FROM facts") == [(at - at % 3_600_000_000, 1)]
        numbers = [
            value
            for table in ("facts", "erasures", "meta", "tokens", "ledger", "conflicts", "acts", "idempotency")
            for row in view.rows(f"SELECT * FROM {table}")
            for value in row
        ]
    assert at not in numbers
    home.close()
    assert not any(at.to_bytes(8, "big") in data for data in files_of(home.path).values())
    assert home.memory(ME).provenance(old["id"])["fact"]["status"] == "superseded"


def test_retention_still_finds_what_an_erased_correction_replaced(home: wiring.Home, clock: Clock) -> None:
    """Never before its age is reached, though when it began is known to the hour alone; 0s is everything."""
    hour = 3_600_000_000
    write(home, "It runs in eu-west-1.", key="api/region", value="eu-west-1")
    new = write(home, "It runs in us-east-2.", key="api/region", value="us-east-2")
    replaced_at = clock.now
    forget(home, id=new["id"])
    memory = home.memory(ME)
    assert memory.retention("0s")["matched"] == 1
    clock.now = replaced_at + 5 * hour - 60_000_000
    assert memory.retention("5h")["matched"] == 0
    clock.now = replaced_at + 6 * hour
    assert memory.retention("5h")["matched"] == 1
    assert memory.retention("5h", apply=True)["removed"] == 1
    assert found_in(home, "eu-west-1") == set()


# Who asked


ACME = with_all_scopes(make_principal("acme-of-quimby", "ledgerkeeper", "desk-of-ada"))
OTHER = with_all_scopes(make_principal("acme-of-quimby", "bookbinder", "desk-of-ada"))
NAMES = ("acme-of-quimby", "ledgerkeeper", "desk-of-ada")


def name_confirmed(home: wiring.Home, principal: Principal) -> bool:
    attacker = Attacker(home)
    tags = [Vault(home.path / "keys").index_tag("tenant", principal.tenant)]
    for path in (home.path / "keys" / "guard").glob("*.key"):
        agent_tag = Vault(home.path / "keys").tag(bytes.fromhex(path.stem), "agent", principal.agent)
        tags += [agent_tag, scope_token(agent_tag).encode()]
    return attacker.confirms(*tags)


def test_a_tenant_of_which_nothing_is_left_leaves_no_name(home: wiring.Home) -> None:
    write(home, "A kept fact.")
    written = write(home, TEXT, ACME, key=KEY, value=VALUE, idempotency_key="one")
    write(home, "A correction.", ACME, key=KEY, value="none")
    home.publish()
    assert found_in(home, *NAMES) == set(NAMES) and name_confirmed(home, ACME)
    keys = set((home.path / "keys" / "guard").iterdir())
    answer = forget(home, ACME, all=True)
    manifest = manifest_of(home, answer)
    assert answer["state"] == "closed_complete", answer["why"]
    assert found_in(home, *NAMES) == set() and not name_confirmed(home, ACME)
    (gone,) = keys - set((home.path / "keys" / "guard").iterdir())
    number = manifest.tombstone.link.tenant
    assert gone.name == f"{number.hex()}.key"
    assert manifest.document["keys"] == [{"key": number, "destroyed": True}]
    assert check_of(manifest, "residue")["result"] == "clean"
    assert home.memory(ME).recall("kept fact")["facts"]
    # The same name is somebody new from then on.
    again = write(home, "Back again.", ACME, key=KEY, value=VALUE)
    assert again["outcome"] == "stored" and again["id"] != written["id"]
    assert forget(home, ACME, all=True)["number"] == 2
    with home.parts().store.read_whole() as view:
        statements = view.counts()["statements"]
    # A publication may add a statement of its own: the state of the store.
    assert home.publish()["size"] - statements in (0, 1)


def test_a_tenant_keeps_its_name_while_anything_of_it_is_left(home: wiring.Home) -> None:
    write(home, TEXT, ACME, key=KEY, value=VALUE)
    write(home, "Of another agent.", OTHER)
    assert "keys" not in manifest_of(home, forget(home, ACME, all=True)).document
    assert found_in(home, *NAMES) == {"acme-of-quimby", "desk-of-ada"}
    write(home, TEXT, ACME, key=KEY, value=VALUE)
    write(home, "A correction.", ACME, key=KEY, value="none")
    forget(home, OTHER, all=True)
    answer = forget(home, ACME, all=True, guard="keep")
    assert "keys" not in manifest_of(home, answer).document
    assert found_in(home, *NAMES) == {"acme-of-quimby"}
    assert write(home, TEXT, ACME, key=KEY, value=VALUE)["outcome"] == "refused"


def test_the_tenant_that_nobody_named_has_no_name_to_lose(home: wiring.Home) -> None:
    """What was erased of it can still be asked about."""
    id = write(home, TEXT, key=KEY, value=VALUE)["id"]
    forget(home, all=True)
    assert home.memory(ME).provenance(id)["fact"]["status"] == "erased"
