"""Bytes that nobody would send, to the parser and the judgement of a witness, and to a slow reference beside it.

    python tests/witness/witness_fuzz.py --seconds 300 --counts FILE [--engine atheris|hypothesis]

Guided by coverage where atheris can be imported, made up by hypothesis where not. Each input is a small program: what
the witness knows, then a body as it stands, or a text to be signed as the log would, or a request to be twisted. Held
for each: no exception but the refusals, the reference's status and 409 body, and that what would be cosigned is the
text that the log signed. An input that breaks one ends the run with its bytes in hexadecimal. FILE is written as it
goes: the engine, and how many inputs ended with which status. What atheris collects lies in a new folder beside it.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

ATHERIS = "atheris"
HYPOTHESIS = "hypothesis"
MAX_INPUT_BYTES = 4096
COUNT_EVERY = 100


def sibling(name: str) -> ModuleType:
    """A module of this folder, which is no package."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class Reader:
    """The bytes of an input, taken from the front; zeros where there are no more."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def number(self) -> int:
        first, self.rest = self.rest[:1], self.rest[1:]
        return first[0] if first else 0


class Target:
    """What is fuzzed: ours, with the reference beside it."""

    def __init__(self) -> None:
        pair = sibling("test_witness_reference")
        self.pair: Any = pair
        self.theirs = pair.reference.Reference(
            pair.ORIGIN, pair.NAME, pair.KEY_ID, cache(pair.verify), [pair.HONEST, pair.FORK]
        )
        from tlog.note import make_verifier_key

        self.key = make_verifier_key(pair.NAME, 1, pair.PUBLIC)
        root_of = pair.reference.root_of
        self.heads = [None] + [
            (size, root_of(leaves[:size]))
            for leaves in (pair.HONEST, pair.FORK)
            for size in range(pair.SIZE + 1)
        ]
        self.statuses: Counter[int] = Counter()

    def __call__(self, data: bytes) -> None:
        """Returns if the input is answered as the reference answers it; AssertionError with its bytes if not."""
        reader = Reader(bytes(data))
        known = self.heads[reader.number() % len(self.heads)]
        body = self.body(reader, known)
        self.theirs.known = known
        expected = self.theirs.answer(body)
        found = self.ours(body, known)
        assert found == expected, f"answered {found}, the reference says {expected}: {bytes(data).hex()}"
        self.statuses[found[0]] += 1

    def ours(self, body: bytes, known: tuple[int, bytes] | None) -> tuple[int, bytes]:
        """Status, and the body of a 409; what is accepted has to be what the reference then knows."""
        from tlog.checkpoint import format_checkpoint
        from tlog.errors import MalformedError
        from witness.answers import http_answer
        from witness.decide import KnownHead, Refuse, decide
        from witness.wire import parse_add_checkpoint

        try:
            request = parse_add_checkpoint(body)
        except MalformedError as error:
            return http_answer(error).status, b""
        keys = (self.key,) if request.checkpoint.origin == self.pair.ORIGIN else ()
        decision = decide(KnownHead(*known) if known else None, request, keys)
        if isinstance(decision, Refuse):
            answer = http_answer(decision)
            return answer.status, answer.body if answer.status == 409 else b""
        assert format_checkpoint(request.checkpoint).encode() in body
        assert (decision.head.size, decision.head.root) == self.theirs.known
        return 200, b""

    def body(self, reader: Reader, known: tuple[int, bytes] | None) -> bytes:
        form = reader.number() % 8
        if form == 0:
            return reader.rest
        if form == 1:
            return self.signed_as_it_is(reader)
        return edited(self.made(reader, known[0] if known else 0), reader)

    def signed_as_it_is(self, reader: Reader) -> bytes:
        """Any old size and proof lines, before any text with the log's signature."""
        header, _, text = reader.rest.partition(b"\n\n")
        return (
            header
            + b"\n\n"
            + self.pair.reference.signed(text, self.pair.NAME, self.pair.KEY_ID, sign(self.pair))
        )

    def made(self, reader: Reader, known: int) -> bytes:
        """A request that may well be right."""
        pair = self.pair
        leaves = pair.FORK if reader.number() % 4 == 0 else pair.HONEST
        choice = reader.number()
        old = known if choice < 192 else choice % (pair.SIZE + 1)
        choice = reader.number()
        size = min(known + choice % 4, pair.SIZE) if choice < 192 else choice % (pair.SIZE + 1)
        proof = list(pair.reference.consistency_proof(old, leaves[:size])) if 0 < old < size else []
        twist = reader.number()
        if twist % 8 == 1 and proof:
            proof.pop(twist // 8 % len(proof))
        elif twist % 8 == 2:
            proof += [bytes([twist]) * 32] * (1 if twist < 224 else 64)
        elif twist % 8 == 3 and proof:
            proof[twist // 8 % len(proof)] = bytes([twist]) * 32
        root = bytes([twist]) * 32 if twist % 8 == 4 else pair.reference.root_of(leaves[:size])
        text = f"{pair.ORIGIN}\n{size}\n{base64.b64encode(root).decode()}\n".encode()
        return bytes(
            pair.request(old, proof, pair.reference.signed(text, pair.NAME, pair.KEY_ID, sign(pair)))
        )


def edited(body: bytes, reader: Reader) -> bytes:
    """The body with up to three edits; for half of the inputs none."""
    changed = bytearray(body)
    for _ in range(max(0, reader.number() % 8 - 4)):
        place = (reader.number() << 8 | reader.number()) % (len(changed) + 1)
        operation, byte = reader.number() % 4, reader.number()
        if operation == 0:
            changed[place : place + 1] = bytes([byte])
        elif operation == 1:
            del changed[place : place + 1 + byte % 4]
        elif operation == 2:
            changed[place:place] = b"\n 0=A+/9"[byte % 8 : byte % 8 + 1]
        else:
            changed[place:place] = changed[place : place + byte]
    return bytes(changed)


@cache
def sign(pair: Any) -> Any:
    return cache(pair.KEY.sign)


def seeds(target: Target) -> list[bytes]:
    """Inputs to begin with, of each form."""
    pair = target.pair
    raw = [
        b"\0\0" + pair.request(0, [], pair.note(3, pair.HONEST)),
        b"\4\0"
        + pair.request(3, pair.reference.consistency_proof(3, pair.HONEST[:8]), pair.note(8, pair.HONEST)),
        b"\4\0" + pair.request(3, [b"\1" * 32] * 63, pair.note(8, pair.HONEST)),
        b"\4\0" + pair.request(0, [], pair.note(8, pair.HONEST)),
        b"\0\0" + pair.request(0, [], pair.note(3, pair.HONEST).replace(b"by hand", b"unknown")),
        b"\0\0" + pair.request(0, [], pair.note(3, pair.HONEST).replace(b"\n3\n", b"\n4\n")),
        b"\0\0" + pair.request(5, [], pair.note(3, pair.HONEST)),
    ]
    texts = [
        b"\0\1old 0\n\n" + pair.note(size, pair.HONEST).partition(b"\n\n")[0] + b"\n" for size in (0, 3, 12)
    ]
    made = [
        bytes([head, 2, 1, 0, grow, twist, 0])
        for head in (0, 4, 9)
        for grow in (0, 1, 3)
        for twist in range(5)
    ]
    return [*raw, *texts, *made, *(one[:-1] + bytes([5, 0, 9, 0, 43]) for one in made)]


class Counting:
    """The target, with what came of it written to a file now and then."""

    def __init__(self, target: Target, engine: str, counts: Path) -> None:
        self.target, self.engine, self.counts = target, engine, counts
        self.inputs = 0

    def __call__(self, data: bytes) -> None:
        self.target(data)
        self.inputs += 1
        if self.inputs % COUNT_EVERY == 0:
            self.write()

    def write(self) -> None:
        found = {"engine": self.engine, "inputs": self.inputs, "statuses": self.target.statuses}
        self.counts.write_text(json.dumps(found))


def run_atheris(seconds: float, counts: Path) -> None:
    """Ends the process: with 0 if nothing was found."""
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["tlog", "witness"]):
        import tlog.checkpoint
        import tlog.note  # noqa: F401
        import witness.answers
        import witness.decide
        import witness.wire  # noqa: F401
    target = Target()
    folder = Path(tempfile.mkdtemp(prefix="inputs-", dir=counts.parent))
    for number, one in enumerate(seeds(target)):
        (folder / f"{number}").write_bytes(one)
    options = [f"-max_total_time={max(1, round(seconds))}", f"-max_len={MAX_INPUT_BYTES}", "-timeout=30"]
    words = [sys.argv[0], *options, f"-artifact_prefix={folder}/", str(folder)]
    atheris.Setup(words, Counting(target, ATHERIS, counts))
    atheris.Fuzz()


def run_hypothesis(seconds: float, counts: Path) -> None:
    """Returns once the time is up, if nothing was found."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    counting = Counting(Target(), HYPOTHESIS, counts)
    begin = st.sampled_from(seeds(counting.target))
    spliced = st.builds(
        lambda one, place, middle, skip: (
            one[: place % (len(one) + 1)] + middle + one[place % (len(one) + 1) + skip :]
        ),
        *(begin, st.integers(0, MAX_INPUT_BYTES), st.binary(max_size=8), st.integers(0, 8)),
    )
    inputs = st.one_of(begin, spliced, st.binary(max_size=200))

    @settings(max_examples=1000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(inputs)
    def run(data: bytes) -> None:
        if time.monotonic() < end:
            counting(data)

    end = time.monotonic() + seconds
    for one in seeds(counting.target):
        counting(one)
    while time.monotonic() < end:
        run()
    counting.write()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--counts", type=Path, required=True)
    parser.add_argument("--engine", choices=(ATHERIS, HYPOTHESIS))
    args = parser.parse_args()
    engine = args.engine or (ATHERIS if importlib.util.find_spec(ATHERIS) else HYPOTHESIS)
    (run_atheris if engine == ATHERIS else run_hypothesis)(args.seconds, args.counts)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
