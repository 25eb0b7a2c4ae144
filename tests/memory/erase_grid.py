"""One cell of the grid of erasures: a way to delete, in a state of the files, beside others, up to a crash.

    python tests/memory/erase_grid.py        takes cells as JSON lines, and says what became of each

A cell lives through several rounds of writes, corrections and deletes of all sizes in random order, then erases in
its way and looks at the raw bytes of every file for every value that was ever removed: the marks in each field, and
whatever stood in a column of any table before and does not any more. The looks, the crashes and the others who use
the home are processes forked from this one, which has no threads; so no look takes away the locks of another.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

import apsw  # noqa: E402
from erasing import ME, Clock, forget, write  # noqa: E402
from watching import Looker, beside, ended, forked, forms, keeper, neighbour, pieces, reader  # noqa: E402

import memory.store  # noqa: E402
from memory import erase_backups, erase_run, erase_tenant, scan_process, vfs, wiring  # noqa: E402
from memory.event import decode_content  # noqa: E402
from memory.manifest import decode_manifest  # noqa: E402
from memory.model import parse_fact_id  # noqa: E402
from memory.principal import make_principal, with_all_scopes  # noqa: E402
from memory.times import format_time  # noqa: E402

DAY = 86_400_000_000
ALPHABET = "bcdfghjklmnpqrstvwxz"
MARK_LETTERS = 14
SHORTEST_COLUMN_BYTES = 12
FILLER = [
    "amber",
    "birch",
    "cedar",
    "dune",
    "ember",
    "fjord",
    "grove",
    "heath",
    "inlet",
    "kelp",
    "lagoon",
    "meadow",
]
SIZES = (5, 40, 300, 1500, 3000, 3000, 20_000)
TENANT = with_all_scopes(make_principal("tenant-of-its-own", "default", "cli"))
KILLED = 9


@dataclass
class Fact:
    """A write of ours, its marks by field, and what the cell did with it."""

    id: str
    key: str
    subject: str
    value: str
    at: int
    marks: frozenset[str]
    outcome: str


@dataclass
class World:
    """A home and everything that was ever written to it."""

    path: Path
    chance: random.Random
    clock: Clock
    caller: Any = ME
    facts: list[Fact] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    never: set[str] = field(default_factory=set)

    @contextmanager
    def open(self) -> Iterator[wiring.Home]:
        with wiring.open_home(self.path, clock=self.clock) as home:
            yield home

    def mark(self) -> str:
        return "".join(self.chance.choices(ALPHABET, k=MARK_LETTERS))

    def name(self, of: str) -> str:
        return self.names.setdefault(of, self.mark())

    def say(self, home: wiring.Home, *, value: str | None = None, key: str = "", **more: Any) -> Fact:
        """One write with a mark in each field that an erasure destroys."""
        told, valued, where = self.mark(), self.mark(), self.mark()
        person = f"person {self.chance.randrange(5)}"
        subject = self.name(person)
        key = key or f"{subject}/{self.name(f'thing {person} {self.chance.randrange(3)}')}"
        value = f"{valued} {len(self.facts)}" if value is None else value
        size = self.chance.choice(SIZES)
        filler = " ".join(self.chance.choices(FILLER, k=max(size // 6, 1)))
        made = write(
            home,
            f"{told}: {filler}",
            self.caller,
            key=key,
            value=value,
            subject=subject,
            source=f"file {where}",
            **more,
        )
        said = {
            told,
            where,
            subject,
            *(word for word in f"{key} {value}".replace("/", " ").split() if len(word) == MARK_LETTERS),
        }
        # A refusal of what was erased and stays refused holds no value and no text.
        # Of an agreement the source is kept with the record, and goes with it.
        content = repr(_contents(home, made["id"]))
        marks = frozenset(mark for mark in said if mark in content)
        self.never |= said - marks
        subject = subject if subject in marks else ""
        fact = Fact(made["id"], key, subject, value, self.clock.now, marks, made["outcome"])
        self.facts.append(fact)
        return fact

    def live(self, home: wiring.Home, turns: int) -> None:
        """Writes, corrections, echoes, held writes, retractions and discards, in no order."""
        for turn in range(turns):
            active = [fact for fact in self.facts if fact.outcome in ("stored", "superseded")]
            what = self.chance.random()
            if what < 0.12 and active:
                old = self.chance.choice(active)
                self.say(home, key=old.key, value=old.value)
            elif what < 0.22:
                self.say(home, provisional=True)
            elif what < 0.27 and active:
                retract(home, self.caller, self.chance.choice(active))
            else:
                self.say(home, idempotency_key=f"{self.mark()}-{turn}" if turn % 3 else None)

    def fresh(self, home: wiring.Home, count: int, **more: Any) -> list[Fact]:
        return [self.say(home, **more) for _ in range(count)]


def _contents(home: wiring.Home, id: str) -> list[Any]:
    """What a record says, and what was said when somebody agreed with it."""
    with home.parts().store.read_whole() as view:
        rows = view.rows(
            """WITH it AS (SELECT seq FROM events WHERE commitment >= ? ORDER BY commitment LIMIT 1)
               SELECT content FROM contents WHERE seq IN (SELECT seq FROM it UNION
               SELECT a.seq FROM acts a WHERE a.act = 'corroborates' AND a.target IN (SELECT seq FROM it))""",
            parse_fact_id(id),
        )
    return [decode_content(content) for (content,) in rows]


def retract(home: wiring.Home, caller: Any, fact: Fact) -> bool:
    """Whether it could be: another write may have taken its place, an erasure may have taken it."""
    from tlog.errors import Error

    try:
        home.memory(caller).retract(fact.id)
    except Error:
        return False
    return True


# Ways to delete: what is made ready for it, and the deletion itself; both say which ids have to be gone


@dataclass(frozen=True)
class Way:
    """`ready` gives the ids that `delete` has to take, whatever else it takes."""

    ready: Callable[[World, wiring.Home], list[str]]
    delete: Callable[[World, wiring.Home, list[str]], None]


def _some(world: World, home: wiring.Home) -> list[str]:
    return [fact.id for fact in world.fresh(home, 3)]


def _by_key(world: World, home: wiring.Home) -> list[str]:
    key = world.say(home).key
    world.say(home, key=key)
    return [fact.id for fact in world.facts if fact.key == key and _there(home, {fact.id})]


def _by_subject(world: World, home: wiring.Home) -> list[str]:
    subject = world.say(home).subject
    return [fact.id for fact in world.facts if fact.subject == subject and _there(home, {fact.id})]


def _by_value(world: World, home: wiring.Home) -> list[str]:
    first = world.say(home)
    return [first.id, world.say(home, value=first.value).id]


def _all(world: World, home: wiring.Home) -> list[str]:
    world.fresh(home, 2)
    return [fact.id for fact in world.facts if _there(home, {fact.id})]


def _retracted(world: World, home: wiring.Home) -> list[str]:
    """Under keys that a rule of retention is for; its line in the settings names nobody."""
    made = [world.say(home, key=f"lease/{world.mark()}") for _ in range(3)]
    for fact in made[1:]:
        home.memory(world.caller).retract(fact.id)
    home.write_config(replace(home.config, retention=("lease/* 5d",)))
    world.clock.now += 6 * DAY
    return [fact.id for fact in made]


def _superseded(world: World, home: wiring.Home) -> list[str]:
    first = world.say(home)
    world.say(home, key=first.key)
    world.clock.now += DAY
    return [first.id]


def _withheld(world: World, home: wiring.Home) -> list[str]:
    """One that is refused, for its value was retired, and one that is held."""
    first = world.say(home)
    world.say(home, key=first.key)
    echo = world.say(home, key=first.key, value=first.value)
    assert echo.outcome == "refused", echo.outcome
    held = world.say(home, provisional=True)
    world.clock.now += 31 * DAY
    return [echo.id, held.id]


def _discarded(world: World, home: wiring.Home) -> list[str]:
    held = world.fresh(home, 2, provisional=True)
    for fact in held:
        home.memory(world.caller).discard(fact.id)
    world.clock.now += 31 * DAY
    return [fact.id for fact in held]


def _sweep(world: World, home: wiring.Home, ids: list[str]) -> None:
    home.memory(world.caller).retention(apply=True)


def _sweep_superseded(world: World, home: wiring.Home, ids: list[str]) -> None:
    home.memory(world.caller).retention("0s", apply=True)


def _ledger(world: World, home: wiring.Home) -> list[str]:
    """Hashes of retired values are all that is left of a key."""
    fact = world.say(home)
    world.say(home, key=fact.key)
    world.names["ledger"] = fact.key
    forget(home, world.caller, key=fact.key, guard="keep")
    return []


def _erase_ledger(world: World, home: wiring.Home, ids: list[str]) -> None:
    forget(home, world.caller, key=world.names["ledger"], guard="erase")


def _expiring(world: World, home: wiring.Home) -> list[str]:
    fact = world.say(home)
    world.say(home, key=fact.key)
    forget(home, world.caller, key=fact.key, guard=f"expire={format_time(world.clock.now + DAY)}")
    world.clock.now += 3 * DAY
    return []


def _forget(
    selector: Callable[[World, list[str]], dict[str, Any]],
) -> Callable[[World, wiring.Home, list[str]], None]:
    def delete(world: World, home: wiring.Home, ids: list[str]) -> None:
        forget(home, world.caller, **selector(world, ids))

    return delete


def _fact(world: World, id: str) -> Fact:
    return next(fact for fact in world.facts if fact.id == id)


def _window(world: World, ids: list[str]) -> dict[str, Any]:
    # Times are said to the second: the cell writes them a second apart.
    times = [_fact(world, id).at for id in ids]
    return {"recorded_from": min(times) // 1_000_000, "recorded_until": max(times) // 1_000_000 + 1}


def _apart(world: World, home: wiring.Home) -> list[str]:
    world.clock.now += 2_000_000
    found = [fact.id for fact in world.fresh(home, 3)]
    world.clock.now += 2_000_000
    world.say(home)
    return found


WAYS = {
    "id": Way(
        _some, _forget(lambda world, ids: {"id": ids, "guard": world.chance.choice(["erase", "keep"])})
    ),
    "key": Way(_by_key, _forget(lambda world, ids: {"key": _fact(world, ids[0]).key, "guard": "erase"})),
    "subject": Way(_by_subject, _forget(lambda world, ids: {"subject": _fact(world, ids[0]).subject})),
    "value": Way(_by_value, _forget(lambda world, ids: {"value": _fact(world, ids[0]).value})),
    "time": Way(_apart, _forget(_window)),
    "all": Way(_all, _forget(lambda world, ids: {"all": True})),
    "tenant": Way(_all, _forget(lambda world, ids: {"tenant": True})),
    "retracted": Way(_retracted, _sweep),
    "superseded": Way(_superseded, _sweep_superseded),
    "withheld": Way(_withheld, _sweep),
    "discarded": Way(_discarded, _sweep),
    "ledger erased": Way(_ledger, _erase_ledger),
    "ledger expired": Way(_expiring, _sweep),
}
JOURNALS = ("full", "checkpointed", "reopened")
READERS = ("no reader", "reader")
NEIGHBOURS = ("alone", "neighbour")


# Crashes


def _die(*_: Any, **__: Any) -> Any:
    os._exit(KILLED)


def _dying_after(module: Any, name: str) -> None:
    real = getattr(module, name)

    def call(*arguments: Any, **named: Any) -> Any:
        real(*arguments, **named)
        os._exit(KILLED)

    setattr(module, name, call)


CRASHES: dict[str, Callable[[], None]] = {
    "no crash": lambda: None,
    "started": lambda: _dying_after(erase_run, "_start"),
    "in the transaction": lambda: setattr(erase_tenant, "forget_if_empty", _die),
    "erased": lambda: _dying_after(erase_run, "_erase"),
    "log emptied": lambda: setattr(erase_tenant, "destroy_key", _die),
    "scanned": lambda: setattr(erase_backups, "destroy_keys", _die),
    "verified": lambda: _dying_after(erase_run, "_verify"),
    "signed": lambda: setattr(wiring.Home, "create_public_file", _die),
    "finished": lambda: _dying_after(erase_run.record, "finish"),
}
BEFORE = ("started", "in the transaction")
"""A crash there has deleted nothing."""


# One cell


def _there(home: wiring.Home, ids: set[str]) -> set[str]:
    """Which of the facts have their content."""
    with home.parts().store.read_whole() as view:
        rows = view.rows("SELECT e.commitment FROM contents c JOIN events e ON e.seq = c.seq")
    kept = {commitment[:16] for (commitment,) in rows}
    return {id for id in ids if parse_fact_id(id) in kept}


def columns(home: wiring.Home) -> set[bytes]:
    """Every text and byte string in every table, by the schema, but for the word index and the erasures' own record."""
    own = ("meta", "erasures", "search", "search_data", "search_idx", "search_docsize", "search_config")
    found: set[bytes] = set()
    with home.parts().store.read_whole() as view:
        for (table,) in view.rows("SELECT name FROM sqlite_schema WHERE type = 'table'"):
            if table not in own:
                for row in view.rows(f"SELECT * FROM {table}"):
                    texts = (one for one in row if isinstance(one, str | bytes))
                    found |= {one.encode() if isinstance(one, str) else one for one in texts}
    return {one for one in found if len(one) >= SHORTEST_COLUMN_BYTES}


