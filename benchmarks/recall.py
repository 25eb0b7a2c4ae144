"""How well recall finds what answers a question, on LoCoMo: recall@k and MRR, beside plain FTS5, in one run.

    python benchmarks/recall.py [--home DIR] [--conversations N] [--semantic] [--notes FILE] [--json FILE]

Reads `locomo10.json` in MUNIMENT_TEST_DATA. Each turn becomes a fact without a key, "SPEAKER: TEXT" (the caption of
its picture where it has no text), written and asked through the operations of `muniment batch`, each conversation
an agent of its own. A question counts if the data names turns that answer it; what it finds is the share of these
turns among the first k facts. Conversations 1 to 5 are for tuning, 6 to 10 for the report. With `--home` the facts
stay there, and are not written again by the next run. `--notes` is a further set, of longer notes: a JSON object with
`notes` (texts) and `questions` (each a text, and the places of the notes that answer it).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import apsw

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from benchmarks.chat_import import DATA, turns  # noqa: E402
from memory import wiring  # noqa: E402
from memory.batch import run_batch  # noqa: E402
from memory.model import SCOPES, Principal  # noqa: E402
from memory.search import STOP_WORDS  # noqa: E402
from memory.wiring import Home  # noqa: E402

AT: Final = (5, 10, 20)
TUNED: Final = 5
TENANT: Final = "recall"
OWNER: Final = Principal("owner", "owner", "benchmark", SCOPES)
CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open", 4: "single-hop", 5: "adversarial", 0: "notes"}
_EVIDENCE: Final = re.compile(r"D:?(\d+):(\d+)")

Finder = Callable[[int, str], Sequence[str]]
"""Gives the names of what a question finds in a set, best first."""


@dataclass(frozen=True)
class Question:
    """A question, the names of all that answers it, and its category."""

    text: str
    answers: frozenset[str]
    category: int


@dataclass(frozen=True)
class Set:
    """Facts in the order they were told, by names, and what is asked about them."""

    facts: Mapping[str, str]
    questions: Sequence[Question]


def locomo(path: Path) -> list[Set]:
    """The conversations, with all questions that name evidence."""
    sets = []
    for chat in json.loads(path.read_text("utf-8")):
        facts = {fact["source"]: fact["text"] for fact in turns(chat)}
        questions = []
        for asked in chat["qa"]:
            answers = frozenset(
                f"D{session}:{turn}"
                for evidence in asked["evidence"]
                for session, turn in _EVIDENCE.findall(evidence)
            )
            if answers:
                questions.append(Question(asked["question"], answers, asked["category"]))
        sets.append(Set(facts, questions))
    return sets


def notes(path: Path) -> Set:
    """A set of longer notes."""
    told = json.loads(path.read_text("utf-8"))
    facts = {str(place): text for place, text in enumerate(told["notes"])}
    return Set(facts, [Question(text, frozenset(map(str, places)), 0) for text, places in told["questions"]])


def batch(home: Home, lines: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What `muniment batch --operator` answers to each line."""
    answers: list[str] = []
    for line in lines:
        run_batch([json.dumps(line)], answers.append, home, True, OWNER)
        answer: dict[str, Any] = json.loads(answers.pop())
        if not answer["ok"]:
            raise SystemExit(f"batch: {answer['error']}")
        yield answer["result"]


def write(home: Home, number: int, one: Set) -> None:
    """Every fact of a set, as one agent's."""
    caller = f"{TENANT}/set-{number}/benchmark"
    lines = (
        {"op": "remember", "as": caller, "text": text, "source": name} for name, text in one.facts.items()
    )
    for answer in batch(home, lines):
        assert answer["outcome"] in ("stored", "agreed"), answer["outcome"]


def through_recall(home: Home, times: list[float]) -> Finder:
    """Finds by `recall`, and notes the CPU time of each."""

    def find(number: int, query: str) -> list[str]:
        line = {"op": "recall", "as": f"{TENANT}/set-{number}/benchmark", "query": query, "limit": max(AT)}
        began = time.process_time()
        (answer,) = batch(home, iter([line]))
        times.append(time.process_time() - began)
        return [fact["source"] for fact in answer["facts"]]

    return find


