"""`muniment audit --follow URL`: looks at a log again and again, and tells of what it must not do.

An alarm is told when it begins and when it is over. Exit codes with --once: 0 nothing is wrong, 1 something is, 3 the
log can't be reached.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tlog.errors import MalformedError, UnavailableError

if TYPE_CHECKING:
    from auditor.monitor import Alarm, Look, Watched
    from auditor.monitor_metrics import MonitorMetrics
    from auditor.monitor_state import MonitorState
    from tlog.client import UrlReader
    from tlog.metrics import Metrics
    from tlog.trust import Trust

DEFAULT_INTERVAL: Final = "1m"
FETCH_SECONDS: Final = 30.0
WITNESS_SECONDS: Final = 10.0
_MAX_SECONDS: Final = 7 * 86_400
_DURATION: Final = re.compile(r"([0-9]{1,7})([smhdw])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def add_follow_options(parser: argparse.ArgumentParser) -> None:
    """Adds what only a monitor takes."""
    monitor = parser.add_argument_group("to watch a log for good")
    monitor.add_argument(
        "--follow", metavar="URL", help="the log to watch; --trust or --policy and --state go with it"
    )
    monitor.add_argument(
        "--interval", metavar="D", default=DEFAULT_INTERVAL, help="time between two looks (default 1m)"
    )
    monitor.add_argument("--origin", metavar="NAME", help="which log of the policy (default: its first)")
    monitor.add_argument(
        "--max-age", metavar="D", help="how old the newest cosignature may be (else the trust file's)"
    )
    monitor.add_argument("--metrics", metavar="HOST:PORT", help="an address of its own for Prometheus")
    monitor.add_argument("--once", action="store_true", help="look once, and say it with the exit code")


def follow_options(args: argparse.Namespace) -> list[str]:
    """The options that were given and that only a monitor takes, but for --follow itself."""
    given = {
        "--interval": args.interval != DEFAULT_INTERVAL,
        "--origin": args.origin is not None,
        "--max-age": args.max_age is not None,
        "--metrics": args.metrics is not None,
        "--once": args.once,
    }
    return [name for name, is_given in given.items() if is_given]


def run_follow(args: argparse.Namespace, trust: Trust) -> int:
    """Watches until it is told to stop, or once."""
    from auditor.monitor import Watched
    from auditor.monitor_metrics import MonitorMetrics
    from auditor.monitor_state import open_state
    from tlog.client import UrlReader
    from tlog.metrics import Metrics

    if args.state is None:
        raise MalformedError(
            "expected --state DIR with --follow: what was seen before is what a fork is known by"
        )
    interval = parse_seconds(args.interval, "the interval")
    max_age = None if args.max_age is None else parse_seconds(args.max_age, "the age of a cosignature")
    watched = Watched(trust, _origin(args, trust), max_age)
    metrics = Metrics()
    follower = Follower(args, watched, open_state(args.state), MonitorMetrics(metrics))
    reader = UrlReader(args.follow, FETCH_SECONDS)
    try:
        if args.once:
            return exit_code(follower.step(reader).alarms)
        with _metrics_server(args, metrics):
            _go_on(lambda: follower.step(reader), interval)
    finally:
        reader.close()
    return 0


class Follower:
    """Looks at one log, keeps what it saw, and tells of each alarm once."""

    def __init__(
        self, args: argparse.Namespace, watched: Watched, state: MonitorState, metrics: MonitorMetrics
    ) -> None:
        self._as_json = bool(args.json)
        self._watched = watched
        self._state = state
        self._metrics = metrics
        self._lasting: dict[str, Alarm] = {}

    def step(self, reader: UrlReader) -> Look:
        """One look, told."""
        from auditor.monitor import FORK, look
        from witness.client import fetch_heads

        now, origin = int(time.time()), self._watched.origin
        witnessed = fetch_heads(self._watched.trust.policy, origin, WITNESS_SECONDS)
        found = look(self._watched, reader, witnessed, self._state.head(origin), now)
        fork = self._state.fork(origin)
        if fork is not None and fork.key not in {alarm.key for alarm in found.alarms}:
            found = replace(found, alarms=(*found.alarms, fork))
        if found.keep is not None:
            self._state.keep_head(origin, found.keep)
        self._metrics.on_look(found, now)
        lasting = {alarm.key: alarm for alarm in found.alarms}
        for key, alarm in lasting.items():
            if key not in self._lasting:
                self._metrics.on_alarm(alarm.code)
                self._tell(alarm, now, self._state.keep_alarm(origin, alarm, now))
        for key, alarm in self._lasting.items():
            if key not in lasting and alarm.code != FORK:
                # A log that has forked has done so for ever, whatever it shows the next time.
                self._tell(alarm, now, None)
        self._lasting = lasting
        return found

    def _tell(self, alarm: Alarm, now: int, place: str | None) -> None:
        """An alarm with the place of its evidence, or that it is over."""
        from auditor.monitor_state import describe

        if self._as_json:
            document = {"alarm": alarm.code, "over": place is None, "at": now, "origin": self._watched.origin}
            sys.stdout.write(json.dumps({**document, **describe(alarm), "evidence": place}) + "\n")
        elif place is None:
            sys.stdout.write(f"over: {alarm.code}: {alarm.what}\n")
        else:
            sys.stdout.write(f"{alarm.severity}: {alarm.code}: {alarm.what} Evidence in {place}\n")
        sys.stdout.flush()


def exit_code(alarms: tuple[Alarm, ...]) -> int:
    """0 without alarms, 3 if the log could not be reached and nothing else is wrong, else 1."""
    from auditor.monitor import UNREACHABLE

    codes = {alarm.code for alarm in alarms}
    if not codes:
        return 0
    return 3 if codes == {UNREACHABLE} else 1


def parse_seconds(text: str, what: str) -> int:
    """The seconds of a duration such as 90s, 10m or 1h."""
    match = _DURATION.fullmatch(text)
    seconds = 0 if match is None else int(match[1]) * _UNITS[match[2]]
    if not 1 <= seconds <= _MAX_SECONDS:
        raise MalformedError(f"expected {what} to be a whole number and one of s, m, h, d, w, of 1s to 7d")
    return seconds


def _origin(args: argparse.Namespace, trust: Trust) -> str:
    origins = [log.key.name for log in trust.policy.logs]
    if not origins or args.origin not in (None, *origins):
        raise MalformedError("expected a policy that lists the log")
    return str(args.origin or origins[0])


def _go_on(step: Callable[[], Look], interval: int) -> None:
    """Looks at a steady pace until the process is told to stop. What fails on our side is tried again."""
    stop = threading.Event()
    previous = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        while not stop.is_set():
            began = time.monotonic()
            try:
                step()
            except UnavailableError as error:
                sys.stderr.write(f"muniment: {error.message}\n")
            stop.wait(max(0.0, interval - (time.monotonic() - began)))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _metrics_server(args: argparse.Namespace, metrics: Metrics) -> Iterator[None]:
    """A listener for Prometheus, on a thread of its own, for as long as the block lasts."""
    if args.metrics is None:
        yield
        return
    from tlog.web import make_metrics_server, parse_listen

    def announce(url: str) -> None:
        sys.stderr.write(f"metrics on {url}/metrics\n")
        sys.stderr.flush()

    server = make_metrics_server(metrics, *parse_listen(args.metrics), announce)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(5.0)
