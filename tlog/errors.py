"""The error tree of all four packages.

Every error raised on purpose is one of the four kinds below. `code` is the short name that surfaces answer
with; `fields` carries what a caller may need to act (a size, a name, a number of seconds), never content.
"""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """Base of every error raised on purpose; never raised itself."""

    default_code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, code: str | None = None, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.fields = fields


class MalformedError(Error):
    """Bad input: the message names what was expected."""

    default_code = "bad_input"


class VerificationError(Error):
    """Bad evidence: a signature, proof, hash or policy does not hold."""

    default_code = "not_verified"


class RefusedError(Error):
    """A rule says no; asking again with the same input changes nothing."""

    default_code = "forbidden"


class UnavailableError(Error):
    """May be retried; `fields["retry_after_seconds"]` where a time is known."""

    default_code = "busy"
