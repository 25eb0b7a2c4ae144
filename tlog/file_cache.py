"""Files that never change, kept in memory up to a number of bytes; what was asked for longest ago goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict


class FileCache:
    """Files by path. Any thread may use it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._files: OrderedDict[str, bytes] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, path: str) -> bytes | None:
        """The file, None if it is not kept."""
        with self._mutex:
            data = self._files.get(path)
            if data is not None:
                self._files.move_to_end(path)
            return data

    def put(self, path: str, data: bytes) -> None:
        """Keeps the file, unless it alone would take a large part of the room."""
        if len(data) > self._max_bytes // 4:
            return
        with self._mutex:
            self._bytes += len(data) - len(self._files.pop(path, b""))
            self._files[path] = data
            while self._bytes > self._max_bytes:
                _, dropped = self._files.popitem(last=False)
                self._bytes -= len(dropped)
