"""`muniment witness serve` and `follow`: the two that run on."""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from tlog.errors import Error, MalformedError, UnavailableError
from witness.cli_output import Json, identity, print_json, printable
from witness.feeder import Fed, Follower, feed, now_seconds
from witness.limits import DEFAULT_PER_DAY, DailyLimit
from witness.service import Witness
from witness.signers import load_cosigners
from witness.store import Store, open_store

MAX_FOLLOWED = 64
MIN_EVERY_SECONDS = 1
FETCH_SECONDS = 30.0


def serve(args: argparse.Namespace) -> int:
    """Answers requests until it is told to stop."""
    from tlog.web import make_metrics_server, parse_listen

    host, port = parse_listen(args.listen)
    metrics_address = parse_listen(args.metrics) if args.metrics else None
    with closing(open_store(args.state)) as store:
        witness = _witness(args, store)
        from witness import metrics, server

        _allow_many_files()
        measured = metrics.WitnessMetrics(store)
        beside = [make_metrics_server(measured, *metrics_address)] if metrics_address else []
        said: Json = identity(store.marker)
        for one in beside:
            said["metrics"] = f"{one.url}/metrics"

        def announce(url: str) -> None:
            print(f"listening on {url}", file=sys.stderr, flush=True)  # noqa: T201 -- for people and scripts
            if args.json:
                print_json({"listening": url, **said})

        server.run(server.make_server(witness, host, port, announce, store, measured), beside)
    return 0


def follow(args: argparse.Namespace) -> int:
    """Has the heads of logs cosigned that publish them and ask nobody."""
    if not 1 <= len(args.url) <= MAX_FOLLOWED:
        raise MalformedError(f"follow: expected 1 to {MAX_FOLLOWED} URLs")
    if args.every < MIN_EVERY_SECONDS:
        raise MalformedError(f"follow: expected at least {MIN_EVERY_SECONDS} second between two looks")
    outcomes: dict[str, Fed | Error] = {}
    said = threading.Lock()

    def tell(url: str, outcome: Fed | Error) -> None:
        with said:
            changed = outcomes.get(url) != outcome and _key(outcomes.get(url)) != _key(outcome)
            outcomes[url] = outcome
            if changed:
                _tell(args, url, outcome)

    with _followers(args, tell) as followers:
        if args.once:
            return _follow_once(followers, outcomes)
        _follow_on(followers)
    return 0


def _follow_once(followers: list[Follower], outcomes: dict[str, Fed | Error]) -> int:
    """0 if every log was cosigned or had nothing new, 3 if one may be had later, 1 if one was refused."""
    for follower in followers:
        follower.step()
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, Error)]
    if any(not isinstance(error, UnavailableError) for error in errors):
        return 1
    return 3 if errors else 0


def _follow_on(followers: list[Follower]) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=one.run, args=(stop,), daemon=True) for one in followers]
    previous = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        for thread in threads:
            thread.start()
        stop.wait()
        for thread in threads:
            thread.join(FETCH_SECONDS)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _followers(
    args: argparse.Namespace, tell: Callable[[str, Fed | Error], None]
) -> Iterator[list[Follower]]:
    from tlog.client import UrlReader

    with ExitStack() as stack:
        store = stack.enter_context(closing(open_store(args.state)))
        witness = _witness(args, store)
        followers = []
        for url in args.url:
            reader = UrlReader(url, FETCH_SECONDS)
            stack.callback(reader.close)

            def feed_once(reader: UrlReader = reader) -> Fed:
                return feed(reader, store, witness, now_seconds())

            followers.append(Follower(url, feed_once, float(args.every), tell))
        yield followers


def _witness(args: argparse.Namespace, store: Store) -> Witness:
    per_day = DEFAULT_PER_DAY if args.heads_per_day is None else args.heads_per_day
    if per_day < 1:
        raise MalformedError("heads per day: expected 1 or more")
    return Witness(store, load_cosigners(args.state, store.marker), limit=DailyLimit(per_day))


def _key(outcome: Fed | Error | None) -> tuple[object, ...] | None:
    """What makes two outcomes in a row the same news."""
    if isinstance(outcome, Fed):
        return (outcome.origin, outcome.size)
    return (outcome.code, outcome.message) if outcome else None


def _tell(args: argparse.Namespace, url: str, outcome: Fed | Error) -> None:
    if isinstance(outcome, Fed):
        document: Json = {
            "url": url,
            "outcome": outcome.outcome,
            "origin": outcome.origin,
            "size": outcome.size,
        }
        text = f"{url}: {outcome.outcome} size {outcome.size}"
    else:
        document = {"url": url, "outcome": "failed", "code": outcome.code, "message": outcome.message}
        text = f"{url}: {outcome.code}: {outcome.message}"
    if args.json:
        print_json(document)
    else:
        print(printable(text), file=sys.stderr, flush=True)  # noqa: T201 -- for people


def _allow_many_files() -> None:
    """Lets the process have as many connections as the system grants it, not the few of a login shell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
