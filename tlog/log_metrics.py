"""What the service of a log tells whoever runs it: sizes, publications, statements, witnesses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tlog.errors import Error
from tlog.log import CosignFunction
from tlog.metrics import SECONDS, Metrics
from tlog.note import SignatureLine
from tlog.policy import Policy
from tlog.published import PublishedHead
from tlog.publisher import Turn

COSIGNED: Final = "cosigned"
MISSING: Final = "missing"  # there was none by this key
WAITING: Final = "waiting"  # when the round ended at the quorum; what comes of it is told afterwards


class LogMetrics:
    """The metrics of one log's service."""

    def __init__(self, metrics: Metrics) -> None:
        self._size = metrics.gauge("muniment_log_tree_size", "Entries that are committed.")
        self._published_size = metrics.gauge("muniment_log_published_size", "Entries that are public.")
        self._published_at = metrics.gauge(
            "muniment_log_published_timestamp_seconds", "When this process published last."
        )
        self._seconds = metrics.histogram("muniment_log_publish_seconds", "Time that a publication took.")
        self._failures = metrics.counter(
            "muniment_log_publish_failures_total", "Publications that failed, by error code.", ("code",)
        )
        self._statements = metrics.counter(
            "muniment_log_statements_total", "Statements submitted, by what became of them.", ("outcome",)
        )
        self._cosigned_at = metrics.gauge(
            "muniment_log_witness_cosigned_timestamp_seconds", "Time of the newest cosignature.", ("witness",)
        )
        self._answers = metrics.counter(
            "muniment_log_witness_answers_total", "Witnesses asked, by outcome.", ("witness", "outcome")
        )
        self._answer_seconds = metrics.histogram(
            "muniment_log_witness_seconds", "Time to a witness's answer.", ("witness",), SECONDS
        )
        self._round_seconds = metrics.histogram(
            "muniment_log_witness_round_seconds", "Time until the quorum was had, or was not."
        )
        self._told: set[str] = set()

    def on_turn(self, turn: Turn) -> None:
        """Counts one publication, or its failure."""
        self._seconds.observe(turn.seconds)
        if turn.error is None:
            self._published_at.set(turn.at)
        else:
            # `rolled_back` here is evidence: this log, or somebody who has its key, signed another history.
            self._failures.add(turn.error.code)

    def on_statement(self, outcome: str) -> None:
        """Counts one statement: `registered`, or the code of its refusal."""
        self._statements.add(outcome)

    def on_error(self, error: Error) -> None:
        """Counts one statement that was not registered."""
        self._statements.add(error.code)

    def on_witness(self, witness: str, outcome: str, seconds: float | None = None) -> None:
        """Counts one answer of a witness, or that there was none, and how long it took where that is known.

        One that is `waiting` is counted once it is told how it ended, which may be after the round.
        """
        self._told.add(witness)
        if outcome == WAITING:
            return
        self._answers.add(witness, outcome)
        if seconds is not None:
            self._answer_seconds.observe(seconds, witness)

    def on_sizes(self, size: int, head: PublishedHead) -> None:
        """Sets what is committed and what is public."""
        self._size.set(size)
        self._published_size.set(head.size)
        for witness, at in head.cosigned_at:
            self._cosigned_at.set(at, witness)

    def observed(self, cosign: CosignFunction, policy: Policy) -> CosignFunction:
        """`cosign`, with what the witnesses of the policy answer counted, and the round timed.

        Of a witness that `on_witness` was told of during the round, nothing more is counted.
        """
        names = {(witness.key.name, witness.key.key_id): witness.name for witness in policy.witnesses}

        def observed(
            note: bytes,
            prove: Callable[[int], tuple[bytes, ...]],
            previous_size: int,
            deadline_seconds: float,
        ) -> tuple[SignatureLine, ...]:
            began = time.monotonic()
            self._told.clear()
            lines = cosign(note, prove, previous_size, deadline_seconds)
            self._round_seconds.observe(time.monotonic() - began)
            had = {(line.name, line.key_id) for line in lines}
            for key, name in names.items():
                if name not in self._told:
                    self.on_witness(name, COSIGNED if key in had else MISSING)
            return lines

        return observed
