"""Longer notes with updates and contradictions, made up from a seed: what they say, and what is asked in other words.

    python benchmarks/recall_notes.py > notes.json        (for benchmarks/recall.py --notes)

A note is about one matter of one person, among sentences about nothing in particular; half of the matters change
later, in another note in other words. A question is answered by both notes, and the later one should come first.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Final

NAMES: Final = (
    "Adaeze Holm",
    "Bruno Kettle",
    "Carmen Whitlock",
    "Dariusz Finch",
    "Elif Morrow",
    "Farid Ashby",
    "Greta Sandoval",
    "Hiro Lindqvist",
    "Ines Calloway",
    "Jonas Petrov",
    "Kavya Thornton",
    "Leif Marchetti",
    "Mirela Dunne",
    "Nikhil Osborne",
    "Oona Vasquez",
    "Piotr Langley",
    "Quentin Abara",
    "Rosa Eklund",
    "Samir Whitcombe",
    "Tove Bellamy",
    "Ursula Nkemelu",
    "Viktor Prescott",
    "Wanda Iyer",
    "Xavier Holloway",
)


@dataclass(frozen=True)
class Matter:
    """One thing that may be known about a person: how it is told, how its change is, how it is asked."""

    told: str
    changed: str
    asked: str
    values: tuple[str, ...]


MATTERS: Final = (
    Matter(
        "{name} has rented a flat in {old} and takes the tram to the office from there.",
        "After the lease ran out {name} packed everything up; the new address is in {new}, not {old} any more.",
        "in which town is the home of {name}",
        ("Leeds", "Porto", "Tampere", "Galway", "Lyon", "Gdansk"),
    ),
    Matter(
        "For breakfast {name} orders nothing but {old}, and says so to every waiter.",
        "The doctor had a word with {name} about mornings: {old} is off the table, it is {new} from here on.",
        "what does {name} have for breakfast",
        ("porridge", "smoked herring", "rye toast", "pancakes", "yoghurt with seeds", "boiled eggs"),
    ),
    Matter(
        "{name} was hired as {old} by a shipping company and shares a desk with the night shift.",
        "Good news at the shipping company: {name} was promoted and now signs letters as {new}.",
        "what is the job of {name} at the shipping company",
        (
            "a dispatcher",
            "an auditor",
            "a crane planner",
            "a customs clerk",
            "a fleet buyer",
            "a harbour pilot",
        ),
    ),
    Matter(
        "On weekends {name} practises {old} with a small club behind the station.",
        "The club behind the station closed, so {name} gave up {old} and took up {new} instead.",
        "what hobby does {name} have",
        ("archery", "bouldering", "choir singing", "pottery", "fencing", "chess problems"),
    ),
    Matter(
        "{name} drives {old} that was bought second hand from an aunt.",
        "The aunt's old vehicle broke down for good; {name} sold {old} for parts and leases {new}.",
        "what car belongs to {name}",
        (
            "a blue van",
            "a grey hatchback",
            "an electric scooter",
            "a red estate",
            "a sidecar motorcycle",
            "a jeep",
        ),
    ),
    Matter(
        "When the allergy season begins {name} can not be near {old} without sneezing for an hour.",
        "New test results came for {name}: {old} turned out harmless, the culprit is {new}.",
        "which allergy is {name} sneezing from",
        ("birch pollen", "cat hair", "walnuts", "shellfish", "wool", "house dust"),
    ),
    Matter(
        "The project that {name} leads is to be delivered in {old}, as was agreed with the board.",
        "The board met again about the project of {name}: delivery slips from {old} to {new}.",
        "when is the project of {name} due",
        (
            "early March",
            "mid April",
            "late May",
            "the second week of July",
            "September",
            "the end of November",
        ),
    ),
    Matter(
        "{name} asked for {old} as a teacher for the evening course in Italian.",
        "The evening course changed hands; lessons of {name} are given by {new} since {old} retired.",
        "who instructs {name} in the language class",
        ("Mr Bianchi", "Ms Ferro", "Dr Conti", "Mrs Galli", "Mr Russo", "Ms Leone"),
    ),
)
FILLER: Final = (
    "The weather kept turning all week and nobody could agree on whether to open the windows.",
    "There was a long talk about the printer on the second floor, which still jams on thick paper.",
    "Somebody brought cake, and the rest of the afternoon went by without anything being decided.",
    "We went through the list from last time and crossed out what had been done already.",
    "A delivery came for the neighbours and had to be kept in the hallway until the evening.",
    "The train was late again, so the first half of the conversation happened on the platform.",
    "It took a while to find the right room, since the signs had been moved around.",
    "Later on we looked at photographs from the excursion and laughed about the boots.",
    "The budget was mentioned in passing, without numbers, and put off to the next meeting.",
    "One of the lamps flickered the whole time, which made reading the small print difficult.",
    "We should remember to water the plants while the others are away on leave.",
    "Nothing else of note came up, apart from the usual complaints about parking.",
    "The minutes of the earlier meeting were read out and nobody had anything to add.",
    "An old acquaintance sent greetings and asked whether the bakery is still there.",
    "In the end everybody helped to carry the chairs back, and the keys were returned on time.",
    "There was some confusion about who had booked the hall, but it was cleared up quickly.",
)


def make(seed: int) -> dict[str, object]:
    """The notes in the order they were told, the questions, and for each changed matter the later and earlier note."""
    dice = random.Random(seed)
    early: list[tuple[str, int]] = []
    late: list[tuple[str, int]] = []
    asked: list[str] = []
    for name in NAMES:
        for matter in MATTERS:
            old, new = dice.sample(matter.values, 2)
            early.append((_note(dice, matter.told.format(name=name, old=old)), len(asked)))
            if dice.random() < 0.5:
                late.append((_note(dice, matter.changed.format(name=name, old=old, new=new)), len(asked)))
            asked.append(f"Please tell me, {matter.asked.format(name=name)}?")
    told = [(_note(dice, dice.choice(FILLER)), -1) for _ in range(60)] + early
    dice.shuffle(told)
    later = list(late)
    dice.shuffle(later)
    order = told + later
    places: dict[int, list[int]] = {}
    for place, (_, question) in enumerate(order):
        if question >= 0:
            places.setdefault(question, []).append(place)
    return {
        "notes": [text for text, _ in order],
        "questions": [[text, places[number]] for number, text in enumerate(asked)],
        "updates": [
            [asked[number], max(found), min(found)] for number, found in places.items() if len(found) > 1
        ],
    }


def _note(dice: random.Random, matter: str) -> str:
    told = dice.sample(FILLER, dice.randint(3, 9))
    told.insert(dice.randint(0, len(told)), matter)
    return " ".join(told)


if __name__ == "__main__":
    print(json.dumps(make(7)))
