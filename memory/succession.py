"""A new log in the place of an old one: a new key and origin, beginning with the head that the old one ended with.

    everything published → old log frozen → new log with its first entry → the configuration names it → old key gone

The configuration is the commit: until it names the new log, the old one is the home's log, frozen or not, and
the same call goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory.chain import FrozenLog, frozen_logs, log_number
from memory.home_names import POLICY, private_log, public_log
from memory.key_rotation import LOCK as KEYS_LOCK
from memory.layout import own_policy
from memory.log_places import prepare as prepare_place
from memory.log_places import private_of, public_of
from memory.mirroring import mirror_at
from memory.publish import drain
from tlog.ascii import encode_base64
from tlog.errors import RefusedError
from tlog.log import Log
from tlog.log_settings import LogSettings
from tlog.succession import parse_succession, sign_succession

if TYPE_CHECKING:
    from memory.wiring import Home
    from tlog.keys import Ed25519NoteSigner
    from tlog.note import VerifierKey

LOCK: Final = "succeed"
_OUTBOX: Final = "outbox"


def prepare(home: Home, origin: str | None) -> dict[str, Any]:
    """Origin and vkey of the log that would come next, for its witnesses to know it before it begins."""
    with home.state.lock(LOCK):
        key = _next_log_key(home, origin).verifier_key
    return {"state": "prepared", "origin": key.name, "vkey": key.vkey}


def succeed(home: Home, origin: str | None, deadline_seconds: float) -> dict[str, Any]:
    """The log that takes over, and the head that the one before it is frozen at.

    Raises UnavailableError with code `witness_quorum_not_met` before anything is frozen, if the last checkpoint
    of the old log does not get its cosignatures.
    """
    home.state.follow()
    asked = home.origin
    # Keys, too: what a new log begins with is signed by a key that does not end meanwhile.
    with home.state.lock(KEYS_LOCK), home.state.lock(LOCK):
        if home.origin == asked:
            _succeed(home, _next_log_key(home, origin), deadline_seconds)
        elif origin not in (None, home.origin):
            raise RefusedError("another log has taken the place of this one meanwhile", code="origin")
        key, ended = home.log_signer().verifier_key, frozen_logs(home.config)[-1]
    return {
        "state": "succeeded",
        "origin": key.name,
        "vkey": key.vkey,
        "frozen": {"origin": ended.origin, "size": ended.size, "root": encode_base64(ended.root)},
    }


def _succeed(home: Home, signer: Ed25519NoteSigner, deadline_seconds: float) -> None:
    old, old_key = home.log(), home.log_signer().verifier_key
    with old.private.lock(_OUTBOX, deadline_seconds):
        if old.frozen() is None:
            drain(home.parts().store, old, home.first_position)
            old.publish(deadline_seconds)
        head = old.freeze()
    ended = FrozenLog(old_key.vkey, head.size, head.root)
    _begin(home, signer, ended)
    number = log_number(home.config)
    _take_over(home, signer.verifier_key, ended)
    home.state.remove_log_key(number)


def _next_log_key(home: Home, origin: str | None) -> Ed25519NoteSigner:
    if origin == home.origin:
        raise RefusedError("expected the new log to have an origin of its own", code="origin")
    return home.state.make_log_key(log_number(home.config) + 1, origin)


def _begin(home: Home, signer: Ed25519NoteSigner, ended: FrozenLog) -> None:
    """Returns once the new log has its first entry, and its mirror, if there is one, is prepared."""
    number, key = log_number(home.config) + 1, signer.verifier_key
    if home.config.mirror is not None:
        mirror_at(home.config.mirror, number, key).prepare()
    if home.config.log_storage is None:
        for name in (public_log(number), private_log(number)):
            (home.path / name).mkdir(mode=0o700, exist_ok=True)
    prepare_place(home.config, number, key.name)
    public = public_of(home.path, home.config, number, key.name)
    private = private_of(home.path, home.config, number, key.name)
    log = Log(public, private, LogSettings(key.name, (signer,)))
    log.recover()
    if log.head().size == 0:
        config = home.config
        log.append([sign_succession(home.issuer_signer(), config.issuer, config.subject, ended.end, key)])
    parse_succession(log.read_entry(0), ended.end, key)
    log.recover()
    log.close()


def _take_over(home: Home, log_key: VerifierKey, ended: FrozenLog) -> None:
    """The log with this key is the home's log from now on; policy and trust list it and those before it."""
    policy = home.policy()
    if log_key.vkey not in {log.key.vkey for log in policy.logs}:
        policy = own_policy(f"log {log_key.vkey}\n{policy.text}", log_key.vkey, ended.vkey)
    files = {POLICY: policy.text.encode("utf-8", "surrogateescape")}
    home.state.replace(files, origin=log_key.name, frozen=(*home.config.frozen, ended.line))
