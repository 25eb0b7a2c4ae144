"""scittles (vcon-dev/scittles, a SCITT service) takes statements from our SCRAPI client, whose checks it has to pass.

It is on no package registry: its source is the folder that MUNIMENT_SCITTLES names, or is cloned for the run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cbor2 import loads
from installing import CannotInstall, Tool, install_package, python, run
from installing import install as run_install
from judging import Judge, flipped
from sample import Bench
from serving import ask, free_port, serving
from trees import Tree, make_signer

SOURCE = "https://github.com/vcon-dev/scittles"
STATEMENTS = 7
UNKNOWN = "00" * 32


def install(folder: Path) -> Tool:
    """Its source, beside an environment with what it needs; its receipts need cbor2 before 6."""
    source = folder / "scittles"
    given = os.environ.get("MUNIMENT_SCITTLES")
    if given:
        shutil.copytree(given, source, ignore=shutil.ignore_patterns("v", ".venv", "*.db", ".git"))
    else:
        clone = ["git", "clone", "--quiet", "--depth", "1", SOURCE, str(source)]
        try:
            run_install(clone, "scittles")
        except CannotInstall:
            why = "scittles: its source can't be cloned here, and MUNIMENT_SCITTLES names no folder with it"
            raise CannotInstall(why) from None
    if not (source / "src" / "main.py").is_file():
        raise CannotInstall("scittles: no src/main.py in its source")
    place = folder / "environment"
    run_install([python(), "-m", "venv", "--clear", str(place)], "an environment for scittles")
    install_package(place, "-r", str(source / "requirements.txt"), "cbor2<6")
    run([str(place / "bin" / "python"), "-c", "import src.main"], source)
    return Tool(source, "0.1.0 (source)")


@contextmanager
def running(bench: Bench) -> Iterator[str]:
    """The address of a service with an empty log."""
    port, source = free_port(), bench.tool
    settings = {
        "SCITT_SERVICE_URL": f"http://127.0.0.1:{port}",
        "SCITT_HOST": "127.0.0.1",
        "SCITT_PORT": str(port),
        "SCITT_OTEL_ENABLED": "false",
        "SCITT_KEY_FILE": str(bench.folder / "key.pem"),
        "SCITT_DB_PATH": str(bench.folder / "entries.db"),
    }
    command = [str(source.parent / "environment" / "bin" / "python"), "-m", "src.main"]
    with serving(command, port, source, settings) as url:
        yield url


def check_client(bench: Bench, judge: Judge) -> None:
    """Our client submits, polls, and reads its refusals; what it sent is in its tree, under its signature."""
    from tlog.cose import EDDSA
    from tlog.errors import RefusedError
    from tlog.scrapi_client import ScrapiClient

    tree = Tree(make_signer(bench.folder, "issuer", EDDSA), STATEMENTS)
    with running(bench) as url, ScrapiClient.from_url(url, ()) as client:
        key = service_key(url)
        submitted = [client.submit(entry) for entry in tree.entries]
        names = [hashlib.sha256(payload_of(entry)).hexdigest() for entry in tree.entries]

        def refused(ask_for: Callable[[], object], status: int) -> bool:
            try:
                ask_for()
            except RefusedError as error:
                return error.fields["status"] == status
            return False

        judge.story(
            f"our SCRAPI client registers {STATEMENTS} statements with scittles and polls for each",
            {
                "ids from Location": [one.entry_id for one in submitted] == names,
                "the same receipt later": client.poll(names[0]).receipt is not None,
            },
            {
                "an unknown entry": refused(lambda: client.poll(UNKNOWN), 404),
                "a statement again": refused(lambda: client.submit(tree.entries[0]), 400),
                "garbage": refused(lambda: client.submit(b"garbage"), 400),
            },
        )
        last = submitted[-1].receipt or b""
        leaf = bytes.fromhex(names[-1])
        judge.both_ways(
            "our tree and our keys verify what scittles signed: the statement is in its log",
            lambda one: root_is_signed(one[0], one[1], key),
            (last, leaf),
            {"the signature": (flipped(last), leaf), "the statement": (last, flipped(leaf))},
        )


def check_strictness(bench: Bench, judge: Judge) -> None:
    """Its receipts are not deterministic CBOR and name no key by its thumbprint: the client has to say so."""
    from tlog.cose import EDDSA
    from tlog.cose_keys import CoseKey
    from tlog.errors import MalformedError
    from tlog.scrapi_client import ScrapiClient

    tree = Tree(make_signer(bench.folder, "issuer", EDDSA), 1)
    log = make_signer(bench.folder, "log", EDDSA)
    keys: tuple[CoseKey, ...] = (log.signer.key,)
    with running(bench) as url, ScrapiClient.from_url(url, keys) as client:

        def verifies(one: tuple[bytes, bytes]) -> bool:
            try:
                client.verify(*one)
            except MalformedError:
                return False
            return True

        there = client.submit(tree.entries[0]).receipt or b""
        judge.both_ways(
            "our client refuses a receipt whose headers are not deterministic CBOR, and takes one of ours",
            verifies,
            (tree.receipt(log, 0, 1), tree.entries[0]),
            {"scittles' own receipt": (there, tree.entries[0])},
        )


def service_key(url: str) -> Any:
    """The public key at /jwks, as an EC key."""
    from cryptography.hazmat.primitives.asymmetric import ec

    jwk = json.loads(ask(f"{url}/jwks").body)["keys"][0]
    x, y = (int.from_bytes(base64.urlsafe_b64decode(jwk[name] + "=="), "big") for name in ("x", "y"))
    return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()


def payload_of(entry: bytes) -> bytes:
    from tlog.cose import decode_sign1

    return decode_sign1(entry).payload or b""


def root_is_signed(receipt: bytes, leaf: bytes, key: Any) -> bool:
    """Whether its signature holds over the root that our tree computes from its proof for this leaf."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    from tlog import merkle
    from tlog.cose import sig_structure

    protected, unprotected, _, signature = loads(receipt).value
    size, index, path = loads(unprotected[396][-1][0])
    root = merkle.inclusion_root(index, size, merkle.leaf_hash(leaf), tuple(path))
    r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
    try:
        key.verify(encode_dss_signature(r, s), sig_structure(protected, root), ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


CHECKS = (check_client, check_strictness)
