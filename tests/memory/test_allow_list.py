"""Every way to ask, against a withheld record of every kind: no answer may hold a byte of it where it must not.

The ways are found by reflection: every public name of the facade, every tool, every operation of a batch, every
command. One that is new fails here until it is driven, or until it is written down why it cannot be. Each record has
a marker of its own in every field that a caller can fill, and what a way answers, an error too, is searched for the
markers of all of them, as text and as base64.
"""

from __future__ import annotations

import base64
import inspect
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from memory import batch, cli, mcp_calls, reads, timeline
from memory.mcp_tools import TOOLS
from memory.model import Principal
from memory.principal import make_principal, narrowed, with_all_scopes
from memory.service import Memory
from memory.wiring import Home, open_home
from tlog.errors import Error

HOUR: Final = 3600 * 1_000_000
START: Final = 1_790_000_000_000_000
LATER: Final = START + 48 * HOUR

# kind: a word that is in its text, value, subject and source and nowhere else.
MARKER: Final = {
    kind: f"zq{place:02d}{kind.replace('_', '')}qz"
    for place, kind in enumerate(
        (
            "active",
            "held",
            "refused",
            "superseded",
            "discarded",
            "retracted",
            "expired",
            "past",
            "future",
            "on_hold",
            "out_of_time",
            "erased",
            "other_tenant",
            "other_agent",
        )
    )
}
# Served as a fact now; told as the story of a key; told to who reviews; to nobody of this scope.
SERVED: Final = frozenset({"active"})
STORY: Final = SERVED | {"superseded", "retracted", "expired", "past", "future"}
REVIEWED: Final = STORY | {"held", "refused", "discarded"}
NEVER: Final = frozenset({"on_hold", "out_of_time", "erased", "other_tenant", "other_agent"})

AGENT: Final = make_principal("acme", "bot", "desk")
OWNER: Final = with_all_scopes(AGENT)
READER: Final = narrowed(AGENT, frozenset({"memory:read"}))
ASKERS: Final = {"agent": AGENT, "owner": OWNER, "reader": READER}


@dataclass
class World:
    """A home with a record of every kind, and the id of each."""

    path: Path
    ids: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    conflict: str = ""

    def open(self, now: int = LATER) -> Home:
        return open_home(self.path, clock=lambda: now)

    def copy(self, folder: Path) -> World:
        shutil.copytree(self.path, folder)
        return World(folder, dict(self.ids), dict(self.keys), self.conflict)


def said(kind: str) -> dict[str, str]:
    word = MARKER[kind]
    return {
        "text": f"common words {word}",
        "value": f"v {word}",
        "subject": f"s {word}",
        "source": f"o {word}",
    }


