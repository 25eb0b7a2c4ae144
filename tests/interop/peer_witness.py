"""aics-witness (PyPI, Python 3.12 or newer) and our own witness co-sign our log together, and refuse its fork."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from installing import Tool, environment, run
from judging import Judge
from peer_go import with_signature_changed
from sample import Bench, Head, head_of, muniment, run_muniment, verifies, witness
from serving import free_port, our_witness, served_checkpoint, serving

PACKAGE = "aics-witness==0.1.0"
PYTHONS = ("3.12", "3.13", "3.14")
PEER_NAME, OUR_NAME = "peer.interop.invalid/w1", "ours.interop.invalid/w2"
PUBLISH_SECONDS = "40"


def install(folder: Path) -> Tool:
    """aics-witness in an environment of its own."""
    program = environment(folder, PACKAGE, *PYTHONS) / "aics-witness"
    return Tool(program, run([str(program), "--version"]).split()[-1])


@dataclass(frozen=True)
class Urls:
    """Where the two witnesses listen."""

    peer: str
    ours: str


@dataclass(frozen=True)
class Pair:
    """The states of two witnesses that know one log, aics-witness and ours."""

    bench: Bench
    log_vkey: str
    peer_vkey: str
    our_vkey: str

    @property
    def state(self) -> Path:
        """That of our witness."""
        return self.bench.folder / "ours"

    @contextmanager
    def running(self) -> Iterator[Urls]:
        """Both as processes."""
        port = free_port()
        command = [str(self.bench.tool), "serve", "--listen", f"127.0.0.1:{port}"]
        settings = peer_settings(self.bench)
        with (
            serving(command, port, self.bench.folder, settings) as peer,
            our_witness(self.state) as ours,
        ):
            yield Urls(peer, ours)

    def policy(self, urls: Urls, quorum: str) -> str:
        """The path of a policy in which `both` is one of the quorums."""
        return self.bench.write(
            "policy",
            f"log {self.log_vkey}\nwitness peer {self.peer_vkey} {urls.peer}\n"
            f"witness ours {self.our_vkey} {urls.ours}\ngroup both all peer ours\nquorum {quorum}\n",
        )

    def publish(self, home: Path, urls: Urls, word: str) -> Head | None:
        """The head with one more fact, None if the two did not both co-sign it."""
        muniment(home, "log", "policy", "--set", self.policy(urls, "both"))
        muniment(home, "remember", f"the {word} fact for the witnesses")
        done = run_muniment(["log", "publish", "--deadline", PUBLISH_SECONDS, "--home", str(home), "--json"])
        answer = json.loads(done.stdout)
        if answer.get("error", {}).get("code") == "witness_quorum_not_met":
            return None
        if done.returncode or answer["state"] != "witnessed":
            raise RuntimeError(f"muniment log publish ended with {done.returncode}: {done.stderr[-500:]}")
        return published_head(home)


def peer_settings(bench: Bench) -> dict[str, str]:
    return {"AICS_WITNESS_CONFIG": str(bench.folder / "peer.json")}


def ask_peer(bench: Bench, *arguments: str) -> str:
    """What a command of the peer prints."""
    return run([str(bench.tool), *arguments], bench.folder, **peer_settings(bench))


def published_head(home: Path) -> Head:
    return head_of((home / "log" / "checkpoint").read_bytes())


def _set_up(bench: Bench, home: Path) -> Pair:
    described = muniment(home, "init")
    peer_vkey = ask_peer(
        bench, "init", "--name", PEER_NAME, "--db", "peer.db", "--key-file", "peer.key"
    ).strip()
    ask_peer(bench, "add-log", "--origin", described["origin"], "--vkey", described["vkey"])
    ours = witness(bench.folder / "ours", "init", "--name", OUR_NAME)
    witness(bench.folder / "ours", "add-log", "--vkey", described["vkey"])
    return Pair(bench, described["vkey"], peer_vkey, ours["vkey"])


def check_two_of_two(bench: Bench, judge: Judge) -> None:
    """Growth, a restart of both, a witness that is away, and a fork."""
    home, fork = bench.folder / "home", bench.folder / "fork"
    pair = _set_up(bench, home)
    with pair.running() as urls:
        first, second = pair.publish(home, urls, "first"), pair.publish(home, urls, "second")
        shutil.copytree(home, fork)
    with our_witness(pair.state) as ours:
        alone = pair.publish(home, Urls(urls.peer, ours), "third")
        kept = published_head(home)
    with pair.running() as urls:
        third = pair.publish(home, urls, "fourth")
        served = served_checkpoint(urls.peer, muniment(home, "log", "vkey")["origin"])
        forked = [pair.publish(fork, urls, f"{word} forked") for word in ("first", "second", "third")]
        last = pair.publish(home, urls, "fifth")
        only_peer = pair.policy(urls, "peer")
    if third is None or last is None:
        raise AssertionError("the two witnesses did not co-sign the log after a restart")
    judge.story(
        "aics-witness and our witness co-sign our log, 2 of 2, through growth and a restart of both",
        {
            "the first head": first is not None and first.size == 1,
            "a grown one": second is not None and second.size == 2,
            "one that grew twice, after a restart": third.size == 4,
            "one after a fork was tried": last.size == 5,
            "what aics-witness serves to monitors": head_of(served.body) == third
            and verifies(bench.write("served", served.body), "--policy", only_peer),
        },
        {
            "a head that aics-witness has not seen": alone is None and kept == second,
            "a fork that is behind": forked[0] is None,
            "a fork of the same size": forked[1] is None,
            "a fork that is ahead": forked[2] is None,
        },
    )
    _check_checkpoint(pair, urls, (home / "log" / "checkpoint").read_bytes(), judge)
    _check_evidence(pair, third, judge)


def _check_checkpoint(pair: Pair, urls: Urls, note: bytes, judge: Judge) -> None:
    """The published note under the policy of both."""
    policy = pair.policy(urls, "both")
    lines = note.splitlines(keepends=True)
    judge.both_ways(
        "`muniment verify` accepts that checkpoint under the policy of both",
        lambda one: verifies(pair.bench.write("checkpoint", one), "--policy", policy),
        note,
        {
            f"{whose} {what}": changed
            for whose, name in (("aics-witness's", PEER_NAME), ("our witness's", OUR_NAME))
            for what, changed in (
                ("line missing", b"".join(line for line in lines if f"— {name} ".encode() not in line)),
                ("line changed", with_signature_changed(note, name)),
            )
        },
    )


def _check_evidence(pair: Pair, head: Head, judge: Judge) -> None:
    """What each kept of the fork: a note of the log's own key that contradicts the head it had co-signed."""
    peers = [one["request"].partition("\n\n")[2] for one in json.loads(ask_peer(pair.bench, "evidence"))]
    ours = [one["refused"]["note"] for one in witness(pair.state, "evidence")["evidence"]]

    def convicts(note: str) -> bool:
        found = head_of(note.encode())
        signed = verifies(pair.bench.write("evidence", note), "--log-key", pair.log_vkey)
        return signed and found.size == head.size and found.root != head.root

    judge.story(
        "Both keep the note that convicts the fork, signed by the log's own key",
        {"aics-witness": any(map(convicts, peers)), "our witness": any(map(convicts, ours))},
        {"the same with its root changed": not any(convicts(with_other_root(note)) for note in peers + ours)},
    )


def with_other_root(note: str) -> str:
    """The note with another hash in place of its root."""
    root = head_of(note.encode()).root
    return note.replace(root, root[:8].swapcase() + root[8:], 1)


CHECKS = (check_two_of_two,)
