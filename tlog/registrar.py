"""The registration policy of a log in its storages: set by the operator, in force for every batch after it.

    private  registration              the newest policy entry, written before it is appended
    public   registration/SHA256.toml  the document of each policy that the log ever had

Whoever appends statements of others decides and appends under one lock, and a policy changes under the same
lock. So the policy that admitted an entry is the newest one before it in the log, which is what `replay` finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from tlog.cose_keys import CoseSigner
from tlog.errors import RefusedError, VerificationError
from tlog.log import Log
from tlog.receipt_keys import CreateFile
from tlog.registration import MAX_NUMBER, Registration, document_of, document_path
from tlog.registration_log import (
    Operator,
    open_document,
    parse_policy_entry,
    sign_registration,
    verify_policy_entry,
)

FILE: Final = "registration"
_LOCK: Final = "registration"


@dataclass(frozen=True)
class InForce:
    """The policy in force and the index of its entry."""

    index: int
    registration: Registration


class Registrar:
    """The policy of one log. Threads and processes may each have one for the same log."""

    def __init__(self, log: Log, create_file: CreateFile | None = None) -> None:
        self._log = log
        self._create_file = create_file or log.public.create
        self._known: tuple[bytes, InForce] | None = None

    @contextmanager
    def deciding(self) -> Iterator[InForce | None]:
        """The policy in force, which nobody changes within the block; None while the log takes nothing."""
        with self._log.private.lock(_LOCK):
            yield self._load()

    def current(self) -> InForce | None:
        """The policy in force a moment ago."""
        with self.deciding() as in_force:
            return in_force

    def set_policy(self, rules: Registration, signer: CoseSigner) -> InForce:
        """The policy of these rules, in force and in the log; its number is the next one.

        Rules that are in force already change nothing. Raises RefusedError where the log is another's.
        """
        with self._log.private.lock(_LOCK):
            before = self._load() or self._search(signer)
            if (
                before is not None
                and replace(rules, number=before.registration.number) == before.registration
            ):
                return before
            number = 1 if before is None else before.registration.number + 1
            if number > MAX_NUMBER:
                raise RefusedError("registration: the log has had too many policies", code="number")
            registration = replace(rules, number=number)
            entry = sign_registration(signer, self._log.settings.origin, registration)
            self._create_file(document_path(_digest(entry)), document_of(registration))
            # Written first: a crash before the append is repaired by whoever loads it next.
            self._log.private.replace(FILE, entry)
            return self._enforce(entry)

    def read_document(self, digest: bytes) -> bytes | None:
        """The document with this SHA-256, as `replay` asks for it."""
        return self._log.public.read(document_path(digest))

    def _load(self) -> InForce | None:
        """The policy of the private file, its entry in the log. The lock must be held."""
        entry = self._log.private.read(FILE)
        if entry is None:
            return None
        if self._known is None or self._known[0] != entry:
            return self._enforce(entry)
        return self._known[1]

    def _enforce(self, entry: bytes) -> InForce:
        digest = _digest(entry)
        registration = open_document(self.read_document(digest), digest)
        (index,) = self._log.append([entry])
        in_force = InForce(index, registration)
        self._known = (entry, in_force)
        return in_force

    def _search(self, signer: CoseSigner) -> InForce | None:
        """The newest policy in the log, where its private file was lost."""
        operator = Operator(self._log.settings.origin, (signer.key,))
        found = None
        for index, entry in enumerate(self._log.read_entries(0, self._log.head().size)):
            statement = parse_policy_entry(entry)
            if statement is not None:
                digest = verify_policy_entry(statement, operator)
                found = InForce(index, open_document(self.read_document(digest), digest))
        return found


def _digest(entry: bytes) -> bytes:
    statement = parse_policy_entry(entry)
    if statement is None or statement.message.payload is None:
        raise VerificationError("registration: the private policy entry is not one", code="log_state")
    return statement.message.payload
