"""The tables of a store that are caches, made again from the statements alone, to be compared with what is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from memory import canon_versions, timeline
from memory.event import decode_content, decode_link
from memory.key_view import timeline_events
from memory.ledger import said
from memory.principal import Principal
from memory.rows import EventRow
from memory.scope import Scope, open_scope
from memory.wiring import Home

STANDING = ("active", "conflict")


def events(home: Home) -> list[EventRow]:
    """Every statement, in the order they were made."""
    with home.parts().store.read_whole() as view:
        rows = view.rows(
            """SELECT e.seq, e.tenant, e.tenant_seq, e.commitment, e.link, e.link_salt, e.content_hash, e.entry,
                      e.entry_index, c.content, c.salt
               FROM events e LEFT JOIN contents c ON c.seq = e.seq ORDER BY e.seq"""
        )
    return [EventRow(*row) for row in rows]


def differences(home: Home, principals: list[Principal]) -> list[str]:
    """What the tables say other than the statements do."""
    made = events(home)
    with home.parts().store.read_whole() as view:
        scopes = [open_scope(view, home.parts().vault, one) for one in principals]
        tables = {
            "facts": view.rows(
                "SELECT seq, status, replaced_by, valid_until, recorded_at, end_erased FROM facts"
            ),
            "keys": view.rows("SELECT seq, agent_tag, key_tag FROM facts"),
            "conflicts": view.rows("SELECT key_tag FROM conflicts WHERE closed_by IS NULL"),
            "ledger": view.rows(
                "SELECT key_tag, value_tag, source, until FROM ledger WHERE source IS NOT NULL"
            ),
            "acts": view.rows("SELECT target, seq, act FROM acts"),
            "idempotency": view.rows("SELECT seq FROM idempotency WHERE length(body_tag) > 0"),
        }
    return [
        *_facts(made, tables),
        *_acts(made, tables),
        *_ledger_and_conflicts(made, tables, [scope for scope in scopes if scope is not None]),
        *_requests(made, tables),
    ]


def _facts(made: list[EventRow], tables: dict[str, Any]) -> list[str]:
    folded = timeline.fold(timeline_events(made))
    known = {row[0]: row[1:] for row in tables["facts"]}
    wanted = {
        state.seq: (
            state.status,
            state.replaced_by,
            state.valid_until,
            state.recorded_at,
            int(state.end_erased),
        )
        for state in folded.values()
    }
    return _unlike("facts", known, wanted)


def _unlike(table: str, have: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> list[str]:
    places = [place for place in {**have, **wanted} if have.get(place) != wanted.get(place)]
    return [f"{table}: {have.get(place)} should be {wanted.get(place)}" for place in places]


def _acts(made: list[EventRow], tables: dict[str, Any]) -> list[str]:
    seqs = {row.commitment: row.seq for row in made}
    wanted = {
        (seqs[target], row.seq, act)
        for row in made
        for act, targets in decode_link(row.link).acts.items()
        for target in targets
    }
    return [f"acts: {one}" for one in wanted ^ set(tables["acts"])]


def _ledger_and_conflicts(made: list[EventRow], tables: dict[str, Any], scopes: list[Scope]) -> list[str]:
    """The ledger as far as the facts are there that it is of, and which keys are disputed."""
    scope_of = {(scope.tenant_id, scope.agent): scope for scope in scopes}
    ledger: dict[tuple[bytes, bytes], tuple[int, int | None]] = {}
    facts: dict[bytes, tuple[Scope, dict[str, Any], int]] = {}
    disputed: set[bytes] = set()
    so_far: list[EventRow] = []
    standing: dict[bytes, list[bytes]] = defaultdict(list)
    clock = 0
    for row in made:
        before = {c: s.status for c, s in timeline.fold(timeline_events(so_far)).items()} if so_far else {}
        so_far.append(row)
        link = decode_link(row.link)
        content = None if row.content is None else decode_content(row.content)
        states = timeline.fold(timeline_events(so_far))
        if content is not None and content.get("key") is not None:
            facts[row.commitment] = (scope_of[row.tenant_id, content["agent"]], content, row.seq)
        # Of what is erased nobody knows when it was; it was not before what stands before it.
        clock = clock if content is None else content["recorded_at"]
        standing.clear()
        for commitment, state in states.items():
            if state.status in STANDING and commitment in facts and (state.valid_until or clock + 1) > clock:
                standing[_key_tag(facts[commitment])].append(commitment)
        until = content.get("valid_until") if content is not None and link.kind == "write" else None
        for began in (facts[one] for one in link.acts.get("begins", ()) if one in facts):
            until = began[1].get("valid_until")
        for target in (*link.acts.get("retires", ()), *link.acts.get("retracts", ())):
            if target in facts and before.get(target) in STANDING:
                tag = _key_tag(facts[target])
                kept = {one for other in standing[tag] for one in _value_tags(facts[other])}
                if not kept & set(_value_tags(facts[target])):
                    for value_tag in _value_tags(facts[target]):
                        known = ledger.get((tag, value_tag), (0, until))[1]
                        ends = None if known is None or until is None else max(known, until)
                        ledger[tag, value_tag] = facts[target][2], ends
        for place, ends, value_tags in _settled(link, content, row, facts, states):
            for (tag, value_tag), (source, known) in list(ledger.items()):
                kept = {one for other in standing[tag] for one in _value_tags(facts[other])} | set(value_tags)
                if tag == place and known is not None and value_tag not in kept:
                    ledger[tag, value_tag] = source, None if ends is None else max(known, ends)
        for lifted in (
            *link.acts.get("lifts", ()),
            *(link.acts.get("keeps", ()) if link.kind == "resolve" else ()),
        ):
            by = content if link.kind == "write" else facts[lifted][1] if lifted in facts else None
            if lifted in facts and _is_for_good(by):
                for value_tag in _value_tags(facts[lifted]):
                    ledger.pop((_key_tag(facts[lifted]), value_tag), None)
        disputed = {_key_tag(facts[c]) for c, s in states.items() if s.status == "conflict" and c in facts}
    have = {(row[0], row[1]): (row[2], row[3]) for row in tables["ledger"]}
    gave_up = any(decode_link(row.link).details.get("guard") not in (None, "keep") for row in made)
    wanted = {place: told for place, told in ledger.items() if not gave_up or place in have}
    # What an erasure kept has no source; what is retired again since has one, and is compared.
    kept_blind = {place for place in wanted if place not in have} if _erased(made) else set()
    if _erased(made):
        # Until when an erased fact held is not in any statement any more.
        have = {place: (told[0], None) for place, told in have.items()}
        wanted = {place: (told[0], None) for place, told in wanted.items()}
    found = _unlike(
        "ledger", have, {place: told for place, told in wanted.items() if place not in kept_blind}
    )
    return found + [f"conflicts: {len(disputed)}"] * (disputed != {row[0] for row in tables["conflicts"]})


def _is_for_good(content: Any) -> bool:
    if content is None or content.get("valid_until") is not None:
        return content is None
    declared = "valid_from_declared" in content.get("flags", ())
    return not declared or content["valid_from"] <= content["recorded_at"]


def _settled(
    link: Any, content: Any, row: EventRow, facts: Any, states: Any
) -> list[tuple[bytes, Any, list[bytes]]]:
    """Keys for which a statement made something current, until when, and the tags of that."""
    if link.kind == "write":
        landed = link.details.get("outcome") in ("stored", "superseded", "conflict")
        current = [row.commitment] if landed and row.commitment in facts else []
        if content is not None and content["valid_from"] > content["recorded_at"]:
            current = []
        ends = None if content is None else content.get("valid_until")
    else:
        current = [t for act in ("confirms", "keeps", "lifts") for t in link.acts.get(act, ()) if t in facts]
        current = current if link.kind != "retract" else []
        began = [t for t in link.acts.get("begins", ()) if t in facts]
        ends = facts[began[0]][1].get("valid_until") if began else None
        current += began
    return [(_key_tag(facts[one]), ends, _value_tags(facts[one])) for one in current]


def _requests(made: list[EventRow], tables: dict[str, Any]) -> list[str]:
    there = {row.seq for row in made if row.content is not None}
    return [f"idempotency of {row[0]}" for row in tables["idempotency"] if row[0] not in there]


def _erased(made: list[EventRow]) -> bool:
    return any(row.content is None for row in made)


def _key_tag(fact: tuple[Scope, dict[str, Any], int]) -> bytes:
    return fact[0].key_tag(fact[1]["key"])


def _value_tags(fact: tuple[Scope, dict[str, Any], int]) -> list[bytes]:
    rules = canon_versions.current()
    return [fact[0].value_tag(form, rules.version) for form in rules.value_forms(said(fact[1]))]
