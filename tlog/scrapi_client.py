"""A client of any SCITT transparency service that speaks SCRAPI (draft-ietf-scitt-scrapi-11).

It believes no service: a receipt is returned once it verifies under a key of the caller's, and a Location only
names an entry, never another server to talk to. What a service answers beyond the draft, with a status it does
not have or a body that is no CBOR, is judged by the class of its status.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from tlog.ascii import parse_decimal
from tlog.cose_keys import CoseKey, decode_key_set
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.locator import ENTRIES, KEYS, is_locator
from tlog.problems import CONCISE_TYPE, ConciseProblem, parse_concise_problem
from tlog.receipt import MAX_RECEIPT_BYTES, VerifiedReceipt, parse_receipt, verify_receipt
from tlog.statement import entry_of

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS: Final = 30.0
MAX_BODY_BYTES: Final = 1 << 20
FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 30.0
MAX_RETRY_AFTER_SECONDS: Final = 86_400.0
_COSE: Final = "application/cose"
_NOTHING: Final = ConciseProblem(None, None)


@dataclass(frozen=True)
class Reply:
    """What a service answered; header names are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def media_type(self) -> str:
        """The type of the body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


Send = Callable[[str, str, Mapping[str, str], bytes], Reply]
"""(method, path, headers, body) to the reply; UnavailableError where there is none."""


@dataclass(frozen=True)
class Submitted:
    """A registration as the service left it: `receipt` is None while it is under way."""

    entry_id: str
    receipt: bytes | None
    retry_after_seconds: float | None = None


@dataclass(frozen=True)
class Registered:
    """A statement that is registered: its entry, the receipt, and what that proves."""

    entry: bytes
    entry_id: str
    receipt: bytes
    verified: VerifiedReceipt


@dataclass(frozen=True)
class Pauses:
    """How time is told and spent between polls; a test hands in its own."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after so many polls: doubled each time, bounded, and never those of other clients."""
        longest = min(FIRST_PAUSE_SECONDS * 2.0 ** min(attempt, 16), MAX_PAUSE_SECONDS)
        return longest * (0.5 + 0.5 * self.draw())


class ScrapiClient:
    """A client of one service."""

    def __init__(self, send: Send, receipt_keys: Sequence[CoseKey], pauses: Pauses | None = None) -> None:
        """`receipt_keys` are the service's, as the caller knows them: none is taken on the service's word."""
        self._send = send
        self._keys = {key.key_id: key for key in receipt_keys}
        self._pauses = pauses or Pauses()
        self._close: Callable[[], None] = lambda: None

    @classmethod
    def from_url(
        cls, url: str, receipt_keys: Sequence[CoseKey], timeout_seconds: float = TIMEOUT_SECONDS
    ) -> ScrapiClient:
        """A client of the service under a URL. Redirects are not followed."""
        sender = _UrlSender(url, timeout_seconds)
        client = cls(sender, receipt_keys)
        client._close = sender.close
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._close()

    def register(self, signed_statement: bytes, deadline_seconds: float) -> Registered:
        """The statement with its verified receipt, submitted and polled for until then.

        What may be retried is: the entry's id follows from its bytes, so a submission that got lost is made
        again. Raises RefusedError with the service's `title` and `detail` in its fields, VerificationError for
        a receipt that proves nothing, and UnavailableError at the deadline, with what was last in the way.
        """
        entry = entry_of(signed_statement)
        deadline = self._pauses.clock() + deadline_seconds
        submitted = self._retried(partial(self.submit, signed_statement), deadline)
        attempt = 0
        while submitted.receipt is None:
            self._pause(submitted.retry_after_seconds, attempt, deadline)
            attempt += 1
            submitted = self._retried(partial(self.poll, submitted.entry_id), deadline)
        return Registered(entry, submitted.entry_id, submitted.receipt, self.verify(submitted.receipt, entry))

    def submit(self, signed_statement: bytes) -> Submitted:
        """One submission. A receipt in it is not verified."""
        headers = {"content-type": _COSE, "accept": f"{_COSE}, {CONCISE_TYPE}"}
        reply = self._send("POST", ENTRIES, headers, signed_statement)
        if reply.status in (200, 201):
            return Submitted(_entry_id(reply), _receipt(reply))
        if reply.status in (202, 302, 303):  # the last two before draft 11
            return Submitted(_entry_id(reply), None, retry_after_seconds(reply))
        raise _error(reply)

    def poll(self, entry_id: str) -> Submitted:
        """How the registration of an entry stands. A receipt in it is not verified.

        RefusedError with status 404 is final: there is no such entry, or its registration failed.
        """
        reply = self._send(
            "GET", f"{ENTRIES}/{_require_id(entry_id)}", {"accept": f"{_COSE}, {CONCISE_TYPE}"}, b""
        )
        if reply.status == 200:
            return Submitted(entry_id, _receipt(reply))
        if reply.status in (202, 204, 302):
            return Submitted(entry_id, None, retry_after_seconds(reply))
        raise _error(reply)

    def verify(self, receipt: bytes, entry: bytes) -> VerifiedReceipt:
        """What the receipt proves of the entry, under the caller's keys."""
        key = self._keys.get(parse_receipt(receipt).kid)
        if key is None:
            raise VerificationError(
                "receipt: signed with a key that the caller does not know", code="key_unknown"
            )
        return verify_receipt(receipt, entry, key)

    def keys(self) -> tuple[CoseKey, ...]:
        """The keys that the service says are its own: to be compared with what is known, never believed."""
        reply = self._send("GET", KEYS, {"accept": "application/cbor"}, b"")
        if reply.status != 200:
            raise _error(reply)
        return decode_key_set(reply.body)

    def _retried(self, ask: Callable[[], Submitted], deadline: float) -> Submitted:
        attempt = 0
        while True:
            try:
                return ask()
            except UnavailableError as error:
                wait = error.fields.get("retry_after_seconds")
                self._pause(wait if isinstance(wait, float) else None, attempt, deadline, error)
                attempt += 1

    def _pause(
        self, retry_after: float | None, attempt: int, deadline: float, cause: UnavailableError | None = None
    ) -> None:
        """Waits as long as the service asks for, else as long as `backoff` says; UnavailableError if too late."""
        wait = self._pauses.backoff(attempt)
        if retry_after is not None:
            wait = max(retry_after, wait / 10)  # a service that says 0 is not polled without a pause
        if self._pauses.clock() + wait > deadline:
            why = "the registration is still under way" if cause is None else cause.message
            raise UnavailableError(
                f"scrapi: not done before the deadline: {why}", code="late", retry_after_seconds=wait
            ) from cause
        self._pauses.sleep(wait)


