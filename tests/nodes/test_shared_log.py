"""One log on several nodes: killed or stopped at each step, another goes on, and the first changes nothing any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from crowd import Crowd, require_sound
from node import FAILPOINTS, entry, open_node
from proxy import Proxy

from tlog.errors import UnavailableError, VerificationError
from tlog.log import Log

Place = Callable[..., dict[str, Any]]
Here = Callable[..., Log]


def nothing(_: str) -> None:
    return None


@pytest.fixture
def here() -> Iterator[Callable[..., Log]]:
    """Opens a node in this process."""
    opened: list[Log] = []

    def open_here(
        settings: dict[str, Any], heard: list[list[str]], failpoint: Callable[[str], None] = nothing
    ) -> Log:
        parts = (settings[name] for name in ("dsn", "bucket", "log", "lease"))
        opened.append(open_node(*parts, failpoint, lambda line: heard.append(line.split())))
        return opened[-1]

    yield open_here
    for log in opened:
        log.close()


def all_of(log: Log) -> dict[str, bytes | None]:
    """What the log is, for all nodes: its private files, and its checkpoint."""
    return {name: log.private.read(name) for name in log.private.names("")} | {"public": log.checkpoint()}


@pytest.mark.parametrize("step", FAILPOINTS)
def test_another_goes_on_where_a_node_was_killed(place: Place, here: Here, crowd: Crowd, step: str) -> None:
    heard: list[list[str]] = []
    here(place(), heard).append([entry(number) for number in range(3)])
    first = crowd.start(place(first=3, last=300, at=step, how="KILL"))
    first.finish()
    assert ["at", step] in first.heard
    second = here(place(), heard)
    second.append([entry(number) for number in range(3, 310)])
    heard.append(["published", str(second.publish(10).size)])
    require_sound(second, [*heard, *first.heard], range(310))


@pytest.mark.parametrize("step", FAILPOINTS)
def test_a_node_that_stood_still_changes_nothing_once_another_took_over(
    place: Place, here: Here, crowd: Crowd, step: str
) -> None:
    heard: list[list[str]] = []
    earlier = here(place(), heard)
    earlier.append([entry(number) for number in range(3)])
    earlier.publish(10)
    first = crowd.start(place(first=3, last=300, at=step, how="STOP", deadline=0.5))
    assert first.until("at") == ["at", step]
    second = here(place(), heard)
    second.append([entry(number) for number in range(3, 310)])
    heard.append(["published", str(second.publish(10).size)])
    before = all_of(second)
    with second.private.lock("publish", 10):
        first.go_on()
        first.finish()
        after = all_of(second)
    assert after == before
    # Where it had put the checkpoint already, there was nothing left for it to be refused.
    assert first.heard[-1] == (["done"] if step == "published" else ["failed", "busy"])
    require_sound(second, [*heard, *first.heard], range(310))


def test_many_nodes_at_once_make_one_log(place: Place, here: Here, crowd: Crowd) -> None:
    nodes = [crowd.start(place(first=at * 40, last=at * 40 + 60)) for at in range(4)]
    for node in nodes:
        assert node.finish() == ["done"]
    log = here(place(), [])
    log.publish(10)
    require_sound(log, [line for node in nodes for line in node.heard], range(180))


def test_the_clocks_of_nodes_do_not_matter(place: Place, here: Here, crowd: Crowd) -> None:
    days = 86_400
    nodes = [crowd.start(place(first=0, last=50, skew=skew)) for skew in (-30 * days, 30 * days)]
    for node in nodes:
        assert node.finish() == ["done"]
    require_sound(here(place(), []), [line for node in nodes for line in node.heard], range(50))


def test_a_publisher_that_waits_for_a_slow_bucket_stays_the_publisher(
    place: Place, here: Here, object_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Proxy(int(object_store.endpoint.rpartition(":")[2]))
    other = here(place(), [])
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{slow.port}")
    waited: list[str] = []

    def failpoint(name: str) -> None:
        # Longer than a lease, several times on the way of one publication.
        slow.delay_seconds = 1.0 if name in ("committed", "signed") else 0.0
        if name == "announced":
            with pytest.raises(UnavailableError), other.private.lock("publish", 0.1):
                pass
            waited.append(name)

    log = here(place(), [], failpoint)
    log.append([entry(number) for number in range(20)])
    log.publish(30)
    assert waited == ["announced"]
    require_sound(log, [], range(20))
    slow.close()


@pytest.mark.parametrize("step", FAILPOINTS)
@pytest.mark.parametrize("silent", [False, True], ids=["cut", "unanswered"])
def test_a_lost_connection_is_tried_again_and_loses_nothing(
    place: Place, here: Here, step: str, silent: bool
) -> None:
    settings = place()
    parts = dict(part.split("=") for part in settings["dsn"].split())
    proxy = Proxy(int(parts["port"]))
    through = {**settings, "dsn": settings["dsn"].replace(f"port={parts['port']}", f"port={proxy.port}")}
    met: list[str] = []

    def failpoint(name: str) -> None:
        if name == step and not met:
            met.append(name)
            if silent:
                proxy.silent = True
            else:
                proxy.cut()
                proxy.refusing = True

    heard: list[list[str]] = []
    log = here(through, heard, failpoint)
    numbers = range(300)
    if silent:
        threading.Timer(0.7, lambda: (proxy.cut(), setattr(proxy, "silent", False))).start()
    for _ in range(40):
        try:
            log.append([entry(number) for number in numbers])
            log.publish(10)
            break
        except UnavailableError:
            proxy.refusing = False
            if silent and met:
                time.sleep(0.1)
    assert met == [step]
    require_sound(log, heard, numbers)
    proxy.close()


def test_a_database_that_was_put_back_publishes_nothing_and_changes_no_object(
    place: Place, here: Here
) -> None:
    settings = place()
    log = here(settings, [])
    log.append([entry(number) for number in range(5)])
    log.publish(10)
    tables = ("log_files", "log_identities", "log_indexed")

    def on_each(statement: str) -> None:
        for table in tables:
            run = statement.format(table=table, kept=f"kept_{settings['log']}_{table}")
            log.private._link.run(lambda connection, run=run: connection.execute(run))  # type: ignore[attr-defined]

    on_each("CREATE TABLE muniment_log.{kept} AS SELECT * FROM muniment_log.{table}")
    log.append([entry(number) for number in range(5, 20)])
    log.publish(10)
    on_each("DELETE FROM muniment_log.{table} WHERE log IN (SELECT log FROM muniment_log.{kept})")
    on_each("INSERT INTO muniment_log.{table} SELECT * FROM muniment_log.{kept}")
    on_each("DROP TABLE muniment_log.{kept}")
    before = {name: log.public.read(name) for name in log.public.names("")}
    other = here(settings, [])
    other.append([entry(number) for number in range(100, 103)])
    with pytest.raises(VerificationError) as caught:
        other.publish(10)
    assert caught.value.code == "rolled_back"
    assert {name: other.public.read(name) for name in other.public.names("")} == before
