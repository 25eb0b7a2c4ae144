"""The mirror of a home: a folder with one folder for each of its logs, as the logs serve them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.chain import frozen_logs, log_number
from memory.home_names import public_log
from memory.log_places import require_own_log
from tlog.ascii import encode_base64
from tlog.errors import MalformedError
from tlog.mirror import Mirror, other_files, reaching
from tlog.note import VerifierKey, parse_vkey
from tlog.storage import DirectoryStorage

if TYPE_CHECKING:
    from memory.wiring import Home


def mirror_at(folder: str, number: int, log_key: VerifierKey) -> Mirror:
    """The mirror, below a folder, of the log with this number and key."""
    return Mirror(DirectoryStorage(Path(folder) / public_log(number)), log_key.name, (log_key,))


def set_mirror(home: Home, folder: str) -> dict[str, Any]:
    """The mirror that gets everything public first from now on, once it has all that there is, of every log.

    Raises VerificationError with code `rolled_back` if what lies there is ahead of this home, or beside it.
    """
    require_own_log(home.config, "a mirror")
    path = Path(folder).expanduser().absolute()
    if path.resolve().is_relative_to(home.path.resolve()):
        raise MalformedError("expected the mirror to lie outside the home that it is a mirror of")
    for number, log in enumerate(frozen_logs(home.config), 1):
        _catch_up(home, mirror_at(str(path), number, parse_vkey(log.vkey)), number)
    number = log_number(home.config)
    mirror = mirror_at(str(path), number, home.log_signer().verifier_key)
    with home.log().private.lock("publish"):
        _catch_up(home, mirror, number)
        if home.config.mirror != str(path):
            home.write_config(replace(home.config, mirror=str(path)))
    return describe_mirror(home)


def describe_mirror(home: Home) -> dict[str, Any]:
    """Where the mirror is and the head that it holds; nulls without one."""
    mirror = home.mirror()
    if mirror is None:
        return {"mirror": None, "size": None, "root": None}
    head = mirror.seen().head
    return {"mirror": home.config.mirror, "size": head.size, "root": encode_base64(head.root)}


def _catch_up(home: Home, mirror: Mirror, number: int) -> None:
    public = home.public_storage(number)
    with reaching():
        mirror.prepare()
    mirror.seen().catch_up(public, other_files(public))
