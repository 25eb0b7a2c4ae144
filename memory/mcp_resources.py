"""What a host needs to verify on its own, as resources: the log's checkpoint, its policy, its public key.

They are what the log serves to anybody. There are no templates, and no content has an address: whoever asks for
anything else is told what there is, in the same words whether it exists or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memory.layout import CHECKPOINT, POLICY
from memory.model import Principal
from memory.principal import require
from tlog.errors import MalformedError, UnavailableError

if TYPE_CHECKING:
    from memory.wiring import Home


@dataclass(frozen=True, slots=True)
class Resource:
    """One address, and what lies there."""

    uri: str
    name: str
    description: str


RESOURCES: Final = (
    Resource(
        "muniment://log/checkpoint",
        "checkpoint",
        "The newest public checkpoint of the log, with its cosignatures (C2SP signed note)",
    ),
    Resource(
        "muniment://log/policy",
        "policy",
        "The log, and the witnesses its checkpoints need (C2SP tlog-policy)",
    ),
    Resource("muniment://log/vkey", "vkey", "The public key of the log (C2SP verifier key)"),
)


def read_resource(home: Home, principal: Principal, uri: str) -> str:
    """The text at an address. MalformedError with code `unknown_resource` for any other."""
    require(principal, "memory:read")
    name = next((one.name for one in RESOURCES if one.uri == uri), None)
    if name is None:
        known = ", ".join(one.uri for one in RESOURCES)
        raise MalformedError(f"expected one of the resources {known}", code="unknown_resource")
    if name == "vkey":
        return home.log_vkey() + "\n"
    data = home.public_storage().read(CHECKPOINT) if name == "checkpoint" else home.files.read(POLICY)
    if data is None:
        raise UnavailableError(f"there is no {name} yet; it is published some seconds after the first write")
    return data.decode("utf-8")
