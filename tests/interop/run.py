"""Real peers judge what Muniment writes: Go's sumdb packages, scitt-cose, aics-witness, @noble/post-quantum.

    python tests/interop/run.py

Each peer is installed for the run where it can be, in a folder of its own outside the project. One that cannot be
installed today is reported as skipped and fails nothing; one that runs and disagrees fails the run. Ends with a
table of what ran, what was skipped and why, and the line `interop: N passed, M failed, K skipped`.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import peer_go
import peer_mldsa
import peer_scitt
import peer_witness
from installing import CannotInstall
from sample import Sample, make_sample


@dataclass(frozen=True)
class Row:
    """What became of one peer."""

    name: str
    result: str
    detail: str


PEERS: tuple[tuple[str, Callable[[Sample, Path], str]], ...] = (
    ("Go sumdb: notes, tiles, proofs", peer_go.check),
    ("scitt-cose: statements, receipts", peer_scitt.check),
    ("aics-witness: co-signs our log", peer_witness.check),
    ("@noble/post-quantum: ML-DSA-44", peer_mldsa.check),
)


def judge(name: str, check: Callable[[Sample, Path], str], sample: Sample, folder: Path) -> Row:
    """The row of one peer; whatever it raises is a failure of this run, not of the runner."""
    folder.mkdir()
    try:
        return Row(name, "passed", check(sample, folder))
    except CannotInstall as reason:
        return Row(name, "skipped", str(reason))
    except Exception as error:  # noqa: BLE001 -- the outermost loop: one peer's failure must not hide the others
        traceback.print_exc()
        return Row(name, "FAILED", f"{type(error).__name__}: {error}"[:200])


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="interop-") as place:
        sample = make_sample(Path(place) / "sample")
        rows = [
            judge(name, check, sample, Path(place) / f"peer-{number}")
            for number, (name, check) in enumerate(PEERS)
        ]
    for row in rows:
        print(f"{row.name:<36}{row.result:<9}{row.detail}")
    counts = {result: sum(row.result == result for row in rows) for result in ("passed", "FAILED", "skipped")}
    print(f"interop: {counts['passed']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped")
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
