"""One node that changes keys or logs of a home, as a process, and dies or stands still where it is told to.

    key_node.py SETTINGS    (JSON: home, do, at, how)

`at` is a step, "before" or "after" it; the last line is `done …` or `failed CODE`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from memory import key_rotation, shared_state, succession, wiring
from memory.operator import Operator
from memory.pg_log import PgLogStorage
from memory.shared_public import SharedPublic
from tlog.bucket import ObstoreBucket
from tlog.errors import Error
from tlog.log import Log

# What a rotation and a succession are made of, each at the name under which it is called.
STEPS: dict[str, tuple[Any, str]] = {
    "make key": (shared_state.SharedState, "make_key"),
    "list": (shared_state.SharedState, "replace"),
    "swap": (PgLogStorage, "swap_alone"),
    "write file": (shared_state.SharedState, "_write_file"),
    "activate": (shared_state.SharedState, "activate"),
    "complete": (key_rotation, "_complete"),
    "drain": (succession, "drain"),
    "begin": (succession, "_begin"),
    "take over": (succession, "_take_over"),
    "sign": (Log, "_cosigned"),
    "announce": (SharedPublic, "_announce"),
    "put": (ObstoreBucket, "put_over"),
}
ROTATION = ("make key", "swap", "write file", "list", "activate", "complete")
PUBLICATION = ("sign", "announce", "put")
SUCCESSION = ("swap", "write file", "drain", "begin", "take over", "list")


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def stop_at(step: str, when: str, passes: int, how: str) -> None:
    owner, name = STEPS[step]
    real: Callable[..., Any] = getattr(owner, name)
    left = passes

    def halt() -> None:
        nonlocal left
        if left == 0:
            say(f"at {step}")
            os.kill(os.getpid(), getattr(signal, f"SIG{how}"))
        left -= 1

    def stopping(*args: Any, **named: Any) -> Any:
        if when == "before":
            halt()
        result = real(*args, **named)
        if when == "after":
            halt()
        return result

    setattr(owner, name, stopping)


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    if "at" in settings:
        stop_at(settings["at"], settings["when"], settings.get("passes", 0), settings["how"])
    try:
        with wiring.open_existing_home(settings["home"]) as home:
            say("open")
            if settings.get("wait"):
                sys.stdin.readline()
            if settings["do"] == "publish":
                done = home.publish(20)
                say(f"done {done['size']}")
            elif settings["do"] == "succeed":
                done = Operator(home).succeed(None, 20)
                say(f"done {done['vkey']}")
            else:
                say(f"done {Operator(home).rotate(settings['do'], None, 20)['kid']}")
    except Error as error:
        say(f"failed {error.code}")


if __name__ == "__main__":
    main()
