"""The whole story on this machine: a fresh home, two real witnesses, a team's week, a correction that stays, proofs
that stand alone, an erasure, and an audit that finds one changed byte. Every step uses what a user would use.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memory import wiring
from memory.cli import print_text
from memory.cli_import import remember_items
from memory.demo_tamper import change_log_byte, change_store_byte
from memory.demo_witnesses import Witness, running_witnesses
from memory.demo_words import client_configuration, facts_file, manifest_text, subject_needles
from memory.import_jsonl import parse_lines
from memory.principal import make_principal, with_all_scopes
from tlog.errors import MalformedError, VerificationError

PERSON: Final = "Otilia Brandmeyer"
COLLEAGUE: Final = "Mara Lindqvist"
CORRECTED_KEY: Final = "standup/time"
WIDTH: Final = 96


@dataclass(frozen=True, slots=True)
class Place:
    """Where the demo keeps its things: all below one folder."""

    folder: Path

    @property
    def home(self) -> Path:
        """The home of the memory."""
        return self.folder / "home"

    @property
    def witnesses(self) -> Path:
        """The states of the witnesses, each as if on a machine of its own."""
        return self.folder / "witnesses"

    @property
    def handed_out(self) -> Path:
        """What a third party gets: receipt, proof and trust file."""
        return self.folder / "handed-out"


def run_demo(keep: str | None, facts: str | None) -> int:
    """Tells the story; leaves its folder in `keep` if that is given. Exit code 0 if every step held."""
    # The witnesses end with the demo, and its folder goes, also when it is asked to stop.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with _folder(keep) as folder:
        place = Place(folder)
        place.handed_out.mkdir(parents=True, exist_ok=True)
        say(f"Muniment demo, in {folder}")
        say("Everything below happens on this machine, over loopback; nothing is canned.")
        home = _make_home(place)
        with home, running_witnesses(place.witnesses, home.log_vkey(), home.origin) as witnesses:
            _ask_witnesses(home, witnesses)
            _remember_week(home, facts_file(facts))
            fact_id = _correct_and_echo(home)
            _publish(home)
            _show_provenance(home, fact_id)
            _hand_out(home, place, fact_id)
            _erase(home, facts)
            _publish(home)
            _audit(place)
            _tamper(place)
        _finish(place, keep, witnesses)
    return 0


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="muniment-demo-") as folder:
            yield Path(folder)
        return
    folder_path = Path(keep).expanduser().resolve()
    if folder_path.exists() and (not folder_path.is_dir() or any(folder_path.iterdir())):
        raise MalformedError("expected --keep to name a new or empty folder")
    folder_path.mkdir(parents=True, exist_ok=True)
    folder_path.chmod(0o700)
    yield folder_path


def say(text: str = "") -> None:
    """One line of the story."""
    print_text(text)


def step(number: int, title: str) -> None:
    """The heading of a step."""
    say()
    say(f"--- {number}. {title} ".ljust(WIDTH, "-"))


def must(held: bool, what: str) -> None:
    """Stops the demo if a step did not do what it says; the story has no canned ending."""
    if not held:
        raise VerificationError(f"the demo expected that {what}", code="demo")


def desk(home: Any) -> Any:
    """The memory of the client `desk`, as the owner of the home."""
    return home.memory(with_all_scopes(make_principal("default", "default", "desk")))


def _make_home(place: Place) -> Any:
    step(1, "A fresh home")
    home = wiring.init_home(str(place.home))
    modes = {
        path.name: oct(path.stat().st_mode & 0o777) for path in sorted((place.home / "keys").glob("*.key"))
    }
    must(set(modes.values()) == {"0o600"}, "keys have the mode 0600")
    must(place.home.stat().st_mode & 0o777 == 0o700, "the home has the mode 0700")
    say(f"home    {place.home} (0700), keys {', '.join(modes)} (0600 each)")
    say(f"origin  {home.origin}")
    say(f"vkey    {home.log_vkey()}")
    return home


def _ask_witnesses(home: Any, witnesses: tuple[Witness, ...]) -> None:
    step(2, "Two witnesses, each a process with its own state and key")
    for witness in witnesses:
        say(f"{witness.name}  pid {witness.pid}, {witness.url}")
        say(f"    {witness.vkey}")
    names = " ".join(witness.name for witness in witnesses)
    lines = [f"log {home.log_vkey()}"]
    lines += [f"witness {witness.name} {witness.vkey} {witness.url}" for witness in witnesses]
    lines += [f"group both all {names}", "quorum both"]
    home.set_policy("\n".join(lines) + "\n", same_operator=tuple(w.name for w in witnesses))
    say("policy  no head of the log is made public before both have signed it")


def _remember_week(home: Any, data: bytes) -> None:
    step(3, "A team's week is remembered, from two clients")
    report = remember_items(home, parse_lines(io.BytesIO(data)), lambda _: None).describe()
    must(not report["not_taken"], "every line of the week is taken")
    say(
        f"{report['lines']} facts: "
        + ", ".join(f"{n} {name}" for name, n in sorted(report["outcomes"].items()))
    )
    again = remember_items(home, parse_lines(io.BytesIO(data)), lambda _: None).describe()
    say(f"the same file once more: {again['lines']} lines answered, nothing added")


def _correct_and_echo(home: Any) -> str:
    step(4, "A correction stays; a disagreement is kept")
    memory = desk(home)
    before = memory.get(CORRECTED_KEY)["current"]
    answer = memory.remember(
        "Correction: the stand-up begins at 09:30 from now on.", key=CORRECTED_KEY, value="09:30"
    )
    must(answer["outcome"] == "superseded", "a correction supersedes")
    say(f"{CORRECTED_KEY}: {before} -> 09:30   ({answer['outcome']})")
    attempts = (
        ("verbatim", "The stand-up begins at 09:15.", "09:15"),
        ("reworded", "As we said on Monday, everybody meets at a quarter past nine.", "09:15"),
        ("other spelling", "The stand-up begins at 9:15 AM.", "9:15 AM"),
    )
    for how, text, value in attempts:
        echo = memory.remember(text, key=CORRECTED_KEY, value=value)
        must((echo["outcome"], echo["reason"]) == ("refused", "echo"), f"the old value, {how}, is refused")
        say(f"  the old value, {how:<15} -> {echo['outcome']}, reason {echo['reason']}")
    say(textwrap.fill(echo["message"], WIDTH - 4, initial_indent="    ", subsequent_indent="    "))
    must(memory.get(CORRECTED_KEY)["current"] == "09:30", "the correction is still served")
    say(f"{CORRECTED_KEY} is still {memory.get(CORRECTED_KEY)['current']}")
    conflicts = memory.conflicts()["conflicts"]
    must(len(conflicts) == 1, "the disagreement of the week is listed, once")
    for conflict in conflicts:
        said = " against ".join(f"{f['value']} ({f['client']})" for f in conflict["facts"])
        say(f"conflict on {conflict['key']}: {said}; both kept, neither served as the current value")
    return str(answer["id"])


def _publish(home: Any) -> None:
    state = home.publish(deadline_seconds=20.0)
    must(state["state"] == "witnessed", "both witnesses sign the head")
    say()
    say(f"published: {state['size']} entries, {state['state']}, root {state['root']}")


def _show_provenance(home: Any, fact_id: str) -> None:
    from memory.provenance_text import provenance_text

    step(5, "Where a fact comes from, and how far it is proved")
    answer = desk(home).provenance(fact_id)
    must(len(answer["cosignatures"]) == 2, "provenance shows both cosignatures")
    say(provenance_text(answer))


def _hand_out(home: Any, place: Place, fact_id: str) -> None:
    step(6, "Proofs that stand alone: checked offline, with a trust file and nothing else")
    memory = desk(home)
    receipt, proof = place.handed_out / "fact.cose", place.handed_out / "fact.tlog-proof"
    receipt.write_bytes(memory.receipt(fact_id, format="cose"))
    proof.write_bytes(memory.receipt(fact_id, format="tlog-proof"))
    shutil.copy(place.home / "trust.toml", place.handed_out / "trust.toml")
    command = ["verify", receipt.name, proof.name, "--trust", "trust.toml"]
    say("$ muniment " + " ".join(command))
    done = run_muniment(command, place.handed_out)
    say(done.stdout.rstrip())
    must(done.returncode == 0, "receipt and proof verify offline")


def _erase(home: Any, facts: str | None) -> None:
    step(7, "A person is erased")
    memory = desk(home)
    needles = subject_needles(facts_file(facts), PERSON)
    must(_hits(home, needles) > 0, "the scan finds the person before the erasure")
    say(f"before: a byte scan of the home finds {_hits(home, needles)} places for {len(needles)} needles")
    preview = memory.forget_preview(subject=PERSON)
    mentions = [one["id"] for one in preview["preview"]["mentions"]]
    count = preview["preview"]["count"]
    say(
        f"preview: {count} facts about the person, {len(mentions)} more that mention them; nothing is deleted yet"
    )
    if mentions:
        _forget(memory, "the mentions first", id=mentions, guard="erase")
    done = _forget(memory, "then the person", subject=PERSON)
    must(done["state"] == "closed_complete", "the erasure of the person is complete")
    say("the manifest, signed and logged, without a word of what was erased:")
    say(manifest_text(Path(done["manifest"]).read_bytes()))
    left = _hits(home, needles)
    must(left == 0, "a byte scan of the whole home finds nothing of the person")
    say(f"after: the same scan finds {left}; as a control it does find a colleague who was not erased")


def _forget(memory: Any, what: str, **selection: Any) -> dict[str, Any]:
    """Preview, then confirmation: what a person would do."""
    preview = memory.forget_preview(**selection, reason="data_subject")
    done: dict[str, Any] = memory.forget(**selection, reason="data_subject", confirm=preview["confirm"])
    say(f"{what}: erased {done['erased']}, state {done['state']}, manifest {Path(done['manifest']).name}")
    return done


def _hits(home: Any, needles: tuple[str, ...]) -> int:
    """How often a byte scan of the home finds a needle; it has to find a colleague who stays, or proves nothing."""
    result = home.scan(needles, canary=COLLEAGUE)
    must(result.control_found, "the scan finds a colleague who is not erased (control)")
    must(not result.not_read, "the scan reads every file of the home")
    return sum(hit.count for hit in result.hits)


def _audit(place: Place) -> None:
    step(8, "An audit, and what it says when one byte is changed")
    shutil.copy(place.home / "trust.toml", place.handed_out / "trust.toml")
    done = run_muniment(_audit_command(place, place.home), place.folder)
    say(done.stdout.rstrip())
    must(done.returncode == 0, "the audit of the untouched home is clean")


def _tamper(place: Place) -> None:
    changes: tuple[tuple[str, Callable[[Path], str]], ...] = (
        ("one byte of the store", change_store_byte),
        ("one byte of the log", change_log_byte),
    )
    for what, change in changes:
        copy = place.folder / "copy"
        shutil.copytree(place.home, copy)
        where = change(copy)
        done = run_muniment([*_audit_command(place, copy), "--json"], place.folder)
        findings = json.loads(done.stdout)["findings"]
        must(done.returncode == 1 and bool(findings), f"the audit finds {what}")
        say(f"in a copy, {what} is changed ({where}):")
        for finding in findings[:3]:
            say(f"    {finding['code']} at {finding['where']}: {finding['what']}")
        shutil.rmtree(copy)


def _audit_command(place: Place, home: Path) -> list[str]:
    return ["audit", "--home", str(home), "--trust", str(place.handed_out / "trust.toml")]


def _finish(place: Place, keep: str | None, witnesses: tuple[Witness, ...]) -> None:
    step(9, "Use it from an agent")
    say("An agent gets a home of its own, which its first use makes:")
    say(client_configuration())
    if keep is None:
        say("This demo's home is gone with its folder; `muniment demo --keep DIR` leaves it for a look.")
        return
    say(f"The demo's home is {place.home}; look with: muniment status --home {place.home}")
    say(
        "Its log publishes nothing without its two witnesses, which have ended. To go on with it, start them again:"
    )
    for witness in witnesses:
        listen = witness.url.removeprefix("http://")
        say(f"  muniment witness serve --state {place.witnesses / witness.name} --listen {listen}")


def run_muniment(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command as a user would, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(
        [sys.executable, "-m", "memory.cli", *arguments],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )
