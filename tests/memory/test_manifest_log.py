"""`muniment verify` of a manifest with the log beside it: what it says is there is looked for, byte for byte."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from memory import cli, wiring
from memory.claim import new_claim
from memory.manifest import decode_manifest, sign_manifest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import forget, write

DANA = "Dana Scully"


class Erased(NamedTuple):
    """A home in which somebody was erased and all is published, a copy of its log from before, and the claim."""

    home: Path
    manifest: Path
    earlier: Path
    claim: str


@pytest.fixture(scope="module")
def erased(tmp_path_factory: pytest.TempPathFactory) -> Erased:
    folder = tmp_path_factory.mktemp("erased")
    with wiring.open_home(folder / "home") as home:
        write(home, "Dana is in Elm Street.", key="dana/address", value="Elm Street", subject=DANA)
        home.publish()
        answer = forget(home, subject=DANA)
        shutil.copytree(folder / "home" / "log", folder / "earlier")
        home.publish()
    return Erased(folder / "home", Path(answer["manifest"]), folder / "earlier", answer["claim"])


@pytest.fixture
def verify(erased: Erased, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(file: Path, log: object, *more: str) -> tuple[int, dict[str, set[str]]]:
        words = ["verify", str(file), "--trust", str(erased.home / "trust.toml"), "--json", *more]
        code = cli.main([*words, *([] if log is None else ["--log", str(log)])])
        document = json.loads(capsys.readouterr().out)
        (verdict,) = document.get("files", [{}])
        names = ("proved", "not_proved", "failed")
        return code, {name: {one["code"] for one in verdict.get(name, ())} for name in names}

    return run


IN_LOG = {"manifest_signature", "issuer_signature", "tombstone_logged", "manifest_logged", "heads"}


def test_what_is_in_the_log_is_proved(erased: Erased, verify: Any) -> None:
    for log in (erased.home, erased.home / "log"):
        code, said = verify(erased.manifest, log)
        assert (code, said["failed"]) == (0, set())
        assert said["proved"] >= IN_LOG and "log_signature" in said["proved"]
        assert "logged" not in said["not_proved"] and "erasure_itself" in said["not_proved"]


def test_without_a_log_it_says_that_this_is_not_proved(erased: Erased, verify: Any) -> None:
    code, said = verify(erased.manifest, None)
    assert code == 0 and "logged" in said["not_proved"]
    assert not said["proved"] & {"tombstone_logged", "manifest_logged"}


def test_a_log_that_does_not_have_it_yet_proves_nothing(erased: Erased, verify: Any) -> None:
    code, said = verify(erased.manifest, erased.earlier)
    assert code == 1
    assert said["not_proved"] >= {"tombstone_logged_missing", "manifest_logged_missing"}


def test_a_manifest_that_was_signed_again_is_not_the_one_in_the_log(
    erased: Erased, verify: Any, tmp_path: Path
) -> None:
    """The operator has the key, and may sign what they like: it is the log that holds them to the first."""
    manifest = decode_manifest(erased.manifest.read_bytes())
    document = {**manifest.document, "limits": manifest.document["limits"][:-1]}
    with wiring.open_home(erased.home) as home:
        data = sign_manifest(home.manifest_signer(), manifest.issuer, manifest.subject, document)
    (tmp_path / "other.cose").write_bytes(data)
    assert verify(tmp_path / "other.cose", None)[0] == 0
    code, said = verify(tmp_path / "other.cose", erased.home)
    assert code == 1
    assert "tombstone_logged" in said["proved"] and "manifest_logged_missing" in said["not_proved"]


def test_any_changed_byte_fails(erased: Erased, verify: Any, tmp_path: Path) -> None:
    data = erased.manifest.read_bytes()
    changed = tmp_path / "changed.cose"
    for at in range(0, len(data), 97):
        changed.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert verify(changed, erased.home)[0] != 0


def test_a_head_that_the_log_never_had_fails(erased: Erased, verify: Any, tmp_path: Path) -> None:
    """A manifest of another log's history, whatever its key: here the one of an entry more."""
    manifest = decode_manifest(erased.manifest.read_bytes())
    with wiring.open_home(tmp_path / "fork") as fork:
        write(fork, "Other.")
        fork.publish()
        note = (fork.path / "log" / "checkpoint").read_bytes()
    ours = manifest.document["log"]["before"].split(b"\n")
    forged = b"\n".join([ours[0], *note.split(b"\n")[1:]])
    document = {**manifest.document, "log": {**manifest.document["log"], "before": forged}}
    with wiring.open_home(erased.home) as home:
        data = sign_manifest(home.manifest_signer(), manifest.issuer, manifest.subject, document)
    (tmp_path / "other.cose").write_bytes(data)
    code, said = verify(tmp_path / "other.cose", erased.home)
    assert code == 1 and "fork" in said["failed"]


def test_the_claim_shows_whose_it_is_beside_the_log(erased: Erased, verify: Any) -> None:
    code, said = verify(erased.manifest, erased.home, "--claim", erased.claim)
    assert code == 0 and said["proved"] >= {"claim", "manifest_logged"}
    assert verify(erased.manifest, erased.home, "--claim", new_claim().hex())[0] == 1


def test_a_log_is_read_from_its_url(erased: Erased, verify: Any) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    serve = partial(Quiet, directory=str(erased.home / "log"))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code, said = verify(erased.manifest, f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
    assert code == 0 and said["proved"] >= IN_LOG


def test_a_place_without_a_log_is_bad_input(erased: Erased, verify: Any, tmp_path: Path) -> None:
    assert verify(erased.manifest, tmp_path)[0] == 3
    assert verify(erased.manifest, tmp_path / "nowhere")[0] == 2
