"""Where a fact comes from and how far that is proved, with every limit that holds right now.

Nothing here is a constant but `not_truth`: signature, opening, inclusion and cosignatures are verified as
somebody else would, under the home's own policy, and what does not hold becomes a limit or an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import event
from memory.allow import may_tell
from memory.answers import NOTICE, fact_shape, presented, receipts
from memory.chain import locate, log_number, origin_of
from memory.grants import Reading, open_reading
from memory.layout import CHECKPOINT
from memory.model import Principal, fact_id, parse_fact_id
from memory.principal import require
from memory.provenance_text import LIMITS
from memory.quarantine import present
from memory.scope import Scope
from memory.store_holds import refuse_if_held
from memory.times import format_optional, format_time
from tlog.ascii import encode_base64
from tlog.errors import MalformedError, UnavailableError, VerificationError
from tlog.merkle import leaf_hash, verify_inclusion
from tlog.policy import VerifiedCheckpoint, satisfied_by, verify_checkpoint
from tlog.proof import TlogProof, format_proof
from tlog.receipt import Inclusion, make_transparent, sign_receipt
from tlog.statement import Statement, parse_statement, verify_statement

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import ActRow, EventRow, FactRow
    from memory.store_read import Snapshot
    from memory.wiring import Home
    from tlog.trust import Trust

FORMATS: Final = ("cose", "tlog-proof")


@dataclass(frozen=True)
class Actor:
    """Who made a statement, whether the client proved that, and the reason that was given."""

    client: str | None = None
    authenticated: bool | None = None
    reason: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class _Found:
    """A statement of the caller's scope; `fact` is None once it is erased, and to whom it is withheld."""

    row: EventRow
    fact: FactRow | None
    acts: tuple[ActRow, ...]
    actors: dict[int, Actor]
    withheld: bool
    successor_erased: bool
    reading: Reading


@dataclass(frozen=True)
class _Place:
    """Where a statement stands in its published log; `path` leads from it to the root of `published`."""

    published: VerifiedCheckpoint | None = None
    note: bytes = b""
    path: tuple[bytes, ...] | None = None
    index: int = 0


def provenance(parts: Parts, principal: Principal, id: str, owner: object = None) -> dict[str, Any]:
    """Fact, origin, history, signed statement, receipt, checkpoint, cosignatures and limits of one fact.

    Raises MalformedError with code `unknown_id` outside the caller's scope, and VerificationError if the store
    or the log does not hold what it says. `scope` says whose memory it was read from, and by which grant.
    """
    require(principal, "memory:read")
    found = _find(parts, principal, id, owner)
    trust = parts.home.trust()
    statement = verify_statement(found.row.entry, trust.key("issuer", parse_statement(found.row.entry).kid))
    _verify_opening(found.row, statement)
    place = _place(parts.home, trust, found.row)
    return {
        "fact": _fact(parts, found),
        "notice": NOTICE,
        "scope": found.reading.shape(),
        "origin": _origin(found),
        "history": list(_history(found)),
        "statement": _statement(found.row, statement),
        "receipt": _receipt(parts, found.row, place),
        "checkpoint": _checkpoint(place),
        "cosignatures": _cosignatures(place, trust),
        "limits": [{"code": code, "text": LIMITS[code]} for code in _limits(parts, found, place, trust)],
    }


def receipt(parts: Parts, principal: Principal, id: str, format: str = "cose") -> bytes:
    """The receipt of a statement: a transparent statement (COSE) or a C2SP tlog-proof that carries the entry.

    Both hold the public checkpoint with its cosignatures, and neither says anything of the content. Raises
    UnavailableError with code `pending` until a checkpoint that the policy accepts covers the statement.
    """
    require(principal, "memory:read")
    if format not in FORMATS:
        raise MalformedError(f"expected format to be {' or '.join(FORMATS)}")
    row = _find(parts, principal, id).row
    home = parts.home
    place = _place(home, home.trust(), row)
    if place.path is None or place.published is None:
        raise UnavailableError(
            "there is no receipt yet: no public checkpoint covers the statement; publish, then ask again",
            code="pending",
        )
    if format == "tlog-proof":
        return format_proof(TlogProof(place.index, place.path, place.note, row.entry))
    head = place.published.checkpoint
    inclusion = Inclusion(place.index, head.size, head.root, place.path)
    signed = sign_receipt(home.receipt_signer(), head.origin, parts.subject, inclusion, place.note)
    return make_transparent(row.entry, [signed])


# Finding and verifying


