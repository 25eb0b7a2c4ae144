"""How many witnesses have to be heard before a log signs: so many that the silent ones can make no quorum."""

from __future__ import annotations

from pathlib import Path

import pytest

import witness.client
from memory.last_heads import witnessed_heads
from tlog.errors import UnavailableError
from tlog.keys import make_cosigner_key
from tlog.policy import parse_policy
from witness.client import HeardHeads

GROUPS = {
    "none": "quorum none\n",
    "one": "quorum w0\n",
    "one of three": "group g 1 w0 w1 w2\nquorum g\n",
    "two of three": "group g 2 w0 w1 w2\nquorum g\n",
    "all of three": "group g all w0 w1 w2\nquorum g\n",
    "of two pairs": "group a any w0 w1\ngroup g all a w2\nquorum g\n",
}


@pytest.mark.parametrize(
    ("quorum", "silent", "enough"),
    [
        ("none", "w0 w1 w2", True),
        ("one", "w0", False),
        ("one", "w1 w2", True),
        ("one of three", "w2", False),
        ("one of three", "", True),
        ("two of three", "w2", True),
        ("two of three", "w0 w2", False),
        ("all of three", "w0 w2", True),
        ("all of three", "w0 w1 w2", False),
        ("of two pairs", "w0 w1", True),
        ("of two pairs", "w2", True),
        ("of two pairs", "w1 w2", False),
    ],
)
def test_the_silent_must_not_make_the_quorum(
    quorum: str, silent: str, enough: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [make_cosigner_key(tmp_path / f"{n}.key", f"w{n}.example").verifier_key for n in range(3)]
    lines = "".join(f"witness w{n} {key.vkey} http://127.0.0.1:9/{n}\n" for n, key in enumerate(keys))
    policy = parse_policy(lines + GROUPS[quorum])
    heard = HeardHeads((), tuple(silent.split()))
    monkeypatch.setattr(witness.client, "hear_heads", lambda *_: heard)
    heads = witnessed_heads(policy, "example.org/log")
    if enough:
        assert list(heads) == []
        return
    with pytest.raises(UnavailableError) as caught:
        list(heads)
    assert (caught.value.code, caught.value.fields["silent"]) == ("witness_quorum_not_met", len(heard.silent))
