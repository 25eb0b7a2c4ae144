"""A session of the OpenAI Agents SDK over a home: the items of a conversation, with receipts, history and erasure.

Fits the SDK's `Session` protocol, so nothing of it is imported here. Items are documents (memory.documents) of one
caller; a session is a collection of its own, so `muniment forget --subject "agents session ID"` erases one. Clearing a
session, or popping its last item, stops serving items; erasing them is another step.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from typing import TYPE_CHECKING, Any

from memory import json_documents
from memory.documents import Documents
from memory.principal import check_name

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.wiring import Home


class MunimentSession:
    """The conversation `session_id` of one caller of a home."""

    session_settings: Any = None

    def __init__(self, session_id: str, home: Home, principal: Principal) -> None:
        self.session_id = check_name("session_id", session_id)
        self._documents = Documents(home.parts(), principal, f"agents session {session_id}")
        self._lock = threading.Lock()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items in order; the last `limit` of them if there is a limit."""
        return await asyncio.to_thread(self._get, limit)

    async def add_items(self, items: list[Any]) -> None:
        """Returns once the items are durable, behind those there are."""
        await asyncio.to_thread(self._add, list(items))

    async def pop_item(self) -> Any | None:
        """The last item, which is in the session no more; None if there is none."""
        return await asyncio.to_thread(self._pop)

    async def clear_session(self) -> None:
        """Returns once the session has no items."""
        await asyncio.to_thread(self._clear)

    def _get(self, limit: int | None) -> list[Any]:
        documents = self._documents.all()
        if limit is not None:
            documents = documents[-limit:] if limit > 0 else []
        return [json_documents.decode(one.text) for one in documents]

    def _add(self, items: list[Any]) -> None:
        texts = [json_documents.encode(item) for item in items]
        with self._lock, self._documents.editing():
            documents = self._documents.all()
            number = int(documents[-1].name.split()[0]) if documents else 0
            for text in texts:
                number += 1
                # Should a number come twice all the same, neither item takes the other's place.
                self._documents.put(f"{number:012} {secrets.token_hex(8)}", text)

    def _pop(self) -> Any | None:
        with self._lock, self._documents.editing():
            documents = self._documents.all()
            if not documents:
                return None
            self._documents.delete(documents[-1].name)
            return json_documents.decode(documents[-1].text)

    def _clear(self) -> None:
        with self._lock, self._documents.editing():
            for document in self._documents.all():
                self._documents.delete(document.name)
