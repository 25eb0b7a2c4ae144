"""Keys and secrets in files: made once, read strictly, used from memory.

A key file has mode 0600 in a folder of mode 0700. It is written and flushed under another name, then linked
into place, so that of two processes that make the same key one wins, both use the winner's, and nobody ever
reads half a key. A file that others may read, a link or a foreign owner is refused: a key that somebody may
have copied proves nothing.

A host that keeps keys elsewhere (a KMS, an agent) hands in its own NoteSigner, Cosigner or CoseSigner.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tlog.ascii import decode_base64, encode_base64
from tlog.cose_keys import (
    ED25519,
    EDDSA,
    ES256,
    ESP256,
    ML_DSA_44,
    PrivateKey,
    PrivateKeySigner,
    make_signer,
)
from tlog.cosignature import cosigned_message, make_cosignature_line
from tlog.errors import MalformedError, RefusedError
from tlog.note import SignatureLine, SignatureType, VerifierKey, make_verifier_key, require_text

SEED_BYTES: Final = 32
_SKEY_PREFIX: Final = "PRIVATE+KEY+"
_MAX_FILE_BYTES: Final = 1 << 16
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


@dataclass(frozen=True)
class Ed25519NoteSigner:
    """A NoteSigner (type 0x01) over a key in this process."""

    verifier_key: VerifierKey
    sign_bytes: Callable[[bytes], bytes]

    def sign(self, text: str) -> SignatureLine:
        """The signature line over a note's text."""
        require_text(text)
        key = self.verifier_key
        return SignatureLine(key.name, key.key_id, self.sign_bytes(text.encode()))

    def __repr__(self) -> str:
        return f"Ed25519NoteSigner({self.verifier_key.vkey})"


@dataclass(frozen=True)
class KeyCosigner:
    """A Cosigner (type 0x04 or 0x06) over a key in this process."""

    verifier_key: VerifierKey
    sign_bytes: Callable[[bytes], bytes]

    def cosign(self, text: str, timestamp: int) -> SignatureLine:
        """The cosignature line over a checkpoint's text, made at `timestamp` in seconds."""
        key = self.verifier_key
        signature = self.sign_bytes(cosigned_message(key, timestamp, text))
        return make_cosignature_line(key, timestamp, signature)

    def __repr__(self) -> str:
        return f"KeyCosigner({self.verifier_key.vkey})"


# Log and cosigner keys: one line each, as Go's sumdb/note writes private keys.


def make_log_key(path: str | os.PathLike[str], name: str) -> Ed25519NoteSigner:
    """The signer of the log key in the file, which is made if there is none."""
    signer = _note_signer(_create_or_read(Path(path), lambda: _new_skey(name, SignatureType.ED25519)))
    _require_name(signer.verifier_key, name)
    return signer


def new_log_key(name: str) -> bytes:
    """The bytes of a key file with a new log key."""
    return _new_skey(name, SignatureType.ED25519)


def load_log_key(path: str | os.PathLike[str]) -> Ed25519NoteSigner:
    """The signer of the log key in the file."""
    return _note_signer(_read_existing(Path(path)))


def make_cosigner_key(
    path: str | os.PathLike[str], name: str, kind: int = SignatureType.COSIGNATURE_ED25519
) -> KeyCosigner:
    """The cosigner of the key in the file, which is made if there is none; of type 4 or 6."""
    cosigner = _cosigner(_create_or_read(Path(path), lambda: _new_skey(name, kind)))
    _require_name(cosigner.verifier_key, name)
    if cosigner.verifier_key.kind != kind:
        raise RefusedError("key file: holds a key of another type", code="key_exists")
    return cosigner


def load_cosigner_key(path: str | os.PathLike[str]) -> KeyCosigner:
    """The cosigner of the key in the file."""
    return _cosigner(_read_existing(Path(path)))


def format_skey(name: str, kind: int, seed: bytes) -> str:
    """The private key as a line of text, without its newline."""
    key_id = make_verifier_key(name, kind, _public_key(kind, seed)).key_id
    return f"{_SKEY_PREFIX}{name}+{key_id.hex()}+{encode_base64(bytes((kind,)) + seed)}"


