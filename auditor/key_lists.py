"""The key lists beside the logs: the newest is believed, and what lies beside an ended log has to lead to it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from auditor.evidence import Asked, LogFiles
from auditor.findings import Finding, Note, Outcome, merge
from auditor.log_files import KEY_LIST
from auditor.state import check_key_list, seen_key_lists
from tlog.certificates import peek_key_list, require_extends, verify_key_list
from tlog.checkpoint import parse_checkpoint
from tlog.errors import Error, VerificationError
from tlog.note import parse_note
from tlog.trust import Trust

CODE: Final = "KEY_NOT_VALID"
_CHECKPOINT: Final = "checkpoint"


def check_key_lists(
    logs: Sequence[tuple[str, LogFiles]], asked: Asked, state: Path | None
) -> tuple[Outcome, Asked]:
    """What there is to say about the key lists beside the logs, and the asker who also believes the newest."""
    if not asked.trust.roots:
        return Outcome(), asked
    name, files = logs[-1]
    outcome, asked = _check_newest(f"{name} {KEY_LIST}", files, asked, state)
    earlier = [
        _check_ended(f"{name} {KEY_LIST}", data, asked.trust, state)
        for name, files in logs[:-1]
        if (data := files.read(KEY_LIST)) is not None
    ]
    return merge([outcome, *earlier]), asked


def _check_newest(place: str, files: LogFiles, asked: Asked, state: Path | None) -> tuple[Outcome, Asked]:
    data = files.read(KEY_LIST)
    if data is None:
        # Whoever can remove a file must not be able to hide that a key has ended.
        what = "The trust file names a root, and no key list lies beside the log."
        return Outcome((Finding(CODE, place, what),)), asked
    try:
        trust = asked.trust.with_key_list(data)
        if state is not None:
            check_key_list(state, data)
    except Error as error:
        if error.code == "rolled_back" and _is_ended(files, asked.trust):
            asked = replace(asked, trust=_with_seen(data, asked.trust, state))
            return _check_ended(place, data, asked.trust, state), asked
        return Outcome((Finding(CODE, place, f"{error.message}."),)), asked
    done = Note("keys", "key list that a trusted root certified", 1)
    return Outcome(checked=(done,)), replace(asked, trust=trust)


def _with_seen(data: bytes, trust: Trust, state: Path | None) -> Trust:
    """This trust, with the newer list that an earlier audit saw: what it says of keys goes on to count."""
    with suppress(Error):  # what is wrong with the list, or with its root, is named elsewhere
        kid, old = peek_key_list(data)
        for one in () if state is None else seen_key_lists(state, kid, old.store):
            trust = trust.with_key_list(one)
    return trust


def _is_ended(files: LogFiles, trust: Trust) -> bool:
    """Whether the log says that it is one of those that ended; whether it is, its checkpoint has to show."""
    try:
        origin = parse_checkpoint(parse_note(files.read(_CHECKPOINT) or b"").text).origin
    except Error:
        return False
    return origin in {head.origin for head in trust.frozen}


def _check_ended(place: str, data: bytes, trust: Trust, state: Path | None) -> Outcome:
    """The list beside a log that ended stays as it was then: one that is known has to go on from it."""
    try:
        kid, old = peek_key_list(data)
        root = next((one.key for one in trust.roots if one.key.key_id == kid), None)
        if root is None:
            raise VerificationError("key list: no root of the trust file certifies it", code="key_unknown")
        verify_key_list(data, root)
        known = [*trust.key_lists, *(() if state is None else seen_key_lists(state, kid, old.store))]
        later = [one for by, one in map(peek_key_list, known) if (by, one.store) == (kid, old.store)]
        if not later:
            raise VerificationError(
                "key list: is older than the trust file asks for, and a newer one is not there",
                code="rolled_back",
            )
        for one in later:
            require_extends(one, old)
    except Error as error:
        return Outcome((Finding(CODE, place, f"{error.message}."),))
    text = "key list beside a log that ended, which the newest one goes on from"
    return Outcome(checked=(Note("keys", text, 1),))
