"""What the owner of a home does to its log: keys, their root, its mirror, and the log that comes next."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tlog.errors import UnavailableError

if TYPE_CHECKING:
    from memory.wiring import Home
    from tlog.cose_keys import CoseKey, CoseSigner


@dataclass(frozen=True)
class Operator:
    """The commands of `muniment log` that change more than the log's contents."""

    home: Home

    def describe_keys(self) -> dict[str, Any]:
        """The keys of the home, none of them secret, and who certifies them."""
        from memory.key_rotation import describe_keys

        return describe_keys(self.home)

    def rotate(self, use: str, root: CoseSigner | None, deadline_seconds: float) -> dict[str, Any]:
        """What became of the key for a use: another one signs from now on."""
        from memory.key_rotation import rotate

        return rotate(self.home, use, root, deadline_seconds)

    def request_key_list(self, life_seconds: int, deadline_seconds: float) -> bytes:
        """What the root has to sign next."""
        from memory.key_rotation import request_key_list

        return request_key_list(self.home, life_seconds, deadline_seconds)

    def install_key_list(self, data: bytes, root: CoseKey | None, deadline_seconds: float) -> dict[str, Any]:
        """What the home does with what the root signed."""
        from memory.key_rotation import install_key_list

        return install_key_list(self.home, data, root, deadline_seconds)

    def certify(self, root: CoseSigner, life_seconds: int, deadline_seconds: float) -> dict[str, Any]:
        """The same with the root at hand."""
        from memory.key_rotation import certify

        return certify(self.home, root, life_seconds, deadline_seconds)

    def set_mirror(self, folder: str) -> dict[str, Any]:
        """The mirror that gets everything public first from now on, once it has all that there is."""
        from memory.mirroring import set_mirror

        return set_mirror(self.home, folder)

    def describe_mirror(self) -> dict[str, Any]:
        """Where the mirror is, and the head that it holds."""
        from memory.mirroring import describe_mirror

        return describe_mirror(self.home)

    def restore_log(self, place: str | None) -> dict[str, Any]:
        """The log brought up to a newer copy of it: the mirror, where no other is named."""
        from memory.log_restore import restore_from

        return restore_from(self.home, place)

    def prepare_succession(self, origin: str | None) -> dict[str, Any]:
        """Origin and vkey of the log that would come next."""
        from memory.succession import prepare

        return prepare(self.home, origin)

    def succeed(self, origin: str | None, deadline_seconds: float) -> dict[str, Any]:
        """The log that took over, and the end of the one before it."""
        from memory.succession import succeed

        done = succeed(self.home, origin, deadline_seconds)
        # Its witnesses may not know it yet; until they do, it is as a log that was never published.
        with suppress(UnavailableError):
            self.home.publish(deadline_seconds)
        return done