def tokens_of(home: wiring.Home) -> dict[int, set[bytes]]:
    """The hashes of tokens, by the statement they are for; 0 for those that are for none."""
    found: dict[int, set[bytes]] = {}
    with home.parts().store.read_whole() as view:
        for target, token_hash, bound in view.rows("SELECT target, token_hash, bound FROM tokens"):
            found.setdefault(target or 0, set()).update((token_hash, bound))
    return found


def _orphans(home: wiring.Home) -> list[str]:
    """Rows about a statement whose content is gone, in tables that have rows only about what is there."""
    found = []
    with home.parts().store.read_whole() as view:
        for table, column in (("facts", "seq"), ("tokens", "target"), ("grants", "seq")):
            gone = f"{column} IS NOT NULL AND {column} NOT IN (SELECT seq FROM contents)"
            rows = view.rows(f"SELECT {column} FROM {table} WHERE {gone}")
            found += [f"{table} about statement {seq}" for (seq,) in rows]
    return found


def _has_content(home: wiring.Home, seq: int) -> bool:
    with home.parts().store.read_whole() as view:
        return seq == 0 or view.one("SELECT 1 FROM contents WHERE seq = ?", seq) is not None


class Cell:
    """A cell of the grid, from an empty folder to what was found."""

    def __init__(self, spec: Mapping[str, Any], folder: Path) -> None:
        self.spec = spec
        self.way = WAYS[spec["way"]]
        self.looker = Looker()
        self.looker.answer_for_erasures()
        caller = TENANT if spec["way"] == "tenant" else ME
        self.world = World(
            folder / "home",
            random.Random(repr(sorted(one for one in spec.items() if one[0] != "folder"))),
            Clock(),
            caller,
        )
        self.gone: set[str] = set()
        self.gone_columns: set[bytes] = set()
        self.whole = b""
        self.result: dict[str, Any] = {name: [] for name in ("left", "flaws", "states", "kept for")} | {
            "found": {},
            "control": [0, 0],
        }
        self.result["mentions"] = 0

    def run(self) -> dict[str, Any]:
        """What became of the erasures and what was found after them."""
        for number in range(self.spec["rounds"]):
            with ExitStack() as others:
                path = self.world.path
                with self.world.open() as home:
                    home.parts()
                if self.spec["journal"] != "reopened":
                    others.enter_context(beside(keeper(path)))
                if self.spec["neighbour"] == "neighbour":
                    others.enter_context(beside(neighbour(path)))
                if self.spec["reader"] == "reader":
                    others.enter_context(beside(reader(path)))
                self._round(number)
        self._look("at the end")
        self.result["flaws"] = self._flaws()
        with self.world.open() as home:
            self.result["flaws"] += home.parts().store.check()
        return self.result

    def _round(self, number: int) -> None:
        world, last = self.world, number == self.spec["rounds"] - 1
        with world.open() as home:
            world.live(home, self.spec["turns"])
            ids = self.way.ready(world, home)
            if self.spec["journal"] == "checkpointed":
                home.parts().store.checkpoint_truncate()
            if number % 2:
                home.publish()
            before, tokens = columns(home), tokens_of(home)
            there = _there(home, {fact.id for fact in world.facts})
        self._control([fact for fact in world.facts if fact.id in ids], before)
        assert set(ids) <= there
        # Whoever crashes does so in the last round: the rounds before are what a store has been through.
        crash = self.spec["crash"] if last else "no crash"
        self._delete(ids, crash)
        if crash in BEFORE:
            self._delete(ids, "no crash")
        world.clock.now += 10_000_000
        with world.open() as home:
            home.parts()
            after, kept = columns(home), _there(home, there)
            # A token that ran out goes when the next one is made; that of a record that is there is no erasure's.
            after |= {one for target, ones in tokens.items() for one in ones if _has_content(home, target)}
            self.result["left"] += [*sorted(set(ids) & kept), *_orphans(home)]
            self.result["states"] += _states(home)
            self.result["kept for"] += _kept_for(home)
        if self.spec["way"] == "subject":
            # A correction of somebody's key may be said of another: it stays, and the erasure says so.
            names = {fact.subject for fact in world.facts if fact.id in ids}
            self.result["mentions"] += sum(
                bool(names & fact.marks) for fact in world.facts if fact.id in kept
            )
        removed = [fact.marks for fact in world.facts if fact.id not in kept]
        still = set().union(*(fact.marks for fact in world.facts if fact.id in kept))
        self.gone = set().union(world.never, *removed) - still
        self.gone_columns = (self.gone_columns | before) - after
        self.whole = b"\0".join(after).lower()
        self._look("after the deletion")

    def _control(self, facts: list[Fact], values: set[bytes]) -> None:
        """Counts of what the look finds before the deletion, and should."""
        marks = set().union(*(fact.marks for fact in facts))
        self.whole = b""
        found = self._search(marks, values)
        self.result["control"][0] += len(found)
        self.result["control"][1] += len(marks | {pieces(value)[0][0] for value in values})

    def _delete(self, ids: list[str], crash: str) -> None:
        def work() -> None:
            CRASHES[crash]()
            with self.world.open() as home:
                self.way.delete(self.world, home, ids)

        code = ended(forked(work))
        # Where hashes alone expire, of all these steps there is the one that destroys keys of backups.
        steps = ("scanned",) if self.spec["way"] == "ledger expired" else tuple(CRASHES)[1:]
        reached = crash in steps
        assert code == (KILLED if reached else 0), f"the deletion ended with {code}"

    def _look(self, when: str) -> None:
        for name, files in self._search(self.gone, self.gone_columns).items():
            self.result["found"].setdefault(name, [when, *files])

    def _search(self, marks: set[str], values: set[bytes]) -> dict[str, list[str]]:
        wanted = [form for mark in sorted(marks) for form in forms(mark)]
        # A piece of what is gone may be one of what is there: the words of answers are always the same.
        wanted += [
            one
            for value in sorted(values)
            for one in pieces(value)
            if bytes.fromhex(one[1]) not in self.whole
        ]
        if not wanted:
            return {}
        found: dict[str, list[str]] = self.looker.ask(
            "search", {"folder": str(self.world.path), "wanted": wanted}
        )
        return found

    def _flaws(self) -> list[str]:
        """What the auditor's reader finds of bytes in the store that belong to no row."""
        answer = self.looker.ask("pages", {"folder": str(self.world.path)})
        return [*answer["residue"], *(["damaged"] if answer["damaged"] else [])]


