"""Tokens of an identity provider: each way in which one can be wrong, against a real server and a real key set."""

from __future__ import annotations

import base64
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from serving import client_for, served, token_for

from memory import wiring
from memory.oauth import OAuth, parse_oauth
from memory.oauth_keys import (
    KEPT_SECONDS,
    MAX_BYTES,
    MAX_KEYS,
    RETRY_SECONDS,
    STALE_SECONDS,
    KeySet,
    fetch_from,
    parse_key_set,
)
from memory.wiring import Home
from tlog.errors import MalformedError, RefusedError, UnavailableError

ISSUER = "https://login.example/"
AUDIENCE = "https://memory.example"
SECRET = "quincemarmalade"
RSA_KEY = rsa.generate_private_key(65537, 2048)
KEYS: dict[str, Any] = {
    "r1": RSA_KEY,
    "e1": ec.generate_private_key(ec.SECP256R1()),
    "d1": ed25519.Ed25519PrivateKey.generate(),
}
STRANGER = rsa.generate_private_key(65537, 2048)
ALGORITHMS = {"r1": "RS256", "e1": "ES256", "d1": "EdDSA"}


def jwk_of(key_id: str, key: Any, **more: Any) -> dict[str, Any]:
    algorithm = jwt.get_algorithm_by_name(ALGORITHMS.get(key_id, "RS256"))
    made: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    return made | {"kid": key_id, "use": "sig"} | more


def key_set(**keys: Any) -> bytes:
    return json.dumps({"keys": [jwk_of(key_id, key) for key_id, key in (keys or KEYS).items()]}).encode()


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    made: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "user-1",
        "org": "acme",
        "client_id": "desk",
        "scope": "openid memory:read memory:write",
        "iat": now - 5,
        "exp": now + 600,
    }
    made.update(changes)
    return {name: value for name, value in made.items() if value is not None}


def token(key_id: str = "r1", key: Any = None, header: Any = None, **changes: Any) -> str:
    return jwt.encode(
        claims(**changes),
        KEYS[key_id] if key is None else key,
        ALGORITHMS.get(key_id, "RS256"),
        headers={"kid": key_id, "typ": "at+jwt", **(header or {})},
    )


def unsigned(header: dict[str, Any], signature: bytes = b"") -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    body = part(json.dumps(claims()).encode())
    return f"{part(json.dumps(header).encode())}.{body}.{part(signature)}"


class Provider:
    """The key set of an identity provider, over HTTP on this machine."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] = (200, key_set())
        self.asked = 0
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                status, body = provider.answer
                self.send_response(status)
                if status == 302:
                    self.send_header("location", f"{provider.url}/elsewhere")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.stop()


def settings(provider: Provider, **more: Any) -> str:
    fields = {
        "issuer": ISSUER,
        "jwks": provider.url,
        "audience": [AUDIENCE],
        "tenant_claim": "org",
        "tenants": ["acme", "other"],
        **more,
    }
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items() if value is not None)


@pytest.fixture(scope="module")
def home(tmp_path_factory: Any) -> Iterator[Home]:
    with wiring.open_home(tmp_path_factory.mktemp("oauth") / "home") as opened:
        yield opened


@pytest.fixture(scope="module")
def url(home: Home, provider: Provider, tmp_path_factory: Any) -> Iterator[str]:
    file = tmp_path_factory.mktemp("oauth") / "oauth.toml"
    file.write_text(settings(provider))
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        served(home, monkeypatch, oauth_file=str(file), publish_seconds=3600.0) as found,
    ):
        yield found["listening"]


def ask(url: str, given: str) -> httpx.Response:
    with client_for(url, given) as client:
        return client.get("/v1/status")


# On the server


@pytest.mark.parametrize("key_id", list(KEYS))
def test_a_token_of_the_issuer_is_the_principal_that_its_claims_name(url: str, key_id: str) -> None:
    with client_for(url, token(key_id)) as client:
        made = client.post("/v1/facts", json={"text": "a fact", "key": "a/key", "value": key_id})
        assert made.status_code in (201, 200)
        read = client.post("/v1/get", json={"key": "a/key"}).json()
    assert read["scope"] == {"tenant": "acme", "agent": "user-1"}
    assert (read["active"][0]["client"], read["active"][0]["trust"]) == ("desk", "authenticated")


WRONG: dict[str, Any] = {
    "another audience": lambda: token(aud="https://other.example"),
    "no audience": lambda: token(aud=None),
    "expired": lambda: token(exp=int(time.time()) - 60),
    "no expiry": lambda: token(exp=None),
    "not yet valid": lambda: token(nbf=int(time.time()) + 600),
    "issued in the future": lambda: token(iat=int(time.time()) + 600),
    "another issuer": lambda: token(iss="https://evil.example/"),
    "an issuer that begins alike": lambda: token(iss=ISSUER + "x"),
    "a key id that nobody has": lambda: token(header={"kid": "zz"}),
    "no key id": lambda: jwt.encode(claims(), RSA_KEY, "RS256", headers={"typ": "at+jwt"}),
    "the key of a stranger": lambda: token(key=STRANGER),
    "alg none": lambda: unsigned({"alg": "none", "kid": "r1", "typ": "at+jwt"}),
    "alg none, signed": lambda: unsigned({"alg": "None", "kid": "r1"}, b"x" * 256),
    "HS256 with the public key": lambda: hs256(),
    "another algorithm of the same key": lambda: jwt.encode(
        claims(), RSA_KEY, "RS512", headers={"kid": "r1", "typ": "at+jwt"}
    ),
    "the key id of another kind of key": lambda: token(header={"kid": "e1"}),
    "an id token": lambda: token(header={"typ": "id+jwt"}),
    "a critical extension": lambda: token(header={"crit": ["exp2"], "exp2": 1}),
    "no subject": lambda: token(sub=None),
    "an empty subject": lambda: token(sub=""),
    "no client": lambda: token(client_id=None),
    "a tenant that is no text": lambda: token(org=["acme"]),
    "altered claims": lambda: altered(token()),
    "no signature": lambda: token().rpartition(".")[0] + ".",
    "four parts": lambda: token() + ".x",
}


def hs256() -> str:
    """Signed with the public key as if it were a shared secret, which is what a careless verifier takes it for."""
    import hashlib
    import hmac

    pem = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    bare = unsigned({"alg": "HS256", "kid": "r1", "typ": "at+jwt"}).rpartition(".")[0]
    mac = hmac.digest(pem, bare.encode(), hashlib.sha256)
    return f"{bare}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def altered(given: str) -> str:
    head, _, tail = given.split(".")
    body = base64.urlsafe_b64encode(json.dumps(claims(org="other")).encode()).decode().rstrip("=")
    return f"{head}.{body}.{tail}"


@pytest.mark.parametrize("what", list(WRONG))
def test_what_does_not_hold_is_a_401_that_says_where_to_go(url: str, what: str) -> None:
    assert ask(url, token()).status_code == 200
    response = ask(url, WRONG[what]())
    if what == "a tenant that is no text":
        assert (response.status_code, response.json()["code"]) == (403, "forbidden")
        return
    assert (response.status_code, response.json()["code"]) == (401, "unauthorized")
    challenge = response.headers["www-authenticate"]
    assert 'error="invalid_token"' in challenge
    assert f'resource_metadata="{url}/.well-known/oauth-protected-resource"' in challenge


def test_a_token_of_another_tenant_sees_nothing_of_this_one_and_of_a_stranger_nothing_at_all(
    url: str,
) -> None:
    with client_for(url, token()) as client:
        client.post("/v1/facts", json={"text": SECRET, "key": "hidden/key", "value": SECRET})
    with client_for(url, token(org="other")) as client:
        assert client.post("/v1/get", json={"key": "hidden/key"}).json()["active"] == []
    response = ask(url, token(org="stranger"))
    assert (response.status_code, response.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("scope", [None, "", "openid email", "memory:everything", "memory:tenant"])
def test_without_a_scope_of_ours_a_token_opens_nothing(url: str, scope: Any) -> None:
    response = ask(url, token(scope=scope))
    assert (response.status_code, response.json()["code"]) == (403, "forbidden")
    challenge = response.headers["www-authenticate"]
    assert 'error="insufficient_scope", scope="memory:read"' in challenge


def test_a_missing_scope_is_named(url: str) -> None:
    with client_for(url, token()) as client:
        response = client.post("/v1/forget/preview", json={"key": SECRET})
    assert response.status_code == 403
    challenge = response.headers["www-authenticate"]
    assert (
        'error="insufficient_scope", scope="memory:forget"' in challenge and "resource_metadata" in challenge
    )


@pytest.mark.parametrize("given", [["memory:read"], "memory:read", ["memory:read", 7]])
def test_scopes_may_be_a_list_under_another_name(url: str, given: Any) -> None:
    assert ask(url, token(scope=None, scp=given)).status_code == 200


def test_the_metadata_say_who_gives_tokens_for_what(url: str) -> None:
    with client_for(url) as client:
        for path, resource in (("", url), ("/mcp", f"{url}/mcp")):
            found = client.get(f"/.well-known/oauth-protected-resource{path}").json()
            assert found["resource"] == resource
            assert found["authorization_servers"] == [ISSUER]
            assert found["bearer_methods_supported"] == ["header"]
            needed = {"read", "write", "forget", "purge", "reaffirm", "review"}
            assert {f"memory:{scope}" for scope in needed} <= set(found["scopes_supported"])
        absent = client.get("/v1/status")
    assert absent.status_code == 401 and "error=" not in absent.headers["www-authenticate"]


def test_built_in_tokens_hold_beside_an_identity_provider(home: Home, url: str) -> None:
    assert ask(url, token_for(home)).status_code == 200


# Keys


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def verifier(provider: Provider, clock: Clock) -> OAuth:
    made = parse_oauth(settings(provider).encode(), None)
    return OAuth(made, KeySet(fetch_from(made.jwks), clock))


def test_keys_are_kept_and_a_new_one_is_found_without_a_restart(provider: Provider) -> None:
    clock = Clock()
    oauth = verifier(provider, clock)
    provider.answer, provider.asked = (200, key_set()), 0
    for _ in range(3):
        oauth.verify(token())
    assert provider.asked == 1
    new = rsa.generate_private_key(65537, 2048)
    provider.answer = (200, key_set(r2=new))
    clock.now += RETRY_SECONDS
    assert oauth.verify(token("r2", new)).agent == "user-1"
    assert provider.asked == 2
    with pytest.raises(RefusedError):
        oauth.verify(token())  # it was taken out of the set
    provider.answer = (200, key_set())


def test_key_ids_that_nobody_has_cost_one_fetch(provider: Provider) -> None:
    clock = Clock()
    oauth = verifier(provider, clock)
    provider.answer, provider.asked = (200, key_set()), 0
    for number in range(20):
        with pytest.raises(RefusedError):
            oauth.verify(token(header={"kid": f"unknown-{number}"}))
    assert provider.asked == 1


def test_a_provider_that_is_away_is_no_reason_to_refuse_what_is_known(provider: Provider) -> None:
    clock = Clock()
    oauth = verifier(provider, clock)
    provider.answer = (200, key_set())
    oauth.verify(token())
    provider.answer = (500, b"")
    clock.now += KEPT_SECONDS + 1
    assert oauth.verify(token()).tenant == "acme"
    clock.now += STALE_SECONDS
    with pytest.raises(UnavailableError):
        oauth.verify(token())
    provider.answer = (200, key_set())


@pytest.mark.parametrize(
    "answer",
    [(500, b""), (302, b""), (200, b"{"), (200, b'{"keys": 7}'), (200, b" " * (MAX_BYTES + 1)), (200, b"[]")],
)
def test_what_is_no_key_set_is_try_again(provider: Provider, answer: Any) -> None:
    oauth = verifier(provider, Clock())
    provider.answer = answer
    with pytest.raises(UnavailableError):
        oauth.verify(token())
    provider.answer = (200, key_set())


def test_a_key_set_is_bounded_and_keys_for_other_uses_are_none() -> None:
    with pytest.raises(MalformedError):
        parse_key_set(json.dumps({"keys": [{}] * (MAX_KEYS + 1)}).encode())
    other = jwk_of("x", RSA_KEY, use="enc")
    assert parse_key_set(json.dumps({"keys": [other, 7, {"kty": "RSA"}]}).encode()) == {}


@pytest.mark.parametrize("weak", ["short", "private"])
def test_a_key_that_is_short_or_not_public_is_none(weak: str) -> None:
    key = rsa.generate_private_key(65537, 1024) if weak == "short" else RSA_KEY
    algorithm = jwt.get_algorithm_by_name("RS256")
    made = json.loads(algorithm.to_jwk(key.public_key() if weak == "short" else key)) | {"kid": "r1"}
    keys = KeySet(lambda: json.dumps({"keys": [made]}).encode())
    with pytest.raises(RefusedError):
        keys.key("r1", "RS256")


# Settings


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": None},
        {"jwks": None},
        {"audience": []},
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"algorithms": []},
        {"tenant_claim": None},
        {"tenant": "acme"},
        {"unknown": SECRET},
        {"leeway_seconds": 100_000},
        {"agent_claim": 7},
    ],
)
def test_settings_that_are_unsound_are_refused(provider: Provider, change: Any) -> None:
    with pytest.raises(MalformedError) as refused:
        parse_oauth(settings(provider, **change).encode(), None)
    assert SECRET not in refused.value.message


def test_the_audience_is_the_address_and_one_tenant_may_be_that_of_all(provider: Provider) -> None:
    text = settings(provider, audience=None, tenant_claim=None, tenants=None, tenant="acme")
    made = parse_oauth(text.encode(), "https://m.example")
    assert made.audience == ("https://m.example", "https://m.example/mcp")
    assert OAuth(made, KeySet(key_set)).verify(token(aud="https://m.example/mcp", org=None)).tenant == "acme"


def test_keys_come_over_tls_or_from_this_machine(tmp_path: Path) -> None:
    with pytest.raises(MalformedError):
        fetch_from("http://192.0.2.1/keys")
    file = tmp_path / "keys.json"
    file.write_bytes(key_set())
    assert KeySet(fetch_from(str(file))).key("r1", "RS256")
