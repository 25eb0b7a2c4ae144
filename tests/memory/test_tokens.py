"""Access tokens: shown once, known by a hash, sealed under themselves, and gone at once when they are revoked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from serving import token_for

from auditor.strays import check_strays
from memory import tokens, wiring
from memory.cli import main
from memory.model import SCOPES
from memory.principal import make_principal
from memory.times import HOUR
from memory.wiring import Home
from tlog.errors import MalformedError, RefusedError

TENANT, AGENT, CLIENT = "quincetenant", "quinceagent", "quinceclient"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


def make(home: Home, **options: Any) -> str:
    return token_for(home, **{"tenant": TENANT, "agent": AGENT, "client": CLIENT, **options})


def files_of(home: Home) -> bytes:
    home.close()
    return b"".join(path.read_bytes() for path in sorted(home.path.rglob("*")) if path.is_file())


def refuses(home: Home, token: str) -> None:
    with pytest.raises(RefusedError) as refused:
        tokens.verify(home, token)
    assert refused.value.code == "unauthorized"


def test_a_token_is_the_principal_it_was_made_for(home: Home) -> None:
    made = tokens.verify(home, make(home, scopes=frozenset({"memory:read", "memory:purge"})))
    assert (made.tenant, made.agent, made.client) == (TENANT, AGENT, CLIENT)
    assert made.scopes == {"memory:read", "memory:purge"}
    assert made.identity == "authenticated"


@pytest.mark.parametrize("client", ["a\0", "\0", "ä" * 256, "𝔘" * 256])
def test_any_name_is_given_back_as_it_was(home: Home, client: str) -> None:
    assert tokens.verify(home, make(home, client=client)).client == client


def test_neither_the_secret_nor_a_name_is_in_a_file(home: Home) -> None:
    token = make(home)
    _, number, secret = token.split("_", 2)
    everything = files_of(home)
    assert number.encode() not in everything  # in hexadecimal; the store has its bytes
    for word in (secret, TENANT, AGENT, CLIENT):
        assert word.encode() not in everything
    assert bytes.fromhex(number) in everything, "the row is not there: this would prove nothing"


def test_the_length_of_a_name_is_not_to_be_seen(home: Home) -> None:
    for client in ("c", "c" * 100):
        make(home, client=client)
    with home.parts().store.read_whole() as view:
        assert len({len(sealed) for (sealed,) in view.rows("SELECT sealed FROM access")}) == 1


def test_a_list_has_no_secret_and_no_name_but_of_a_tenant_that_wrote(home: Home) -> None:
    token = make(home)
    shown = json.dumps(tokens.list_tokens(home))
    assert token not in shown and token.split("_", 2)[2] not in shown
    assert TENANT not in shown and AGENT not in shown and CLIENT not in shown
    home.memory(make_principal(TENANT, AGENT, CLIENT, SCOPES)).remember("a fact")
    (one,) = tokens.list_tokens(home)["tokens"]
    assert one["tenant"] == TENANT and one["id"] in token


def test_what_is_revoked_is_refused_at_once_and_in_another_process_alike(home: Home) -> None:
    token, other = make(home), make(home)
    with wiring.open_home(home.path) as elsewhere:
        assert tokens.verify(elsewhere, token)
        tokens.revoke(home, tokens.list_tokens(home)["tokens"][0]["id"])
        refuses(elsewhere, token)
        assert tokens.verify(elsewhere, other)
    with pytest.raises(MalformedError) as unknown:
        tokens.revoke(home, "0" * 32)
    assert unknown.value.code == "unknown_id"


def test_all_tokens_of_a_tenant_go_and_no_others(home: Home) -> None:
    mine, yours = make(home), make(home, tenant=TENANT + "2")
    assert tokens.revoke_tenant(home, TENANT) == {"revoked": 1, "status": "revoked"}
    refuses(home, mine)
    assert tokens.verify(home, yours)


def test_a_token_ends_when_it_expires(tmp_path: Path) -> None:
    now = [1_790_000_000_000_000]
    with wiring.open_home(tmp_path / "home", clock=lambda: now[0]) as home:
        token = make(home, expires_at=now[0] + HOUR)
        now[0] += HOUR - 1
        assert tokens.verify(home, token)
        now[0] += 1
        refuses(home, token)
        assert tokens.list_tokens(home)["tokens"][0]["expired"]
        assert not tokens.has_any(home)
        now[0] += 24 * 31 * HOUR
        make(home)
        assert len(tokens.list_tokens(home)["tokens"]) == 1, "a row that expired long ago stays"


@pytest.mark.parametrize(
    ("column", "value"),
    [("scopes", 255), ("expires_at", None), ("number", bytes(range(16))), ("sealed", bytes(284))],
)
def test_a_row_that_somebody_changed_opens_nothing(home: Home, column: str, value: object) -> None:
    token = make(home, scopes=frozenset({"memory:read"}), expires_at=home.clock() + HOUR)
    with home.parts().store.write() as txn:
        txn.connection.execute(f"UPDATE access SET {column} = ?", (value,))
    refuses(home, token)


def test_a_row_with_the_seal_of_another_token_opens_nothing(home: Home) -> None:
    """Whoever writes to the store, and has a token of little, does not make one of much of it."""
    little, much = make(home, scopes=frozenset({"memory:read"})), make(home)
    number = bytes.fromhex(much.split("_")[1])
    with home.parts().store.write() as txn:
        txn.connection.execute(
            """UPDATE access SET sealed = (SELECT sealed FROM access WHERE number = ?1),
               scopes = (SELECT scopes FROM access WHERE number = ?1)""",
            (number,),
        )
    refuses(home, little)


@pytest.mark.parametrize("text", ["", "mun_", "x" * 10_000, "mun_" + "0" * 32 + "_" + "A" * 43, "mun_\n"])
def test_what_is_no_token_is_refused_alike(home: Home, text: str) -> None:
    token = make(home)
    refuses(home, text)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert tokens.verify(home, token)
    for letter in letters.replace(token[-1], ""):
        # Three of them stand for the same bytes.
        refuses(home, token[:-1] + letter)
    refuses(home, token + "\n")


def test_a_token_of_another_home_is_refused(home: Home, tmp_path: Path) -> None:
    with wiring.open_home(tmp_path / "other") as other:
        refuses(home, make(other))


def erase_tenant(home: Home, **options: Any) -> dict[str, Any]:
    memory = home.memory(make_principal(TENANT, AGENT, CLIENT, SCOPES))
    preview = memory.forget_preview(tenant=True, **options)
    return memory.forget(confirm=preview["confirm"], tenant=True, **options)


@pytest.mark.parametrize("guard", ["erase", "keep"])
def test_the_tokens_of_an_erased_tenant_are_gone(home: Home, guard: str) -> None:
    token, other = make(home), make(home, tenant="another")
    memory = home.memory(make_principal(TENANT, AGENT, CLIENT, SCOPES))
    for value in ("one", "two"):
        memory.remember("a fact", key="a/key", value=value)
    erase_tenant(home, guard=guard)
    refuses(home, token)
    assert tokens.verify(home, other)
    # Whoever uses the name next is another tenant, whom the old token does not open.
    memory.remember("a fact of another time")
    refuses(home, token)
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM access") == [(1,)]


def test_names_of_an_erased_tenant_leave_the_memory_of_other_processes(home: Home) -> None:
    """The next request, whoever's, is all that it takes; another process has erased."""
    token, other = make(home), make(home, tenant="another")
    memory = home.memory(tokens.verify(home, token))
    memory.remember("The quince is ripe.")
    tokens.verify(home, other)
    with wiring.open_home(home.path) as elsewhere:
        owner = elsewhere.memory(make_principal(TENANT, "owner", "cli", SCOPES))
        owner.forget(tenant=True, confirm=owner.forget_preview(tenant=True)["confirm"])
    tokens.verify(home, other)
    assert {one.tenant for one in tokens._OPENED.values()} == {"another"}


