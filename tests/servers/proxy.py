"""A TCP proxy on loopback that can be cut, made slow, or kept from passing answers on."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


class Proxy:
    """Passes bytes between its own port and another, as it is told."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.delay_seconds = 0.0
        self.silent = False
        self.refusing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._mutex = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends all connections at once; new ones are taken unless it is told to refuse them."""
        with self._mutex:
            ended, self._open = self._open, set()
        for one in ended:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._mutex:
                self._open |= {client, server}
            for source, sink, answers in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pass, args=(source, sink, answers), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self.delay_seconds:
                    time.sleep(self.delay_seconds)
                if not (answers and self.silent):
                    sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