def parse_skey(text: str) -> tuple[VerifierKey, bytes]:
    """The public key and the seed of a private key line; the errors never show any of it."""
    name, _, rest = text.removeprefix(_SKEY_PREFIX).partition("+")
    key_id, _, encoded = rest.partition("+")
    if not text.startswith(_SKEY_PREFIX) or len(key_id) != 8 or len(encoded) > 64:
        raise MalformedError("key file: expected PRIVATE+KEY+NAME+ID+BASE64")
    data = decode_base64(encoded, "key file")
    if len(data) != 1 + SEED_BYTES:
        raise MalformedError(f"key file: expected a type and a seed of {SEED_BYTES} bytes")
    key = make_verifier_key(name, data[0], _public_key(data[0], data[1:]))
    if key_id != key.key_id.hex():
        raise MalformedError("key file: the key id is not that of this name and key")
    return key, data[1:]


def _public_key(kind: int, seed: bytes) -> bytes:
    if kind == SignatureType.MLDSA44:
        return mldsa.MLDSA44PrivateKey.from_seed_bytes(seed).public_key().public_bytes_raw()
    if kind in (SignatureType.ED25519, SignatureType.COSIGNATURE_ED25519):
        return ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    raise MalformedError("key file: expected a key of type 1, 4 or 6")


def _new_skey(name: str, kind: int) -> bytes:
    return (format_skey(name, kind, secrets.token_bytes(SEED_BYTES)) + "\n").encode()


def _parse_skey_file(data: bytes) -> tuple[VerifierKey, bytes]:
    try:
        line = data.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedError("key file: expected text") from None
    return parse_skey(line.removesuffix("\n"))


def _note_signer(data: bytes) -> Ed25519NoteSigner:
    key, seed = _parse_skey_file(data)
    if key.kind != SignatureType.ED25519:
        raise MalformedError("key file: expected a log key, of type 1")
    return Ed25519NoteSigner(key, ed25519.Ed25519PrivateKey.from_private_bytes(seed).sign)


def _cosigner(data: bytes) -> KeyCosigner:
    key, seed = _parse_skey_file(data)
    if key.kind == SignatureType.COSIGNATURE_ED25519:
        return KeyCosigner(key, ed25519.Ed25519PrivateKey.from_private_bytes(seed).sign)
    if key.kind == SignatureType.MLDSA44:
        return KeyCosigner(key, mldsa.MLDSA44PrivateKey.from_seed_bytes(seed).sign)
    raise MalformedError("key file: expected a cosigner key, of type 4 or 6")


def _require_name(key: VerifierKey, name: str) -> None:
    if key.name != name:
        raise RefusedError("key file: holds the key of another name", code="key_exists")


# COSE keys


def make_cose_key(path: str | os.PathLike[str], algorithm: int = EDDSA) -> PrivateKeySigner:
    """The signer of the PKCS #8 key in the file, which is made if there is none."""
    return _cose_signer(_create_or_read(Path(path), lambda: _new_cose_key(algorithm)), algorithm)


def new_cose_key() -> bytes:
    """The bytes of a key file with a new PKCS #8 key."""
    return _new_cose_key(EDDSA)


def load_cose_key(
    path: str | os.PathLike[str], algorithm: int | None = None, passphrase: bytes | None = None
) -> PrivateKeySigner:
    """The signer of the PKCS #8 key in the file; without `algorithm` -8, -7 or -48 by its type."""
    return _cose_signer(_read_existing(Path(path)), algorithm, passphrase)


def follow_cose_key(path: str | os.PathLike[str]) -> Callable[[], PrivateKeySigner]:
    """What gives the signer of the key in the file, loaded anew whenever another file took its place."""
    loaded: list[tuple[tuple[int, int], PrivateKeySigner]] = []

    def current() -> PrivateKeySigner:
        status = os.stat(path, follow_symlinks=False)
        stamp = status.st_ino, status.st_ctime_ns
        if not loaded or loaded[0][0] != stamp:
            loaded[:] = [(stamp, load_cose_key(path))]
        return loaded[0][1]

    return current


def replace_key(new: str | os.PathLike[str], old: str | os.PathLike[str]) -> None:
    """Returns once the key file `new` stands, durably, in the place of `old`, whose key is gone from the folder."""
    os.replace(new, old)
    flush_folder(Path(old).parent)


def remove_key(path: str | os.PathLike[str]) -> None:
    """Returns once there is no such key file."""
    with suppress(FileNotFoundError):
        os.unlink(path)
        flush_folder(Path(path).parent)


