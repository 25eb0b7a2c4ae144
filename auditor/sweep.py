"""All rows of a store passed by once, for what only a look at each can tell: nothing of them stays in memory.

Whether a salt is used twice, whether the hashes that facts are filed under are those they were, whether a name stands
elsewhere under another hash, which words the index must have, and which statements a sample draws.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final

import apsw
import cbor2

from auditor.evidence import FactRow
from auditor.exhibits import SAMPLE
from auditor.fold import WITHHELD
from auditor.row_marks import Tags
from auditor.words import Indexed
from tlog.errors import MalformedError

_FACTS: Final = """
    SELECT f.seq, f.tenant, f.agent_tag, f.key_tag, f.subject_tag, f.text_tag, CAST(f.status AS BLOB), c.content
    FROM facts f LEFT JOIN contents c ON c.seq = f.seq ORDER BY f.seq
"""
_TAGS: Final = "SELECT seq, tenant, agent_tag, key_tag, subject_tag, text_tag FROM facts ORDER BY seq"
_NAMES: Final = ("agent", "key", "subject", "text")


class Facts:
    """Every fact passed by once, in the order of their numbers."""

    def __init__(self, connection: apsw.Connection, last: int) -> None:
        self.tags = Tags(last)
        self.statuses: Counter[str] = Counter()
        self.peers: set[int] = set()
        """Facts that were there before, one for each name and each hash that new ones have, too."""
        self._connection = connection
        self._last = last
        self._names: dict[str, set[tuple[Any, ...]]] = {}
        """What a name that is looked for is the name of, and where: until it was seen there."""
        self._hashes: set[Any] = set()

    def look_for(self, facts: Sequence[FactRow], contents: Mapping[int, Mapping[str, Any] | None]) -> None:
        """Notes under which names and hashes new facts are filed."""
        for fact in facts:
            content = contents.get(fact.seq) or {}
            for name in _NAMES:
                said = content.get(name)
                if isinstance(said, str):
                    self._names.setdefault(said, set()).add((name, fact.tenant_id, content.get("agent")))
            self._hashes |= {(fact.tenant_id, fact.agent_tag), fact.key_tag, fact.subject_tag, fact.text_tag}
        self._hashes.discard(None)

    def pass_by(self) -> None:
        """Goes past the hashes of names alone."""
        for seq, *tags in self._connection.execute(_TAGS):
            self.tags.take(seq, tuple(tags))

    def indexed(self) -> Iterator[Indexed]:
        """The facts that the word index has the words of."""
        names, hashes, take = self._names, self._hashes, self.tags.take
        for seq, tenant, agent, key, subject, text, state, data in self._connection.execute(_FACTS):
            if type(data) is not bytes or type(state) is not bytes:
                raise MalformedError("expected facts whose contents are there")
            content, status = cbor2.loads(data), state.decode()
            take(seq, (tenant, agent, key, subject, text))
            self.statuses[status] += 1
            if seq <= self._last:
                tags = ((tenant, agent), key, subject, text)
                if not hashes.isdisjoint(tags):
                    hashes.difference_update(tags)
                    self.peers.add(seq)
                get = content.get
                said = (get("agent"), get("key"), get("subject"), get("text"))
                if not names.keys().isdisjoint(said):
                    self._note_names(seq, tenant, said)
            if status not in WITHHELD:
                yield Indexed(seq, agent, content)

    def _note_names(self, seq: int, tenant: int, told: Sequence[Any]) -> None:
        for name, said in zip(_NAMES, told, strict=True):
            wanted, found = self._names.get(said, set()), (name, tenant, told[0])
            if found in wanted:
                wanted.discard(found)
                self.peers.add(seq)
            if said in self._names and not wanted:
                del self._names[said]


def fresh_salts(connection: apsw.Connection, last: int) -> frozenset[bytes] | None:
    """The salts of the statements after `last`; None where one of them has no content, or a salt is there twice."""
    count = 0
    salts = set()
    sql = "SELECT e.link_salt, c.salt FROM events e LEFT JOIN contents c ON c.seq = e.seq WHERE e.seq > ?"
    for pair in connection.execute(sql, (last,)):
        count += 2
        salts.update(pair)
    return None if None in salts or len(salts) < count else frozenset(salts)


def draw(connection: apsw.Connection, root: bytes, fresh: Collection[bytes], last: int) -> list[int] | None:
    """The numbers of the statements that are drawn for checking by hand; None where an old one has a fresh salt."""
    sql = "SELECT seq, salt FROM contents WHERE seq <= ?"
    if any(salt in fresh for _, salt in connection.execute(sql, (last,))):
        return None
    drawn = nsmallest(SAMPLE, _drawn(connection, root, fresh, last))
    return None if None in (seq for _, seq in drawn) else sorted(seq for _, seq in drawn if seq is not None)


def _drawn(
    connection: apsw.Connection, root: bytes, fresh: Collection[bytes], last: int
) -> Iterator[tuple[bytes, int | None]]:
    for seq, commitment, salt in connection.execute("SELECT seq, commitment, link_salt FROM events"):
        # Lower than any digest: it is drawn for certain.
        again = seq <= last and salt in fresh
        yield (b"", None) if again else (hashlib.sha256(root + commitment).digest(), seq)