def _find(parts: Parts, principal: Principal, id: str, owner: object = None) -> _Found:
    reference = parse_fact_id(id)
    with parts.store.read() as view:
        reading = open_reading(view, parts, principal, owner)
        scope = reading.scope
        row = None if scope is None else view.event(scope.tenant_id, reference)
        if scope is None or row is None:
            raise _unknown()
        fact = view.fact(scope.tenant_id, scope.agent_tag, reference)
        refuse_if_held(view, scope, reference)
        if fact is None and (row.content is not None or event.decode_link(row.link).kind != "write"):
            raise _unknown()
        lost = fact is not None and fact.end_erased
        told = fact is not None and may_tell(fact.status, reading.principal.scopes, lost)
        acts = view.acts_on(scope.tenant_id, row.seq)
        return _Found(row, fact, acts, _actors(view, scope, acts), not told, lost, reading)


def _actors(view: Snapshot, scope: Scope, acts: tuple[ActRow, ...]) -> dict[int, Actor]:
    """Who made each acting statement, as far as that is not erased and of the same agent."""
    found: dict[int, Actor] = {}
    for act in acts:
        row = view.event_by_seq(act.seq)
        content = {} if row is None or row.content is None else event.decode_content(row.content)
        client = content.get("client") if content.get("agent") == scope.agent else None
        if client is None:
            found[act.seq] = Actor()
        else:
            mark, reason, source = fact_id(act.commitment), content.get("reason"), content.get("source")
            found[act.seq] = Actor(
                present(client, mark).text,
                "authenticated" in content.get("flags", ()),
                None if reason is None else present(reason, mark).text,
                # That of a write is told with the write.
                None if source is None or act.act != "corroborates" else present(source, mark).text,
            )
    return found


def _unknown() -> MalformedError:
    return MalformedError("expected the id of a fact in this scope", code="unknown_id")


def _verify_opening(row: EventRow, statement: Statement) -> None:
    """Returns if link and content, or what is left after an erasure, open the signed statement."""
    if statement.payload_hash != row.commitment:
        raise VerificationError("the signed statement is of another commitment", code="opening")
    if row.content is not None and row.content_salt is not None:
        event.open_content(row.commitment, row.link, row.link_salt, row.content, row.content_salt)
    else:
        event.open_link(row.commitment, row.link, row.link_salt, row.content_hash)


def _place(home: Home, trust: Trust, row: EventRow) -> _Place:
    """Where the statement stands under its log's checkpoint, which a policy changed since may not accept."""
    if row.entry_index is None:
        return _Place()
    at = locate(home.config, row.entry_index)
    note = home.public_storage(at.log).read(CHECKPOINT)
    if note is None:
        return _Place()
    try:
        published = verify_checkpoint(trust.policy, note, origin_of(home.config, at.log))
    except VerificationError as error:
        if error.code != "quorum_not_met":
            raise
        return _Place()
    head = published.checkpoint
    if at.index >= head.size:
        return _Place(published, note)
    log = home.log_at(at.log)
    try:
        path = log.prove_inclusion(at.index, head.size)
    finally:
        if at.log != log_number(home.config):
            log.close()
    verify_inclusion(at.index, head.size, leaf_hash(row.entry), path, head.root)
    return _Place(published, note, path, at.index)


# The answer


def _fact(parts: Parts, found: _Found) -> dict[str, Any]:
    states = receipts(parts)
    if found.fact is None:
        return {"id": found.row.id, "status": "erased", "receipt": states.shape(found.row.entry_index)}
    if found.withheld:
        return {
            "id": found.row.id,
            "status": found.fact.status,
            "receipt": states.shape(found.row.entry_index),
        }
    return fact_shape(found.fact, states)


def _origin(found: _Found) -> dict[str, Any] | None:
    if found.fact is None or found.withheld:
        return None
    content = found.fact.content
    return {
        "tenant": content.get("tenant"),
        "agent": content.get("agent"),
        "client": presented(found.fact, "client").text,
        "authenticated": "authenticated" in content.get("flags", ()),
        "source": presented(found.fact, "source").text,
        "reason": presented(found.fact, "reason").text,
        "canon": content.get("canon"),
        "recorded_at": format_time(found.fact.recorded_at),
    }


