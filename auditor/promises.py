"""What clients were given, held against the log: pending promises, receipts, proofs and heads in a folder of theirs.

    *.json, *.jsonl   answers to a write: an id, and what was said of its place in the log; `batch` answers too
    anything else     receipts, transparent statements, tlog-proofs, checkpoints, as `muniment verify` reads them

Whoever hides a write, or showed somebody another log, is found by what that somebody still has.
"""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from auditor.evidence import Asked, Entries, StoreRows
from auditor.findings import Finding, Note, Outcome
from memory import event
from tlog.claims import Caller
from tlog.errors import Error, MalformedError
from tlog.merkle import Frontier, leaf_hash
from tlog.policy import verify_checkpoint
from tlog.proof import parse_proof
from tlog.receipt import parse_receipt, split_transparent
from tlog.statement import entry_of, parse_statement
from tlog.verify import Evidence, recognize, verify_files

MAX_FILES: Final = 100_000
MAX_BYTES: Final = 16 * 1024 * 1024
_ID_BYTES: Final = 16
_SECOND: Final = 1_000_000
_AGREED: Final = "agreed"
"""What makes no statement of its own: the id is that of the fact that says the same."""
_ANSWERS: Final = (".json", ".jsonl")
_EVIDENCE: Final = (".cose", ".cbor", ".tlog-proof", ".proof", ".checkpoint", ".note")


@dataclass(frozen=True, slots=True)
class Held:
    """A file of a client's. Its name may be content: it is known by its number among the others."""

    number: int
    data: bytes
    is_answer: bool
    is_evidence: bool
    """By its name; what is not is looked at, too, and passed over if it is nothing that can be verified."""
    at: int
    """When it was written, in seconds, as the file system says."""

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"receipts file {self.number}"


@dataclass(frozen=True, slots=True)
class _Known:
    """What log and store have: the place in the log of each id and entry, and the ids of the store."""

    indexes: Mapping[bytes, int]
    entries: Mapping[bytes, int]
    links: Mapping[bytes, bytes]
    """The link of each statement of the store, by its id."""
    is_whole: bool
    """The store is at hand, with all its tenants: what is not in it was not kept."""


@dataclass(slots=True)
class _Result:
    """What came of the files so far."""

    findings: list[Finding] = field(default_factory=list)
    kept: int = 0
    promised: int = 0
    others: int = 0
    heads: list[tuple[str, str, int, bytes]] = field(default_factory=list)
    """Place, origin, size and root of each head that a client was shown."""


def read_held(folder: Path) -> tuple[Held, ...]:
    """The files of a folder in the order of their names.

    MalformedError if it holds anything else: what is passed over in silence could be the one promise that is broken.
    """
    try:
        with os.scandir(folder) as listing:
            found = sorted((entry.name, entry.is_file(follow_symlinks=False)) for entry in listing)
    except OSError:
        raise MalformedError("expected a folder of receipts that can be read") from None
    names = [name for name, is_file in found if is_file]
    if len(names) < len(found):
        others = len(found) - len(names)
        raise MalformedError(
            f"expected nothing but files in the folder of receipts, and no folders, links or pipes; it has {others}"
        )
    if len(names) > MAX_FILES:
        raise MalformedError(f"expected at most {MAX_FILES} files of receipts")
    return tuple(_read(folder, name, number) for number, name in enumerate(names, start=1))


def check_promises_held(
    held: Sequence[Held], entries: Entries, rows: StoreRows | None, asked: Asked
) -> Outcome:
    """Whether the log keeps what clients were promised, and is the log that they were shown."""
    known = _known(entries, rows)
    result = _Result()
    for file in held:
        if file.is_answer:
            before = len(result.findings)
            answers = list(_answers(file, result))
            for answer in answers:
                _check_answer(file, answer, known, entries, asked, result)
            result.others += not answers and len(result.findings) == before
        else:
            _check_evidence(file, known, entries, asked, result)
    result.findings += _check_heads(result.heads, entries)
    origins = {span.origin for span in entries.spans}
    compared = sum(origin in origins for _, origin, _, _ in result.heads)
    checked = (
        Note("receipts", "files of clients held against the log", len(held)),
        Note("receipts", "statements in them that the log or the store has", result.kept),
        Note(
            "receipts",
            "heads that clients were shown, each compared with the entries up to it",
            compared,
        ),
    )
    text = "promises to clients younger than the merge delay and not yet in the log"
    not_checked = [Note("receipts", text, result.promised)] if result.promised else []
    if result.others:
        not_checked.append(
            Note("receipts", "files in which no promise or proof to a client is", result.others)
        )
    if compared < len(result.heads):
        text = "heads that clients were shown of logs that were not audited, or that have no checkpoint that holds"
        not_checked.append(Note("receipts", text, len(result.heads) - compared))
    return Outcome(tuple(result.findings), checked, tuple(not_checked), {"receipts": len(held)})


