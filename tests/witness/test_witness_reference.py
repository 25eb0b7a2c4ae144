"""Our witness beside a slow one that shares no code with it, fed whatever hypothesis makes up."""

from __future__ import annotations

import base64
import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlog.errors import MalformedError
from tlog.note import make_verifier_key
from witness.decide import Refuse
from witness.service import Witness
from witness.store import create_store, open_store

_SPEC = importlib.util.spec_from_file_location(
    "witness_reference", Path(__file__).with_name("witness_reference.py")
)
assert _SPEC is not None and _SPEC.loader is not None
reference: Any = importlib.util.module_from_spec(_SPEC)
sys.modules["witness_reference"] = reference
_SPEC.loader.exec_module(reference)

ORIGIN = "log.example/by hand"
NAME = "log.example/key"
KEY = Ed25519PrivateKey.from_private_bytes(b"\x21" * 32)
PUBLIC = KEY.public_key().public_bytes_raw()
KEY_ID = reference.key_id_of(NAME, PUBLIC)
SIZE = 12
HONEST = [b"leaf %d" % number for number in range(SIZE)]
FORK = [*HONEST[:5], *(b"fork %d" % number for number in range(5, SIZE))]


def verify(signature: bytes, text: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(PUBLIC).verify(signature, text)
    except InvalidSignature:
        return False
    return True


def note(size: int, leaves: list[bytes], root: bytes | None = None) -> bytes:
    hashed = root or reference.root_of(leaves[:size])
    text = f"{ORIGIN}\n{size}\n{base64.b64encode(hashed).decode()}\n".encode()
    return bytes(reference.signed(text, NAME, KEY_ID, KEY.sign))


def request(old: int, proof: list[bytes], signed: bytes) -> bytes:
    lines = b"".join(base64.b64encode(one) + b"\n" for one in proof)
    return b"old %d\n" % old + lines + b"\n" + signed


class Pair:
    """Both witnesses, asked the same."""

    def __init__(self, folder: Path, sim: Any) -> None:
        create_store(folder, "witness.example/w", [])
        self.store = open_store(folder)
        self.store.add_log(ORIGIN, make_verifier_key(NAME, 1, PUBLIC))
        self.cosigner = sim.make_cosigner()
        self.ours = Witness(self.store, [self.cosigner], lambda: sim.TIME)
        self.theirs = reference.Reference(ORIGIN, NAME, KEY_ID, verify, [HONEST, FORK])

    def ask(self, body: bytes) -> int:
        """The status that both give; AssertionError where they differ."""
        expected = self.theirs.answer(body)
        try:
            answer = self.ours.add_checkpoint(body)
        except MalformedError:
            assert expected == (400, b""), body
            return 400
        if isinstance(answer, Refuse):
            size = b"" if answer.known_size is None else b"%d\n" % answer.known_size
            assert (answer.status, size) == expected, body
            return answer.status
        assert expected[0] == 200, body
        return 200


@pytest.fixture
def pair(tmp_path: Path, sim: Any) -> Any:
    made = Pair(tmp_path, sim)
    yield made
    made.store.close()


def test_a_log_signed_by_other_means_is_cosigned_and_the_cosignature_holds(pair: Any, sim: Any) -> None:
    """Nothing of ours makes the request or reads the answer."""
    for old, size in ((0, 3), (3, 3), (3, 12)):
        signed = note(size, HONEST)
        proof = reference.consistency_proof(old, HONEST[:size]) if 0 < old < size else []
        assert pair.ask(request(old, proof, signed)) == 200
        (line,) = pair.ours.add_checkpoint(request(size, [], signed))
        key = pair.cosigner.verifier_key
        public = Ed25519PublicKey.from_public_bytes(key.public_key)
        text = signed[: signed.rindex(b"\n\n") + 1]
        time = reference.cosignature_holds(line.line.encode(), key.name, text, key.public_key, public.verify)
        assert time == sim.TIME


def test_the_reference_refuses_what_it_must(pair: Any) -> None:
    """A reference that says 200 to everything would agree with a witness that does."""
    proof = reference.consistency_proof(3, HONEST[:8])
    found = [
        pair.ask(body)
        for body in (
            b"",
            request(0, [b"\1" * 32], note(3, HONEST)),
            request(0, [], note(0, HONEST, b"\1" * 32)),
            request(0, [], note(3, HONEST)[:-1] + b"x\n"),
            request(0, [], note(3, HONEST).replace(b"by hand", b"unknown")),
            request(2, [], note(3, HONEST)),
            request(4, [], note(3, HONEST)),
            request(0, [], note(3, HONEST)),
            request(3, proof, note(8, FORK)),
            request(3, proof, note(8, HONEST)),
            request(8, [], note(8, FORK)),
            request(8, [], note(8, HONEST)),
        )
    ]
    assert found == [400, 422, 422, 400, 404, 409, 400, 200, 422, 200, 422, 200]


sizes = st.integers(0, SIZE)
requests = st.tuples(st.booleans(), sizes, sizes, st.integers(0, 9), st.integers(0, 2**32))


def build(forked: bool, old: int, size: int, twist: int, seed: int, known: int) -> bytes:
    """A request: most follow what is known, some are twisted somewhere."""
    chance = random.Random(seed)
    leaves = FORK if forked else HONEST
    if twist < 7:
        old = known
        size = max(size, old) if twist < 6 else size
    proof = reference.consistency_proof(old, leaves[:size]) if 0 < old < size else []
    signed = note(size, leaves)
    if twist in (5, 8) and proof:
        chance.choice(
            [
                lambda: proof.pop(),
                lambda: proof.append(b"\1" * 32),
                lambda: proof.reverse(),
                lambda: proof.__setitem__(0, b"\2" * 32),
            ]
        )()
    if twist == 4 and size == old:
        proof = [b"\3" * 32]
    body = bytearray(request(old, proof, signed))
    if twist in (3, 9):
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            position = chance.randrange(len(body))
            match chance.randrange(4):
                case 0:
                    body[position] ^= 1 << chance.randrange(8)
                case 1:
                    del body[position]
                case 2:
                    body.insert(position, chance.choice(b"\n 0=A+/\xe2\x80\x94\x00\r9"))
                case _:
                    body[position:position] = body[position : position + chance.randrange(60)]
    return bytes(body)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(requests, max_size=25))
def test_agrees_with_the_reference_on_every_request(
    tmp_path_factory: pytest.TempPathFactory, sim: Any, made: list[tuple[bool, int, int, int, int]]
) -> None:
    pair = Pair(tmp_path_factory.mktemp("pair"), sim)
    for one in made:
        known = pair.theirs.known[0] if pair.theirs.known else 0
        pair.ask(build(*one, known))
    record = pair.store.log(ORIGIN)
    assert record is not None
    stored = record.cosigned.head if record.cosigned else None
    assert (stored and (stored.size, stored.root)) == pair.theirs.known
    pair.store.close()
