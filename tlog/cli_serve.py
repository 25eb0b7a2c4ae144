"""`muniment log serve`: its options, and the service put together from a home."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tlog.cose_keys import CoseKey, CoseSigner
    from tlog.log import Log
    from tlog.registration import Registration
    from tlog.service import ServiceSettings
    from tlog.trust import Trust

REGISTRATION_KEY: Final = "registration.key"
KEYS: Final = "keys"
MAX_WAIT_SECONDS: Final = 20.0
_URL: Final = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(?:/[A-Za-z0-9._~-]+)*")


class HomeConfig(Protocol):
    """The settings of a home, as far as they are of interest here."""

    @property
    def issuer(self) -> str: ...


class ServedHome(Protocol):
    """What serving a log needs of a home."""

    @property
    def path(self) -> Path: ...

    on_witness: Callable[[str, str, float | None], None]

    @property
    def config(self) -> HomeConfig: ...

    def trust(self) -> Trust: ...

    def write_trust(self) -> None: ...

    def log(self) -> Log: ...

    def log_vkey(self) -> str: ...

    def receipt_signer(self) -> CoseSigner: ...

    def publish(self, deadline_seconds: float) -> Mapping[str, Any]: ...

    def create_public_file(self, path: str, data: bytes) -> None: ...


def add_serve_command(commands: Any) -> None:
    """Adds `serve` to the commands of `muniment log`."""
    parser = commands.add_parser("serve", help="serve the log over HTTP: tiles, and SCRAPI for statements")
    add = parser.add_argument
    add("--listen", required=True, metavar="HOST:PORT", help="port 0 lets the system choose")
    add("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics there")
    add("--public", action="store_true", help="allow addresses that other machines can reach")
    add("--registration", metavar="FILE", help="take statements under this policy (docs/formats/scrapi.md)")
    add("--prefix", default="", metavar="PATH", help="serve checkpoint and tiles below this path")
    add("--url", metavar="URL", help="what clients reach the service by, for the locators it gives out")
    add("--publish-every", type=float, default=10.0, metavar="SECONDS", help="the cadence (default 10)")
    add("--wait", type=float, default=2.0, metavar="SECONDS", help="wait so long for a receipt (default 2)")
    add("--rate", type=float, default=100.0, metavar="N", help="requests a second for a client (default 100)")
    add("--burst", type=int, default=1000, metavar="N", help="requests it may make at once (default 1000)")
    add("--behind-proxy", action="store_true", help="count clients by the proxy's X-Forwarded-For")
    add("--max-unpublished", type=int, default=65_536, metavar="N", help="refuse statements beyond so many")
    add("--with-outbox", action="store_true", help="publish the statements of this home's memory too")


def run_serve(args: argparse.Namespace, home: ServedHome) -> int:
    """Serves the log of a home until SIGTERM or Ctrl-C; raises what made the process end by itself."""
    from tlog import server, web
    from tlog.metrics import Metrics
    from tlog.receipt_keys import ReceiptKeys
    from tlog.service import Host, LogService

    address = _address(args.listen, args.public)
    metrics_address = None if args.metrics is None else _address(args.metrics, args.public)
    client_of = web.forwarded_for if args.behind_proxy else web.peer_of
    settings, rules = _settings(args), _rules(args, home)
    # A registration that is held back for its receipt is under way, and a stop lets it finish.
    limits = replace(server.LIMITS, stop_seconds=server.LIMITS.stop_seconds + math.ceil(args.wait))
    serving = server.Serving(args.prefix, limits, web.Rate(args.rate, args.burst), client_of)
    metrics = Metrics()
    host = Host(settings, home.publish if args.with_outbox else None, home.create_public_file, _end_process)
    log, retired = home.log(), _receipt_keys(home.trust())
    keys = ReceiptKeys(log.public, home.receipt_signer, retired, home.create_public_file)
    service = LogService(log, keys, metrics, host)
    home.on_witness = service.metrics.on_witness
    if rules is not None:
        from tlog.keys import make_cose_key

        service.registrar.set_policy(rules, make_cose_key(home.path / KEYS / REGISTRATION_KEY))
        home.write_trust()  # it names the key that policies are signed with
    beside = () if metrics_address is None else (web.make_metrics_server(metrics, *metrics_address),)
    found = {"vkey": home.log_vkey()}
    if beside:
        found["metrics"] = beside[0].url

    def announce(url: str) -> None:
        print(f"listening on {url}", file=sys.stderr, flush=True)  # noqa: T201 -- for people and scripts
        if args.json:
            sys.stdout.write(json.dumps({"listening": url, **found}, separators=(",", ":")) + "\n")
            sys.stdout.flush()

    server.serve(service, metrics, address, serving, announce, beside)
    if service.fatal is not None:
        raise service.fatal
    return 0


def _address(text: str, public: bool) -> tuple[str, int]:
    from tlog.web import is_loopback, parse_listen

    host, port = parse_listen(text)
    if not (public or is_loopback(host)):
        raise RefusedError(
            "other machines can reach this address: say --public if they may, and put TLS before it",
            code="not_loopback",
        )
    return host, port


def _settings(args: argparse.Namespace) -> ServiceSettings:
    from tlog.publisher import REFRESH_SECONDS, Cadence
    from tlog.service import ServiceSettings

    if not 0 <= args.wait <= MAX_WAIT_SECONDS:
        raise MalformedError(f"expected --wait from 0 to {MAX_WAIT_SECONDS:g} seconds")
    if args.max_unpublished < 1:
        raise MalformedError("expected --max-unpublished to be 1 or more")
    if args.url is not None and not _URL.fullmatch(args.url):
        raise MalformedError("expected --url to begin with http:// or https:// and to end without a slash")
    cadence = Cadence(args.publish_every, max(REFRESH_SECONDS, args.publish_every))
    return ServiceSettings(cadence, args.wait, max_unpublished=args.max_unpublished, url=args.url)


def _rules(args: argparse.Namespace, home: ServedHome) -> Registration | None:
    """The policy in the file, and this home's own issuer named in it: its memory appends without asking."""
    from tlog.registration import MAX_DOCUMENT_BYTES, parse_registration

    if args.registration is None:
        return None
    try:
        with open(args.registration, "rb") as file:
            text = file.read(MAX_DOCUMENT_BYTES + 1).decode("utf-8")
    except OSError as error:
        raise MalformedError(f"the registration policy cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MalformedError("registration: expected UTF-8") from None
    return replace(parse_registration(text), own_issuer=home.config.issuer)


def _receipt_keys(trust: Trust) -> tuple[CoseKey, ...]:
    """Every key that this home's receipts were ever signed with."""
    from tlog.certificates import peek_key_list

    certified = (key for data in trust.key_lists for key in peek_key_list(data)[1].keys)
    return tuple(key.key for key in (*trust.keys, *certified) if key.use == "receipt")


def _end_process() -> None:
    # The server leaves on this signal as if told to: requests under way are answered first.
    os.kill(os.getpid(), signal.SIGTERM)
