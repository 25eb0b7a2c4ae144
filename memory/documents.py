"""Named documents in a memory: what file-like and store-like adapters put, replace, list and take away.

A document is a fact whose key and value are hashes of its name and of its text, so that two names, or two versions,
are told apart by every character, and whose text is the name, a line feed, and the document. A document makes no claim
about the world, so its writes are not judged by the guard (flag `unguarded`): a file may say again what it said before.
Everything else is as for any fact: statements, receipts, history, erasure (`muniment forget --subject COLLECTION`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from memory import review
from memory.key_view import key_now
from memory.principal import require
from memory.remember import remember
from memory.scope import open_scope
from memory.store_documents import standing_key_tags
from tlog.errors import MalformedError, RefusedError
from tlog.storage import LOCK_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.parts import Parts
    from memory.rows import FactRow
    from memory.store_read import Snapshot

MAX_NAME_BYTES: Final = 2048
CLIENT: Final = "documents"
LOCK: Final = "documents"
_LETTERS: Final = str.maketrans("0123456789abcdef", "ghijklmnopabcdef")
_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it is now: its name, its text, the id of the fact, and when it was recorded, in µs since 1970."""

    name: str
    text: str
    id: str
    recorded_at: int


class Documents:
    """The documents of one collection, in the memory of one caller."""

    def __init__(self, parts: Parts, principal: Principal, collection: str) -> None:
        self._parts = replace(parts, guard="off")
        # One client: two that write a document replace each other's versions, and do not disagree.
        self._principal = replace(principal, client=CLIENT, authenticated=False, reported=False)
        self._collection = collection

    @contextmanager
    def editing(self) -> Iterator[None]:
        """Held, nobody else edits these documents, on whichever node: for who writes what depends on what is there."""
        parts = self._parts
        tag = parts.vault.index_tag("documents", self._principal.tenant, self._collection)
        with parts.home.files.lock(LOCK), parts.store.alone_editing(tag, LOCK_TIMEOUT_SECONDS):
            yield

    def put(self, name: str, text: str) -> dict[str, Any]:
        """The answer of `remember` for this version of the document; `agreed` if it is the one there is."""
        _check_name(name)
        arguments = {
            "text": f"{name}\n{text}",
            "key": self._key(name),
            "value": _letters(text),
            "subject": self._collection,
        }
        answer = remember(self._parts, self._principal, arguments)
        if answer["outcome"] not in ("stored", "superseded", "agreed"):
            raise RefusedError(
                f"the document was not stored: {answer['outcome']} ({answer['reason']})",
                code=answer["outcome"],
            )
        return answer

    def get(self, name: str) -> Document | None:
        """The document of this name; None if there is none."""
        require(self._principal, "memory:read")
        _check_name(name)
        with self._parts.store.read() as view:
            scope = open_scope(view, self._parts.vault, self._principal)
            if scope is None:
                return None
            found = key_now(view, scope.tenant_id, scope.key_tag(self._key(name)), self._now(view))
            rows = [fact for fact, _ in found.facts]
        return _document(rows[-1]) if rows else None

    def delete(self, name: str) -> bool:
        """Whether there was such a document, which is served no more; what it said is kept until it is erased."""
        document = self.get(name)
        if document is None:
            return False
        review.retract(self._parts, self._principal, document.id)
        return True

    def all(self, prefix: str = "") -> list[Document]:
        """Every document whose name begins so, by name."""
        require(self._principal, "memory:read")
        return sorted(
            (one for one in self._standing() if one.name.startswith(prefix)), key=lambda one: one.name
        )

    def _standing(self) -> Iterator[Document]:
        with self._parts.store.read() as view:
            scope = open_scope(view, self._parts.vault, self._principal)
            if scope is None:
                return
            now = self._now(view)
            for key_tag in standing_key_tags(view, scope, self._collection):
                facts = key_now(view, scope.tenant_id, key_tag, now).facts
                # Somebody may write of a person who is called like the collection.
                yield from (_document(fact) for fact, _ in facts[-1:] if _is_document(fact))

    def _now(self, view: Snapshot) -> int:
        return max(self._parts.clock(), view.last_recorded_at())

    def _key(self, name: str) -> str:
        return f"document {_letters(f'{len(self._collection)} {self._collection} {name}')}"


def _check_name(name: str) -> None:
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise MalformedError("expected the name of a document to be valid Unicode") from None
    if not name.strip() or "\n" in name or "\0" in name or size > MAX_NAME_BYTES:
        raise MalformedError(
            f"expected the name of a document to be one line of 1 to {MAX_NAME_BYTES} bytes, not blank"
        )


def _letters(text: str) -> str:
    """A hash in letters alone: no canonical form takes two of them for one."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS].translate(_LETTERS)


def _is_document(fact: FactRow) -> bool:
    return str(fact.content.get("key") or "").startswith("document ") and "\n" in fact.content["text"]


def _document(fact: FactRow) -> Document:
    name, _, text = fact.content["text"].partition("\n")
    return Document(name, text, fact.id, fact.recorded_at)
