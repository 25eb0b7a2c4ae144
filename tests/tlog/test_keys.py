"""tlog.keys: key files that nobody else can read, made once even by two processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlog import keys
from tlog.cose import ED25519, EDDSA, ES256, ESP256, ML_DSA_44, decode_sign1, sign1, verify_sign1
from tlog.cosignature import verify_cosignature
from tlog.errors import Error, MalformedError, RefusedError
from tlog.note import SignatureType, open_note, sign_note

TEXT = "log.example\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
ALGORITHMS = (EDDSA, ED25519, ES256, ESP256, ML_DSA_44)
COSIGNER_KINDS = (SignatureType.COSIGNATURE_ED25519, SignatureType.MLDSA44)

MAKERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "log": (lambda path: keys.make_log_key(path, "log.example"), keys.load_log_key),
    "cosigner": (lambda path: keys.make_cosigner_key(path, "w.example"), keys.load_cosigner_key),
    "cose": (keys.make_cose_key, keys.load_cose_key),
    "secret": (keys.make_secret, keys.load_secret),
}
every_kind = pytest.mark.parametrize(("make", "load"), MAKERS.values(), ids=MAKERS.keys())


def public(made: Any) -> object:
    """What two loads of one key have in common."""
    return getattr(made, "verifier_key", None) or getattr(made, "key", None) or made


# What the keys do


def test_log_key_signs_notes(tmp_path: Path) -> None:
    signer = keys.make_log_key(tmp_path / "log", "log.example")
    assert (signer.verifier_key.name, signer.verifier_key.kind) == ("log.example", SignatureType.ED25519)
    note = sign_note(TEXT, [keys.load_log_key(tmp_path / "log")])
    assert [line.key for line in open_note(note, [signer.verifier_key])] == [signer.verifier_key]
    with pytest.raises(MalformedError):
        signer.sign("no newline")


@pytest.mark.parametrize("kind", COSIGNER_KINDS)
def test_cosigner_key_cosigns(tmp_path: Path, kind: SignatureType) -> None:
    cosigner = keys.make_cosigner_key(tmp_path / "witness", "w.example", kind)
    assert cosigner.verifier_key.kind == kind
    line = keys.load_cosigner_key(tmp_path / "witness").cosign(TEXT, 1_790_000_000)
    assert verify_cosignature(cosigner.verifier_key, line, TEXT).timestamp == 1_790_000_000


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_cose_key_signs(tmp_path: Path, algorithm: int) -> None:
    made = keys.make_cose_key(tmp_path / "issuer.pem", algorithm)
    loaded = keys.load_cose_key(tmp_path / "issuer.pem", algorithm)
    assert (loaded.key, loaded.algorithm) == (made.key, algorithm)
    verify_sign1(decode_sign1(sign1(loaded, {}, b"payload")), made.key)


def test_secrets_are_random(tmp_path: Path) -> None:
    first, second = keys.make_secret(tmp_path / "a"), keys.make_secret(tmp_path / "b", 64)
    assert (len(first), len(second)) == (32, 64)
    assert first != second[:32]


def test_skey_known_answer() -> None:
    # The example of golang.org/x/mod/sumdb/note.
    key, seed = keys.parse_skey(
        "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
    )
    assert key.vkey == "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    assert keys.format_skey("PeterNeumann", 1, seed).endswith("+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PRIVATE+KEY+",
        "PRIVATE+KEY+PeterNeumann+c74f20a4+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz",
        "PRIVATE+KEY+PeterNeumann+C74F20A3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz",
        "PRIVATE+KEY+PaulNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz",
        "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDF",
        "PRIVATE+KEY+PeterNeumann+c74f20a3+BYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz",
        "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz\n",
        "PRIVATE+KEY+Peter Neumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz",
        "KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz",
    ],
    ids=range(10),
)
def test_refuses_skey_without_showing_it(text: str) -> None:
    with pytest.raises(MalformedError) as caught:
        keys.parse_skey(text)
    assert "AYEK" not in str(caught.value)


def test_no_representation_shows_a_key(tmp_path: Path) -> None:
    for name, (make, _) in MAKERS.items():
        if name != "secret":
            made = make(tmp_path / name)
            assert repr(made).startswith(type(made).__name__ + "(")
            assert "cryptography" not in repr(made)
            assert "sign_bytes" not in repr(made)


# How the files lie there


@every_kind
def test_made_once_then_loaded(
    tmp_path: Path, make: Callable[[Path], Any], load: Callable[[Path], Any]
) -> None:
    path = tmp_path / "new" / "folder" / "key"
    with pytest.raises(MalformedError) as caught:
        load(path)
    assert caught.value.code == "key_missing"
    made = make(path)
    before = path.read_bytes()
    assert public(load(path)) == public(make(path)) == public(made)
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (
        stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    )
    assert [child.name for child in path.parent.iterdir()] == ["key"]


@every_kind
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610, 0o602])
def test_refuses_a_wider_mode(
    tmp_path: Path, make: Callable[[Path], Any], load: Callable[[Path], Any], mode: int
) -> None:
    make(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    for read in (load, make):
        with pytest.raises(RefusedError, match=f"{mode:04o}, expected 0600") as caught:
            read(tmp_path / "key")
        assert caught.value.code == "key_mode"
    (tmp_path / "key").chmod(0o400)
    load(tmp_path / "key")


@every_kind
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_refuses_a_folder_others_write_to(
    tmp_path: Path, make: Callable[[Path], Any], load: Callable[[Path], Any], mode: int
) -> None:
    folder = tmp_path / "folder"
    make(folder / "key")
    folder.chmod(mode)
    for read, name in ((load, "key"), (make, "key"), (make, "another")):
        with pytest.raises(RefusedError, match="expected 0700"):
            read(folder / name)
    folder.chmod(0o1777)  # where only owners rename, as in /tmp
    load(folder / "key")


@every_kind
def test_follows_no_link(tmp_path: Path, make: Callable[[Path], Any], load: Callable[[Path], Any]) -> None:
    make(tmp_path / "key")
    (tmp_path / "link").symlink_to(tmp_path / "key")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("link", "dangling"):
        for read in (load, make):
            with pytest.raises(RefusedError):
                read(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()


@every_kind
def test_reads_regular_files_only(
    tmp_path: Path, make: Callable[[Path], Any], load: Callable[[Path], Any]
) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    for name in ("pipe", "folder"):
        for read in (load, make):
            with pytest.raises(RefusedError):
                read(tmp_path / name)


@every_kind
@pytest.mark.parametrize(
    "content", [b"", b"x", b"\xff" * 31, b"PRIVATE+KEY+a+b+c\n", b"x" * (1 << 17)], ids=range(5)
)
def test_refuses_other_content(
    tmp_path: Path, make: Callable[[Path], Any], load: Callable[[Path], Any], content: bytes
) -> None:
    (tmp_path / "key").write_bytes(content)
    (tmp_path / "key").chmod(0o600)
    for read in (load, make):
        with pytest.raises(Error):
            read(tmp_path / "key")
    assert (tmp_path / "key").read_bytes() == content


def test_a_key_of_another_kind_is_not_taken(tmp_path: Path) -> None:
    keys.make_log_key(tmp_path / "log", "log.example")
    keys.make_cosigner_key(tmp_path / "w4", "w.example")
    keys.make_cose_key(tmp_path / "ed.pem")
    for read in (
        lambda: keys.make_log_key(tmp_path / "log", "other.example"),
        lambda: keys.make_cosigner_key(tmp_path / "w4", "other.example"),
        lambda: keys.make_cosigner_key(tmp_path / "w4", "w.example", SignatureType.MLDSA44),
        lambda: keys.make_cosigner_key(tmp_path / "new", "w.example", SignatureType.ED25519),
        lambda: keys.make_cosigner_key(tmp_path / "log", "log.example"),
        lambda: keys.load_log_key(tmp_path / "w4"),
        lambda: keys.load_cose_key(tmp_path / "log"),
        lambda: keys.make_cose_key(tmp_path / "ed.pem", ES256),
        lambda: keys.load_cose_key(tmp_path / "ed.pem", ML_DSA_44),
        lambda: keys.make_cose_key(tmp_path / "new.pem", -999),
        lambda: keys.make_secret(tmp_path / "log"),
    ):
        with pytest.raises((MalformedError, RefusedError)):
            read()
    assert keys.load_cose_key(tmp_path / "ed.pem", ED25519).algorithm == ED25519


def test_a_crash_while_writing_leaves_no_half_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    for call in ("fsync", "link"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            with pytest.raises(OSError, match="disk full"):
                keys.make_secret(tmp_path / call)
        assert not (tmp_path / call).exists()
        assert keys.make_secret(tmp_path / call) == keys.load_secret(tmp_path / call)
    assert sorted(child.name for child in tmp_path.iterdir()) == ["fsync", "link"]


def test_file_and_folder_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    flush = os.fsync
    place = os.link

    def record_flush(descriptor: int) -> None:
        flushed.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        flush(descriptor)

    def record_link(source: Path, target: Path) -> None:
        flushed.append("link")
        place(source, target)

    monkeypatch.setattr(os, "fsync", record_flush)
    monkeypatch.setattr(os, "link", record_link)
    keys.make_secret(tmp_path / "new" / "key")
    # The new folder's own name first, then the file, its place, and the name in the folder.
    assert flushed == ["folder", "file", "link", "folder"]


def test_the_loser_of_a_race_uses_the_winners_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    place = os.link

    def slow_link(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", place)
        winner.append(keys.make_secret(path))  # another process comes first
        place(source, target)

    winner: list[bytes] = []
    monkeypatch.setattr(os, "link", slow_link)
    assert keys.make_secret(path) == winner[0] == path.read_bytes()
    assert [child.name for child in tmp_path.iterdir()] == ["key"]


def test_processes_that_start_together_share_one_key(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tlog.keys import make_secret\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "print(make_secret(sys.argv[1]).hex())\n"
    )
    repository = str(Path(__file__).resolve().parents[2])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "new" / "key")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": repository},
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = {process.communicate(timeout=60)[0] for process in processes}
    assert answers == {(tmp_path / "new" / "key").read_bytes().hex() + "\n"}
