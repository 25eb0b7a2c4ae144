"""The heads that manifests name, of before an erasure and of after it: each is one that the log had."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from auditor.evidence import Entries, Span
from auditor.findings import Finding
from auditor.manifests import FOLDER, Manifest, map_in
from tlog.checkpoint import Checkpoint, parse_checkpoint
from tlog.errors import Error
from tlog.merkle import Frontier, leaf_hash
from tlog.note import parse_note

_NAMES: Final = ("before", "checkpoint")


def check_heads(manifests: Iterable[Manifest], entries: Entries) -> Iterator[Finding]:
    """Each head that is none of the log's, and each pair of which the earlier one is the larger."""
    named: list[tuple[str, Checkpoint]] = []
    for manifest in manifests:
        place = f"log {FOLDER}{manifest.number}.cose"
        heads: list[Checkpoint] = []
        for name in _NAMES:
            note = map_in(manifest.document, "log").get(name)
            if note is None:
                continue
            try:
                heads.append(parse_checkpoint(parse_note(note).text))
            except (Error, TypeError):
                yield Finding("MANIFEST_ALTERED", place, "The manifest names a head that is none.")
        if len(heads) == 2 and heads[0].origin == heads[1].origin and heads[0].size > heads[1].size:
            what = "The manifest names a larger head of before the erasure than of after it."
            yield Finding("MANIFEST_ALTERED", place, what)
        named += [(place, head) for head in heads]
    known = {span.origin for span in entries.spans}
    for place, head in named:
        if entries.proved and head.origin not in known:
            yield Finding("MANIFEST_ALTERED", place, "The manifest shows a head of another log.")
    for span in entries.spans:
        own = sorted((one for one in named if one[1].origin == span.origin), key=lambda one: one[1].size)
        yield from _compare(own, span, entries)


def _compare(named: Iterable[tuple[str, Checkpoint]], span: Span, entries: Entries) -> Iterator[Finding]:
    frontier = Frontier(0, ())
    for place, head in named:
        part = entries.entries[span.start + frontier.size : span.start + min(head.size, span.size)]
        if None in part:
            return  # what is missing of the log is a finding of its own
        frontier = frontier.extend(leaf_hash(entry) for entry in part if entry is not None)
        if head.size > span.size or frontier.root() != head.root:
            what = "The manifest names a head that the log never had."
            evidence: dict[str, str | int] = {"size": head.size, "log": span.size}
            yield Finding("LOG_FORK", place, what, evidence)