def make_world(path: Path) -> World:
    world, now = World(path), [START]
    with open_home(path, clock=lambda: now[0]) as home:
        owner = home.memory(OWNER)

        def write(kind: str, memory: Memory = owner, key: str | None = None, **more: Any) -> str:
            world.keys[kind] = key or f"key/{kind}"
            answer = memory.remember(key=world.keys[kind], **{**said(kind), **more})
            world.ids[kind] = answer["id"]
            return str(answer["outcome"])

        assert write("active") == "stored"
        assert write("held", provisional=True) == "held"
        assert write("superseded", key="key/changed") == "stored"
        now[0] += 2 * HOUR
        owner.remember("common words now", key="key/changed", value="now")
        refused = said("superseded") | {"text": said("refused")["text"], "source": said("refused")["source"]}
        answer = owner.remember(key="key/changed", **(refused | {"subject": said("refused")["subject"]}))
        assert answer["reason"] == "echo"
        world.ids["refused"], world.keys["refused"] = answer["id"], "key/changed"
        assert write("discarded", provisional=True) == "held"
        owner.discard(world.ids["discarded"])
        assert write("retracted") == "stored"
        owner.retract(world.ids["retracted"])
        assert write("expired", valid_until=str(START // 1_000_000 + 3 * 3600)) == "stored"
        assert (
            write("past", valid_from="2001-01-01T00:00:00Z", valid_until="2002-01-01T00:00:00Z") == "history"
        )
        assert write("future", valid_from="2100-01-01T00:00:00Z") == "stored"
        assert write("on_hold") == "stored"
        assert write("out_of_time") == "stored"
        home.write_config(replace(home.config, retention=("key/out_of_time 24h",)))
        assert write("erased") == "stored"
        token = owner.forget_preview(id=world.ids["erased"])["confirm"]
        assert owner.forget(id=world.ids["erased"], confirm=token)["erased"] == 1
        owner.hold(id=world.ids["on_hold"], authority="a court", review_by="2100-01-01T00:00:00Z")
        spies = {
            "other_tenant": with_all_scopes(make_principal("acme-evil", "bot", "desk")),
            "other_agent": with_all_scopes(make_principal("acme", "bot ", "desk")),
        }
        for kind, spy in spies.items():
            assert write(kind, home.memory(spy), key="key/active") == "stored"
        owner.remember("common words one", key="key/disputed", value="one")
        home.memory(replace(OWNER, client="phone")).remember(
            "common words two", key="key/disputed", value="two"
        )
        world.conflict = owner.conflicts()["conflicts"][0]["id"]
        home.publish()
    return world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("allow") / "home")


def found_in(answer: object) -> set[str]:
    """The kinds of which an answer holds something, as text or in base64."""
    if isinstance(answer, bytes):
        texts = [answer.decode("latin-1")]
    else:
        texts = [answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)]
    texts += [decoded for text in texts for decoded in _decoded(text)]
    return {kind for kind, word in MARKER.items() if any(word in text.casefold() for text in texts)}


def _decoded(text: str) -> Iterator[str]:
    for word in text.replace('"', " ").split():
        if len(word) >= 16:
            try:
                yield base64.b64decode(word.rstrip(",}]"), validate=True).decode("latin-1")
            except ValueError:
                continue


def attempt(act: Callable[[], object]) -> object:
    """What `act` answers, or what its error says: an answer too."""
    try:
        return act()
    except Error as error:
        return {"error": error.message, "fields": {name: str(value) for name, value in error.fields.items()}}


# --- how each method of the facade is driven ----------------------------------------------------------------

