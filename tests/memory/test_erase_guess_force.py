"""Brute force over all that is guessable about a person confirms nothing with all that an erasure left.

The same program confirms each of these guesses before the erasure, what a request chose to keep of the ledger, and
in a twin whose salts are none, the erased value itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cbor2
import pytest

import memory.event
import memory.store_write
from memory import backup, wiring
from memory.event import decode_content
from memory.principal import make_principal, with_all_scopes
from memory.times import format_time

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, Clock, forget, manifest_of, write
from guessing import SALTS, Remains, birth_dates, content_hashes, keyed, names, numbers, plain, tags

# Of ten digits: ten thousand numbers begin so, and in the whole grid a hundred thousand.
PREFIX = "20255" if os.environ.get("MUNIMENT_ERASE_GRID") == "full" else "202550"
# In a twin the first thousand of those show that the search finds what is there.
FEW = PREFIX if os.environ.get("MUNIMENT_ERASE_GRID") == "full" else "2025507"
PHONE, OLD_PHONE = "2025507143", "2025509217"
BORN = "1971-03-14"
DANA, REVIEWER = "Dana Scully", "Nia Kent"
DAY = 86_400_000_000
HOUR = 3_600_000_000
AGENTS = ("default",)
# Without a word of the truths: the words of a key have hashes of their own.
DECOYS = ("2025507144", "1971-03-15", "Cleona Toddman", "Maxric Orrby")
TRUTHS = (PHONE, OLD_PHONE, BORN, DANA)
LATER = with_all_scopes(make_principal("default", "default", REVIEWER))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home", clock=clock) as opened:
        yield opened


def live_through(home: wiring.Home) -> dict[str, Any]:
    """Dana in every part of a record, corrected, disputed and reviewed by somebody with a name; and a bystander.

    Gives the contents as they were, by their ids: who guesses them guesses all but the salt.
    """
    made = [
        write(
            home,
            f"The number is {OLD_PHONE}.",
            key=DANA,
            value=OLD_PHONE,
            subject=DANA,
            idempotency_key=PHONE,
        ),
        write(home, f"The number is {PHONE}.", key=DANA, value=PHONE, subject=DANA),
        write(home, f"{DANA} was born on {BORN}.", key=PHONE, value=BORN, subject=DANA),
        write(
            home, f"Born on {BORN}.", key=f"{DANA}/born", value="1970-01-01", subject=DANA, provisional=True
        ),
        write(home, PHONE, subject=DANA, key=BORN, value=DANA),
        write(home, f"Perhaps {OLD_PHONE}.", LATER, key=DANA, value=OLD_PHONE, subject=DANA),
    ]
    reviewer = home.memory(LATER)
    reviewer.discard(made[3]["id"])
    reviewer.retract(made[4]["id"])
    with home.parts().store.read_whole() as view:
        rows = view.rows(
            "SELECT e.commitment, c.content FROM events e JOIN contents c ON c.seq = e.seq ORDER BY e.seq"
        )
    home.publish()
    return {"contents": [decode_content(content) for _, content in rows], "answers": made}


def erase(home: wiring.Home, folder: Path, state: str = "closed_complete", **more: Any) -> Remains:
    """All that is left after it, a backup of before and a token that nobody used among it."""
    write(home, "Fox Mulder has the basement.", key="fox/office", value="basement", subject="Fox Mulder")
    file = Path(backup.backup(home, folder, 90 * DAY)["file"])
    home.memory(LATER).forget_preview(subject=DANA)
    answer = forget(home, LATER, subject=DANA, **more)
    assert answer["state"] == state, answer["why"]
    home.publish()
    home.close()
    return Remains(home.path, file)


def forced(remains: Remains, guesses: Iterable[str]) -> set[str]:
    """The guesses that a plain hash confirms, or one that the product would make under a key that is left."""
    scopes = list(remains.scopes(AGENTS))
    return {
        guess
        for guess in guesses
        if any(tag in remains for tag in plain(guess))
        or any(tag in remains for scope in scopes for tag in tags(scope, guess))
    }


def confirmed_with_any_secret(
    remains: Remains, guesses: Iterable[str], contents: Iterable[dict[str, Any]]
) -> set[str]:
    """The same with everything that is left as the secret, and for whole contents with everything as the salt."""
    assert len(remains.secrets) > 50
    found = {
        guess
        for guess in guesses
        for secret in remains.secrets
        if any(tag in remains for tag in keyed(secret, guess))
    }
    salts = (*SALTS, *remains.secrets)
    return found | {
        str(content) for content in contents if any(tag in remains for tag in content_hashes(content, salts))
    }


def test_all_that_is_guessable_of_a_person_is_confirmed_before_and_not_after(
    home: wiring.Home, tmp_path: Path
) -> None:
    lived = live_through(home)
    home.close()
    before = Remains(home.path)
    assert forced(before, (*TRUTHS, *DECOYS)) == set(TRUTHS)
    # A content opens its hash with its salt, which is one of the secrets there.
    assert confirmed_with_any_secret(before, (), lived["contents"]) == {str(one) for one in lived["contents"]}
    assert REVIEWER.encode() in before.whole

    remains = erase(home, tmp_path, guard="erase")
    for truth in (*TRUTHS, REVIEWER, *(truth.replace(" ", "") for truth in (DANA, REVIEWER))):
        assert truth.encode() not in remains.whole
    about_her = [one for one in lived["contents"] if "text" in one or one.get("client") == REVIEWER]
    assert len(about_her) >= len(lived["answers"])
    assert confirmed_with_any_secret(remains, (*TRUTHS, REVIEWER, *DECOYS), about_her) == set()
    assert forced(remains, numbers(PREFIX)) == set()
    assert forced(remains, birth_dates()) == set()
    assert forced(remains, names()) == {"Fox Mulder"} & set(names()) == set()


def test_what_is_guessed_is_among_the_guesses() -> None:
    assert {PHONE, OLD_PHONE} < set(numbers(PREFIX)) and len(set(numbers(PREFIX))) == 10 ** (10 - len(PREFIX))
    assert BORN in set(birth_dates()) and len(list(birth_dates())) == 36_525
    assert {DANA, REVIEWER} < set(names()) and len(set(names())) == 10_000


def test_a_ledger_that_is_kept_confirms_its_values_until_it_expires(
    home: wiring.Home, tmp_path: Path, clock: Clock
) -> None:
    live_through(home)
    remains = erase(home, tmp_path, guard=f"expire={format_time(clock.now + DAY)}")
    some = [one for one in numbers(PREFIX) if one[-3:] in (PHONE[-3:], OLD_PHONE[-3:])]
    assert forced(remains, [*some, *DECOYS, *TRUTHS]) == {OLD_PHONE, DANA, BORN}
    clock.now += 3 * DAY
    home.memory(ME).retention(apply=True)
    home.close()
    backups = [path for path in tmp_path.iterdir() if path.is_file()]
    assert backups and forced(Remains(home.path, *backups), [*some, *DECOYS, *TRUTHS]) == set()


def test_in_a_twin_without_salts_the_value_is_found_by_force(
    home: wiring.Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever knows how such records look tries one number after the other, and has the erased one."""
    salt = b"\x5a" * 32
    monkeypatch.setattr(memory.store_write, "new_salt", lambda: salt)
    lived = live_through(home)
    # The scan looks for the salt of each record, too, and others have this one.
    remains = erase(home, tmp_path, "inconclusive", guard="erase")
    known = lived["contents"][1]
    assert known["value"] == PHONE

    def with_number(number: str) -> dict[str, Any]:
        return {**known, "value": number, "text": known["text"].replace(PHONE, number)}

    tried = (
        one
        for one in numbers(FEW)
        if any(tag in remains for tag in content_hashes(with_number(one), (salt,)))
    )
    assert next(tried) == PHONE


