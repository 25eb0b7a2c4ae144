"""Real peers judge what Muniment writes, and Muniment judges what they write.

    python tests/interop/run.py [PEER…]

Each peer is installed for the run where it can be, in a folder of its own outside the project. One that cannot be
had today is reported as skipped, with the reason, and fails nothing; one that runs and disagrees fails the run.
Every claim has a control: something changed that must be refused. Ends with a table of what each peer was asked,
and the line `interop: N passed, M failed, K skipped`.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import peer_adapters
import peer_go
import peer_go_log
import peer_mcp
import peer_mldsa
import peer_residue
import peer_scales
import peer_scitt
import peer_scittles
import peer_transmute
import peer_vectors
import peer_witness
import peer_wordllama
from installing import CannotInstall, Tool
from judging import Judge, Row
from sample import Bench, Sample, make_sample

THREADS = 3


@dataclass(frozen=True)
class Peer:
    """A peer, how it is installed and what it is asked."""

    name: str
    install: Callable[[Path], Tool]
    checks: tuple[Callable[[Bench, Judge], None], ...]


@dataclass(frozen=True)
class Report:
    """What became of one peer."""

    peer: Peer
    version: str
    seconds: float
    rows: tuple[Row, ...]


PEERS = (
    Peer("Go sumdb/note, sumdb/tlog", peer_go.install, (*peer_go.CHECKS, *peer_go_log.CHECKS)),
    Peer("scitt-cose", peer_scitt.install, peer_scitt.CHECKS),
    Peer("@transmute/cose", peer_transmute.install, peer_transmute.CHECKS),
    Peer("aics-witness", peer_witness.install, peer_witness.CHECKS),
    Peer("@noble/post-quantum", peer_mldsa.install, peer_mldsa.CHECKS),
    Peer("tlog-scales", peer_scales.install, peer_scales.CHECKS),
    Peer("scittles", peer_scittles.install, peer_scittles.CHECKS),
    Peer("strings", peer_residue.install_strings, (peer_residue.check_strings,)),
    Peer("yara", peer_residue.install_yara, (peer_residue.check_yara,)),
    Peer("sqlite_dissect", peer_residue.install_dissect, (peer_residue.check_dissect,)),
    Peer("scalpel", peer_residue.install_scalpel, (peer_residue.check_scalpel,)),
    Peer("LangGraph, Agents SDK, Claude SDK", peer_adapters.install, peer_adapters.CHECKS),
    Peer("sqlite-vec", peer_vectors.install, peer_vectors.CHECKS),
    Peer("wordllama", peer_wordllama.install, peer_wordllama.CHECKS),
    Peer("MCP clients, Inspector, conformance", peer_mcp.install, peer_mcp.CHECKS),
)


def judge(peer: Peer, sample: Callable[[], Sample], folder: Path) -> Report:
    """The report on one peer; whatever a check raises is a failure of that check, not of the runner."""
    began = time.monotonic()
    judge = Judge()
    version = ""
    place = folder / "peer"
    place.mkdir(parents=True, mode=0o700)
    try:
        tool = peer.install(place)
        version = tool.version
        for number, check in enumerate(peer.checks):
            own = folder / f"check-{number}"
            own.mkdir(mode=0o700)
            _ask(check, Bench(sample(), tool.path, own), judge)
    except CannotInstall as reason:
        judge.rows.append(Row("can be installed", "skipped", str(reason)))
    except Exception as error:  # noqa: BLE001 -- an outermost loop: one peer must not hide the others
        traceback.print_exc()
        judge.broke("can be installed and asked", error)
    return Report(peer, version, time.monotonic() - began, tuple(judge.rows))


def _ask(check: Callable[[Bench, Judge], None], bench: Bench, judge: Judge) -> None:
    try:
        check(bench, judge)
    except Exception as error:  # noqa: BLE001 -- likewise: one check must not hide the others
        traceback.print_exc()
        judge.broke((check.__doc__ or check.__name__).partition("\n")[0], error)


def main() -> int:
    wanted = [peer for peer in PEERS if not sys.argv[1:] or any(word in peer.name for word in sys.argv[1:])]
    with (
        tempfile.TemporaryDirectory(prefix="interop-") as place,
        ThreadPoolExecutor(THREADS) as threads,
        ThreadPoolExecutor(1) as maker,
    ):
        sample = maker.submit(make_sample, Path(place) / "sample")
        jobs = [
            threads.submit(judge, peer, sample.result, Path(place) / f"peer-{number}")
            for number, peer in enumerate(wanted)
        ]
        reports = [job.result() for job in jobs]
    return show(reports)


def show(reports: list[Report]) -> int:
    """Prints the table and the closing line; the exit code of the run."""
    for report in reports:
        print(f"\n{report.peer.name} {report.version} ({report.seconds:.0f} s)")
        for row in report.rows:
            print(f"  {row.result:<8} {row.claim}\n           {row.detail}")
    results = [row.result for report in reports for row in report.rows]
    passed, failed, skipped = (results.count(result) for result in ("passed", "FAILED", "skipped"))
    print(f"\ninterop: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    raise SystemExit(main())