def retry_after_seconds(reply: Reply) -> float | None:
    """What Retry-After asks for, None where it says nothing that can be read (RFC 9110, 10.2.3)."""
    text = reply.headers.get("retry-after", "").strip()
    try:
        return min(float(parse_decimal(text, "Retry-After")), MAX_RETRY_AFTER_SECONDS)
    except MalformedError:
        pass
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _entry_id(reply: Reply) -> str:
    """The last segment of Location: what names the entry, on whatever host and path the service thinks it is."""
    try:
        path = urlsplit(reply.headers.get("location", "")).path
    except ValueError:
        path = ""
    return _require_id(path.rpartition("/")[2])


def _require_id(entry_id: str) -> str:
    if not is_locator(entry_id):
        raise VerificationError("scrapi: the service names no entry that can be asked for", code="locator")
    return entry_id


def _receipt(reply: Reply) -> bytes:
    if not reply.body or len(reply.body) > MAX_RECEIPT_BYTES:
        raise VerificationError("scrapi: the service answers without a receipt", code="receipt")
    return reply.body


def _error(reply: Reply) -> Error:
    """The error that a reply means; what is not known is judged by its class (SCRAPI, Resources)."""
    problem = _problem(reply)
    fields = {"status": reply.status, "title": problem.title, "detail": problem.detail}
    if reply.status >= 500 or reply.status in (408, 425, 429):
        return UnavailableError(
            f"scrapi: the service can't answer now (status {reply.status})",
            code="unavailable",
            retry_after_seconds=retry_after_seconds(reply),
            **fields,
        )
    if 400 <= reply.status < 500:
        return RefusedError(f"scrapi: the service refused (status {reply.status})", code="refused", **fields)
    return VerificationError(
        f"scrapi: the service answers with a status that says nothing here ({reply.status})",
        code="status",
        **fields,
    )


def _problem(reply: Reply) -> ConciseProblem:
    if reply.media_type != CONCISE_TYPE:
        return _NOTHING
    try:
        return parse_concise_problem(reply.body)
    except MalformedError:
        return _NOTHING


class _UrlSender:
    """Sends to a service under a URL."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        import httpx

        self._prefix = url.rstrip("/")
        if not self._prefix.startswith(("https://", "http://")):
            raise MalformedError("scrapi: expected a URL that begins with https:// or http://")
        self._timeout_seconds = timeout_seconds
        self._client = httpx.Client(timeout=timeout_seconds, headers={"accept-encoding": "identity"})

    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        import httpx

        try:
            with self._client.stream(
                method, self._prefix + path, headers=dict(headers), content=body or None
            ) as response:
                return Reply(
                    response.status_code,
                    {name.lower(): value for name, value in response.headers.items()},
                    _read(response, time.monotonic() + self._timeout_seconds),
                )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnavailableError(
                f"scrapi: the service can't be reached ({type(error).__name__})", code="unreachable"
            ) from None

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


def _read(response: httpx.Response, deadline: float) -> bytes:
    body = bytearray()
    for part in response.iter_raw():
        body += part
        if time.monotonic() > deadline:
            raise UnavailableError("scrapi: the service answers too slowly", code="unreachable")
        if len(body) > MAX_BODY_BYTES:
            raise UnavailableError(f"scrapi: expected at most {MAX_BODY_BYTES} bytes", code="too_large")
    return bytes(body)