def _states(home: wiring.Home) -> list[str]:
    with home.parts().store.read_whole() as view:
        return sorted({row.state for row in view.erasures()})


def _kept_for(home: wiring.Home) -> list[str]:
    """Why erasures that are closed in part are no more than that."""
    with home.parts().store.read_whole() as view:
        partial = [row.manifest for row in view.erasures() if row.state == "closed_partial"]
    return sorted({code for data in partial if data for code in decode_manifest(data).document["why"]})


def careless(twin: str) -> None:
    """This process keeps a store as one without the recipe does: `gaps` are not zeroed, or neither is what is freed."""
    plain = next(name for name in apsw.vfs_names() if name != vfs.NAME)
    vfs.register = lambda: plain
    # Such a store refuses to erase; what it would leave is to be found all the same.
    memory.store_rewrite.require_promises = lambda connection: None
    if twin == "secure_delete":
        _set_pragma("secure_delete", "OFF", 0)


def _set_pragma(name: str, wanted: str, expected: int) -> None:
    others = tuple(one for one in memory.store._PRAGMAS if one[0] != name)
    memory.store._PRAGMAS = (*others, (name, wanted, expected))


def without_flushes() -> None:
    """A process that dies loses nothing that it wrote, flushed or not; only a machine that does would."""
    _set_pragma("synchronous", "OFF", 0)
    os.fsync = lambda descriptor: None


