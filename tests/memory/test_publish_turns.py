"""Of many that publish at one cadence one does."""

from __future__ import annotations

import threading
from typing import Any

from memory import wiring
from memory.principal import owner_from_environment
from tlog.log import Log


def test_who_waited_for_a_turn_publishes_nothing_again(home: wiring.Home, monkeypatch: Any) -> None:
    home.memory(owner_from_environment({})).remember("one", key="a", value="1")
    published: list[int] = []
    publish = Log.publish

    def counted(log: Log, deadline_seconds: float) -> Any:
        published.append(log.head().size)
        return publish(log, deadline_seconds)

    monkeypatch.setattr(Log, "publish", counted)
    answers: list[Any] = []
    with wiring.open_existing_home(home.path) as other:
        waiting = threading.Thread(target=lambda: answers.append(other.publish_if_needed()))
        with home.log().private.lock("turn"):
            waiting.start()
            while not other.__dict__.get("_log"):
                waiting.join(0.01)  # until it has found that there is something to publish
            home.publish()
        waiting.join()
    assert (answers, published) == ([None], [1])
    home.memory(owner_from_environment({})).remember("two", key="b", value="2")
    assert home.publish_if_needed() is not None
    assert published == [1, 2]
