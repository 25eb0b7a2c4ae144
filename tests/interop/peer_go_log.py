"""A log that Go signs and proves: our witness co-signs it, our verifier reads it, and both refuse its fork."""

from __future__ import annotations

import base64

from judging import Judge, flipped
from peer_go import Go, other_vkey, with_signature_changed, with_size_changed
from sample import Bench, verifies, witness
from serving import Answer, ask_to_cosign, our_witness, served_checkpoint

ORIGIN = "go.interop.invalid"
NAME = "ours.interop.invalid"
FIRST, SECOND, THIRD = 1, 7, 300
CONFLICT = "text/x.tlog.size"


class GoLog:
    """What `gocheck sign` wrote: the log's checkpoints and proofs, and those of its fork."""

    def __init__(self, bench: Bench) -> None:
        self.folder = bench.folder / "go-log"
        self.folder.mkdir()
        said = Go(bench).ask("sign", ORIGIN, str(self.folder), *map(str, (FIRST, SECOND, THIRD)))
        self.vkey = (said or "").strip()

    def note(self, size: int, kind: str = "log") -> bytes:
        return (self.folder / f"{kind}-{size}.note").read_bytes()

    def proof(self, old_size: int, size: int, kind: str = "log") -> str:
        """The consistency proof as lines of base64; from nothing, and to itself, it is empty."""
        if old_size in (0, size):
            return ""
        return (self.folder / f"{kind}-{old_size}-{size}.proof").read_text("ascii")


def check_key_file(bench: Bench, judge: Judge) -> None:
    """Go's private key, read by us, makes Go's own signature."""
    from tlog.errors import MalformedError
    from tlog.keys import load_log_key
    from tlog.note import format_note, parse_note, sign_note

    log = GoLog(bench)
    note = log.note(SECOND)
    text = parse_note(note).text

    def same(skey: bytes) -> bool:
        path = log.folder / "skey"
        path.write_bytes(skey)
        try:
            signer = load_log_key(path)
        except MalformedError:
            return False
        return signer.verifier_key.vkey == log.vkey and format_note(sign_note(text, (signer,))) == note

    skey = (log.folder / "skey").read_bytes()
    *name, seed = skey.rstrip().split(b"+", 4)  # base64 has plus signs of its own
    changed = b"+".join((*name, base64.b64encode(flipped(base64.b64decode(seed)))))
    judge.both_ways(
        "Our log signs with a key file of Go's, byte for byte as Go does",
        same,
        skey,
        {"the seed": changed + b"\n", "the name": skey.replace(b"go.", b"no.")},
    )


def check_verified_by_us(bench: Bench, judge: Judge) -> None:
    """Our verifier and our Merkle proofs over what Go wrote."""
    from tlog.errors import VerificationError
    from tlog.merkle import verify_consistency

    log = GoLog(bench)
    note = log.note(SECOND)

    def holds(one: tuple[bytes, str]) -> bool:
        return verifies(bench.write("checkpoint", one[0]), "--log-key", one[1])

    judge.both_ways(
        "`muniment verify` accepts a checkpoint that Go signed",
        holds,
        (note, log.vkey),
        {
            "size": (with_size_changed(note, SECOND), log.vkey),
            "signature": (with_signature_changed(note, ORIGIN), log.vkey),
            "another key": (note, other_vkey(log.vkey)),
        },
    )

    def root(kind: str, size: int) -> bytes:
        return base64.b64decode(log.note(size, kind).split(b"\n")[2])

    def consistent(one: tuple[bytes, str]) -> bool:
        hashes = [base64.b64decode(line) for line in one[1].split()]
        try:
            verify_consistency(SECOND, THIRD, one[0], root("log", THIRD), hashes)
        except VerificationError:
            return False
        return True

    judge.both_ways(
        "Our verifier accepts a consistency proof that Go made",
        consistent,
        (root("log", SECOND), log.proof(SECOND, THIRD)),
        {
            "the fork's root": (root("fork", SECOND), log.proof(SECOND, THIRD)),
            "the fork's proof": (root("log", SECOND), log.proof(SECOND, THIRD, "fork")),
        },
    )


