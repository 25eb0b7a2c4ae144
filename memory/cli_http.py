"""`muniment serve` and `muniment token`: their options, and what is put together from them."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from memory import wiring
from memory.cli import print_json, print_text
from memory.cli_memory import read_argument
from memory.times import parse_duration
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.model import Principal

NEVER: Final = "never"
UNNAMED: Final = "unnamed"
DEFAULT_EXPIRY: Final = "90d"
DEFAULT_SCOPES: Final = "read,write,forget"


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of one of them."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(name, help=COMMANDS[name][3], description=COMMANDS[name][3])
    if name == "token":
        _token_options(parser)
    else:
        _serve_options(parser)


def run_command(args: argparse.Namespace) -> int:
    """Runs one of them."""
    if args.command == "serve":
        return _serve(args)
    return {"create": _create, "list": _list, "revoke": _revoke}[args.action](args)


def _token_options(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="create|list|revoke", required=True)
    create = actions.add_parser("create", help="make a token; its text is shown this once")
    add = create.add_argument
    add("--tenant", metavar="T", required=True, help="whose memory; - reads standard input")
    add("--agent", metavar="A", required=True, help="which agent's")
    add("--client", metavar="C", required=True, help="what the client is called in what it writes")
    add("--scopes", metavar="S,S…", default=DEFAULT_SCOPES, help=f"what it may do (default {DEFAULT_SCOPES})")
    add("--expires", metavar="90d", default=DEFAULT_EXPIRY, help="a duration, or never (default 90d)")
    actions.add_parser("list", help="the tokens there are, without their texts")
    revoke = actions.add_parser("revoke", help="end a token at once, or all tokens of a tenant")
    revoke.add_argument("id", metavar="ID", nargs="?", help="its id, or the token; - reads standard input")
    revoke.add_argument("--tenant", metavar="T", help="all tokens of this tenant; - reads standard input")


def _serve_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--listen", required=True, metavar="HOST:PORT", help="port 0 lets the system choose")
    add("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics there")
    add("--url", metavar="URL", help="what clients reach it by; needed where other machines can")
    add("--origin", action="append", default=[], metavar="URL", help="a web page's origin that may call it")
    add("--oauth", metavar="FILE", help="take tokens of this issuer (docs/SERVING.md)")
    add("--no-auth", action="store_true", help="take requests without a token: on this machine alone")
    add("--rate", type=float, default=50.0, metavar="N", help="requests a second for a caller (default 50)")
    add("--burst", type=int, default=500, metavar="N", help="requests it may make at once (default 500)")
    add("--publish-every", type=float, default=10.0, metavar="SECONDS", help="the cadence (default 10)")
    add("--write-guard", metavar="on|off", help="goes before the home's own setting")


def _create(args: argparse.Namespace) -> int:
    from memory import tokens
    from memory.principal import make_principal

    scopes = tokens.parse_scopes(args.scopes)
    tenant = read_argument(args.tenant)
    principal = make_principal(tenant, args.agent, args.client, scopes, authenticated=True)
    never = args.expires == NEVER
    duration = 0 if never else parse_duration(args.expires, name="expires")
    with wiring.open_home(args.home) as home:
        answer = tokens.create(home, principal, None if never else home.clock() + duration)
    if args.json:
        print_json(answer)
        return 0
    until = answer["expires_at"] or "it is revoked"
    print(  # noqa: T201 -- for people; standard output has the token alone
        f"id {answer['id']}, for {', '.join(answer['scopes'])}, until {until}. It is not shown again.",
        file=sys.stderr,
    )
    print_text(answer["token"])
    return 0


def _list(args: argparse.Namespace) -> int:
    from memory import tokens

    with wiring.open_existing_home(args.home) as home:
        answer = tokens.list_tokens(home)
    if args.json:
        print_json(answer)
        return 0
    lines = []
    for one in answer["tokens"]:
        until = "expired" if one["expired"] else f"until {one['expires_at'] or 'revoked'}"
        scopes = " ".join(scope.removeprefix("memory:") for scope in one["scopes"])
        lines.append(f"{one['id']}  {one['tenant'] or '(nothing remembered yet)'}  {scopes}  {until}")
    print_text("\n".join(lines) or "there are no tokens")
    return 0


def _revoke(args: argparse.Namespace) -> int:
    from memory import tokens

    if (args.id is None) == (args.tenant is None):
        raise MalformedError("expected the id of a token, or --tenant for all tokens of one")
    with wiring.open_existing_home(args.home) as home:
        if args.tenant is not None:
            answer = tokens.revoke_tenant(home, read_argument(args.tenant))
        else:
            answer = tokens.revoke(home, read_argument(args.id))
    if args.json:
        print_json(answer)
    else:
        print_text("revoked" if "id" in answer else f"{answer['revoked']} revoked")
    return 0


def _serve(args: argparse.Namespace) -> int:
    from memory.http_server import Serving, serve_home
    from memory.principal import CLIENT_VARIABLE, agent_from_environment

    principal: Principal | None = None
    if args.no_auth:
        principal = agent_from_environment(os.environ)
        if CLIENT_VARIABLE not in os.environ:
            # Anybody on this machine may be asking, so the name is nobody's.
            principal = replace(principal, client=UNNAMED, reported=True)
    serving = Serving(
        listen=args.listen,
        metrics=args.metrics,
        url=args.url,
        origins=tuple(args.origin),
        oauth_file=args.oauth,
        nobody=principal,
        per_second=args.rate,
        burst=args.burst,
        publish_seconds=args.publish_every,
    )

    def announce(found: dict[str, str]) -> None:
        print(f"listening on {found['listening']}", file=sys.stderr, flush=True)  # noqa: T201 -- for people
        if args.json:
            print_json(found)

    with wiring.open_home(args.home, guard=args.write_guard) as home:
        serve_home(home, serving, announce)
    return 0
