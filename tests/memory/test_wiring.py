"""A home is made once, privately, whatever interrupts it, and its settings are errors when not understood."""

from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from memory import config, layout, wiring
from memory.principal import owner_from_environment
from tlog.cose import decode_key
from tlog.errors import Error, MalformedError, RefusedError
from tlog.storage import DirectoryStorage
from tlog.trust import parse_trust


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_use_makes_a_home_for_its_owner_alone(tmp_path: Path) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        home.parts()
        home.publish()
    folder = tmp_path / "home"
    assert mode_of(folder) == 0o700
    for path in folder.rglob("*"):
        assert mode_of(path) & 0o077 == 0, path.name
    keys = {path.name for path in (folder / "keys").glob("*.key")}
    assert keys == {"log.key", "issuer.key", "receipt.key", "manifest.key", "index.key"}


def test_opening_again_gives_the_same_home(tmp_path: Path) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        first = (home.log_vkey(), home.config, home.trust())
    with wiring.open_home(tmp_path / "home") as home:
        assert (home.log_vkey(), home.config, home.trust()) == first


def test_names_in_entries_and_receipts_are_random(tmp_path: Path) -> None:
    homes = [wiring.open_home(tmp_path / name).config for name in ("alice", "bob")]
    for name in ("origin", "issuer", "subject"):
        values = {getattr(one, name) for one in homes}
        assert len(values) == 2
        assert not any("alice" in value or "bob" in value for value in values)


def test_init_takes_origin_policy_and_guard(tmp_path: Path) -> None:
    with wiring.init_home(
        tmp_path / "home", origin="example.org/log", policy_text="quorum none\n", guard="off"
    ) as home:
        assert home.origin == "example.org/log"
        assert home.log_vkey().startswith("example.org/log+")
        assert home.guard == "off"
        assert home.policy().logs[0].key.vkey == home.log_vkey()
    with wiring.open_home(tmp_path / "home") as home:
        assert home.guard == "off"


def test_init_refuses_a_folder_with_a_home(tmp_path: Path) -> None:
    wiring.init_home(tmp_path / "home").close()
    with pytest.raises(RefusedError, match="already") as caught:
        wiring.init_home(tmp_path / "home", guard="off")
    assert caught.value.code == "home_exists"


def test_a_policy_of_another_log_is_refused_and_leaves_no_home(tmp_path: Path) -> None:
    with wiring.open_home(tmp_path / "other") as other:
        foreign = other.policy().text
    with pytest.raises(MalformedError):
        wiring.init_home(tmp_path / "home", policy_text=foreign)
    assert not (tmp_path / "home" / "config.toml").exists()
    wiring.init_home(tmp_path / "home").close()


def test_a_home_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(MalformedError, match="folder"):
            wiring.open_home(path)
    assert (tmp_path / "file").read_text() == "x"


