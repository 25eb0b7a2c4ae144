"""One resource of the HTTP API and its method: a row of the table in `memory.http_routes`."""

from __future__ import annotations

from dataclasses import dataclass, field

from memory.http_schemas import ID_PATTERN, Schema


@dataclass(frozen=True, slots=True)
class Route:
    """One resource and method. `operation` is that of `memory.batch`; `body` is None where there is none.

    `path_id` is the argument that the id in the path is, which fits `id_pattern`; `query` are the arguments that stand
    in the query. `listed` is the list of the answer that pages are made of, and `listed_by` the time its items are
    ordered by, None for a list with the best first.
    `scope` is what a token needs at least.
    """

    name: str
    method: str
    path: str
    operation: str
    summary: str
    answer: Schema
    scope: str
    body: Schema | None = None
    path_id: str | None = None
    query: Schema = field(default_factory=dict)
    listed: str | None = None
    listed_by: str | None = "recorded_at"
    takes_idempotency_key: bool = False
    id_pattern: str = ID_PATTERN

    @property
    def has_pages(self) -> bool:
        """Whether the answer comes in pages."""
        return self.listed is not None

    @property
    def is_single(self) -> bool:
        """Whether it can be asked whether it has changed."""
        return self.method == "GET"