def _known(entries: Entries, rows: StoreRows | None) -> _Known:
    indexes: dict[bytes, int] = {}
    places: dict[bytes, int] = {}
    for index, entry in enumerate(entries.entries):
        if entry is None:
            continue
        places[entry] = index
        try:
            indexes[parse_statement(entry).payload_hash[:_ID_BYTES]] = index
        except MalformedError:
            continue
    links = {} if rows is None else {one.commitment[:_ID_BYTES]: one.link for one in rows.events}
    return _Known(indexes, places, links, rows is not None and rows.tenant_id is None)


# Answers


def _answers(file: Held, result: _Result) -> Iterator[Mapping[str, Any]]:
    """The answers in a file: a document, or one a line, alone or as `batch` wraps them."""
    try:
        text = file.data.decode("utf-8")
        try:
            documents = [json.loads(text)]
        except ValueError:
            documents = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        result.findings.append(Finding("RECEIPT_INVALID", file.place, "It is not JSON that can be read."))
        return
    for document in documents:
        answer = document.get("result", document) if isinstance(document, dict) else None
        # Refusals of a whole line, and operations that write nothing, promise nothing.
        if isinstance(answer, dict) and isinstance(answer.get("id"), str) and "receipt" in answer:
            yield answer


def _check_answer(
    file: Held,
    answer: Mapping[str, Any],
    known: _Known,
    entries: Entries,
    asked: Asked,
    result: _Result,
) -> None:
    reference = _reference(answer["id"])
    if reference is None:
        result.findings.append(Finding("RECEIPT_INVALID", file.place, "Its id is none that a memory gives."))
        return
    receipt = answer["receipt"]
    stated = receipt.get("entry") if isinstance(receipt, dict) else None
    index = known.indexes.get(reference)
    evidence: dict[str, str | int] = {"id": answer["id"]}
    if _is_told_otherwise(answer, known.links.get(reference)):
        what = "A client was told that its write came to something else than the statement says."
        result.findings.append(Finding("FACT_ALTERED", file.place, what, evidence))
    if index is not None and index < entries.size:
        result.kept += 1
        if type(stated) is int and stated != _index_in(entries, index):
            what = "The statement stands at another place of the log than the client was told."
            result.findings.append(Finding("ORDER_ALTERED", file.place, what, evidence | {"stated": stated}))
    elif reference not in known.links and (known.is_whole or type(stated) is int):
        what = "A client was told that this was kept, and neither log nor store has it."
        result.findings.append(Finding("WRITE_LOST", file.place, what, evidence))
    elif asked.now // _SECOND - file.at > asked.trust.merge_delay_seconds:
        what = "A client was promised it longer ago than the merge delay, and no public checkpoint covers it."
        result.findings.append(Finding("PROMISE_BROKEN", file.place, what, evidence))
    else:
        result.promised += 1


def _is_told_otherwise(answer: Mapping[str, Any], link: bytes | None) -> bool:
    """Whether an answer to a write has another outcome, or other retirements, than the link that was signed."""
    outcome = answer.get("outcome")
    if link is None or not isinstance(outcome, str) or outcome == _AGREED:
        return False
    try:
        said = event.decode_link(link)
    except MalformedError:
        return False  # found as what it is elsewhere
    if said.kind != "write":
        return False
    retired = {target[:_ID_BYTES] for target in said.acts.get("retires", ())}
    told = answer.get("retired")
    named = {_reference(one) for one in told if isinstance(one, str)} if isinstance(told, list) else retired
    reason = answer.get("reason", said.details.get("reason"))
    return (outcome, reason, named) != (said.details.get("outcome"), said.details.get("reason"), retired)


