"""How well recall finds notes that are asked for in other words: by words, with vectors, and with vectors that are
mixed up, among a diary of others: JSON of three R@10.

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
# A note, and what asks for it without a word of it.
OTHERWISE = (
    ("The physician told Greta to give up cigarettes.", "doctor's advice about smoking"),
    ("Our flat was burgled while we were abroad.", "when did thieves break into the apartment"),
    ("The puppy chewed through a pair of sneakers.", "dog destroyed shoes"),
    ("Ines purchased a used automobile last autumn.", "who bought a second-hand car"),
    ("The infant slept through the night at last.", "baby finally not waking up"),
    ("Rent climbs by a tenth in spring.", "how much more will the landlord charge"),
    ("The boiler broke, so there were no hot showers.", "heating failure, cold water"),
    ("Tomas quit his post at the bank.", "resignation from a job in finance"),
    ("They got wed in a tiny chapel by the sea.", "marriage ceremony in a church near the ocean"),
    ("The exam went badly and he must sit it again.", "failed test, has to retake"),
    ("Her flight was scrapped owing to fog.", "plane cancelled because of weather"),
    ("The kids built a fort out of snow.", "children playing in winter"),
    ("A grocery bill of ninety pounds shocked us.", "expensive food shopping"),
    ("The laptop was stolen from a parked van.", "computer theft from a vehicle"),
    ("Grandfather planted pear trees behind the barn.", "fruit orchard on the farm"),
    ("Their firm went bankrupt in January.", "company insolvency"),
    ("Nadia speaks Portuguese and some Welsh.", "which languages does she know"),
    ("The cellar flooded after the storm.", "water damage in the basement from heavy rain"),
    ("He plays the cello in a quartet on weekends.", "musician performing classical music"),
    ("The surgeon mended her fractured wrist.", "operation on a broken arm"),
    ("We adopted two kittens from a shelter.", "getting cats as pets"),
    ("The chef refuses to cook with pork.", "meat that the kitchen avoids"),
    ("Lorries are banned on this lane at night.", "truck traffic prohibited on the road"),
    ("The senator lost by eleven votes.", "politician defeated in the election"),
)


def share_found(memory: Memory, questions: Sequence[tuple[str, list[int]]]) -> float:
    """R@10 of the questions."""
    shares = []
    for text, places in questions:
        found = {fact["source"] for fact in memory.recall(text, limit=AT)["facts"]}
        shares.append(len(found & set(map(str, places))) / len(places))
    return sum(shares) / len(shares)


def main() -> None:
    notes = [note for note, _ in OTHERWISE] + list(make(STYLES["diary"], random.Random("diary"))[0])
    questions = [(question, [place]) for place, (_, question) in enumerate(OTHERWISE)]
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
