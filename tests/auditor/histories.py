"""Random histories over the real service: what a memory may come to by anything that its callers may do."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory import key_rotation
from memory.backup import backup
from memory.model import SCOPES, Principal
from memory.wiring import Home, init_home
from tlog.errors import Error

KEYS = ("office/city", "deploy/target", "Deploy Target", "lunch", "door/code")
SUBJECTS = (None, None, "ann", "bob")
VALUES = (
    "Berlin",
    "berlin",
    "Hamburg",
    "k8s",
    "nomad",
    "7",
    "seven",
    "30 %",
    "0.3",
    "2024-03-01",
    "1 March 2024",
)
GUARDS = ("keep", "keep", "erase", "expire=2099-01-01T00:00:00Z")
CALLERS = tuple(
    Principal(tenant, agent, client, SCOPES)
    for tenant, agent, client in (
        ("acme", "bot", "one"),
        ("acme", "bot", "two"),
        ("acme", "aide", "one"),
        ("globex", "bot", "one"),
    )
)


class History:
    """A home on its way. Every step is one that a caller may take; what is refused is part of it."""

    def __init__(self, home: Home, seed: int) -> None:
        self.home = home
        self.choose = random.Random(seed)
        self.ids: dict[Principal, list[str]] = {caller: [] for caller in CALLERS}
        self.tokens: list[tuple[Principal, dict[str, Any], str]] = []
        self.erasures = self.backups = 0

    def step(self) -> str:
        """One random act; its name."""
        acts: list[tuple[int, Callable[[Principal], object]]] = [
            (20, self.write),
            (3, self.reaffirm),
            (3, self.retract),
            (3, self.settle),
            (3, self.review),
            (2, self.hold),
            (2, self.publish),
            (1, self.forget),
            (1, self.retention),
            (1, self.rotate),
            (2, self.let_read),
            (1, self.give),
            (1, self.back_up),
        ]
        (act,) = self.choose.choices([act for _, act in acts], [weight for weight, _ in acts])
        try:
            act(self.choose.choice(CALLERS))
        except Error:
            return f"{act.__name__} refused"
        return act.__name__

    def write(self, caller: Principal) -> None:
        choose = self.choose
        arguments: dict[str, Any] = {"subject": choose.choice(SUBJECTS)}
        value = choose.choice(VALUES)
        if choose.random() < 0.8:
            arguments |= {"key": choose.choice(KEYS), "value": value if choose.random() < 0.85 else None}
        for flag, chance in (("provisional", 0.1), ("many", 0.05), ("restatement", 0.05)):
            if choose.random() < chance:
                arguments[flag] = True
        if choose.random() < 0.1:
            arguments["valid_from"] = choose.choice(("2020-01-01T00:00:00Z", "2090-01-01T00:00:00Z"))
        if choose.random() < 0.05:
            arguments["valid_until"] = choose.choice(("2021-01-01T00:00:00Z", "2091-01-01T00:00:00Z"))
        if choose.random() < 0.2:
            arguments["idempotency_key"] = f"request-{choose.randrange(10)}"
        text = f"it is {value} now" if choose.random() < 0.5 else f"note {choose.randrange(6)} says {value}"
        answer = self.home.memory(caller).remember(text, **arguments)
        self.ids[caller].append(answer["id"])
        if answer["reaffirm"] is not None:
            again = {name: arguments.get(name) for name in ("key", "value", "subject")}
            self.tokens.append((caller, {"text": text, **again}, answer["reaffirm"]))

    def reaffirm(self, caller: Principal) -> None:
        if self.tokens and self.choose.random() < 0.7:
            who, arguments, token = self.tokens.pop()
            self.home.memory(who).remember(**arguments, reaffirm=token, reason="it is back")
        else:
            self.home.memory(caller).reaffirm(self.any_id(caller), "it is back")

    def retract(self, caller: Principal) -> None:
        self.home.memory(caller).retract(self.any_id(caller))

    def settle(self, caller: Principal) -> None:
        memory = self.home.memory(caller)
        conflict = self.choose.choice(memory.conflicts()["conflicts"] or [None])
        if conflict is not None:
            memory.resolve(conflict["id"], self.choose.choice(conflict["facts"])["id"])

    def review(self, caller: Principal) -> None:
        memory = self.home.memory(caller)
        self.choose.choice((memory.confirm, memory.discard))(self.any_id(caller))

    def hold(self, caller: Principal) -> None:
        memory = self.home.memory(caller)
        held = memory.holds()["holds"]
        if held and self.choose.random() < 0.7:
            memory.release(self.choose.choice(held)["id"], "the court")
        else:
            memory.hold(authority="the court", review_by="2099-01-01T00:00:00Z", **self.selector(caller))

    def publish(self, caller: Principal) -> None:
        self.home.publish()

    def forget(self, caller: Principal) -> None:
        if self.erasures < 2:
            memory, selector = self.home.memory(caller), self.selector(caller)
            selector["guard"] = self.choose.choice(GUARDS)
            memory.forget(confirm=memory.forget_preview(**selector)["confirm"], **selector)
            self.erasures += 1

    def retention(self, caller: Principal) -> None:
        if self.erasures < 2:
            self.erasures += self.home.memory(caller).retention("0s", apply=True)["removed"] > 0

    def rotate(self, caller: Principal) -> None:
        key_rotation.rotate(self.home, self.choose.choice(("issuer", "receipt", "manifest")), None, 1.0)

    def let_read(self, caller: Principal) -> None:
        memory = self.home.memory(caller)
        made = memory.grants()["made"]
        if made and self.choose.random() < 0.5:
            memory.revoke(self.choose.choice(made)["id"])
        else:
            memory.grant(self.choose.choice(("bot", "aide", "nobody")))

    def give(self, caller: Principal) -> None:
        self.home.memory(caller).give_opening(self.any_id(caller))

    def back_up(self, caller: Principal) -> None:
        self.backups += 1
        backup(self.home, self.home.path.parent / f"backup-{self.backups}", self.choose.choice((0, 1 << 40)))

    def any_id(self, caller: Principal) -> str:
        return self.choose.choice(self.ids[caller] or ["a" * 26])

    def selector(self, caller: Principal) -> dict[str, Any]:
        choose = self.choose
        return choose.choice(
            [
                {"id": self.any_id(caller)},
                {"key": choose.choice(KEYS)},
                {"subject": choose.choice(("ann", "bob"))},
            ]
        )


def make_history(folder: Path, seed: int, steps: int) -> list[str]:
    """What was done in a new home in `folder`, which is closed then."""
    with init_home(folder) as home:
        history = History(home, seed)
        return [history.step() for _ in range(steps)]