def _reference(text: str) -> bytes | None:
    """The beginning of the commitment that an id stands for."""
    try:
        found = base64.b32decode(text.upper() + "=" * (-len(text) % 8))
    except ValueError:
        return None
    return found if len(found) == _ID_BYTES else None


def _index_in(entries: Entries, index: int) -> int:
    """The place in its own log of an entry that stands at `index` of all logs."""
    starts = [span.start for span in entries.spans if span.start <= index]
    return index - max(starts, default=0)


# Receipts, proofs and heads


def _check_evidence(file: Held, known: _Known, entries: Entries, asked: Asked, result: _Result) -> None:
    evidence = recognize(file.place, file.data)
    (verdict, *_) = verify_files([evidence], Caller(asked.trust, asked.now // _SECOND))
    if evidence.kind == "unknown" and not file.is_evidence:
        result.others += 1
        return
    if evidence.kind == "unknown" or verdict.failed:
        reasons = ", ".join(claim.code for claim in verdict.failed)
        what = "It does not hold under the caller's trust, or is nothing that can be verified."
        result.findings.append(Finding("RECEIPT_INVALID", file.place, what, {"reason": reasons}))
        return
    try:
        entry, notes = _parts(evidence)
    except Error:
        result.findings.append(Finding("RECEIPT_INVALID", file.place, "It can't be read."))
        return
    result.heads += [head for note in notes for head in _heads(file, note, asked)]
    if entry is None:
        return
    if entry in known.entries:
        result.kept += 1
    elif notes or asked.now // _SECOND - file.at > asked.trust.merge_delay_seconds:
        code = "WRITE_LOST" if notes else "PROMISE_BROKEN"
        what = "A client holds a statement, and what proves or promises it, and the log does not have it."
        result.findings.append(Finding(code, file.place, what))
    else:
        result.promised += 1


def _parts(evidence: Evidence) -> tuple[bytes | None, list[bytes]]:
    """The entry in a file, if it has one, and the checkpoints in it."""
    data = evidence.data
    if evidence.kind == "transparent_statement":
        entry, receipts = split_transparent(data)
        notes = [parse_receipt(receipt).checkpoint for receipt in receipts]
        return entry, [note for note in notes if note is not None]
    if evidence.kind == "tlog_proof":
        proof = parse_proof(data)
        return proof.extra, [proof.checkpoint]
    if evidence.kind == "receipt":
        note = parse_receipt(data).checkpoint
        return None, [] if note is None else [note]
    if evidence.kind == "statement":
        return entry_of(data), []
    return None, [data] if evidence.kind == "checkpoint" else []


def _heads(file: Held, note: bytes, asked: Asked) -> Iterator[tuple[str, str, int, bytes]]:
    try:
        checkpoint = verify_checkpoint(asked.trust.policy, note).checkpoint
    except Error:
        return  # the verdict on the file says so
    yield file.place, checkpoint.origin, checkpoint.size, checkpoint.root


def _check_heads(heads: Sequence[tuple[str, str, int, bytes]], entries: Entries) -> Iterator[Finding]:
    """The log extends each head that a client was shown."""
    for span in entries.spans:
        frontier = Frontier(0, ())
        own = sorted((head for head in heads if head[1] == span.origin), key=lambda head: head[2])
        for place, _, size, root in own:
            evidence: dict[str, str | int] = {"seen_size": size, "size": span.size, "seen_root": root.hex()}
            if size > span.size:
                what = "The log is shorter than a client saw it."
                yield Finding("LOG_ROLLED_BACK", place, what, evidence)
                continue
            part = entries.entries[span.start + frontier.size : span.start + size]
            frontier = frontier.extend(leaf_hash(entry or b"") for entry in part)
            if frontier.root() != root:
                what = "A client was shown another log than this: its head is not one that this log had."
                yield Finding("LOG_FORK", place, what, evidence)


def _read(folder: Path, name: str, number: int) -> Held:
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise MalformedError("expected files of receipts that can be read") from None
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
            raise MalformedError(f"expected files of receipts of at most {MAX_BYTES} bytes")
        ends = name.lower().endswith
        return Held(number, file.read(MAX_BYTES), ends(_ANSWERS), ends(_EVIDENCE), int(info.st_mtime))