# Within the lives of `past`, `superseded`, `expired`, `active` and `future`.
TIMES: Final = (
    "2001-06-01T00:00:00Z",
    str(START // 1_000_000 + 60),
    str(START // 1_000_000 + 9000),
    "now",
    "2101-01-01T00:00:00Z",
)
Driver = Callable[[Memory, World], Iterator[object]]


def each_id(method: str, **more: Any) -> Driver:
    def drive(memory: Memory, world: World) -> Iterator[object]:
        for id in (*world.ids.values(), world.conflict):
            yield attempt(lambda id=id: getattr(memory, method)(id, **more))  # type: ignore[misc]

    return drive


def each_key(method: str) -> Driver:
    def drive(memory: Memory, world: World) -> Iterator[object]:
        for key in sorted(set(world.keys.values())):
            yield attempt(lambda key=key: getattr(memory, method)(key))  # type: ignore[misc]
            for name in ("as_of", "as_recorded"):
                for time in TIMES:
                    yield attempt(
                        lambda key=key, name=name, time=time: getattr(memory, method)(key, **{name: time})  # type: ignore[misc]
                    )

    return drive


def queries(world: World) -> list[str]:
    return ["common words", *MARKER.values(), *world.keys.values()]


def drive_recall(memory: Memory, world: World) -> Iterator[object]:
    for query in queries(world):
        yield attempt(lambda query=query: memory.recall(query, limit=1000))  # type: ignore[misc]
        yield attempt(lambda query=query: memory.recall(query, limit=1000, include_history=True))  # type: ignore[misc]
        for time in TIMES:
            yield attempt(lambda query=query, time=time: memory.recall(query, limit=1000, as_of=time))  # type: ignore[misc]
            yield attempt(
                lambda query=query, time=time: memory.recall(
                    query, limit=1000, as_recorded=time, include_history=True
                )  # type: ignore[misc]
            )


def drive_remember(memory: Memory, world: World) -> Iterator[object]:
    """Writes beside each record: what a write answers of the current one is a read."""
    for place, key in enumerate(sorted(set(world.keys.values()))):
        for more in (
            {"valid_from": "2001-06-01T00:00:00Z"},
            {"provisional": True},
            {"restatement": True},
            {},
        ):
            yield attempt(
                lambda key=key, more=more, place=place: memory.remember(  # type: ignore[misc]
                    f"another {place}", key=key, value=f"another {place}", **more
                )
            )
        yield attempt(lambda key=key: memory.remember("no value at all", key=key))  # type: ignore[misc]


def drive_selecting(method: str, **more: Any) -> Driver:
    def drive(memory: Memory, world: World) -> Iterator[object]:
        selectors: list[dict[str, Any]] = [{"id": id} for id in world.ids.values()]
        selectors += [{"key": key} for key in sorted(set(world.keys.values()))]
        selectors += [{"subject": said(kind)["subject"]} for kind in MARKER] + [{"all": True}]
        for selector in selectors:
            yield attempt(lambda selector=selector: getattr(memory, method)(**selector, **more))  # type: ignore[misc]

    return drive


def drive_subjects(memory: Memory, world: World) -> Iterator[object]:
    for kind in MARKER:
        yield without_argument(
            attempt(lambda kind=kind: memory.export_subject(said(kind)["subject"]))  # type: ignore[misc]
        )


def without_argument(answer: object) -> object:
    """An answer without the subject that was asked for, which is the caller's own word."""
    return (
        {name: value for name, value in answer.items() if name != "subject"}
        if isinstance(answer, dict)
        else answer
    )


def drive_forget(memory: Memory, world: World) -> Iterator[object]:
    for kind in MARKER:
        preview = attempt(lambda kind=kind: memory.forget_preview(id=world.ids[kind]))  # type: ignore[misc]
        yield preview
        token = preview.get("confirm", "0" * 64) if isinstance(preview, dict) else ""
        yield attempt(lambda kind=kind, token=token: memory.forget(id=world.ids[kind], confirm=token))  # type: ignore[misc]


def drive_requests(method: str, **more: Any) -> Driver:
    """Of requests that erased one record each, one that a hold kept, and two that are none of this tenant's."""

    def drive(memory: Memory, world: World) -> Iterator[object]:
        references = ["0" * 32, "1"]
        hold = {"authority": "a court", "review_by": "2100-01-01T00:00:00Z"}
        key = min(set(world.keys.values()))
        for selector in ({"id": world.ids["superseded"]}, {"key": key}):
            attempt(lambda selector=selector: memory.hold(id=world.ids["superseded"], **hold))  # type: ignore[misc]
            preview = attempt(lambda selector=selector: memory.forget_preview(**selector))  # type: ignore[misc]
            token = preview.get("confirm", "0" * 64) if isinstance(preview, dict) else ""
            done = attempt(lambda selector=selector, token=token: memory.forget(confirm=token, **selector))  # type: ignore[misc]
            references += [done["request"]] if isinstance(done, dict) and "request" in done else []
        for reference in references:
            yield attempt(lambda reference=reference: getattr(memory, method)(reference, **more))  # type: ignore[misc]

    return drive


def drive_resolve(memory: Memory, world: World) -> Iterator[object]:
    for id in world.ids.values():
        yield attempt(lambda id=id: memory.resolve(world.conflict, id))  # type: ignore[misc]
        yield attempt(lambda id=id: memory.resolve(id, id))  # type: ignore[misc]


def once(act: Callable[[Memory], object]) -> Driver:
    def drive(memory: Memory, _: World) -> Iterator[object]:
        yield attempt(lambda: act(memory))

    return drive


@dataclass(frozen=True)
class Way:
    """How a method is driven, and of which kinds its answers may hold something, by who asks.

    `shows`: what its answers have to hold, or the driver has read nothing. `changes`: it needs a home of its own.
    """

    drive: Driver
    may: frozenset[str] = frozenset()
    may_in_review: frozenset[str] = frozenset()
    shows: frozenset[str] = frozenset()
    changes: bool = False


METHODS: Final[Mapping[str, Way]] = {
    "get": Way(
        each_key("get"), STORY, STORY, frozenset({"active", "superseded", "expired", "past", "future"})
    ),
    "recall": Way(drive_recall, STORY, STORY, STORY - {"future"}),
    "recent": Way(once(lambda memory: memory.recent(limit=100)), SERVED, SERVED, SERVED),
    "history": Way(each_key("history"), STORY, REVIEWED, STORY),
    "provenance": Way(each_id("provenance"), STORY, REVIEWED, STORY),
    "conflicts": Way(once(lambda memory: memory.conflicts()), SERVED, SERVED),
    "review": Way(
        once(lambda memory: memory.review()), frozenset(), frozenset({"held", "refused", "superseded"})
    ),
    "status": Way(once(lambda memory: memory.status())),
    "holds": Way(once(lambda memory: memory.holds())),
    "grant": Way(once(lambda memory: memory.grant("bot ")), changes=True),
    "revoke": Way(each_id("revoke"), changes=True),
    "grants": Way(once(lambda memory: memory.grants())),
    "receipt": Way(each_id("receipt")),
    "opening": Way(each_id("opening"), STORY, REVIEWED, STORY, changes=True),
    "give_opening": Way(
        lambda memory, world: (getattr(one, "file", one) for one in each_id("give_opening")(memory, world)),
        STORY,
        REVIEWED,
        changes=True,
    ),
    # What a write says of the record that holds now.
    "remember": Way(drive_remember, SERVED, SERVED, SERVED, changes=True),
    "has_request": Way(once(lambda memory: {"known": memory.has_request(MARKER["held"])})),
    "retract": Way(each_id("retract"), changes=True),
    "confirm": Way(each_id("confirm"), changes=True),
    "promote": Way(each_id("promote"), changes=True),
    "discard": Way(each_id("discard"), changes=True),
    "reaffirm": Way(each_id("reaffirm", reason="because"), changes=True),
    "resolve": Way(drive_resolve, changes=True),
    "forget_preview": Way(drive_selecting("forget_preview"), changes=True),
    "forget": Way(drive_forget, changes=True),
    "require_token": Way(drive_selecting("require_token", confirm="0" * 64), changes=True),
    "request": Way(drive_requests("request"), changes=True),
    "manifest": Way(drive_requests("manifest"), changes=True),
    "forget_rest": Way(drive_requests("forget_rest", confirm="0" * 64), changes=True),
    "told": Way(drive_requests("told", recipients=["00" * 16]), changes=True),
    "deny": Way(drive_selecting("deny", code="legal_claims"), changes=True),
    "deny_rest": Way(drive_requests("deny_rest", code="legal_claims"), changes=True),
    "withdraw": Way(drive_requests("withdraw"), changes=True),
    "hold": Way(drive_selecting("hold", authority="a court", review_by="2100-01-01T00:00:00Z"), changes=True),
    "release": Way(each_id("release", authority="a court"), changes=True),
    "retention": Way(once(lambda memory: memory.retention("0s", apply=True)), changes=True),
    "look_again": Way(once(lambda memory: memory.look_again("00" * 16, ["common"])), changes=True),
    # Everything that is held on a person, to be handed to that person, by who reviews: what is past its time is in the
    # store until the next sweep, and so it is held.
    "export_subject": Way(drive_subjects, frozenset(), REVIEWED | {"out_of_time"}, changes=True),
    "publish": Way(once(lambda memory: memory.publish()), changes=True),
}
# A public name of the facade that is not driven, with the reason.
NOT_METHODS: Final = {"principal": "a property: the caller's own names"}


def may_hold(way: Way, asker: str) -> frozenset[str]:
    return way.may_in_review if asker == "owner" else way.may


def public_names(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_every_public_name_of_the_facade_is_driven_or_says_why_not() -> None:
    assert public_names(Memory) == set(METHODS) | set(NOT_METHODS)
    assert all(reason for reason in NOT_METHODS.values())


def test_a_new_method_would_be_missed() -> None:
    class Wider(Memory):
        def dump(self) -> None:
            """A way around."""

    assert public_names(Wider) - set(METHODS) - set(NOT_METHODS) >= {"dump"}


@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize("name", METHODS)
def test_no_method_serves_what_it_must_not(name: str, asker: str, world: World, tmp_path: Path) -> None:
    way = METHODS[name]
    used = world.copy(tmp_path / "home") if way.changes else world
    with used.open() as home:
        held: set[str] = set()
        for answer in way.drive(home.memory(ASKERS[asker]), used):
            held |= found_in(answer)
    assert held <= may_hold(way, asker)
    assert name == "export_subject" or not held & NEVER
    if not (asker == "reader" and way.changes):
        assert held >= way.shows, "the driver has read nothing, so this would prove nothing"


@pytest.mark.parametrize("name", ["get", "recall", "history", "provenance"])
def test_no_method_serves_them_in_the_scope_of_somebody_else(name: str, world: World) -> None:
    strangers = (
        make_principal("acme", "bot ", "desk"),
        make_principal("acme-evil", "bot", "desk"),
        make_principal("acm", "e/bot", "desk"),
        make_principal("acme", "BOT", "desk"),
        make_principal("ACME", "bot", "desk"),
    )
    with world.open() as home:
        for stranger in strangers:
            own = {"other_agent"} if stranger.agent == "bot " else set()
            own |= {"other_tenant"} if stranger.tenant == "acme-evil" else set()
            for answer in METHODS[name].drive(home.memory(with_all_scopes(stranger)), world):
                assert found_in(answer) <= own


@pytest.mark.parametrize("name", ["get", "recall", "history", "provenance"])
def test_another_agent_s_memory_takes_its_grant_and_no_more_than_that(
    name: str, world: World, tmp_path: Path
) -> None:
    """With a grant of the asked agent, the other reads what everybody of it may; before and after, nothing."""
    used = world.copy(tmp_path / "home")
    other = with_all_scopes(make_principal("acme", "bot ", "desk"))

    class Reading(Memory):
        """The memory of `bot`, read by another agent: each method with the owner named."""

        def __getattribute__(self, wanted: str) -> Any:
            found = super().__getattribute__(wanted)
            return partial(found, owner="bot") if wanted == name else found

    with used.open() as home:

        def seen() -> set[str]:
            memory = Reading(home.parts(), other)
            return set().union(*(found_in(one) for one in METHODS[name].drive(memory, used)))

        assert seen() == set()
        grant = home.memory(OWNER).grant("bot ")["id"]
        told = seen()
        assert METHODS[name].shows <= told <= METHODS[name].may
        home.memory(OWNER).revoke(grant)
        assert seen() == set()


# --- the surfaces -------------------------------------------------------------------------------------------


def arguments_of(properties: Mapping[str, Any], world: World) -> Iterator[dict[str, Any]]:
    """Arguments that reach every record through whatever a tool or an operation takes."""
    times = [{}, *({name: time} for name in ("as_of", "as_recorded") for time in TIMES)]
    if "query" in properties:
        for query in queries(world):
            for time in times if query == "common words" else [{}]:
                for past in ({}, {"include_history": True}):
                    yield {"query": query, "limit": 50, **time, **past}
    elif "text" in properties:
        for key in sorted(set(world.keys.values())):
            yield {"text": "another", "key": key, "value": "another"}
    elif "conflict" in properties:
        yield from ({"conflict": world.conflict, "keep": id} for id in world.ids.values())
    elif "superseded_older_than" in properties:
        yield {"superseded_older_than": "0s"}
    else:
        ids = [*world.ids.values(), world.conflict]
        needs = {
            "authority": "a court",
            "review_by": "2100-01-01T00:00:00Z",
            "reason": "because",
            "code": "legal_claims",
        }
        more = {name: value for name, value in needs.items() if name in properties}
        if "reader" in properties:
            yield {"reader": "bot "}
        if "id" in properties:
            several = properties["id"] is not None and properties["id"].get("type") == "array"
            yield from ({"id": [id] if several else id, **more} for id in ids)
        if "key" in properties:
            timed = times if "as_of" in properties else [{}]
            yield from (
                {"key": key, **time, **more} for key in sorted(set(world.keys.values())) for time in timed
            )
        if not {"id", "key", "reader"} & properties.keys():
            yield {}


# What the answers of a tool, an operation or a command may hold is what those of its method may.
METHOD_OF: Final = {"forget": "forget_preview", "forget_all": "forget_preview"}


def may_surface(name: str, asker: str) -> frozenset[str]:
    return may_hold(METHODS[METHOD_OF.get(name, name)], asker)


@pytest.mark.parametrize("tool", [tool.name for tool in TOOLS])
def test_no_tool_serves_what_it_must_not(tool: str, world: World, tmp_path: Path) -> None:
    used = world.copy(tmp_path / "home")
    (found,) = [one for one in TOOLS if one.name == tool]
    asked = 0
    with used.open() as home:
        for arguments in arguments_of(found.arguments["properties"], used):
            for asker in ("agent", "reader"):
                answer = mcp_calls.call(home, ASKERS[asker], tool, dict(arguments))
                assert found_in(answer) <= may_surface(tool, asker), arguments
                asked += 1
    assert asked


OPERATIONS: Final = sorted(batch.OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_of_a_batch_serves_what_it_must_not(name: str, world: World, tmp_path: Path) -> None:
    used = world.copy(tmp_path / "home")
    operation = batch.OPERATIONS[name]
    properties = dict.fromkeys(operation.required | operation.optional)
    lines = [json.dumps({"op": name, **arguments}) for arguments in arguments_of(properties, used)]
    for asker in ("agent", "owner"):
        answers: list[str] = []
        with used.open() as home:
            batch.run_batch(lines, answers.append, home, False, ASKERS[asker])
        assert len(answers) == len(lines) > 0
        for line, answer in zip(lines, answers, strict=True):
            assert found_in(answer) <= may_surface(name, asker), line


# What the command line reads with, as (command, how its arguments are made from keys or ids).
COMMANDS: Final[Mapping[str, Callable[[World], list[list[str]]]]] = {
    "recall": lambda world: [
        ["recall", query, "--limit", "1000", *past]
        for query in queries(world)
        for past in ([], ["--include-history"], ["--as-of", TIMES[1]])
    ],
    "get": lambda world: [
        ["get", key, *at] for key in sorted(set(world.keys.values())) for at in ([], ["--as-of", TIMES[1]])
    ],
    "history": lambda world: [["history", key] for key in sorted(set(world.keys.values()))],
    "provenance": lambda world: [["provenance", id] for id in world.ids.values()],
    "conflicts": lambda _: [["conflicts"]],
    "review": lambda _: [["review"]],
    "status": lambda _: [["status"]],
    "grant": lambda _: [["grant"], ["grant", "bot "]],
    "revoke": lambda world: [["revoke", id] for id in world.ids.values()],
    "receipt": lambda world: [["receipt", id, "--format", "tlog-proof"] for id in world.ids.values()],
    "retract": lambda world: [["retract", id] for id in world.ids.values()],
    "resolve": lambda world: [["resolve", world.conflict, "--keep", id] for id in world.ids.values()],
    "forget": lambda world: [["forget", "--id", id] for id in world.ids.values()],
    "retention": lambda _: [["retention", "--superseded-older-than", "0s"]],
}
NOT_COMMANDS: Final = {
    "init": "makes a home and reads no fact",
    "remember": "driven as a method; the command prints that answer",
    "opening": "writes the bytes of the method of that name, driven above, to a file",
    "hold": "driven as a method; the command prints that answer",
    "release": "driven as a method; the command prints that answer",
    "verify": "reads files that are given to it, and no home",
    "log": "the log has no content; tests/auditor searches its files for needles after each erasure",
    "witness": "has a state of its own and no home",
    "audit": "the auditor's own readers; its report is searched in tests/auditor",
    "mcp": "its tools are driven above",
    "serve": "its resources are the operations of batch, which are driven above (test_http_document holds that)",
    "token": "it reads no facts",
    "batch": "its operations are driven above",
    "import": "prints counts; a line that is not taken is named by its number",
    "demo": "makes a home of its own",
    "backup": "an encrypted copy of the store, for the owner of the home",
    "restore": "puts a store back and prints counts",
    "hook": "prints facts of recent and recall, driven as methods; test_hook searches what it prints",
    "doctor": "looks at files and settings; test_doctor searches what it says",
    "migrate": "moves rows and prints counts; test_pg_migrate looks for words in what is left",
    "completion": "prints the names of commands and options, and opens no home",
    "install": "changes settings of a host, and opens no home",
    "export": "for the owner of the home, in words of its own tests",
}


def test_every_command_is_driven_or_says_why_not() -> None:
    assert set(COMMANDS).isdisjoint(NOT_COMMANDS)
    assert set(cli.COMMANDS) <= set(COMMANDS) | set(NOT_COMMANDS)
    assert all(len(reason) > 10 for reason in NOT_COMMANDS.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_serves_what_it_must_not(
    name: str,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The command line acts for the owner of the home, who reviews."""
    used = world.copy(tmp_path / "home")
    for variable, value in (("TENANT", "acme"), ("AGENT", "bot"), ("CLIENT", "desk")):
        monkeypatch.setenv(f"MUNIMENT_{variable}", value)
    for arguments in COMMANDS[name](used):
        for form in ([], ["--json"]):
            cli.main([*arguments, "--home", str(used.path), *form])
            captured = capfd.readouterr()
            assert found_in(captured.out + captured.err) <= may_surface(name, "owner"), arguments


# --- the sweep itself can fail ------------------------------------------------------------------------------


def swept(name: str, asker: Principal, world: World) -> set[str]:
    with world.open() as home:
        return set().union(*(found_in(one) for one in METHODS[name].drive(home.memory(asker), world)))


def test_a_read_without_the_list_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "may_serve", lambda *_: True)
    assert swept("get", AGENT, world) - may_hold(METHODS["get"], "agent") >= {"held", "discarded"}


def test_a_story_without_the_list_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "told_to", lambda _: ("held", "refused", "discarded"))
    assert swept("history", AGENT, world) == {"held", "refused", "superseded", "discarded"}


def test_a_read_of_another_scope_is_caught(world: World) -> None:
    spy = make_principal("acme", "bot ", "desk")
    assert swept("get", spy, world) - may_hold(METHODS["get"], "agent") == {"other_agent"}


def test_a_marker_in_base64_is_found() -> None:
    hidden = base64.b64encode(f"x{MARKER['held']}x".encode()).decode()
    assert found_in({"entry": hidden}) == {"held"}
    assert found_in(MARKER["erased"].upper().encode()) == {"erased"}
