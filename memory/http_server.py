"""`muniment serve`: a home over HTTP until SIGTERM or SIGINT, with a token for whoever asks, and published meanwhile.

What was acknowledged is durable before it is answered, so a server that is killed loses nothing of it; several may
serve one home, beside commands and MCP servers on it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from memory import tokens
from memory.http_app import LIMITS, MCP, Address, Service, make_app
from memory.http_auth import Authenticator, challenge, metadata_url
from memory.http_guard import check_url, reached_by
from memory.http_spans import tracer_of_process
from memory.http_work import Work
from memory.key_check import require_sound_keys
from tlog import web
from tlog.errors import Error, MalformedError, RefusedError
from tlog.metrics import Metrics
from tlog.rate_limit import Rate, RateLimiter

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.oauth import OAuth
    from memory.wiring import Home

MCP_MODULE: Final = "memory.mcp_http"
MIN_PUBLISH_SECONDS: Final = 0.1
Announce = Callable[[dict[str, str]], None]
Authenticate = Callable[[Mapping[str, str]], "Principal"]
Challenge = Callable[[Error], Mapping[str, str]]


@dataclass(frozen=True)
class Serving:
    """Where and for whom a home is served. `nobody` is who asks without a token; None where one is needed."""

    listen: str
    metrics: str | None = None
    url: str | None = None
    origins: tuple[str, ...] = ()
    oauth_file: str | None = None
    nobody: Principal | None = None
    per_second: float = 50.0
    burst: int = 500
    publish_seconds: float = 10.0


def serve_home(home: Home, serving: Serving, announce: Announce) -> None:
    """Serves a home until it is told to stop; what is under way then is finished.

    `announce` gets the addresses, once connections are taken.
    """
    host, port = web.parse_listen(serving.listen)
    url = None if serving.url is None else check_url(serving.url)
    oauth = None if serving.oauth_file is None else _load_oauth(serving.oauth_file, url)
    home.parts()  # what is wrong with the home is said now
    _require_access(home, serving, web.is_loopback(host), oauth)
    if serving.publish_seconds < MIN_PUBLISH_SECONDS:
        raise MalformedError(f"expected --publish-every of {MIN_PUBLISH_SECONDS:g} seconds or more")
    metrics, address = Metrics(), Address()
    reached_by(f"http://{serving.listen}", url, serving.origins)  # a wrong --origin is said now
    authenticator = Authenticator(home, oauth, serving.nobody)
    work = Work(home, authenticator, RateLimiter(Rate(serving.per_second, serving.burst)))
    issuer = None if oauth is None else oauth.settings.issuer

    def challenged(error: Error) -> dict[str, str]:
        return challenge(error, metadata_url(address.url, issuer, MCP))

    def authenticate_for_mcp(headers: Mapping[str, str]) -> Principal:
        try:
            principal = authenticator.authenticate(headers)
            work.admit(principal)
        except Error as error:
            told = challenged(error)
            error.fields.update({name.replace("-", "_"): value for name, value in told.items()})
            raise
        return principal

    service = Service(
        work=work,
        address=address,
        metrics=metrics,
        tracer=tracer_of_process(),
        checks={
            "store": lambda: check_store(home),
            "keys": lambda: require_sound_keys(home.path, home.config),
        },
        issuer=issuer,
        mcp=_mcp_of(home, (authenticate_for_mcp, challenged), host, serving, url),
    )
    beside = _metrics_server(serving, metrics)

    def on_listening(bound: str) -> None:
        address.url, address.reached = url or bound, reached_by(bound, url, serving.origins)
        found = {"listening": bound}
        announce(found | ({"metrics": beside[0].url} if beside else {}))

    publisher = Publisher(home, serving.publish_seconds, metrics)
    publisher.start()
    try:
        web.serve(make_app(service), host, port, LIMITS, on_listening, beside=beside)
    finally:
        # A thread that is still at work finishes before the home is closed under it.
        work.pool.shutdown(wait=True, cancel_futures=True)
        publisher.stop()


class Publisher:
    """Publishes a home on a fixed cadence, in a thread of its own, if there is anything new."""

    def __init__(self, home: Home, seconds: float, metrics: Metrics) -> None:
        self._home = home
        self._seconds = seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="muniment-publisher", daemon=True)
        self._runs = metrics.counter("muniment_publications_total", "Publications tried.", ("outcome",))

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Returns once it has ended; a publication under way is finished."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            try:
                done = self._home.publish_if_needed()
            except Error as error:
                self._failed(error.message, error.code)
            except Exception as error:  # noqa: BLE001 -- the outermost loop of a thread: the next time may work
                self._failed(f"internal error ({type(error).__name__})", Error.default_code)
            else:
                self._runs.add("nothing_new" if done is None else "published")

    def _failed(self, message: str, code: str) -> None:
        self._runs.add(code)
        print(f"muniment: publishing: {message}", file=sys.stderr, flush=True)  # noqa: T201


def check_store(home: Home) -> None:
    """Returns if the store can be written to now."""
    with home.parts().store.write():
        return


def _require_access(home: Home, serving: Serving, is_loopback: bool, oauth: OAuth | None) -> None:
    """Returns if nobody gets at the home who should not: a token is needed, and beyond this machine there is one."""
    if serving.nobody is not None and (not is_loopback or oauth is not None or serving.url is not None):
        raise RefusedError(
            "--no-auth is for a listener on this machine alone, without --url and --oauth", code="no_auth"
        )
    if is_loopback:
        return
    if serving.url is None:
        raise RefusedError(
            "other machines can reach this address: say with --url by what, and put TLS before it",
            code="not_loopback",
        )
    if oauth is None and not tokens.has_any(home):
        raise RefusedError(
            "other machines can reach this address, and there is no token that would let anybody in: make one with"
            " muniment token create, or name an identity provider with --oauth",
            code="no_tokens",
        )


def _load_oauth(file: str, url: str | None) -> OAuth:
    from memory.oauth import MAX_FILE_BYTES, OAuth, parse_oauth
    from memory.oauth_keys import KeySet, fetch_from

    try:
        with open(file, "rb") as opened:
            settings = parse_oauth(opened.read(MAX_FILE_BYTES + 1), url)
    except OSError as error:
        raise MalformedError(f"the file of --oauth cannot be read: {error.strerror}") from None
    return OAuth(settings, KeySet(fetch_from(settings.jwks)))


def _mcp_of(
    home: Home, judging: tuple[Authenticate, Challenge], host: str, serving: Serving, url: str | None
) -> Any:
    """The application that answers below /mcp, where this version has one; it checks Host and Origin once more."""
    if find_spec(MCP_MODULE) is None:
        return None
    module = import_module(MCP_MODULE)
    own = (f"[{host}]:*" if ":" in host else f"{host}:*",)
    hosts = (*module.LOOPBACK_HOSTS, *own, *(() if url is None else _netlocs(url)))
    origins = (*module.LOOPBACK_ORIGINS, *serving.origins, *(() if url is None else (url,)))
    authenticate, challenged = judging
    return module.make_asgi(home, authenticate, hosts=hosts, origins=origins, challenged=challenged)


def _netlocs(url: str) -> tuple[str, ...]:
    netloc = url.partition("://")[2]
    return netloc, netloc if ":" in netloc else f"{netloc}:443"


def _metrics_server(serving: Serving, metrics: Metrics) -> tuple[web.Server, ...]:
    if serving.metrics is None:
        return ()
    host, port = web.parse_listen(serving.metrics)
    if serving.url is None and not web.is_loopback(host):
        raise RefusedError("other machines can reach the address of the metrics", code="not_loopback")
    return (web.make_metrics_server(metrics, host, port),)