def through_fts5(sets: Sequence[Set], dropped: frozenset[str]) -> Finder:
    """Finds by plain FTS5 and its own rank: the words of the question OR-ed, save those to be dropped."""
    tables = []
    for one in sets:
        table = apsw.Connection(":memory:")
        table.execute(
            "CREATE VIRTUAL TABLE t USING fts5 (name UNINDEXED, text, tokenize = 'porter unicode61')"
        )
        table.executemany("INSERT INTO t VALUES (?, ?)", list(one.facts.items()))
        tables.append(table)

    def find(number: int, query: str) -> list[str]:
        words = list(dict.fromkeys(re.findall(r"\w+", query.lower())))
        words = [word for word in words if word not in dropped] or words
        match = " OR ".join(f'"{word}"' for word in words)
        sql = "SELECT name FROM t WHERE t MATCH ? ORDER BY rank LIMIT ?"
        return [name for (name,) in tables[number].execute(sql, (match, max(AT)))]

    return find


def measure(sets: Mapping[int, Set], find: Finder) -> dict[str, Any]:
    """recall@k and MRR of a way to find, of all questions and by category."""
    scores: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, one in sets.items():
        for question in one.questions:
            found = list(find(number, question.text))
            ranks = [found.index(name) + 1 for name in question.answers if name in found]
            for group in ("all", CATEGORIES[question.category]):
                for k in AT:
                    share = sum(rank <= k for rank in ranks) / len(question.answers)
                    scores[group][f"R@{k}"].append(share)
                scores[group]["MRR"].append(1 / min(ranks) if ranks else 0.0)
    return {
        group: {"questions": len(values["MRR"])}
        | {name: round(mean(told), 4) for name, told in values.items()}
        for group, values in scores.items()
    }


def show(title: str, measured: Mapping[str, Mapping[str, Any]]) -> None:
    """A table for people."""
    print(title)
    for group, values in measured.items():
        numbers = "  ".join(f"{name} {value:.3f}" for name, value in values.items() if name != "questions")
        print(f"  {group:12} {values['questions']:5}  {numbers}")


def run(home: Home, sets: Sequence[Set], last: int | None) -> dict[str, Any]:
    """All measures, told as they are made."""
    chats = len(sets) if last is None else last
    parts = {
        "conversations 1-5 (tuning)": {n: sets[n] for n in range(min(TUNED, chats))},
        "conversations 6-10 (report)": {n: sets[n] for n in range(TUNED, chats)},
        "notes": {} if last is None else {last: sets[last]},
    }
    ways: dict[str, Finder] = {
        "plain FTS5": through_fts5(sets, frozenset()),
        "plain FTS5 without stop words": through_fts5(sets, STOP_WORDS),
    }
    results: dict[str, Any] = {}
    for title, part in parts.items():
        if not any(one.questions for one in part.values()):
            continue
        times: list[float] = []
        for way, find in (ways | {"muniment recall": through_recall(home, times)}).items():
            results.setdefault(title, {})[way] = measured = measure(part, find)
            show(f"{title}: {way}", measured)
        times.sort()
        cpu = {"p50": round(median(times) * 1e3, 3), "p95": round(times[int(len(times) * 0.95)] * 1e3, 3)}
        results[title]["CPU ms a recall"] = cpu
        print(f"  CPU of a recall: p50 {cpu['p50']} ms, p95 {cpu['p95']} ms")
    return results


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path)
    parser.add_argument("--conversations", type=int, default=10)
    parser.add_argument("--notes", type=Path)
    parser.add_argument("--semantic", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    path = DATA / "locomo10.json"
    sets = locomo(path)[: args.conversations] if path.is_file() else []
    if not sets:
        print(f"skipped: {path} is not there")
        if args.notes is None:
            return 0
    last = None
    if args.notes is not None:
        last = len(sets)
        sets.append(notes(args.notes))
    print(
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, {platform.machine()}, "
        f"{os.cpu_count()} cores"
    )
    with tempfile.TemporaryDirectory(prefix="recall-") as folder:
        place = args.home or Path(folder) / "home"
        with wiring.open_home(place) as home:
            if args.semantic:
                home.write_config(replace(home.config, semantic="wordllama"))
            for number, one in enumerate(sets):
                if not home.memory(Principal(TENANT, f"set-{number}", "benchmark", SCOPES)).status()["facts"]:
                    write(home, number, one)
            results = run(home, sets, last)
    if args.json is not None:
        # Beside what another run found, by words alone or by meaning, too.
        known = json.loads(args.json.read_text("utf-8")) if args.json.is_file() else {}
        known["semantic" if args.semantic else "words"] = results
        args.json.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
