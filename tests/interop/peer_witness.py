"""aics-witness (PyPI, Python 3.12 or newer) and our own witness co-sign our log together, and refuse its fork."""

from __future__ import annotations

import hashlib
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
PEER_NAME, OUR_NAME, AWAY_NAME = (
    "peer.interop.invalid/w1",
    "ours.interop.invalid/w2",
    "away.interop.invalid/w3",
)
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
    """The states of two witnesses that know one log, aics-witness and ours; a third one never answers."""

    bench: Bench
    origin: str
    log_vkey: str
    peer_vkey: str
    our_vkey: str
    away_vkey: str

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

    def policy(self, urls: Urls) -> str:
        """The path of a policy that wants 2 of 3, of which one is away: so both of the others."""
        return self.bench.write(
            "policy",
            f"log {self.log_vkey}\nwitness peer {self.peer_vkey} {urls.peer}\n"
            f"witness ours {self.our_vkey} {urls.ours}\n"
            f"witness away {self.away_vkey} http://127.0.0.1:{free_port()}\n"
            "group two 2 peer ours away\nquorum two\n",
        )

    def peer_policy(self, urls: Urls) -> str:
        """The path of a policy that knows aics-witness alone."""
        return self.bench.write(
            "peer-policy",
            f"log {self.log_vkey}\nwitness peer {self.peer_vkey} {urls.peer}\nquorum peer\n",
        )

    def publish(self, home: Path, urls: Urls, word: str) -> Head | None:
        """The head with one more fact, None if the two did not both co-sign it."""
        muniment(home, "log", "policy", "--set", self.policy(urls))
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
    away = witness(bench.folder / "away", "init", "--name", AWAY_NAME)
    return Pair(bench, described["origin"], described["vkey"], peer_vkey, ours["vkey"], away["vkey"])


def check_two_of_three(bench: Bench, judge: Judge) -> None:
    """Growth, a restart of both, a witness that is away, and a fork."""
    home, copy = bench.folder / "home", bench.folder / "copy"
    pair = _set_up(bench, home)
    with pair.running() as urls:
        first, second = pair.publish(home, urls, "first"), pair.publish(home, urls, "second")
        shutil.copytree(home, copy)
    with our_witness(pair.state) as ours:
        alone = pair.publish(home, Urls(urls.peer, ours), "third")
        kept = published_head(home)
    with pair.running() as urls:
        third = pair.publish(home, urls, "fourth")
        served = served_checkpoint(urls.peer, pair.origin)
        noticed = _rollback_noticed(pair, urls, copy)
        forked = _publish_fork(pair, urls, copy)
        last = pair.publish(home, urls, "fifth")
        only_peer = pair.peer_policy(urls)
    if third is None or last is None:
        raise AssertionError("the two witnesses did not co-sign the log after a restart")
    judge.story(
        "aics-witness and our witness co-sign our log, 2 of 3 with one away, through growth and a restart",
        {
            "the first head": first is not None and first.size == 1,
            "a grown one": second is not None and second.size == 2,
            "one that grew twice, after a restart": third.size == 4,
            "one after a fork was tried": last.size == 5,
            "what aics-witness serves to monitors": head_of(served.body) == third
            and verifies(bench.write("served", served.body), "--policy", only_peer),
        },
        {"a head that aics-witness has not seen": alone is None and kept == second} | forked,
    )
    judge.story(
        "A home set back to an older copy learns from aics-witness that it was, and signs nothing",
        {"the log itself goes on": last.size == 5},
        {"the older copy": noticed},
    )
    _check_checkpoint(pair, urls, (home / "log" / "checkpoint").read_bytes(), judge)
    _check_evidence(pair, third, judge)


def _rollback_noticed(pair: Pair, urls: Urls, copy: Path) -> bool:
    """Whether a home that has forgotten its last heads refuses to sign, with aics-witness alone to tell it."""
    home = copy.with_name("set-back")
    shutil.copytree(copy, home)
    muniment(home, "log", "policy", "--set", pair.peer_policy(urls))
    muniment(home, "remember", "a fact in a home that was set back")
    done = run_muniment(["log", "publish", "--home", str(home), "--json"])
    return json.loads(done.stdout).get("error", {}).get("code") == "rolled_back"


def _publish_fork(pair: Pair, urls: Urls, copy: Path) -> dict[str, bool]:
    """What becomes of a log that goes another way from an older copy, with the same key and no scruples."""
    from tlog.errors import UnavailableError
    from tlog.keys import load_log_key
    from tlog.log import Log, LogSettings
    from tlog.policy import parse_policy
    from tlog.storage import DirectoryStorage
    from witness.client import Failure, make_cosign

    policy = parse_policy(Path(pair.policy(urls)).read_text("utf-8"))
    failures: list[Failure] = []
    settings = LogSettings(
        pair.origin,
        (load_log_key(copy / "keys" / "log.key"),),
        make_cosign(policy, failures.append),
        policy,
        identify=lambda entry: hashlib.sha256(entry).digest(),
    )
    log = Log(DirectoryStorage(copy / "log"), DirectoryStorage(copy / "log-state"), settings)
    refused = {}
    for word, expected in (
        ("behind", ("ahead", None)),
        ("of the same size", ("fork", 422)),
        ("ahead", ("refused", 422)),
    ):
        failures.clear()
        log.append([f"a forked entry, {word}".encode()])
        try:
            log.publish(float(PUBLISH_SECONDS))
        except UnavailableError as error:
            codes = {one.names[0]: (one.code, one.status) for one in failures if "away" not in one.names}
            refused[f"a fork that is {word}"] = (
                error.code == "witness_quorum_not_met" and codes == dict.fromkeys(("peer", "ours"), expected)
            )
        else:
            refused[f"a fork that is {word}"] = False
    log.close()
    return refused


def _check_checkpoint(pair: Pair, urls: Urls, note: bytes, judge: Judge) -> None:
    """The published note under the policy of 2 of 3."""
    policy = pair.policy(urls)
    lines = note.splitlines(keepends=True)
    judge.both_ways(
        "`muniment verify` accepts that checkpoint under the policy of 2 of 3",
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


CHECKS = (check_two_of_three,)
