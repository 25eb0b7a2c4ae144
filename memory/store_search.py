"""Every SELECT of a search: what the word index has, how it stands with the facts, and what they say.

Each costs as much as what it gives, never as much as there is: a word that half of a million facts have is read as
far as a limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, get_args
from weakref import WeakKeyDictionary

import cbor2

from memory.event import NO_TAGS, decode_content
from memory.model import Status
from memory.search import index_words, joined_words
from memory.store_read import FACT, marks

if TYPE_CHECKING:
    from memory.rows import FactRow
    from memory.sql import Connection
    from memory.store_read import Snapshot


_FULL: Final[WeakKeyDictionary[Connection, dict[tuple[int, bytes, int], object]]] = WeakKeyDictionary()
"""Of each connection the scopes that have as many facts as a limit, with the last erasure when they were counted."""


_TAGS_AT_ONCE: Final = 12
_NAMED: Final = ("key", "subject", "value")
_FEW: Final = 64
"""Of facts that are past so many are told apart at once; where there are more, each fact is asked for."""


class TextRow(NamedTuple):
    """What a ranking reads of a fact; `key_tag` is None for one without a key, `named` is key, subject and value."""

    seq: int
    recorded_at: int
    key_tag: bytes | None
    text: str
    named: str = ""


def scope_size(view: Snapshot, tenant_id: int, agent_tag: bytes, limit: int) -> int:
    """How many facts a scope has, as far as a limit.

    That it has as many is not counted again before something was erased: nothing else takes facts away.
    """
    erased = view.one("SELECT max(number) FROM erasures")
    full = _FULL.setdefault(view.connection, {})
    if full.get((tenant_id, agent_tag, limit), ...) == erased:
        return limit
    row = view.one(
        "SELECT count(*) FROM (SELECT 1 FROM facts WHERE tenant = ? AND agent_tag = ? LIMIT ?) counted",
        tenant_id,
        agent_tag,
        limit,
    )
    assert row is not None
    if row[0] == limit:
        full[tenant_id, agent_tag, limit] = erased
    return int(row[0])


def having_status(
    view: Snapshot, tenant_id: int, agent_tag: bytes, seqs: Iterable[int], statuses: Sequence[Status]
) -> set[int]:
    """Those of these facts that are of the scope, of some statuses, and on no hold."""
    asked = set(seqs)
    if not asked:
        return asked
    past = _of_other_status(view, tenant_id, agent_tag, min(asked), max(asked), statuses)
    if past is not None:
        return asked.difference(past)
    # Nearly all of them are, so the others are fewer to give.
    rows = view.rows(
        f"""SELECT j.value FROM json_each(?) j LEFT JOIN facts f ON f.seq = j.value AND f.tenant = ?
            WHERE f.seq IS NULL OR f.agent_tag <> ? OR f.on_hold <> 0
            OR f.status NOT IN ({marks(statuses)})""",
        json.dumps(list(asked)),
        tenant_id,
        agent_tag,
        *statuses,
    )
    return asked.difference([seq for (seq,) in rows])


def _of_other_status(
    view: Snapshot, tenant_id: int, agent_tag: bytes, first: int, last: int, statuses: Sequence[Status]
) -> list[int] | None:
    """The facts of a scope between two numbers that have another status or are on hold; None if they are many."""
    others = [status for status in get_args(Status) if status not in statuses]
    rows = view.rows(
        f"""SELECT seq FROM facts WHERE tenant = ? AND agent_tag = ? AND status IN ({marks(others)})
            AND seq BETWEEN ? AND ?
            UNION ALL SELECT seq FROM facts WHERE tenant = ? AND (end_erased OR on_hold) AND on_hold <> 0
            LIMIT ?""",
        tenant_id,
        agent_tag,
        *others,
        first,
        last,
        tenant_id,
        _FEW + 1,
    )
    return None if len(rows) > _FEW else [seq for (seq,) in rows]


def texts(view: Snapshot, tenant_id: int, agent_tag: bytes, seqs: Iterable[int]) -> list[TextRow]:
    """What these facts of a scope say."""
    rows = view.rows(
        """SELECT f.seq, f.recorded_at, f.key_tag, c.content
           FROM json_each(?) j CROSS JOIN facts f ON f.seq = j.value CROSS JOIN contents c ON c.seq = f.seq
           WHERE f.tenant = ? AND f.agent_tag = ?""",
        json.dumps(list(seqs)),
        tenant_id,
        agent_tag,
    )
    return [TextRow(seq, at, key_tag, *_texts_of(content)) for seq, at, key_tag, content in rows]


def _texts_of(data: bytes) -> tuple[str, str]:
    try:
        content: object = cbor2.loads(data, semantic_decoders=NO_TAGS)
    except cbor2.CBORDecodeError:
        content = None
    # What is served is decoded strictly; here it only ranks.
    get = content.get if isinstance(content, dict) else decode_content(data).get
    text = get("text")
    named = " ".join([str(get(name)) for name in _NAMED if get(name)])
    return text if isinstance(text, str) else "", named


def keys_of(view: Snapshot, tenant_id: int, agent_tag: bytes, seqs: Iterable[int]) -> dict[int, bytes | None]:
    """These facts of a scope, each with the tag of its key if it has one."""
    rows = view.rows(
        """SELECT f.seq, f.key_tag FROM json_each(?) j CROSS JOIN facts f ON f.seq = j.value
           WHERE f.tenant = ? AND f.agent_tag = ?""",
        json.dumps(list(seqs)),
        tenant_id,
        agent_tag,
    )
    return dict(rows)


def neighbours(
    view: Snapshot, tenant_id: int, agent_tag: bytes, seqs: Iterable[int]
) -> dict[int, tuple[int | None, ...]]:
    """For each fact those of its scope that were told just before and after it: two before, one, one after, two.

    Only what stands counts, and order is that of the scope alone: what others write in between is not seen.
    """
    asked = list(seqs)
    rows = view.rows(
        """SELECT j.value, n.seq FROM json_each(?3) j CROSS JOIN facts n ON n.tenant = ?1 AND n.agent_tag = ?2
           AND n.status = 'active' AND n.seq BETWEEN j.value - 2 AND j.value + 2""",
        tenant_id,
        agent_tag,
        json.dumps(asked),
    )
    around: dict[int, set[int]] = {seq: set() for seq in asked}
    for seq, other in rows:
        around[seq].add(other)
    # Where nobody else wrote in between, as is most often so, they are the numbers beside it.
    found: dict[int, tuple[int | None, ...]] = {
        seq: (seq - 2, seq - 1, seq + 1, seq + 2)
        for seq in asked
        if around[seq] >= {seq - 2, seq - 1, seq + 1, seq + 2}
    }
    if apart := [seq for seq in asked if seq not in found]:
        found |= _neighbours_apart(view, tenant_id, agent_tag, apart)
    return found


def _neighbours_apart(
    view: Snapshot, tenant_id: int, agent_tag: bytes, seqs: Sequence[int]
) -> dict[int, tuple[int | None, ...]]:
    """As `neighbours`, however many numbers lie between."""
    beside = (
        "(SELECT n.seq FROM facts n WHERE n.tenant = ?1 AND n.agent_tag = ?2 AND n.status = 'active' "
        "AND n.seq {sign} j.value ORDER BY n.seq {order} LIMIT 1 OFFSET {offset})"
    )
    places = (("<", "DESC", 1), ("<", "DESC", 0), (">", "ASC", 0), (">", "ASC", 1))
    columns = ", ".join(
        beside.format(sign=sign, order=order, offset=offset) for sign, order, offset in places
    )
    rows = view.rows(
        f"SELECT j.value, {columns} FROM json_each(?3) j", tenant_id, agent_tag, json.dumps(seqs)
    )
    return {seq: tuple(beside) for seq, *beside in rows}


def splitter(view: Snapshot) -> Callable[[str], list[str]]:
    """What gives the words of a text as the index has them: in lower case, without marks, by their stems."""
    split = view.splitter()

    def stems(text: str) -> list[str]:
        if not text.isascii():
            return split(" ".join(index_words(text)))
        return [*split(text), *split(" ".join(joined_words(text)))] if "-" in text else split(text)

    return stems


def facts_of_keys(
    view: Snapshot, tenant_id: int, key_tags: Sequence[bytes], statuses: Sequence[Status]
) -> dict[bytes, list[FactRow]]:
    """The facts of some keys, of some statuses, by key in the order they were recorded."""
    found: dict[bytes, list[FactRow]] = {key_tag: [] for key_tag in key_tags}
    tags = _filled(key_tags)
    rows = view.rows(
        f"""{FACT} WHERE f.tenant = ? AND f.key_tag IN ({marks(tags)})
            AND f.status IN ({marks(statuses)}) ORDER BY f.seq""",
        tenant_id,
        *tags,
        *statuses,
    )
    for fact in view.kept(rows):
        assert fact.key_tag is not None
        found[fact.key_tag].append(fact)
    return found


def newest_of_keys(
    view: Snapshot, tenant_id: int, key_tags: Sequence[bytes], statuses: Sequence[Status], count: int
) -> list[int]:
    """The newest facts of some keys, of some statuses, the newest first."""
    rows = view.rows(
        f"""SELECT seq FROM facts WHERE tenant = ? AND key_tag IN ({marks(key_tags)})
            AND status IN ({marks(statuses)}) ORDER BY seq DESC LIMIT ?""",
        tenant_id,
        *key_tags,
        *statuses,
        count,
    )
    return [seq for (seq,) in rows]


def partly_hidden(view: Snapshot, tenant_id: int, key_tags: Sequence[bytes]) -> set[bytes]:
    """Those of some keys of which `is_partly_hidden` is true."""
    tags = _filled(key_tags)
    rows = view.rows(
        f"""SELECT DISTINCT key_tag FROM facts
            WHERE tenant = ? AND key_tag IN ({marks(tags)}) AND (end_erased OR on_hold)""",
        tenant_id,
        *tags,
    )
    return {key_tag for (key_tag,) in rows}


def _filled(key_tags: Sequence[bytes]) -> Sequence[bytes]:
    """The tags, the last of them repeated up to one of a few lengths: a statement for each length is planned anew."""
    return [*key_tags, *[key_tags[-1]] * (-len(key_tags) % _TAGS_AT_ONCE)]