def _history(found: _Found) -> Iterator[dict[str, Any]]:
    """What the statement did when it was made, and what later ones did to it, in the order of the log."""
    link = event.decode_link(found.row.link)
    recorded_at = None if found.fact is None or found.withheld else found.fact.recorded_at
    yield {
        "act": str(link.details.get("outcome", link.kind)),
        "id": found.row.id,
        "client": None if recorded_at is None or found.fact is None else presented(found.fact, "client").text,
        "recorded_at": format_optional(recorded_at),
        "on": {act: [fact_id(one) for one in targets] for act, targets in link.acts.items()},
    }
    for act in found.acts:
        yield {
            "act": act.act,
            "id": fact_id(act.commitment),
            "client": found.actors[act.seq].client,
            "authenticated": found.actors[act.seq].authenticated,
            "reason": found.actors[act.seq].reason,
            "source": found.actors[act.seq].source,
            "recorded_at": format_optional(act.recorded_at),
        }


def _statement(row: EventRow, statement: Statement) -> dict[str, Any]:
    link = event.decode_link(row.link)
    return {
        "commitment": row.commitment.hex(),
        "kind": link.kind,
        "seq": link.seq,
        "tenant_seq": link.tenant_seq,
        "outcome": link.details.get("outcome"),
        "reason": link.details.get("reason"),
        "issuer": statement.issuer,
        "subject": statement.subject,
        "kid": statement.kid.hex(),
        "algorithm": statement.algorithm,
        "entry": encode_base64(row.entry),
        "opened": row.content is not None,
    }


def _receipt(parts: Parts, row: EventRow, place: _Place) -> dict[str, Any]:
    shape = receipts(parts).shape(row.entry_index) | {"leaf_hash": encode_base64(leaf_hash(row.entry))}
    if place.path is None or place.published is None:
        return shape
    head = place.published.checkpoint
    return shape | {
        "size": head.size,
        "root": encode_base64(head.root),
        "path": [encode_base64(one) for one in place.path],
    }


def _checkpoint(place: _Place) -> dict[str, Any] | None:
    if place.published is None or place.path is None:
        return None
    head = place.published.checkpoint
    return {
        "origin": head.origin,
        "size": head.size,
        "root": encode_base64(head.root),
        "text": place.published.note.text,
        "log_key": place.published.log_key.vkey,
    }


def _cosignatures(place: _Place, trust: Trust) -> list[dict[str, Any]]:
    if place.published is None or place.path is None:
        return []
    made = zip(place.published.witnesses, place.published.cosignatures, strict=True)
    return [
        {
            "witness": name,
            "key": one.key.vkey,
            "timestamp": one.timestamp,
            "time": format_time(one.timestamp * 1_000_000),
            "same_operator": name in trust.same_operator,
        }
        for name, one in made
    ]


def _limits(parts: Parts, found: _Found, place: _Place, trust: Trust) -> Iterator[str]:
    yield "not_truth"
    yield from _log_limits(parts, found.row, place, trust)
    if parts.home.has_issuer_key():
        yield "issuer_key_in_process"
    if found.fact is not None:
        yield from _fact_limits(found.fact, found.withheld)
    if found.fact is None or found.successor_erased:
        yield "content_erased"
    if found.fact is not None and found.withheld:
        yield "content_not_opened"
    if found.fact is not None and found.fact.status == "held":
        yield "held"
    if found.fact is not None and found.fact.status == "conflict":
        yield "conflict_open"
    if _reaffirmed(found):
        yield "reaffirmed"


def _log_limits(parts: Parts, row: EventRow, place: _Place, trust: Trust) -> Iterator[str]:
    if row.entry_index is None:
        yield "pending"
        return
    policy = trust.policy
    if place.path is None or policy.quorum is None:
        yield "logged_unwitnessed"
    if policy.quorum is None:
        return
    if place.path is None or place.published is None:
        yield "witness_quorum_not_met"
        return
    independent = set(place.published.witnesses) - set(trust.same_operator)
    if not satisfied_by(policy, independent):
        yield "witness_same_operator"
    bound = trust.max_checkpoint_age_seconds
    newest = max((one.timestamp for one in place.published.cosignatures), default=0)
    if bound is not None and parts.clock() // 1_000_000 - newest > bound:
        yield "checkpoint_stale"


def _fact_limits(fact: FactRow, withheld: bool) -> Iterator[str]:
    content, flags = fact.content, fact.content.get("flags", ())
    yield from (
        ("agent_authenticated",) if "authenticated" in flags else ("client_unauthenticated", "agent_asserted")
    )
    if withheld:
        return
    if content.get("source") is None:
        yield "no_source"
    if content.get("key") is not None and content.get("value") is None:
        yield "value_inferred"
    if "valid_from_declared" in flags or content.get("valid_until") is not None:
        yield "declared_valid_time"


def _reaffirmed(found: _Found) -> bool:
    flags = () if found.fact is None else found.fact.content.get("flags", ())
    return "reaffirmed" in flags or any(act.act == "lifts" for act in found.acts)
