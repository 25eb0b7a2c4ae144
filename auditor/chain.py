"""The logs of a home, audited one after the other, and read on as one.

A log whose key changed was frozen, and another took its place, whose first entry commits to the head that the old
one ended with. What the store calls a place is counted through all of them, so they are put end to end here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from auditor import checks_log
from auditor.evidence import Asked, Entries, LogFiles, Span
from auditor.findings import Finding, Note, Outcome, merge
from auditor.kept import Before, load_verified
from auditor.log_files import FOLDER, MAX_LOGS, bucket_logs, folder_files
from auditor.manifests import FOLDER as MANIFESTS
from auditor.settings import place_in_settings
from auditor.state import check_gone, check_head
from tlog.errors import Error
from tlog.note import VerifierKey
from tlog.policy import VerifiedCheckpoint
from tlog.succession import parse_succession


@dataclass(frozen=True, slots=True)
class AuditedLog:
    """What was found of a log, or of several end to end: files, newest checkpoint, and entries."""

    outcome: Outcome
    files: LogFiles
    verified: VerifiedCheckpoint | None
    entries: Entries
    before: Before = field(default_factory=Before)
    """What an earlier audit found nothing wrong with."""


def logs_of_home(home: Path) -> list[tuple[str, LogFiles]]:
    """Name and files of each log of a home, the oldest first; of those in a bucket, if the settings name that."""
    bucket = place_in_settings(home, "log_storage")
    if bucket is not None:
        return bucket_logs(bucket)
    names = [FOLDER]
    while len(names) < MAX_LOGS and (home / f"{FOLDER}-{len(names) + 1}").is_dir():
        names.append(f"{FOLDER}-{len(names) + 1}")
    return [(name, folder_files(home / name)) for name in names]


def logs_in(folder: Path) -> list[tuple[str, LogFiles]]:
    """The log in a folder; the logs, the oldest first, of a folder that holds them as a home does."""
    is_log = (folder / checks_log.CHECKPOINT).exists() or not (folder / FOLDER).is_dir()
    return [(FOLDER, folder_files(folder))] if is_log else logs_of_home(folder)


def audit_logs(logs: Sequence[tuple[str, LogFiles]], asked: Asked, state: Path | None) -> AuditedLog:
    """Every log in order, each judged by its own checkpoint, and all of them as one."""
    audited = [_name(name, _audit_log(files, asked, state)) for name, files in logs]
    if state is not None:
        audited = _with_gone([name for name, _ in logs], audited, asked, state)
    if len(audited) == 1:
        return audited[0]
    links, successions = _check_links([name for name, _ in logs], audited, asked)
    if successions[-1]:
        audited[-1] = _just_begun(audited[-1])
    newest = next((log for log in reversed(audited) if log.verified is not None), audited[-1])
    files = _joined([log.files for log in audited])
    doubled = _check_doubled([name for name, _ in logs], [log.files for log in audited], files)
    outcome = merge([*(log.outcome for log in audited), links, Outcome(tuple(doubled))])
    return AuditedLog(outcome, files, newest.verified, _end_to_end(audited, successions), newest.before)


def _with_gone(
    names: Sequence[str], logs: Sequence[AuditedLog], asked: Asked, state: Path
) -> list[AuditedLog]:
    """The same, each without a checkpoint compared with the heads seen of logs that none of the others is."""
    found = {log.verified.checkpoint.origin for log in logs if log.verified is not None}
    origins = [log.key.name for log in asked.trust.policy.logs if log.key.name not in found]
    return [
        log
        if log.verified is not None
        else replace(log, outcome=merge([log.outcome, check_gone(state, origins, name)]))
        for name, log in zip(names, logs, strict=True)
    ]


def _audit_log(files: LogFiles, asked: Asked, state: Path | None) -> AuditedLog:
    """A log as of one checkpoint. A newer one may be published meanwhile: what a head covers never changes."""
    pinned = replace(files, read=_pin(files, files.read(checks_log.CHECKPOINT)))
    outcome, verified = checks_log.check_checkpoint(pinned, asked)
    if verified is None:
        return AuditedLog(outcome, pinned, None, checks_log.read_unproved(pinned))
    tree, entries = checks_log.check_tree(pinned, verified, asked)
    outcomes = [outcome, tree]
    before = Before()
    if state is not None:
        outcomes.append(check_head(state, verified, entries))
        noted, before = load_verified(state, verified.checkpoint.origin, asked.trust, entries)
        outcomes.append(noted)
        entries = replace(entries, spans=tuple(replace(span, verified=before.size) for span in entries.spans))
    else:
        note = Note(
            "heads", "no state of earlier audits is given: a log rewritten and signed again is not noticed"
        )
        outcomes.append(Outcome(not_checked=(note,)))
    return AuditedLog(merge(outcomes), pinned, verified, entries, before)


def _pin(files: LogFiles, checkpoint: bytes | None) -> Callable[[str], bytes | None]:
    """A reader that keeps to one checkpoint, whatever is published meanwhile."""
    return lambda path: checkpoint if path == checks_log.CHECKPOINT else files.read(path)


def _name(name: str, log: AuditedLog) -> AuditedLog:
    """The same, with places that say which of several logs they are in."""
    if name == FOLDER:
        return log
    findings = tuple(
        replace(one, where=name + one.where.removeprefix(FOLDER)) if one.where.startswith(FOLDER) else one
        for one in log.outcome.findings
    )
    return replace(log, outcome=replace(log.outcome, findings=findings))


def _just_begun(log: AuditedLog) -> AuditedLog:
    """The same; that nothing is public yet of a log that holds its beginning alone hides nothing of a store."""
    if log.verified is not None or len(log.entries.entries) != 1 or log.files.read(checks_log.CHECKPOINT):
        return log
    left = tuple(one for one in log.outcome.findings if one.code not in ("LOG_TRUNCATED", "QUORUM_NOT_MET"))
    return replace(log, outcome=replace(log.outcome, findings=left))


def _check_links(
    names: Sequence[str], logs: Sequence[AuditedLog], asked: Asked
) -> tuple[Outcome, list[bool]]:
    """Each log but the first begins with the end of the one before, which does not go on after it."""
    findings: list[Finding] = []
    linked = [False]
    for number in range(1, len(logs)):
        known = {log.verified.checkpoint.origin for log in logs if log.verified is not None}
        keys = [one.key for one in asked.trust.policy.logs if one.key.name not in known]
        faults = list(_link_faults(names[number], names[number - 1], logs[number], logs[number - 1], keys))
        findings += faults
        linked.append(not faults)
    count = sum(linked)
    checked = (Note("logs", "logs that begin with the head that the one before them ended with", count),)
    return Outcome(tuple(findings), checked if count else ()), linked


def _link_faults(
    name: str, name_before: str, log: AuditedLog, before: AuditedLog, keys: Sequence[VerifierKey]
) -> Iterator[Finding]:
    """What is wrong with a log as the next; one that has no checkpoint yet has one of these keys."""
    if len(before.entries.entries) > before.entries.size and before.verified is not None:
        what = "The log goes on after the head that it was frozen at."
        yield Finding("LOG_FORK", name_before, what, {"size": before.entries.size})
    first = (log.entries.entries[0] if log.entries.entries else None) or b""
    if before.verified is None or (log.verified is None and not log.entries.entries):
        yield Finding(
            "LOG_FORK",
            name,
            "That it follows the log before it is not shown: one of the two has no checkpoint that holds.",
        )
        return
    faults = []
    for key in keys if log.verified is None else [log.verified.log_key]:
        try:
            parse_succession(first, before.verified.checkpoint, key)
        except Error as error:
            faults.append(Finding("LOG_FORK", f"{name} entry 0", f"{error.message}."))
        else:
            return
    yield from faults[:1] or [Finding("LOG_FORK", name, "The policy has no key that could be its own.")]


def _end_to_end(logs: Sequence[AuditedLog], linked: Sequence[bool]) -> Entries:
    entries: list[bytes | None] = []
    spans: list[Span] = []
    successions = set()
    size, whole = 0, True
    for log, follows in zip(logs, linked, strict=True):
        start = len(entries)
        if follows:
            successions.add(start)
        # A frozen log ends where its checkpoint does; only the newest may have entries that none covers.
        own = log.entries.entries if log is logs[-1] else log.entries.entries[: log.entries.size]
        entries += own
        spans += [replace(span, start=start + span.start) for span in log.entries.spans]
        whole = whole and (log.verified is not None or log is logs[-1])
        size = start + log.entries.size if whole else size
    proved = all(log.entries.proved for log in logs if log.verified is not None)
    return Entries(size, tuple(entries), proved, tuple(spans), frozenset(successions))


def _check_doubled(names: Sequence[str], logs: Sequence[LogFiles], joined: LogFiles) -> Iterator[Finding]:
    """Each manifest that several logs have is the same in all: only one of them is judged."""
    times = Counter(path for log in logs for path in log.names or () if path.startswith(MANIFESTS))
    for path in sorted(path for path, count in times.items() if count > 1):
        judged = joined.read(path)
        for name, log in zip(names, logs, strict=True):
            if path in (log.names or ()) and log.read(path) != judged:
                what = "Two logs have different manifests under one number."
                yield Finding("MANIFEST_ALTERED", f"{name} {path}", what)


def _joined(logs: Sequence[LogFiles]) -> LogFiles:
    """The files of all logs, the newest first where several have one of the same name."""

    def read(path: str) -> bytes | None:
        found = (log.read(path) for log in reversed(logs))
        return next((data for data in found if data is not None), None)

    names = sorted({name for log in logs for name in log.names or ()})
    return LogFiles(read, tuple(names))
