"""What verdicts and finding codes mean, for somebody who has to act on them and never saw a Merkle tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from auditor.findings import Verdict

VERDICTS: Final[Mapping[Verdict, tuple[str, str]]] = {
    "clean": (
        "Clean",
        "Everything that was checked is as the operator says it is. What was not checked is listed below, and"
        " counts as not proved.",
    ),
    "findings": (
        "Findings",
        "Not everything is as it was promised. Each finding below names what is wrong, where, and the bytes that"
        " show it. A finding is a fact about the evidence; who caused it is another question.",
    ),
    "inconclusive": (
        "Inconclusive",
        "A check could not show that it would have found something. What it looked at is neither proved sound nor"
        " shown to be wrong.",
    ),
}
SEVERITIES: Final[Mapping[str, str]] = {
    "critical": "what was promised is broken: data lost, altered, or still there after it was said to be gone",
    "high": "a promise can't be relied on, or a proof of it is missing",
    "medium": "late, out of date, or implausible",
}
MEANINGS: Final[Mapping[str, str]] = {
    "LOG_FORK": "The log has shown two histories, or denies one that it signed.",
    "LOG_TRUNCATED": "Part of the log's files is missing.",
    "LOG_ROLLED_BACK": "The log is shorter than it was once shown to be.",
    "LOG_SIGNATURE": "A signature on the log's head does not hold.",
    "RECEIPT_INVALID": "A receipt does not prove what it was given for.",
    "KEY_NOT_VALID": "A signature was made with a key that did not count for that use at that time.",
    "QUORUM_NOT_MET": "Not enough independent witnesses confirm the log's head.",
    "CHECKPOINT_STALE": "No witness has confirmed the head recently enough.",
    "POLICY_CHANGED": "The rules about logs, witnesses or keys changed since an earlier audit.",
    "BUNDLE_ALTERED": "The folder of evidence is not as it was handed out.",
    "ENTRY_ALTERED": "An entry of the log is not the one that was signed into it.",
    "FACT_ALTERED": "The memory says something else than the statement that was signed.",
    "FACT_UNLOGGED": "The memory holds something of which the log knows nothing.",
    "WRITE_MISSING": "The log has a statement of which the memory has neither the content nor a tombstone.",
    "WRITE_LOST": "A write that was acknowledged is gone.",
    "PROMISE_BROKEN": "A statement was not logged within the time that was promised.",
    "SEQUENCE_GAP": "A number in the sequence of statements is missing: something was left out.",
    "RETIREMENT_UNDECLARED": "Something was replaced, and no statement says so.",
    "RETIREMENT_FORGOTTEN": "A value was replaced, and the memory no longer knows that it must not come back unseen.",
    "GUARD_OFF": "The memory does not refuse values that were replaced: whoever repeats one brings it back.",
    "STATEMENT_NOT_ADMITTED": "The log took a statement that its own rules do not let in.",
    "RETIRED_RETURNED": "A value that had been replaced came back without a person's word.",
    "ORDER_ALTERED": "Statements stand in another order than they were made in, or act on what was not there for them.",
    "TIME_IMPLAUSIBLE": "A time can't be right, given what came before, after, or from witnesses.",
    "SALT_REUSED": "Random values that must be used once were used twice: erased content could be guessed.",
    "TOMBSTONE_WITHOUT_MANIFEST": "Something was erased, and there is no signed account of it.",
    "MANIFEST_ALTERED": "The account of an erasure is not the one that was logged, or says what no such account says.",
    "MANIFEST_INCOMPLETE": "The account of an erasure leaves out something that it has to say.",
    "ERASURE_STATE_FALSE": "An erasure is said to be further than it is.",
    "ERASURE_EMPTY_SCOPE": "An erasure erased nothing, and so verified nothing.",
    "ERASED_STILL_PRESENT": "Something that was erased is still there.",
    "SALT_SURVIVES": "The random value that protects an erased content is still there.",
    "HELD_AND_SERVED": "Something that waits for review was given out as if it were accepted.",
    "REQUEST_OVERDUE": "A request was not answered in time.",
    "HOLD_BROKEN": "Something that had to be kept, under a hold, was erased.",
    "HOLD_OVERDUE": "A hold was to be looked at again by now, and was not.",
    "RESIDUE_ROW": "Content that was searched for, or that nothing accounts for, stands in a table.",
    "RESIDUE_INDEX": "Words of something that is gone stand in an index.",
    "RESIDUE_VECTOR": "The vector of something that is gone is still there.",
    "RESIDUE_FREE_SPACE": "Bytes that belong to no row are not zero: deleted data may be readable.",
    "RESIDUE_WAL": "The write-ahead log still holds rows that are gone.",
    "RESIDUE_FILE": "A text that was searched for, or one that nothing accounts for, stands in a file.",
    "RESIDUE_ENCODED": "A text that was searched for stands in a file in another encoding.",
    "RESIDUE_LOG_CONFIRMABLE": "The public log lets somebody confirm a guess about content.",
    "CONTROL_FAILED": "A check did not find what was planted for it to find: it proves nothing.",
}


def meaning(code: str) -> str:
    """What a finding of this code means, in a sentence."""
    return MEANINGS.get(code, "A finding of a kind that this page has no words for.")