@pytest.mark.parametrize("form", ["sha256, twelve digits", "hmac under the tenant's key", "base64 in a log"])
def test_in_a_twin_that_keeps_a_fingerprint_the_value_is_found_by_force(
    home: wiring.Home, tmp_path: Path, form: str
) -> None:
    import base64
    import hashlib

    live_through(home)
    remains = erase(home, tmp_path, guard="erase")
    (scope,) = remains.scopes(AGENTS)
    digest = hashlib.sha256(PHONE.encode()).digest()
    left: dict[str, bytes] = {
        "sha256, twelve digits": b"erased fact " + digest.hex()[:16].encode(),
        "hmac under the tenant's key": scope.key_tag(PHONE),
        "base64 in a log": b"INFO erased " + base64.b64encode(digest),
    }
    (home.path / "log" / "note").write_bytes(left[form])
    some = [one for one in numbers(PREFIX) if one.endswith("143")]
    assert forced(Remains(home.path), some) == {PHONE}


# Times


def moments(clock: Clock, act: Callable[[], Any]) -> range:
    """The microseconds in which something was done."""
    begun = clock.now
    act()
    return range(begun, clock.now + 1)


def told(home: Path, window: range) -> set[str]:
    """Whatever in the home tells a time in this window more finely than to the hour."""
    from erasing import files_of

    found: set[str] = set()
    whole = b"\n".join(files_of(home).values())
    for at in window:
        for scale, unit in ((1, "µs"), (1000, "ms"), (1_000_000, "s")):
            number = at // scale
            size = (number.bit_length() + 7) // 8
            packed = {
                number.to_bytes(8, "big"),
                number.to_bytes(8, "little"),
                cbor2.dumps(number),
                str(number).encode(),
            }
            if size >= 6:
                packed.add(number.to_bytes(size, "big"))
            found |= {f"{unit} {number}" for form in packed if form in whole}
        found |= {
            moment.strftime(one)
            for moment in (datetime.fromtimestamp(at / 1e6, UTC),)
            for one in ("%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y%m%dT%H%M")
            if moment.strftime(one).encode() in whole
        }
    return found


def test_no_time_of_the_erased_is_told_more_finely_than_to_the_hour(
    home: wiring.Home, tmp_path: Path, clock: Clock
) -> None:
    clock.now += 17 * 60_000_000 + 23_000_001
    window = moments(clock, lambda: live_through(home))
    assert len(window) < 5000
    assert told(home.path, window), "times are there before, or it shows nothing that they are not after"
    clock.now += 5 * HOUR
    remains = erase(home, tmp_path, guard="erase")
    assert told(remains.home, window) == set()


def test_a_manifest_tells_the_hour_of_an_erasure_and_no_more(home: wiring.Home, clock: Clock) -> None:
    live_through(home)
    clock.now += HOUR + 61_000_003
    begun = clock.now
    answer = forget(home, LATER, subject=DANA, guard="erase")
    window = range(begun, clock.now + 1)
    manifest_of(home, answer)
    home.publish()
    home.close()
    public = home.path / "log"
    assert (public / "erasures" / "1.cose").is_file()
    assert told(public, window) == set()
