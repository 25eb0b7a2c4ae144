"""Brings the vectors of a home up to its facts: at a read for what was just written, at a publication for all.

No write waits for it, and a fact without a vector is found by its words. It is resumed wherever it stopped: what has
no vector of the model of the settings gets one, and a new model takes the place of the old one fact by fact. So does
one that answers under its old name with vectors of another width, which can't be compared with those there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from memory import store_vectors, vectors
from memory.search import query_words
from memory.semantic import Embedder, embedder_of
from tlog.errors import UnavailableError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.scope import Scope
    from memory.store_read import Snapshot

_BATCH: Final = 256
_AT_A_READ: Final = 8
_ANEW_AT_A_READ: Final = 1
"""So many steps where another model made the vectors there are: they are made anew in the background, not by a read."""
_WIDTHS: Final[dict[str, int]] = {}
"""How many numbers the vectors of a model had when it last answered: a service may change that under the same name."""
AT_A_TURN: Final = 32
"""As many steps a server takes each time it publishes: it must be able to end soon."""


def catch_up(parts: Parts, batches: int | None = None) -> int:
    """How many facts of the home got a vector: all that lacked one, or as many as the model answered for.

    With `batches`, in so many steps at most. A model that cannot be had now fails nobody: the next time goes on.
    """
    made = 0
    try:
        embedder = embedder_of(parts.home.config)
        if embedder is None:
            return 0
        with parts.store.read_whole() as view:
            scopes = store_vectors.scopes(view)
        if scopes and embedder.name not in _WIDTHS:
            _embed(embedder, [" "])
        for tenant_id, agent_tag in scopes:
            left = None if batches is None else batches - -(-made // _BATCH)
            made += _scope(parts, embedder, tenant_id, agent_tag, 0, left)
    except UnavailableError:
        return made
    return made


def catch_up_recent(parts: Parts, scope: Scope) -> None:
    """Gives vectors to what a scope got since its last one, up to a bound; left for later if that can't be now."""
    embedder = embedder_of(parts.home.config)
    if embedder is None:
        return
    with parts.store.read() as view:
        view.enter(scope.tenant_id)
        after = store_vectors.last_with_vector(view, scope.tenant_id, scope.agent_tag, embedder.name)
        newest = store_vectors.newest_model(view, scope.tenant_id, scope.agent_tag)
    steps = _AT_A_READ if newest in (None, embedder.name) else _ANEW_AT_A_READ
    try:
        _scope(parts, embedder, scope.tenant_id, scope.agent_tag, after, steps)
    except UnavailableError:
        return


def meaning(parts: Parts, view: Snapshot, scope: Scope, query: str) -> Mapping[int, float]:
    """How near in meaning facts of a scope are to a query; empty without a word, a model, or its answer."""
    embedder = embedder_of(parts.home.config)
    if embedder is None or not query_words(query):
        return {}
    rows = store_vectors.of_scope(view, scope.tenant_id, scope.agent_tag, embedder.name)
    if not rows:
        return {}
    try:
        (asked,) = _embed(embedder, [query])
    except UnavailableError:
        return {}
    return vectors.nearest(list(asked), rows)


def _embed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    made = embedder.embed(texts)
    _WIDTHS[embedder.name] = len(made[0])
    return made


def _scope(
    parts: Parts, embedder: Embedder, tenant_id: int, agent_tag: bytes, after: int, batches: int | None
) -> int:
    made = 0
    while batches is None or batches > 0:
        with parts.store.read() as view:
            view.enter(tenant_id)
            lacking = store_vectors.lacking(
                view, tenant_id, agent_tag, (embedder.name, _WIDTHS.get(embedder.name)), _BATCH, after
            )
        if not lacking:
            break
        packed = vectors.pack(_embed(embedder, [text for _, text in lacking]))
        with parts.store.write() as txn:
            txn.view.enter(tenant_id)
            told = zip((seq for seq, _ in lacking), packed, strict=True)
            store_vectors.add(txn, tenant_id, agent_tag, embedder.name, told)
        after = lacking[-1][0]
        made += len(lacking)
        batches = None if batches is None else batches - 1
    return made
