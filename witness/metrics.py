"""What a witness tells whoever runs it: requests, conflicts, commits, and of each log its size and age.

Logs are public and known to the operator, so their origins may stand in labels; clients never do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tlog.metrics import Metrics
from witness.store import Store

A = TypeVar("A")

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class WitnessMetrics(Metrics):
    """The metrics of one witness process."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._store = store
        self._clock = clock
        self._answers = self.counter(
            "muniment_witness_answers_total", "Answers to witness requests.", ("call", "status")
        )
        self._conflicts = self.counter(
            "muniment_witness_conflicts_total", "Heads refused for what was cosigned before.", ("code",)
        )
        self._batches = self.histogram(
            "muniment_witness_batch_requests", "Requests judged together.", (), BATCH_SIZES
        )
        self._commits = self.histogram(
            "muniment_witness_batch_seconds",
            "Time to judge, sign and store the requests of a batch.",
            (),
            COMMIT_SECONDS,
        )

    def answered(self, call: str, status: int, code: str = "") -> None:
        """Counts an answer; `code` is that of a refusal."""
        self._answers.add(call, str(status))
        if status in (409, 422):
            self._conflicts.add(code)

    def timed(
        self, run: Callable[[Sequence[bytes]], Sequence[A]]
    ) -> Callable[[Sequence[bytes]], Sequence[A]]:
        """`run`, with its batches counted and timed."""

        def measured(bodies: Sequence[bytes]) -> Sequence[A]:
            began = time.monotonic()
            try:
                return run(bodies)
            finally:
                self._batches.observe(len(bodies))
                self._commits.observe(time.monotonic() - began)

        return measured

    def text(self) -> str:
        """All metrics as Prometheus reads them; those of the logs are of what is stored now."""
        return super().text() + "".join(f"{line}\n" for line in self._log_lines())

    def _log_lines(self) -> list[str]:
        now = self._clock()
        logs = [log for log in self._store.logs() if log.keys]
        evidence = self._store.evidence_counts()
        sizes, ages = [], []
        for log in logs:
            if log.cosigned:
                label = '{origin="%s"}' % _escape(log.origin)  # noqa: UP031 -- braces would have to be doubled
                sizes.append(f"muniment_witness_log_size{label} {log.cosigned.head.size}")
                ages.append(f"muniment_witness_log_age_seconds{label} {max(0, int(now) - log.cosigned.time)}")
        return [
            *_gauge(
                "muniment_witness_logs", "Logs that are cosigned.", [f"muniment_witness_logs {len(logs)}"]
            ),
            *_gauge("muniment_witness_log_size", "Size of the last cosigned head.", sizes),
            *_gauge("muniment_witness_log_age_seconds", "Seconds since the last cosignature.", ages),
            *_gauge(
                "muniment_witness_evidence",
                "Refused heads that are kept; a fork convicts its log.",
                [f'muniment_witness_evidence{{kind="{kind}"}} {evidence.get(kind, 0)}' for kind in KINDS],
            ),
        ]


KINDS = ("fork", "unproven")


def _gauge(name: str, help_text: str, samples: list[str]) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} gauge", *samples] if samples else []


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
