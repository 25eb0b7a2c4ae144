"""What a witness tells whoever runs it: requests, conflicts, commits, and of each log its size and age.

Logs are public and known to the operator, so their origins may stand in labels; clients never do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tlog.metrics import Metrics
from witness.answers import HttpAnswer
from witness.hot import PATH
from witness.store import Store

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ADD_CHECKPOINT = "add-checkpoint"

Run = Callable[[Sequence[bytes]], Sequence[HttpAnswer]]
"""Answers add-checkpoint bodies that arrived together."""

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class WitnessMetrics(Metrics):
    """The metrics of one witness process."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._store = store
        self._clock = clock
        self._answers = self.counter(
            "muniment_witness_answers_total", "Requests answered.", ("call", "status")
        )
        self._seconds = self.histogram(
            "muniment_witness_answer_seconds", "Time from a request to its answer.", ("call",)
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

    def count_hot(self, answer: HttpAnswer, seconds: float) -> None:
        """Counts an answer that went the short way, and how long it took."""
        self._answers.add(ADD_CHECKPOINT, str(answer.status))
        self._seconds.observe(seconds, ADD_CHECKPOINT)

    def count_requests(self, app: ASGIApp) -> ASGIApp:
        """`app`, with its answers counted by call and status, and timed."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            path = scope["path"]
            call = "checkpoint" if path.endswith("/checkpoint") else _CALLS.get(path, "other")
            began = time.monotonic()

            async def note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self._answers.add(call, str(message["status"]))
                    self._seconds.observe(time.monotonic() - began, call)
                await send(message)

            await app(scope, receive, note)

        return counted

    def measured(self, run: Run) -> Run:
        """`run`, with its batches counted and timed, and the conflicts among its answers counted."""

        def measured(bodies: Sequence[bytes]) -> Sequence[HttpAnswer]:
            began = time.monotonic()
            answers = run(bodies)
            self._batches.observe(len(bodies))
            self._commits.observe(time.monotonic() - began)
            for answer in answers:
                if answer.code in CONFLICTS:
                    self._conflicts.add(answer.code)
            return answers

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
CONFLICTS = ("old_size", "proof", "fork")
_CALLS = {
    PATH: ADD_CHECKPOINT,
    "/sign-subtree": "sign-subtree",
    "/logs": "logs",
    "/healthz": "health",
    "/readyz": "health",
}


def _gauge(name: str, help_text: str, samples: list[str]) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} gauge", *samples] if samples else []


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