def make_root_key(
    path: str | os.PathLike[str], algorithm: int = EDDSA, passphrase: bytes | None = None
) -> PrivateKeySigner:
    """The signer of a new PKCS #8 key in the file, encrypted if there is a passphrase.

    RefusedError if the file exists: whoever asks for a new root does not mean an old one.
    """
    if passphrase == b"":
        raise MalformedError("key file: expected a passphrase that is not empty, or none")
    target = Path(path)
    made = _new_cose_key(algorithm, passphrase)
    _make_folder(target.parent)
    if os.path.lexists(target):
        raise RefusedError("key file: there is one already", code="key_exists")
    _create(target, made)
    signer = load_cose_key(target, algorithm, passphrase)
    if signer.kid != _cose_signer(made, algorithm, passphrase).kid:
        raise RefusedError("key file: another process made one at the same time", code="key_exists")
    return signer


def _new_cose_key(algorithm: int, passphrase: bytes | None = None) -> bytes:
    key: PrivateKey
    if algorithm in (EDDSA, ED25519):
        key = ed25519.Ed25519PrivateKey.generate()
    elif algorithm in (ES256, ESP256):
        key = ec.generate_private_key(ec.SECP256R1())
    elif algorithm == ML_DSA_44:
        key = mldsa.MLDSA44PrivateKey.generate()
    else:
        raise MalformedError("COSE key: expected an algorithm of -7, -8, -9, -19 or -48")
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def _cose_signer(data: bytes, algorithm: int | None, passphrase: bytes | None = None) -> PrivateKeySigner:
    kind = "a PKCS #8 key in PEM, unencrypted or with its passphrase"
    try:
        key = load_pem_private_key(data, password=passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):
        # A changed byte may name a kind of key that OpenSSL knows and then cannot set up.
        raise MalformedError(f"key file: expected {kind}", code="key_file") from None
    return make_signer(key, algorithm)


# Secrets


def make_secret(path: str | os.PathLike[str], size_bytes: int = 32) -> bytes:
    """The secret in the file, which is made of `size_bytes` random bytes if there is none."""
    secret = _create_or_read(Path(path), lambda: secrets.token_bytes(size_bytes))
    if len(secret) != size_bytes:
        raise RefusedError(f"secret file: expected {size_bytes} bytes", code="key_exists")
    return secret


def load_secret(path: str | os.PathLike[str], size_bytes: int = 32) -> bytes:
    """The secret in the file."""
    secret = _read_existing(Path(path))
    if len(secret) != size_bytes:
        raise MalformedError(f"secret file: expected {size_bytes} bytes")
    return secret


# Files


def _create_or_read(path: Path, make: Callable[[], bytes]) -> bytes:
    existing = _read(path)
    if existing is not None:
        return existing
    _make_folder(path.parent)
    _create(path, make())
    return _read_existing(path)


def _read_existing(path: Path) -> bytes:
    data = _read(path)
    if data is None:
        raise MalformedError(f"key file: there is none named {path.name}", code="key_missing")
    return data


def _read(path: Path) -> bytes | None:
    """The bytes of the file, None if there is none; RefusedError if anybody else could have read it."""
    try:
        # Neither a link nor a pipe in its place may make us read, or wait for, something else.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        raise RefusedError(
            f"key file: {path.name} cannot be opened as a regular file of this user", code="key_file"
        ) from None
    try:
        _require_private(path.name, os.fstat(descriptor))
        _require_folder(path.parent)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > _MAX_FILE_BYTES:
        raise MalformedError(f"key file: expected at most {_MAX_FILE_BYTES} bytes")
    return data


def _require_private(name: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"key file: {name} is not a regular file", code="key_file")
    if status.st_uid not in (os.geteuid(), 0):
        raise RefusedError(f"key file: {name} belongs to another user", code="key_file")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise RefusedError(
            f"key file: {name} has mode {mode:04o}, expected 0600 (chmod 600, and consider the key known)",
            code="key_mode",
        )


def _require_folder(folder: Path) -> None:
    mode = os.stat(folder).st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        # Whoever can write to the folder can put a key of his own in place of ours.
        raise RefusedError(
            f"key folder: others may write to it (mode {stat.S_IMODE(mode):04o}), expected 0700",
            code="key_mode",
        )


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        _require_folder(folder)
        return
    if not folder.parent.is_dir():
        _make_folder(folder.parent)
    with suppress(FileExistsError):
        os.mkdir(folder, _FOLDER_MODE)
    flush_folder(folder.parent)
    _require_folder(folder)


def _create(path: Path, data: bytes) -> None:
    """Puts a new file in place, durably; an existing one stays as it is."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, _FILE_MODE)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link never replaces a key that another process has just put there.
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Returns once what was made, renamed or removed in the folder is durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
