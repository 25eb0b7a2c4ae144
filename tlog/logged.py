"""Whether a log has what a file says is in it: every entry read, each proved to be under one verified checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tlog import statement as statements
from tlog.checkpoint import parse_checkpoint
from tlog.claims import UNDATED, Caller, Findings, Seen, checkpoint_claims, seen, signature_claim
from tlog.errors import MalformedError, VerificationError
from tlog.merkle import tree_root
from tlog.note import parse_note
from tlog.tile_reader import VerifiedTiles


@dataclass(frozen=True)
class Wanted:
    """A statement that is to be in a log: its short name, the C that it states, and what it is in words."""

    code: str
    commitment: bytes
    text: str


def look_in_log(
    wanted: Sequence[Wanted], author: tuple[str, str], caller: Caller, findings: Findings
) -> tuple[bool, Seen]:
    """Whether the caller's log has all of these, by this issuer and subject, and when it was seen to have the last.

    What is found is proved, with the signature of each; what is not is named as not proved: the log may get it yet.
    """
    if caller.log is None:
        return False, UNDATED
    verified = checkpoint_claims(caller.log.checkpoint, caller, findings)
    if verified is None:
        return False, UNDATED
    size, root = verified.checkpoint.size, verified.checkpoint.root
    tiles = VerifiedTiles(caller.log.read, size, root)
    places = _places(tiles, {one.commitment for one in wanted}, author)
    missing = False
    for one in wanted:
        found = places.get(one.commitment)
        if found is None:
            missing = True
            text = f"{one.text} is not among the {size} entries of the log: it may come later, or never."
            findings.leave(f"{one.code}_missing", text)
            continue
        index, entry = found
        findings.prove(one.code, f"{one.text} is in the log, at index {index} of {size}.")
        message = statements.parse_signed_statement(entry).message
        signature_claim("issuer", message, seen(verified, index + 1, caller), caller, findings)
    last = max((index for index, _ in places.values()), default=0)
    return not missing, UNDATED if missing else seen(verified, last + 1, caller)


def compare_heads(heads: Iterable[bytes], caller: Caller, findings: Findings) -> None:
    """Adds that heads which a file names are heads that the caller's log had; a check that fails if one is not."""
    if caller.log is None or caller.trust is None:
        return
    checkpoint = parse_checkpoint(parse_note(caller.log.checkpoint).text)
    tiles = VerifiedTiles(caller.log.read, checkpoint.size, checkpoint.root)
    count = 0
    for head in heads:
        named = parse_checkpoint(parse_note(head).text)
        if named.origin != checkpoint.origin:
            findings.leave(
                "heads", "It names a head of another log, which this one may have taken the place of."
            )
            continue
        if named.size > tiles.size or tree_root(named.size, tiles.read_hashes) != named.root:
            raise VerificationError("it names a head that this log never had", code="fork", size=named.size)
        count += 1
    if count:
        findings.prove("heads", "The heads of the log that it names are ones that this log had.")


def _places(
    tiles: VerifiedTiles, wanted: set[bytes], author: tuple[str, str]
) -> Mapping[bytes, tuple[int, bytes]]:
    """Index and entry of each of these commitments, as this author stated it."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for index, entry in enumerate(tiles.entries(0, tiles.size)):
        try:
            statement = statements.parse_statement(entry)
        except MalformedError:
            continue  # a registration policy, or what begins a log
        if statement.payload_hash in wanted and (statement.issuer, statement.subject) == author:
            found.setdefault(statement.payload_hash, (index, entry))
    return found
