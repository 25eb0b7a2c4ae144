"""Longer notes of three further styles, made up from a seed, asked about in words that they seldom use.

    python benchmarks/recall_styles.py meeting|incident|diary > notes.json     (for benchmarks/recall.py --notes)

A note reports several matters of one team, system or person, between sentences that every note of the style may have.
Half of the matters are contradicted by a later note. A question has the name of what it asks about and otherwise
other words than the notes, so it is as hard for words as a paraphrase is. Other notes tell of the same things of
others, and other things of the same.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SUBJECTS: Final = 24


@dataclass(frozen=True)
class Style:
    """What a note is about, its matters (told, contradicted, asked), and the sentences that say nothing."""

    names: tuple[str, ...]
    matters: tuple[tuple[str, str, str], ...]
    values: tuple[str, ...]
    fillers: tuple[str, ...]


STYLES: Final = {
    "meeting": Style(
        ("Orchard", "Falcon", "Juniper", "Basalt", "Lantern", "Meridian", "Tundra", "Cobalt"),
        (
            (
                "{name}: the launch slips until {value} because legal has not signed.",
                "{name} will go out in {value} after all, legal signed early.",
                "when will customers be able to buy {name}",
            ),
            (
                "Budget of {name} stays at {value} thousand, no buffer.",
                "Finance trimmed {name}; there are {value} thousand to spend from now on.",
                "how much money does {name} have",
            ),
            (
                "{value} was asked to lead {name} for the rest of the year.",
                "{value} takes {name} over as of Monday, handover is done.",
                "who is in charge of {name}",
            ),
            (
                "We agreed that {name} buys hosting from {value}.",
                "The contract of {name} moves to {value}, the old one was terminated.",
                "which supplier runs the servers of {name}",
            ),
            (
                "Complaints about {name} are mostly that it is {value}.",
                "The survey now says users find {name} {value}.",
                "what do people dislike about {name}",
            ),
        ),
        ("March", "Okafor", "ninety", "Nordcloud", "slow", "June", "Berg", "forty", "Hostwell", "confusing"),
        (
            "Minutes were taken in turns and sent to everybody the same evening.",
            "The agenda had nine points, of which four were postponed.",
            "Somebody asked again for a shorter meeting; no decision.",
            "Next session in the large room, please bring printed figures.",
            "There was a long discussion about the order of work and who talks to whom.",
            "Action items from last time were read out and mostly closed.",
            "Two guests from the regional office listened in.",
        ),
    ),
    "incident": Style(
        ("gateway", "billing", "mailer", "indexer", "scheduler", "archive", "ingest", "portal"),
        (
            (
                "Root cause in {name} was an expired {value}.",
                "On a second look {name} broke because of the {value}, not what was written before.",
                "why did {name} fail",
            ),
            (
                "{name} was unreachable for {value} minutes.",
                "Corrected timeline: {name} could not be used during {value} minutes.",
                "how long was the outage of {name}",
            ),
            (
                "Mitigation for {name}: traffic went to {value}.",
                "{name} is pinned to {value} since the review.",
                "where are requests for {name} handled",
            ),
            (
                "{value} carries the pager for {name}.",
                "Rota changed, {value} answers alerts of {name} at night.",
                "whom do I phone if {name} is down",
            ),
            (
                "We capped {name} at {value} workers to be safe.",
                "{name} got {value} workers after the load test.",
                "how many processes may {name} start",
            ),
        ),
        (
            "certificate",
            "seventeen",
            "Frankfurt",
            "Imre",
            "twelve",
            "quota",
            "fifty",
            "Oregon",
            "Sunniva",
            "thirty",
        ),
        (
            "Dashboards stayed green for the first minutes, which misled everybody.",
            "The channel was noisy and two people typed the same command.",
            "Logs were rotated at the hour and had to be fetched from the backup.",
            "No data was lost as far as we can tell, checks continue.",
            "The status page was updated late and with a typo.",
            "A retry storm followed and settled by itself.",
            "Follow-ups are in the tracker, owners to be named on Thursday.",
        ),
    ),
    "diary": Style(
        ("Mum", "Theo", "Grandpa", "Anneke", "Uncle Rafi", "Lise", "the neighbour", "Marek"),
        (
            (
                "{name} has to take {value} twice a day from now on, the doctor insists.",
                "The doctor stopped that; {name} swallows {value} instead.",
                "what medicine is {name} on",
            ),
            (
                "{name} signed for a place near {value}, boxes everywhere.",
                "It fell through, {name} is settling in {value} and seems happier.",
                "where does {name} live",
            ),
            (
                "{name} started at the {value} this week and came home tired.",
                "New job for {name}, at the {value}, better hours.",
                "what does {name} do for work",
            ),
            (
                "For the birthday of {name} I put aside a {value}.",
                "Changed my mind: {name} gets a {value}, the other thing went to the shop.",
                "what present is meant for {name}",
            ),
            (
                "{name} cannot stand {value} any more, it brings a rash.",
                "Allergy test is back, for {name} it is {value} that must be avoided.",
                "which food is bad for {name}",
            ),
        ),
        (
            "ibuprofen",
            "Ghent",
            "bakery",
            "kite",
            "walnuts",
            "aspirin",
            "Aarhus",
            "library",
            "teapot",
            "shrimp",
        ),
        (
            "Rain all morning, the gutter sings again and I like it.",
            "Slept badly, read until two and regretted it.",
            "Long walk by the canal, the herons are back.",
            "Soup for lunch, too much salt, nobody complained.",
            "I should write more often and worry less.",
            "The cat sat on the letters and would not move.",
            "Lit the stove for the first time this autumn.",
        ),
    ),
}


def make(style: Style, dice: random.Random) -> tuple[list[str], list[tuple[str, list[int]]]]:
    """The notes in the order they were told, and the questions with the places of the notes that answer them."""
    pieces = list(_pieces(style, dice))
    order = [told for told, _, _ in pieces] + [changed for _, changed, _ in pieces if changed]
    notes: list[str] = []
    places: dict[str, int] = {}
    first, later = order[: len(pieces)], order[len(pieces) :]
    for part in (first, later):
        dice.shuffle(part)
        for piece in part:
            places[piece] = len(notes)
            notes.append(" ".join(_among(piece, style, dice)))
    asked = [
        (question, [places[told], *([places[changed]] if changed else [])])
        for told, changed, question in pieces
    ]
    return notes, asked


def _pieces(style: Style, dice: random.Random) -> Iterator[tuple[str, str | None, str]]:
    for number in range(SUBJECTS):
        name = f"{style.names[number % len(style.names)]} {'ABC'[number // len(style.names)]}"
        for place, (told, changed, asked) in enumerate(style.matters):
            old, new = style.values[place], style.values[place + len(style.matters)]
            is_changed = dice.random() < 0.5
            yield (
                told.format(name=name, value=old),
                changed.format(name=name, value=new) if is_changed else None,
                asked.format(name=name),
            )


def _among(piece: str, style: Style, dice: random.Random) -> list[str]:
    """A piece among fillers and mentions of others, at a random place."""
    others = [f"{dice.choice(style.names)} was mentioned, nothing new there." for _ in range(2)]
    sentences = [*dice.sample(style.fillers, 5), *others]
    sentences.insert(dice.randrange(len(sentences) + 1), piece)
    return sentences


def main() -> int:
    style = STYLES[sys.argv[1]]
    notes, questions = make(style, random.Random(sys.argv[1]))
    print(json.dumps({"notes": notes, "questions": questions}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
