from __future__ import annotations

from typing import Any

import pytest

from tlog.errors import MalformedError, RefusedError
from witness.loglist import MAX_CONTACT_BYTES, parse_log_list
from witness.records import Terms


@pytest.fixture
def vkeys(sim: Any) -> list[str]:
    return [sim.make_log_signer(f"log.example/{number}", number + 1).verifier_key.vkey for number in range(3)]


def test_reads_a_list_as_the_network_writes_it(vkeys: list[str]) -> None:
    text = f"""#
# List:      10qps-100klogs
# Revision:  123
#
logs/v0

# the first log
vkey {vkeys[0]}
qpd 86400
contact https://tlog.example/contact | or by letter

\t vkey {vkeys[1]} \t
  # comments stand between the lines of a log too
  origin something else: 7
  qpd 2147483647
  contact sysadmin (at) bar.example\r
"""
    first, second = parse_log_list(text.encode())
    assert (first.origin, first.key.vkey) == ("log.example/0", vkeys[0])
    assert (first.requests_per_day, first.contact) == (86400, "https://tlog.example/contact | or by letter")
    assert (second.origin, second.requests_per_day) == ("something else: 7", 2**31 - 1)
    assert second.contact == "sysadmin (at) bar.example"


def test_an_empty_list_has_no_logs() -> None:
    assert parse_log_list(b"# nothing yet\nlogs/v0\n") == ()


LOG = "vkey {}\nqpd 24\ncontact somebody\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "logs/v1\n",
        "logs/v0",
        LOG,
        "logs/v0\nlogs/v0\n",
        "logs/v0\n" + LOG[:-1],
        "logs/v0\n" + LOG + "vkey {}\nqpd 24\n",
        "logs/v0\n" + LOG + "vkey {}\n",
        "logs/v0\nqpd 24\nvkey {}\ncontact somebody\n",
        "logs/v0\nvkey {}\ncontact somebody\nqpd 24\n",
        "logs/v0\nvkey {}\nqpd 24\norigin o\ncontact somebody\n",
        "logs/v0\nvkey {}\norigin o\norigin p\nqpd 24\ncontact somebody\n",
        "logs/v0\nvkey {}\nvkey {}\nqpd 24\ncontact somebody\n",
        "logs/v0\nvkey {}\nqpd 24\nqpd 24\ncontact somebody\n",
        "logs/v0\nvkey {}\nqpd 24\n",
        "logs/v0\nvkey {}\nqpd 24\ncontact\n",
        "logs/v0\nvkey {}\nqpd 24\nbastion none\ncontact somebody\n",
        "logs/v0\nvkey\t{}\nqpd 24\ncontact somebody\n",
        "logs/v0\nvkey  {}\nqpd 24\ncontact somebody\n",
        "logs/v0\nvkey {}\norigin \x01\nqpd 24\ncontact somebody\n",
        "logs/v0\nvkey {}\nqpd 24\ncontact " + "x" * (MAX_CONTACT_BYTES + 1) + "\n",
        "logs/v0\n" + LOG + LOG,
        *(
            f"logs/v0\nvkey {{}}\nqpd {number}\ncontact somebody\n"
            for number in (
                "0",
                "-1",
                "+1",
                "007",
                "1_000",
                "2147483648",
                "99999999999999999999",
                "1.5",
                "\u0661",
                "",
            )
        ),
    ],
)
def test_refuses_a_list_with_a_fault(vkeys: list[str], text: str) -> None:
    with pytest.raises(MalformedError):
        parse_log_list(text.replace("{}", vkeys[0]).encode())


def test_refuses_bytes_that_are_no_text(vkeys: list[str]) -> None:
    with pytest.raises(MalformedError):
        parse_log_list(b"logs/v0\n" + LOG.format(vkeys[0]).encode() + b"# \xff\n")


@pytest.mark.parametrize("kind", [4, 6])
def test_refuses_keys_of_another_type(sim: Any, kind: int) -> None:
    vkey = sim.make_cosigner(kind=kind).verifier_key.vkey
    with pytest.raises(MalformedError, match="line 4"):
        parse_log_list(f"logs/v0\n{LOG.format(vkey)}".encode())


def test_the_error_names_the_line_and_repeats_nothing(vkeys: list[str]) -> None:
    with pytest.raises(MalformedError) as caught:
        parse_log_list(f"logs/v0\n\nvkey {vkeys[0]}\nsecret thing\n".encode())
    assert caught.value.fields["line"] == 4
    assert "secret" not in caught.value.message


# In the store


def rows(logs: Any) -> Any:
    return [(one.origin, one.key, Terms(one.requests_per_day, one.contact)) for one in logs]


def test_an_import_takes_all_and_is_told_again(store: Any, log: Any, vkeys: list[str], sim: Any) -> None:
    listed = "logs/v0\n" + "".join(LOG.format(vkey) for vkey in (*vkeys, log.signer.verifier_key.vkey))
    logs = parse_log_list(listed.encode())
    assert store.import_logs(rows(logs)) == 3
    assert store.import_logs(rows(logs)) == 0
    assert len(store.logs()) == 4
    assert all(one.terms == Terms(24, "somebody") for one in store.logs())
    assert store.import_logs(rows(parse_log_list(listed.replace("qpd 24", "qpd 48").encode()))) == 0
    assert all(one.terms == Terms(48, "somebody") for one in store.logs())


def test_a_list_gives_no_log_another_key(store: Any, log: Any, vkeys: list[str], sim: Any) -> None:
    other = sim.make_log_signer(log.origin, 9).verifier_key.vkey
    listed = "logs/v0\n" + "".join(LOG.format(vkey) for vkey in (vkeys[0], other))
    before = store.logs()
    with pytest.raises(RefusedError) as caught:
        store.import_logs(rows(parse_log_list(listed.encode())))
    assert (caught.value.code, caught.value.fields["origin"]) == ("other_key", log.origin)
    assert store.logs() == before


def test_a_removed_log_is_cosigned_no_more_and_its_head_is_kept(
    witness: Any, store: Any, log: Any, state: Any
) -> None:
    witness.add_checkpoint(log.body(0, 5))
    assert store.remove_log(log.origin)
    assert not store.remove_log(log.origin)
    refused = witness.add_checkpoint(log.body(5, 9))
    assert (refused.status, refused.known_size) == (404, None)
    assert store.log(log.origin).cosigned.head.size == 5
    store.add_log(log.origin, log.signer.verifier_key)
    fork = log.fork_at(3)
    assert witness.add_checkpoint(fork.body(0, 4)).status == 409
    assert witness.add_checkpoint(fork.body(5, 9)).status == 422
    assert isinstance(witness.add_checkpoint(log.body(5, 9)), tuple)


def test_a_change_by_another_process_is_seen_at_once(witness: Any, store: Any, log: Any, state: Any) -> None:
    from witness.store import open_store

    witness.add_checkpoint(log.body(0, 5))
    other = open_store(state)
    other.remove_log(log.origin)
    assert witness.add_checkpoint(log.body(5, 9)).status == 404
    other.add_log(log.origin, log.signer.verifier_key, Terms(7, "x"))
    assert isinstance(witness.add_checkpoint(log.body(5, 9)), tuple)
    assert store.log(log.origin).terms == Terms(7, "x")
    other.close()


def test_a_state_of_the_first_version_is_opened(state: Any, log: Any) -> None:
    from witness.store import open_store

    opened = open_store(state)
    opened._connection.execute("DROP TABLE log_terms")
    opened.close()
    for _ in range(2):
        opened = open_store(state)
        assert opened.log(log.origin).terms is None  # type: ignore[union-attr]
        opened.close()