def test_a_folder_with_other_files_does_not_become_a_home(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    before = mode_of(tmp_path)
    with pytest.raises(MalformedError, match="empty"):
        wiring.open_home(tmp_path)
    assert mode_of(tmp_path) == before
    assert not (tmp_path / "keys").exists()


def test_an_empty_folder_becomes_private(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    wiring.open_home(folder).close()
    assert mode_of(folder) == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
def test_a_home_that_others_may_enter_is_refused(tmp_path: Path, mode: int) -> None:
    wiring.open_home(tmp_path / "home").close()
    (tmp_path / "home").chmod(mode)
    with pytest.raises(RefusedError) as caught:
        wiring.open_home(tmp_path / "home")
    assert caught.value.code == "home_mode"


@pytest.mark.parametrize(
    "step", ["log.key", "issuer.key", "index.key", "policy.txt", "trust.toml", "config.toml"]
)
def test_a_crash_while_a_home_is_made_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Killed just before each file is made: the next use completes the home and keeps the keys that are there."""
    folder = tmp_path / "home"

    class Killed(BaseException):
        pass

    def before(name: str) -> None:
        if name == step:
            raise Killed

    for function in ("make_cose_key", "make_log_key", "make_secret"):
        original = getattr(layout, function)

        def make(path: Path, *rest: object, original: object = original) -> object:
            before(Path(path).name)
            return original(path, *rest)  # type: ignore[operator]

        monkeypatch.setattr(layout, function, make)
    replace = DirectoryStorage.replace

    def replacing(self: DirectoryStorage, path: str, data: bytes) -> None:
        before(path)
        replace(self, path, data)

    monkeypatch.setattr(DirectoryStorage, "replace", replacing)
    with pytest.raises(Killed):
        wiring.open_home(folder)
    monkeypatch.undo()
    left = (
        {path.name: path.read_bytes() for path in (folder / "keys").glob("*.key")}
        if step != "log.key"
        else {}
    )
    with wiring.open_home(folder) as home:
        home.publish()
        assert home.origin == home.policy().logs[0].key.name
    for name, data in left.items():
        assert (folder / "keys" / name).read_bytes() == data


def _open(path: str, queue: object) -> None:
    with wiring.open_home(path) as home:
        home.parts()
        queue.put((home.log_vkey(), home.config.issuer))  # type: ignore[attr-defined]


def test_two_first_uses_at_once_make_one_home(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=_open, args=(str(tmp_path / "home"), queue)) for _ in range(3)]
    for process in processes:
        process.start()
    answers = {queue.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert len(answers) == 1


def test_the_trust_file_to_hand_out_has_the_keys_and_the_policy(tmp_path: Path) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        trust = parse_trust((tmp_path / "home" / "trust.toml").read_text())
        assert trust == home.trust()
        assert {key.use for key in trust.keys} == {"issuer", "receipt", "manifest"}
        assert trust.key("receipt", home.receipt_signer().kid).encode() == home.receipt_signer().key.encode()
        assert len({decode_key(key.key.encode()).thumbprint() for key in trust.keys}) == 3
        assert trust.policy.logs[0].key.vkey == home.log_vkey()
        assert all(key.not_before <= home.clock() // 1_000_000 for key in trust.keys)


def witness_line(tmp_path: Path) -> str:
    from tlog.keys import make_cosigner_key

    return f"witness one {make_cosigner_key(tmp_path / 'witness' / 'w.key', 'witness.example/w').verifier_key.vkey}"


def test_a_new_policy_is_durable_and_reaches_the_trust_file(tmp_path: Path) -> None:
    line = witness_line(tmp_path)
    with wiring.open_home(tmp_path / "home") as home:
        home.publish()
        home.set_policy(f"{line}\nquorum one\n", same_operator=("one",))
        assert home.policy().quorum == "one"
        with pytest.raises(MalformedError):
            home.set_policy(f"{line}\nquorum one\n", same_operator=("two",))
        with pytest.raises(MalformedError):
            home.set_policy("quorum two\n")
        assert home.describe()["witnesses"] == ["one"]
    with wiring.open_home(tmp_path / "home") as home:
        assert home.policy().quorum == "one"
        assert parse_trust((tmp_path / "home" / "trust.toml").read_text()).same_operator == ("one",)
        home.set_policy("quorum none\n")
        assert home.trust().same_operator == ()


def test_the_home_is_the_argument_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUNIMENT_HOME", str(tmp_path / "environment"))
    assert wiring.home_path(tmp_path / "argument") == tmp_path / "argument"
    assert wiring.home_path(None) == tmp_path / "environment"
    monkeypatch.delenv("MUNIMENT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert wiring.home_path(None).name == "muniment"
    with pytest.raises(MalformedError):
        wiring.home_path("")


def test_the_guard_is_on_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        assert home.parts().guard == "on"
    with wiring.open_home(tmp_path / "home", guard="off") as home:
        assert home.parts().guard == "off"


@pytest.mark.parametrize(
    ("argument", "configured", "expected"),
    [(None, None, "on"), (None, "off", "off"), ("on", "off", "on"), ("off", None, "off")],
)
def test_a_setting_is_the_argument_before_the_configuration_before_the_default(
    argument: str | None, configured: str | None, expected: str
) -> None:
    assert config.resolve_guard(argument, configured) == expected


@pytest.mark.parametrize(("argument", "configured"), [("yes", None), ("on", "0"), (None, ""), ("ON", None)])
def test_a_setting_that_is_not_understood_is_an_error_wherever_it_stands(
    argument: str | None, configured: str | None
) -> None:
    with pytest.raises(MalformedError, match="guard"):
        config.resolve_guard(argument, configured)


@pytest.mark.parametrize(
    "change",
    [
        b"guard = true\n",
        b'guard = "maybe"\n',
        b'gaurd = "off"\n',
        b"version = 2\n",
        b"merge_delay_seconds = -1\n",
        b'same_operator = "one"\n',
        b"not toml",
        b"\xff",
        b"x = 1\n" * 20_000,
    ],
)
def test_a_configuration_that_is_not_understood_is_an_error(tmp_path: Path, change: bytes) -> None:
    wiring.open_home(tmp_path / "home").close()
    file = tmp_path / "home" / "config.toml"
    name = change.split(b" ")[0]
    kept = [line for line in file.read_bytes().splitlines(keepends=True) if not line.startswith(name + b" ")]
    file.write_bytes(b"".join(kept) + change)
    with pytest.raises(MalformedError, match=r"config\.toml|guard"):
        wiring.open_home(tmp_path / "home")


def test_a_configuration_reads_back_as_it_was_written() -> None:
    made = config.Config('a "quoted" \\ name\x7f', "urn:x", "urn:ü", 5, "off", 60, 3600, ("one", "two"))
    assert config.parse_config(config.format_config(made)) == made


def test_closing_a_home_closes_its_files(tmp_path: Path) -> None:
    home = wiring.open_home(tmp_path / "home")
    home.publish()
    home.close()
    home.close()
    opened = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_link(name)}
    assert not any(str(tmp_path) in path for path in opened)
    home.publish()
    home.close()


def _is_link(name: str) -> bool:
    try:
        os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return False
    return True


def test_a_home_below_a_read_only_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(Error) as caught:
        wiring.open_home("/proc/muniment-home")
    assert "/proc" not in caught.value.message


def test_opening_a_home_loads_no_server_and_no_client() -> None:
    code = (
        "import sys; from memory import wiring; wiring.open_home(sys.argv[1]).parts(); "
        "heavy = {'httpx', 'fastapi', 'uvicorn', 'mcp', 'pydantic', 'pycose', 'numpy', 'ahocorasick_rs'}; "
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", code, folder + "/home"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_facade_for_a_caller_shares_the_open_parts(tmp_path: Path) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        caller = owner_from_environment({})
        assert home.memory(caller) is not None
        assert home.parts() is home.parts()
