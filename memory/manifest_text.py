"""What a manifest's words mean, in sentences: for the command line, reports and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

STATES: Final[Mapping[str, str]] = {
    "closed_complete": "Every system that holds the content was erased and checked.",
    "closed_partial": "A part of what was asked for was erased; the reasons say what was not.",
    "inconclusive": "The content was erased, but not every check that it is gone could be made or passed.",
    "failed": "The erasure failed: a row of what was to be erased is still there.",
    "awaiting_backups": "The content is gone but for backups, whose keys are still there, or whose time has not come.",
    "awaiting_recipients": "The content is gone here; recipients of it have yet to be told.",
    "closed_denied": "The request was denied, and nothing was erased.",
    "withdrawn": "Whoever asked for it withdrew the request; what the manifest says was erased stays erased.",
}
REASONS: Final[Mapping[str, str]] = {
    "crash_before_scan": "A crash came before the scan; what to look for was in memory alone and is lost.",
    "scan_not_available": "No scan of the files was made.",
    "residue_found": "The scan found bytes of the erased content in a file.",
    "control_failed": "The scan missed the text planted for it, or could not read a file: it shows nothing.",
    "needles_not_searchable": "A record had no part that is long and rare enough to be looked for, and what would cover"
    " it was not shown: that every free byte of the store is zero, and that each file is one that a home has.",
    "needles_unconfirmed": "Whether the words that were given again are those of the erased records cannot be told any"
    " more, and what would do without them was not shown: that every free byte of the store is zero, that each"
    " file is one that a home has, and that another system was counted by the ids of the records.",
    "rows_pinned": "A transaction kept the database from taking out the rows that are gone; they may still be there.",
    "not_rewritten": "A part of a table is too large to be written anew, or somebody was reading it: bytes of what is"
    " gone may stay in its pages until other rows take the place.",
    "copies_remain": "The write-ahead log, standbys and archives of the database keep what was erased, sealed, for as"
    " long as they keep anything; nobody has looked.",
    "wal_pinned": "A reader kept the write-ahead log from being emptied; it may still hold the content.",
    "content_present": "A row of an erased statement was still found.",
    "bystander_damaged": "A record outside the selection is not as it was.",
    "mentions_elsewhere": "Records outside the selection name the subject, or repeat the value, and were kept.",
    "legal_hold": "A legal hold kept a part.",
    "system_failed": "A declared system failed to erase.",
    "system_not_reachable": "A declared system could not be reached.",
    "system_not_verified": "Nobody independent has counted what a declared system still holds.",
    "backups_remain": "Backups made before still hold the content.",
    "recipients_remain": "Somebody who was given the content has not been told yet that it was erased.",
    "freedom_of_expression": "Denied: it is needed for freedom of expression and information (GDPR, 17(3)(a)).",
    "legal_obligation": "Denied: a law asks for it, or a public task needs it (GDPR, 17(3)(b)).",
    "public_health": "Denied: public health needs it (GDPR, 17(3)(c)).",
    "archiving": "Denied: archives, research or statistics need it (GDPR, 17(3)(d)).",
    "legal_claims": "Denied: legal claims need it (GDPR, 17(3)(e)).",
    "identity_not_shown": "Denied: that whoever asked is who they say was not shown (GDPR, 12(6)).",
    "unfounded": "Denied: it is manifestly unfounded or excessive (GDPR, 12(5)).",
}
LIMITS: Final[Mapping[str, str]] = {
    "file_system_free_space": "Freed blocks of the file system and its snapshots are not looked at.",
    "storage_hardware": "What flash storage keeps in blocks it has replaced is out of reach.",
    "memory_and_swap": "Main memory, swap and core dumps are not looked at.",
    "other_systems": "Copies outside this home, such as transcripts of clients, are not looked at.",
    "who_had_an_opening": "Whoever was given an opening, or read the content, may have kept it.",
    "paraphrases": "The scan looks for the words that were stored, not for the same told in others.",
    "ledger_kept": "Keyed hashes of retired values were kept, so that they stay refused; whoever has the key"
    " can test a guess against them.",
    "requests_kept": "Keyed hashes of the idempotency keys of erased writes were kept, so that a retry is answered"
    " as erased; whoever has the key can test a guess against them.",
    "openings_given": "Openings of the erased records were given out: whoever has one can prove what it says, for"
    " ever. The recipients are listed by the references that each was given under.",
    "needles_not_searchable": "Some records had no word that is long and rare enough to be looked for: that they are"
    " gone is shown by the check that every free byte of the store is zero.",
    "needles_unconfirmed": "The words that were looked for were given again after the erasure. Whether they are those"
    " of the erased records cannot be told: it rests on the checks that need no words.",
    "needles_shared": "Some words of the erased records also stand in kept records, and prove nothing.",
    "mentions_elsewhere": "Records outside the selection name the subject, or repeat the value, and were kept.",
    "database_copies": "Base backups and dumps of the database, archives that are switched off now and standbys that"
    " are not connected are not looked at. What they have is sealed, and opens with the key of the home.",
    "copies_declared": "That archives and standbys of the database keep nothing longer than was declared is the"
    " operator's word.",
}
DISPOSITIONS: Final[Mapping[str, str]] = {
    "keep": "Values that were retired stay refused.",
    "erase": "Values that were retired may be learnt again.",
    "expire": "Values that were retired stay refused until a day that is set.",
}
CLAIMED: Final = "The claim is the one that was given to whoever asked for this erasure."
SIGNED_WORD: Final = (
    "That the content is gone is the word of whoever signed this; an audit of the home checks it."
)
TOMBSTONE: Final = "The erase statement"
ANNOUNCEMENT: Final = "The statement that has the digest of this manifest, byte for byte,"
NOT_ANNOUNCED: Final = (
    "Its older form does not say which statement of the log has its digest: an audit with the store tells."
)


def sentences(words: Mapping[str, str], codes: Any) -> list[dict[str, str]]:
    """Each code with its sentence."""
    return [{"code": code, "text": words[code]} for code in codes]