def test_an_erasure_of_less_than_the_tenant_leaves_its_tokens(home: Home) -> None:
    token = make(home)
    memory = home.memory(make_principal(TENANT, AGENT, CLIENT, SCOPES))
    memory.remember("a fact", key="a/key", value="one")
    memory.remember("a fact", key="b/key", value="one")
    preview = memory.forget_preview(key="a/key")
    memory.forget(confirm=preview["confirm"], key="a/key")
    assert tokens.verify(home, token)


def strays(home: Home) -> set[str]:
    home.close()
    connection = apsw.Connection(str(home.path / "store.db"))
    try:
        return {finding.where for finding in check_strays(connection).findings}
    finally:
        connection.close()


def test_an_auditor_finds_nothing_in_a_row_and_finds_what_was_put_there(home: Home) -> None:
    make(home)
    assert strays(home) == set()
    with home.parts().store.write() as txn:
        txn.connection.execute("UPDATE access SET sealed = sealed || 'a text'")
    assert any("access" in where for where in strays(home))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_shows_a_token_once_and_alone(tmp_path: Path, capsys: Any) -> None:
    home = str(tmp_path / "home")
    named = ("--tenant", TENANT, "--agent", AGENT, "--client", CLIENT)
    code, out, err = run(capsys, "token", "create", *named, "--scopes", "read", "--home", home)
    token = out.strip()
    assert code == 0 and token.startswith("mun_") and token not in err
    code, out, _ = run(capsys, "token", "list", "--home", home)
    assert code == 0 and "read" in out and token.split("_", 2)[2] not in out
    assert run(capsys, "token", "revoke", out.split()[0], "--home", home)[0] == 0
    assert run(capsys, "token", "list", "--home", home)[1] == "there are no tokens\n"


@pytest.mark.parametrize(
    "wrong", [("--scopes", "all"), ("--scopes", ""), ("--expires", "soon"), ("--expires", "0s")]
)
def test_the_command_refuses_what_it_does_not_understand(tmp_path: Path, capsys: Any, wrong: Any) -> None:
    named = ("--tenant", TENANT, "--agent", AGENT, "--client", CLIENT)
    code, out, err = run(capsys, "token", "create", *named, *wrong, "--home", str(tmp_path / "home"))
    assert (code, out) == (2, "") and TENANT not in err
