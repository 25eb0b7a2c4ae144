"""Sentences without a key that name something corrected: which are held, of the true ones and of the echoes.

    python benchmarks/guard_sentences.py [FILE] [--show]

FILE holds one sentence a line (`half`, `tells`, `key`, `was`, `now`, `record`, `text`); the default is
`tests/vectors/unkeyed_sentences.jsonl`. Each is written after a record of its key was corrected, from what it `was`
to what it is `now`, in a memory of its own. `tells` is `true` for a sentence that is so after the correction and `echo`
for one that says that the retired value holds. The half `develop` was at hand while the rules were written, `measure`
not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))


def is_held(home: Any, number: int, case: dict[str, str]) -> bool:
    """Whether a sentence waits for a person, and is not served."""
    from memory.principal import make_principal, with_all_scopes

    memory = home.memory(with_all_scopes(make_principal("sentences", f"agent {number}", "bench")))
    for value in (case["was"], case["now"]):
        memory.remember(case["record"].format(value), key=case["key"], value=value)
    answer = memory.remember(case["text"])
    if answer["outcome"] not in ("held", "stored"):
        raise SystemExit(f"neither held nor stored but {answer['outcome']}: {case['text']}")
    return bool(answer["outcome"] == "held")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "file", nargs="?", default=str(REPOSITORY / "tests" / "vectors" / "unkeyed_sentences.jsonl")
    )
    parser.add_argument("--show", action="store_true", help="also each sentence that came out otherwise")
    args = parser.parse_args()
    from memory.wiring import open_home

    cases = [json.loads(line) for line in Path(args.file).read_text("utf-8").splitlines() if line.strip()]
    total: Counter[tuple[str, str]] = Counter()
    held: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="guard-sentences-") as folder, open_home(f"{folder}/h") as home:
        for number, case in enumerate(cases):
            kind = case["half"], case["tells"]
            found = is_held(home, number, case)
            total[kind] += 1
            held[kind] += found
            if args.show and found == (case["tells"] == "true"):
                print(
                    f"{case['half']:<8} {case['tells']:<5} {'held' if found else 'served':<7} {case['text']}"
                )
    for half, tells in sorted(total):
        print(f"{half:<8} {tells:<5} held {held[half, tells]:>3} of {total[half, tells]}")
    return 1 if any(held[kind] != total[kind] for kind in total if kind[1] == "echo") else 0


if __name__ == "__main__":
    raise SystemExit(main())
