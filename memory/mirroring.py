"""The mirror of a home: a folder or a place in a bucket, and in it one for each of its logs, as the logs serve them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memory.chain import frozen_logs, log_number
from memory.home_names import public_log
from tlog.ascii import encode_base64
from tlog.errors import MalformedError
from tlog.mirror import Mirror, other_files, reaching
from tlog.note import VerifierKey, parse_vkey
from tlog.storage import DirectoryStorage

if TYPE_CHECKING:
    from memory.wiring import Home
    from tlog.storage import Storage

LOCK: Final = "keys"
BUCKET: Final = "s3://"


def mirror_at(place: str, number: int, log_key: VerifierKey) -> Mirror:
    """The mirror, below a folder or in a bucket, of the log with this number and key."""
    return Mirror(_storage(place, public_log(number)), log_key.name, (log_key,))


def _storage(place: str, name: str) -> Storage:
    if not place.startswith(BUCKET):
        return DirectoryStorage(Path(place) / name)
    from tlog.bucket import open_bucket
    from tlog.object_storage import ObjectStorage

    return ObjectStorage(open_bucket(f"{place.rstrip('/')}/{name}"))


def set_mirror(home: Home, folder: str) -> dict[str, Any]:
    """The mirror that gets everything public first from now on, once it has all that there is, of every log.

    Raises VerificationError with code `rolled_back` if what lies there is ahead of this home, or beside it.
    """
    place = _checked(home, folder)
    with home.state.lock(LOCK):
        for number, log in enumerate(frozen_logs(home.config), 1):
            _catch_up(home, mirror_at(place, number, parse_vkey(log.vkey)), number)
        number = log_number(home.config)
        mirror = mirror_at(place, number, home.log_signer().verifier_key)
        with home.log().private.lock("publish"):
            _catch_up(home, mirror, number)
            if home.config.mirror != place:
                home.state.replace({}, mirror=place)
            # What another node announced before it knew of the mirror.
            _catch_up(home, mirror, number)
    return describe_mirror(home)


def _checked(home: Home, place: str) -> str:
    """The place of a mirror, which is neither within what it is a mirror of nor around it."""
    if not place.startswith(BUCKET):
        path = Path(place).expanduser().absolute()
        if path.resolve().is_relative_to(home.path.resolve()):
            raise MalformedError("expected the mirror to lie outside the home that it is a mirror of")
        return str(path)
    from tlog.bucket import open_bucket, require_conditional

    require_conditional(open_bucket(place))
    theirs, ours = f"{place.rstrip('/')}/", f"{(home.config.log_storage or '').rstrip('/')}/"
    if theirs.startswith(ours) or ours.startswith(theirs):
        raise MalformedError("expected the mirror to lie elsewhere than the log that it is a mirror of")
    return place.rstrip("/")


def describe_mirror(home: Home) -> dict[str, Any]:
    """Where the mirror is and the head that it holds; nulls without one."""
    home.state.follow()
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
