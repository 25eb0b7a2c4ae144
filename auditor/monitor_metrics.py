"""What a monitor tells whoever runs it. No label says more than the public policy."""

from __future__ import annotations

from typing import Final

from auditor.monitor import UNREACHABLE, Look
from tlog.metrics import Metrics

CODES: Final = (
    "LOG_FORK",
    "LOG_ROLLED_BACK",
    "LOG_TRUNCATED",
    "LOG_SIGNATURE",
    "QUORUM_NOT_MET",
    "CHECKPOINT_STALE",
    UNREACHABLE,
)


class MonitorMetrics:
    """The metrics of one monitor."""

    def __init__(self, metrics: Metrics) -> None:
        self._size = metrics.gauge("muniment_monitor_tree_size", "Entries under the head that was seen last.")
        self._cosigned = metrics.gauge(
            "muniment_monitor_cosigned_timestamp_seconds", "Time of the newest cosignature on that head."
        )
        self._looked = metrics.gauge(
            "muniment_monitor_look_timestamp_seconds", "When the log was looked at last."
        )
        self._looks = metrics.counter(
            "muniment_monitor_looks_total", "Looks at the log, by what they came to.", ("outcome",)
        )
        self._alarms = metrics.gauge("muniment_monitor_alarms", "Alarms that last, by code.", ("code",))
        self._raised = metrics.counter("muniment_monitor_alarms_total", "Alarms raised, by code.", ("code",))
        self._answers = metrics.counter(
            "muniment_monitor_witness_answers_total", "Witnesses asked, by outcome.", ("witness", "outcome")
        )
        for code in CODES:
            self._alarms.set(0, code)

    def on_look(self, look: Look, now: int) -> None:
        """Counts a look."""
        self._looked.set(now)
        self._looks.add("alarm" if look.alarms else "ok")
        if look.head is not None:
            self._size.set(look.head.size)
        if look.cosigned_at is not None:
            self._cosigned.set(look.cosigned_at)
        for name in look.heard:
            self._answers.add(name, "head")
        for name in look.silent:
            self._answers.add(name, "nothing")
        for code in CODES:
            self._alarms.set(sum(alarm.code == code for alarm in look.alarms), code)

    def on_alarm(self, code: str) -> None:
        """Counts an alarm that was not there the last time."""
        self._raised.add(code)