def check_witnessed_by_us(bench: Bench, judge: Judge) -> None:
    """Our witness over HTTP: growth, a restart, and whatever is not the log's own growth."""
    log, state = GoLog(bench), bench.folder / "witness"
    made = witness(state, "init", "--name", NAME)
    witness(state, "add-log", "--vkey", log.vkey)
    with our_witness(state) as url:
        forged = _refused(url, log)
        first = ask_to_cosign(url, 0, "", log.note(FIRST))
        grown = ask_to_cosign(url, FIRST, log.proof(FIRST, SECOND), log.note(SECOND))
        stale = ask_to_cosign(url, FIRST, log.proof(FIRST, THIRD), log.note(THIRD))
        wrong = ask_to_cosign(url, SECOND, log.proof(FIRST, THIRD), log.note(THIRD))
    with our_witness(state) as url:
        rolled_back = ask_to_cosign(url, 0, "", log.note(FIRST))
        fork = ask_to_cosign(url, SECOND, "", log.note(SECOND, "fork"))
        grown_fork = ask_to_cosign(url, SECOND, log.proof(SECOND, THIRD, "fork"), log.note(THIRD, "fork"))
        last = ask_to_cosign(url, SECOND, log.proof(SECOND, THIRD), log.note(THIRD))
        served = served_checkpoint(url, ORIGIN)
    judge.story(
        "Our witness co-signs a log signed and proved by Go, through growth and a restart",
        {
            "first": _cosigned(bench, log, made["vkey"], log.note(FIRST), first),
            "grown": _cosigned(bench, log, made["vkey"], log.note(SECOND), grown),
            "grown after a restart": _cosigned(bench, log, made["vkey"], log.note(THIRD), last),
            "served to monitors": Go(bench).opens(served.body, log.vkey, made["vkey"]),
        },
        forged
        | {
            "an old size that is not the last": _conflict(stale, SECOND),
            "another size's proof": wrong.status == 422,
            "an older head after a restart": _conflict(rolled_back, SECOND),
            "a fork of the same size": fork.status == 422,
            "a fork that grew": grown_fork.status == 422,
        },
    )
    kept = witness(state, "evidence")["evidence"]
    refused = {one["refused"]["note"].encode() for one in kept if one["kind"] == "fork"}
    judge.story(
        "Our witness keeps the note that convicts the fork, and Go opens it",
        {"kept": refused == {log.note(SECOND, "fork")}, "opened": Go(bench).opens(min(refused), log.vkey)},
        {"with its signature changed": not Go(bench).opens(_forged(min(refused)), log.vkey)},
    )


def _refused(url: str, log: GoLog) -> dict[str, bool]:
    changed = with_size_changed(log.note(FIRST), FIRST)
    stranger = log.note(FIRST).replace(ORIGIN.encode(), b"stranger.invalid")
    return {
        "a changed checkpoint": ask_to_cosign(url, 0, "", changed).status == 403,
        "a changed signature": ask_to_cosign(url, 0, "", _forged(log.note(FIRST))).status == 403,
        "an unknown log": ask_to_cosign(url, 0, "", stranger).status == 404,
    }


def _forged(note: bytes) -> bytes:
    return with_signature_changed(note, ORIGIN)


def _cosigned(bench: Bench, log: GoLog, vkey: str, note: bytes, answer: Answer) -> bool:
    """Whether the answer is a line that Go verifies below the log's own."""
    return answer.status == 200 and Go(bench).opens(note + answer.body, log.vkey, vkey)


def _conflict(answer: Answer, size: int) -> bool:
    return (answer.status, answer.content_type, answer.body) == (409, CONFLICT, b"%d\n" % size)


CHECKS = (check_key_file, check_verified_by_us, check_witnessed_by_us)
