"""Storms over a memory of many nodes, each of another seed: `python tests/soak_nodes.py --rounds 20`.

Starts PostgreSQL servers, an S3 server and four nodes on loopback for each. Ends at the first thing that is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent), str(TESTS / "nodes"), str(TESTS / "servers")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each storm lasts")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first")
    args = parser.parse_args()
    from storm import run_storm

    for seed in range(args.first, args.first + args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            told = run_storm(Path(folder), seed, args.seconds)
        print(json.dumps({"seed": seed, **told}), flush=True)


if __name__ == "__main__":
    main()