def warm_up() -> None:
    """Whatever an erasure loads is loaded once, and not by each process that is forked from this one."""
    scan_process._ask = lambda request: scan_process._TASKS[request["task"]](request)
    with (
        tempfile.TemporaryDirectory() as folder,
        wiring.open_home(Path(folder) / "home", clock=Clock()) as home,
    ):
        write(
            home, "A first word.", key="first/word", value="first", subject="nobody", idempotency_key="first"
        )
        home.publish()
        forget(home, subject="nobody")
        home.memory(ME).retention("0s", apply=True)


def main() -> None:
    warm_up()
    if os.environ.get("MUNIMENT_ERASE_GRID") != "full":
        without_flushes()
    for line in sys.stdin:
        spec = json.loads(line)
        folder = Path(tempfile.mkdtemp(prefix="grid-", dir=spec["folder"]))

        def work(spec: dict[str, Any] = spec, folder: Path = folder) -> None:
            if spec.get("twin"):
                careless(spec["twin"])
            (folder / "result").write_text(json.dumps(Cell(spec, folder).run()), "utf-8")

        code = ended(forked(work))
        result = (folder / "result").read_text("utf-8") if code == 0 else json.dumps({"ended": code})
        shutil.rmtree(folder)
        print(result, flush=True)


if __name__ == "__main__":
    main()
