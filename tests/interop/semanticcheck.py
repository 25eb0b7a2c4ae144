"""How well recall finds made-up notes by words, with vectors, and with vectors that are mixed up: JSON of three R@10.

python semanticcheck.py HOME
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.recall_styles import STYLES, make
from memory import semantic_index, wiring
from memory.model import SCOPES, Principal
from memory.service import Memory

AT = 10


def share_found(memory: Memory, questions: Sequence[tuple[str, list[int]]]) -> float:
    """R@10 of the questions."""
    shares = []
    for text, places in questions:
        found = {fact["source"] for fact in memory.recall(text, limit=AT)["facts"]}
        shares.append(len(found & set(map(str, places))) / len(places))
    return sum(shares) / len(shares)


def main() -> None:
    notes, questions = make(STYLES["diary"], random.Random("diary"))
    questions = questions[::2]
    with wiring.open_home(Path(sys.argv[1])) as home:
        memory = home.memory(Principal("acme", "ops", "desk", SCOPES))
        for place, text in enumerate(notes):
            memory.remember(text, source=str(place))
        words = share_found(memory, questions)
        home.write_config(replace(home.config, semantic="wordllama"))
        made = semantic_index.catch_up(home.parts())
        assert made == len(notes), (made, len(notes))
        meaning = share_found(memory, questions)
        with home.parts().store.write() as txn:
            rows = txn.view.rows("SELECT seq, vector FROM vectors ORDER BY seq")
            turned = [(vector, seq) for (seq, _), (_, vector) in zip(rows, rows[7:] + rows[:7], strict=True)]
            txn.connection.executemany("UPDATE vectors SET vector = ? WHERE seq = ?", turned)
        mixed = share_found(memory, questions)
    print(json.dumps({"words": words, "meaning": meaning, "mixed": mixed}))


if __name__ == "__main__":
    main()
