"""The commands of `muniment log` about keys, their root, the mirror, and the log that comes next."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tlog.cli_output import answer, read_file, write_file
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from tlog.certificates import KeyList
    from tlog.cose_keys import CoseKey, CoseSigner

COMMANDS: Final = ("rotate", "root", "mirror", "restore", "succeed", "keys")
ROTATED_USES: Final = ("issuer", "receipt", "manifest")
# Those of `log root` that need no home: they run where the root is.
OFFLINE: Final = ("init", "show", "sign")
DEADLINE_SECONDS: Final = 10.0
_DAY_SECONDS: Final = 86_400
_DEFAULT_LIFE_DAYS: Final = 3 * 365
_MAX_PASSPHRASE_BYTES: Final = 4096
_ALGORITHMS: Final = {"ed25519": -8, "es256": -7, "ml-dsa-44": -48}


class LogOperator(Protocol):
    """What these commands need of whoever owns the home."""

    def describe_keys(self) -> Mapping[str, Any]: ...

    def rotate(self, use: str, root: CoseSigner | None, deadline_seconds: float) -> Mapping[str, Any]: ...

    def request_key_list(self, life_seconds: int, deadline_seconds: float) -> bytes: ...

    def install_key_list(
        self, data: bytes, root: CoseKey | None, deadline_seconds: float
    ) -> Mapping[str, Any]: ...

    def certify(self, root: CoseSigner, life_seconds: int, deadline_seconds: float) -> Mapping[str, Any]: ...

    def set_mirror(self, folder: str) -> Mapping[str, Any]: ...

    def describe_mirror(self) -> Mapping[str, Any]: ...

    def restore_log(self, place: str | None) -> Mapping[str, Any]: ...

    def prepare_succession(self, origin: str | None) -> Mapping[str, Any]: ...

    def succeed(self, origin: str | None, deadline_seconds: float) -> Mapping[str, Any]: ...


def add_key_commands(commands: Any) -> None:
    """Adds the commands to those of `muniment log`."""
    commands.add_parser("keys", help="which keys sign, which have signed, and until when")
    rotate = commands.add_parser("rotate", help="sign with another key from now on")
    rotate.add_argument("use", choices=ROTATED_USES)
    _add_root(rotate, "--root")
    _add_deadline(rotate)
    mirror = commands.add_parser("mirror", help="a second place that gets everything public first")
    mirror.add_argument(
        "--to", metavar="DIR|s3://…", help="the mirror from now on; brought up to date at once"
    )
    restore = commands.add_parser(
        "restore", help="bring the log up to a newer copy of it, such as its mirror"
    )
    restore.add_argument(
        "--from", dest="place", metavar="DIR|URL|s3://…", help="the copy (else the mirror of this home)"
    )
    succeed = commands.add_parser("succeed", help="end this log, and begin one with another key in its place")
    succeed.add_argument("--origin", metavar="NAME", help="what the new log is called (else a random name)")
    succeed.add_argument(
        "--prepare", action="store_true", help="only make the new key, for witnesses to be told of it"
    )
    _add_deadline(succeed)
    root = commands.add_parser("root", help="the key, kept elsewhere, that certifies the others")
    _add_root_commands(root.add_subparsers(dest="root_command", metavar="COMMAND", required=True))


def _add_root_commands(commands: Any) -> None:
    init = commands.add_parser("init", help="make a root key in a file, to be kept away from the home")
    init.add_argument("file", metavar="FILE")
    init.add_argument("--algorithm", choices=tuple(_ALGORITHMS), default="ed25519")
    init.add_argument("--passphrase-file", metavar="FILE", help="encrypt it with what the file says")
    show = commands.add_parser("show", help="the public key of a root")
    _add_root(show, "file")
    request = commands.add_parser("request", help="what the root has to sign next")
    request.add_argument("-o", "--output", metavar="FILE", required=True)
    _add_life(request)
    _add_deadline(request)
    sign = commands.add_parser("sign", help="sign a request, where the root is")
    _add_root(sign, "file")
    sign.add_argument("--request", metavar="FILE", required=True)
    sign.add_argument("--after", metavar="FILE", help="the list signed before: nothing in it may live longer")
    sign.add_argument("-o", "--output", metavar="FILE", required=True)
    install = commands.add_parser("install", help="take over what the root signed")
    install.add_argument("file", metavar="FILE")
    install.add_argument("--root-key", metavar="BASE64", help="the root's public key, the first time")
    _add_deadline(install)
    certify = commands.add_parser("certify", help="request, sign and install at once, with the root at hand")
    _add_root(certify, "file")
    _add_life(certify)
    _add_deadline(certify)


def _add_root(parser: Any, name: str) -> None:
    parser.add_argument(name, metavar="FILE", help="the file of the root key")
    parser.add_argument("--passphrase-file", metavar="FILE", help="the file of its passphrase")


def _add_deadline(parser: Any) -> None:
    parser.add_argument("--deadline", type=float, default=DEADLINE_SECONDS, metavar="SECONDS")


def _add_life(parser: Any) -> None:
    parser.add_argument("--life", type=int, default=_DEFAULT_LIFE_DAYS, metavar="DAYS")


def run_key_command(args: argparse.Namespace, operator: LogOperator | None) -> int:
    """Runs one of these commands and gives its exit code; `operator` is None for those that need no home."""
    if args.log_command == "root" and args.root_command in OFFLINE:
        offline: dict[str, Callable[[argparse.Namespace], int]] = {
            "init": _root_init,
            "show": _root_show,
            "sign": _root_sign,
        }
        return offline[args.root_command](args)
    assert operator is not None
    commands: dict[str, Callable[[argparse.Namespace, LogOperator], int]] = {
        "keys": _keys,
        "rotate": _rotate,
        "mirror": _mirror,
        "restore": _restore,
        "succeed": _succeed,
        "root request": _root_request,
        "root install": _root_install,
        "root certify": _root_certify,
    }
    name = f"root {args.root_command}" if args.log_command == "root" else args.log_command
    return commands[name](args, operator)


# Keys


def _keys(args: argparse.Namespace, operator: LogOperator) -> int:
    found = operator.describe_keys()
    return answer(args, found, _key_lines(found))


def _key_lines(found: Mapping[str, Any]) -> str:
    root = found["root"]
    lines = ["keys of no root: the trust file lists them itself" if root is None else f"root {root}"]
    for key in found["keys"]:
        end = "" if key["not_after"] is None else f" to {key['not_after']}"
        mark = "in use" if key["in_use"] else "ended" if key["until"] else "not in use"
        lines.append(f"{key['use']:<8} {key['kid']} from {key['not_before']}{end}  {mark}")
    return "".join(f"{line}\n" for line in lines)


def _rotate(args: argparse.Namespace, operator: LogOperator) -> int:
    root = None if args.root is None else _load_root(args.root, args.passphrase_file)
    done = dict(operator.rotate(args.use, root, _deadline(args)))
    said = {
        "rotated": f"{args.use}: the key {done['kid']} signs from now on, the one before has ended\n",
        "active": f"{args.use}: the key {done['kid']} signs from now on; the root has the old one's end to sign\n",
        "prepared": f"{args.use}: the key {done['kid']} is made; the root has to certify it"
        " (log root request, sign, install)\n",
    }
    return answer(args, done, said[done["state"]])


# The root


def _root_init(args: argparse.Namespace) -> int:
    from tlog.keys import make_root_key

    path = Path(args.file).absolute()
    if any((folder / "config.toml").is_file() and (folder / "keys").is_dir() for folder in path.parents):
        raise RefusedError("expected the root key outside the home: who takes the home must not have it")
    signer = make_root_key(path, _ALGORITHMS[args.algorithm], _passphrase(args.passphrase_file))
    return _show_key(args, signer.key)


def _root_show(args: argparse.Namespace) -> int:
    return _show_key(args, _load_root(args.file, args.passphrase_file).key)


def _show_key(args: argparse.Namespace, key: CoseKey) -> int:
    from tlog.ascii import encode_base64

    text = encode_base64(key.encode())
    return answer(args, {"kid": key.key_id.hex(), "cose_key": text}, f"{text}\n")


def _root_request(args: argparse.Namespace, operator: LogOperator) -> int:
    payload = operator.request_key_list(_life(args), _deadline(args))
    write_file(args.output, payload)
    return _describe_list(args, payload)


def _root_sign(args: argparse.Namespace) -> int:
    from tlog.certificates import (
        MAX_KEY_LIST_BYTES,
        decode_key_list,
        require_extends,
        sign_key_list,
        verify_key_list,
    )

    root = _load_root(args.file, args.passphrase_file)
    payload = read_file(args.request, MAX_KEY_LIST_BYTES)
    key_list = decode_key_list(payload)
    if args.after is not None:
        require_extends(key_list, verify_key_list(read_file(args.after, MAX_KEY_LIST_BYTES), root.key))
    elif key_list.number > 1:
        sys.stderr.write(
            "muniment: without --after, whether a key lives longer than certified is not checked\n"
        )
    write_file(args.output, sign_key_list(root, key_list))
    return _describe_list(args, payload)


def _describe_list(args: argparse.Namespace, payload: bytes) -> int:
    from tlog.certificates import decode_key_list

    found: KeyList = decode_key_list(payload)
    keys = [
        {
            "use": key.use,
            "kid": key.kid.hex(),
            "not_before": key.not_before,
            "not_after": key.not_after,
            "until": dict(key.until),
            "in_use": not key.until,
        }
        for key in found.keys
    ]
    document = {"store": found.store, "number": found.number, "keys": keys}
    args.output = None
    return answer(args, document, _key_lines({**document, "root": f"list {found.number} of {found.store}"}))


def _root_install(args: argparse.Namespace, operator: LogOperator) -> int:
    from tlog.ascii import decode_base64
    from tlog.certificates import MAX_KEY_LIST_BYTES
    from tlog.cose_keys import decode_key

    root = None if args.root_key is None else decode_key(decode_base64(args.root_key, "root key"))
    data = read_file(args.file, MAX_KEY_LIST_BYTES)
    return _installed(args, operator.install_key_list(data, root, _deadline(args)))


def _root_certify(args: argparse.Namespace, operator: LogOperator) -> int:
    root = _load_root(args.file, args.passphrase_file)
    return _installed(args, operator.certify(root, _life(args), _deadline(args)))


def _installed(args: argparse.Namespace, found: Mapping[str, Any]) -> int:
    more = "the root has the end of an old key to sign: log root request\n" if found["to_end"] else ""
    return answer(args, found, _key_lines(found) + more)


# Mirror and succession


def _mirror(args: argparse.Namespace, operator: LogOperator) -> int:
    found = operator.describe_mirror() if args.to is None else operator.set_mirror(args.to)
    held = f"{found['mirror']}: its checkpoint is of {found['size']} entries\n"
    text = "no mirror\n" if found["mirror"] is None else held
    return answer(args, found, text)


def _restore(args: argparse.Namespace, operator: LogOperator) -> int:
    found = operator.restore_log(args.place)
    lines = [
        f"{found['size']} entries; what is signed and not in the log goes there with the next publication"
    ]
    if found["appended"]:
        lines.append(f"{found['appended']} entries that only this copy had now stand at the end")
    if found["missing"]:
        lines.append(f"{found['missing']} statements of the log are not in this store: an audit will say so")
    return answer(args, found, "".join(f"{line}\n" for line in lines))


def _succeed(args: argparse.Namespace, operator: LogOperator) -> int:
    if args.prepare:
        done = operator.prepare_succession(args.origin)
    else:
        done = operator.succeed(args.origin, _deadline(args))
    return answer(args, done, f"{done['state']}: {done['vkey']}\n")


# Arguments


def _load_root(file: str, passphrase_file: str | None) -> CoseSigner:
    from tlog.keys import load_cose_key

    return load_cose_key(file, None, _passphrase(passphrase_file))


def _passphrase(file: str | None) -> bytes | None:
    """What the file says, its last line feed left out. An argument list would show it to everybody."""
    if file is None:
        return None
    if file == "-":
        data = sys.stdin.buffer.read(_MAX_PASSPHRASE_BYTES)
    else:
        data = read_file(file, _MAX_PASSPHRASE_BYTES)
    return data.removesuffix(b"\n")


def _deadline(args: argparse.Namespace) -> float:
    if not 0 < args.deadline < 3600:
        raise MalformedError("expected a deadline of more than 0 and less than 3600 seconds")
    return float(args.deadline)


def _life(args: argparse.Namespace) -> int:
    if not 0 < args.life < 36_500:
        raise MalformedError("expected a life of 1 to 36499 days")
    return int(args.life) * _DAY_SECONDS
