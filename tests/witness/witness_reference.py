"""A slow witness to compare with: the specification read literally, on bytes and recursion, sharing no code.

It keeps every leaf of every tree it is shown instead of believing proofs: a head follows another one exactly if
its tree begins with the other's leaves.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable

Verify = Callable[[bytes, bytes], bool]


def root_of(leaves: list[bytes]) -> bytes:
    """RFC 6962, 2.1."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return hashlib.sha256(b"\x01" + root_of(leaves[:k]) + root_of(leaves[k:])).digest()


def consistency_proof(m: int, leaves: list[bytes], whole: bool = True) -> list[bytes]:
    """RFC 6962, 2.1.2: PROOF(m, D[n])."""
    n = len(leaves)
    if m == n:
        return [] if whole else [root_of(leaves)]
    k = 1
    while k * 2 < n:
        k *= 2
    if m <= k:
        return [*consistency_proof(m, leaves[:k], whole), root_of(leaves[k:])]
    return [*consistency_proof(m - k, leaves[k:], False), root_of(leaves[:k])]


def number(text: bytes) -> int | None:
    """A decimal as the specification writes it, up to what a size can be here."""
    if text != b"0" and (not text or text[:1] == b"0" or any(byte not in b"0123456789" for byte in text)):
        return None
    value = int(text) if len(text) < 25 else 2**64
    return value if value < 2**63 else None


def canonical_base64(text: bytes) -> bytes | None:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return data if base64.b64encode(data) == text else None


class Reference:
    """One log, one key; `histories` are all the lists of leaves whose heads the log may have signed."""

    def __init__(
        self, origin: str, key_name: str, key_id: bytes, verify: Verify, histories: list[list[bytes]]
    ) -> None:
        self.origin = origin.encode()
        self.line_start = b"\xe2\x80\x94 " + key_name.encode() + b" "
        self.key_id = key_id
        self.verify = verify
        self.histories = histories
        self.known: tuple[int, bytes] | None = None

    def answer(self, body: bytes) -> tuple[int, bytes]:
        """Status, and the body of a 409."""
        parsed = self._parse(body)
        if parsed is None:
            return 400, b""
        old, proof, origin, size, root, text, lines = parsed
        if origin != self.origin:
            return 404, b""
        own = [data for start, data in lines if start == self.line_start and data[:4] == self.key_id]
        if len(own) != 1 or not self.verify(own[0][4:], text):
            return 403, b""
        if old > size:
            return 400, b""
        if size == 0 and root != hashlib.sha256(b"").digest():
            return 422, b""
        known_size = self.known[0] if self.known else 0
        if old != known_size:
            return 409, b"%d\n" % known_size
        if not self._follows(old, proof, size, root):
            return 422, b""
        self.known = (size, root)
        return 200, b""

    def _follows(self, old: int, proof: list[bytes], size: int, root: bytes) -> bool:
        if old == 0:
            return not proof
        assert self.known is not None
        if size == old:
            return root == self.known[1] and not proof
        # Of the trees there are, one must have both roots, and the proof must be its proof.
        return any(
            len(leaves) >= size
            and root_of(leaves[:size]) == root
            and root_of(leaves[:old]) == self.known[1]
            and consistency_proof(old, leaves[:size]) == proof
            for leaves in self.histories
        )

    def _parse(
        self, body: bytes
    ) -> tuple[int, list[bytes], bytes, int, bytes, bytes, list[tuple[bytes, bytes]]] | None:
        at = body.find(b"\n\n")
        if len(body) > 128 * 1024 or at < 0:
            return None
        first, *hashes = body[:at].split(b"\n")
        old = number(first[4:]) if first[:4] == b"old " else None
        proof = [canonical_base64(line) for line in hashes]
        if old is None or len(hashes) > 63 or any(one is None or len(one) != 32 for one in proof):
            return None
        note = body[at + 2 :]
        split = note.rfind(b"\n\n")
        if split < 0 or not note.endswith(b"\n") or any(byte < 32 and byte != 10 for byte in note):
            return None
        try:
            note.decode()
        except UnicodeDecodeError:
            return None
        text = note[: split + 1]
        lines = self._signature_lines(note[split + 2 :])
        parts = text.split(b"\n")
        if lines is None or len(parts) != 4 or parts[3] or not parts[0] or len(parts[0]) > 255:
            return None
        size, root = number(parts[1]), canonical_base64(parts[2])
        if size is None or root is None or len(root) != 32:
            return None
        return old, [one for one in proof if one is not None], parts[0], size, root, text, lines

    def _signature_lines(self, data: bytes) -> list[tuple[bytes, bytes]] | None:
        found = []
        for line in data[:-1].split(b"\n"):
            start, _, encoded = line.rpartition(b" ")
            decoded = canonical_base64(encoded)
            name = start[4:].decode("utf-8", "strict") if start.startswith(b"\xe2\x80\x94 ") else ""
            if decoded is None or len(decoded) < 5 or not name or len(name.encode()) > 255:
                return None
            if "+" in name or any(letter.isspace() for letter in name):
                return None
            found.append((start + b" ", decoded))
        return found if 1 <= len(found) <= 100 else None


def key_id_of(name: str, public_key: bytes) -> bytes:
    """signed-note, Signature types, Ed25519."""
    return hashlib.sha256(name.encode() + b"\n\x01" + public_key).digest()[:4]


def signed(text: bytes, name: str, key_id: bytes, sign: Callable[[bytes], bytes]) -> bytes:
    """A note, written by hand."""
    line = base64.b64encode(key_id + sign(text))
    return text + b"\n\xe2\x80\x94 " + name.encode() + b" " + line + b"\n"


def cosignature_holds(
    line: bytes, name: str, text: bytes, public_key: bytes, verify: Callable[[bytes, bytes], None]
) -> int:
    """The time of a cosignature/v1 line, once it holds. tlog-cosignature."""
    start, _, encoded = line.removesuffix(b"\n").rpartition(b" ")
    data = base64.b64decode(encoded)
    assert start == b"\xe2\x80\x94 " + name.encode()
    assert data[:4] == hashlib.sha256(name.encode() + b"\n\x04" + public_key).digest()[:4]
    (timestamp,) = struct.unpack(">Q", data[4:12])
    verify(data[12:], b"cosignature/v1\ntime %d\n" % timestamp + text)
    return int(timestamp)
