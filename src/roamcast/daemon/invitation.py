"""An invitation: a short text with all that a new device needs to join a network, and no identity.

    ROAMCAST: base32( checksum 32 | MessagePack of `InvitationContent` )

It holds the group key, so it is as secret as a node's file; it is short enough for a QR code. It expires, and
each has a number of its own, which the new node's file keeps: so a folder knows which it has used, and the
members of the network that two devices came by the same one.
"""

import base64
import secrets
import time
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from roamcast.daemon.config import load_config
from roamcast.daemon.fresh import NetworkSettings, network_of, write_fresh
from roamcast.errors import FileError, InputError
from roamcast.runtime.live.settings import PartSettings
from roamcast.runtime.live.storage.database import CLOCK_SET
from roamcast.sealing import GroupKey
from roamcast.sealing.content import ContentKey
from roamcast.sealing.identity import KEY_BYTES, from_text, to_text
from roamcast.units import SECOND

PREFIX = "ROAMCAST:"
VERSION = 1
LENGTH_MAX = 4_096  # characters; chosen by us, twice what a QR code holds
NUMBER_BYTES = 8
CHECKSUM_BYTES = 4
EXPIRES_AFTER = 3_600.0  # seconds

_Key = Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]


class InvitationContent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    number: Annotated[bytes, msgspec.Meta(min_length=NUMBER_BYTES, max_length=NUMBER_BYTES)]
    expires: Annotated[int, msgspec.Meta(ge=0, lt=2**40)]  # Unix time
    group: Annotated[tuple[_Key, ...], msgspec.Meta(min_length=1, max_length=8)]
    encrypt: bool = True
    air: dict[str, Any] = {}
    strategy: tuple[str | None, dict[str, Any]] = (None, {})
    underlay: tuple[str | None, dict[str, Any]] = (None, {})
    content: Annotated[tuple[_Key, ...], msgspec.Meta(max_length=64)] = ()
    modules: tuple[str, ...] = ()


class Invitation(NamedTuple):
    number: str  # hexadecimal
    expires: int  # Unix time
    network: NetworkSettings


def invite(path: Path, *, seconds: float = EXPIRES_AFTER, with_content: bool = False) -> str:
    """A new invitation into the network of a node's file. `with_content`: its content keys too."""
    config = load_config(path)
    network = network_of(config)
    content = config.keys.content if with_content else ()
    return to_invitation_text(network, content, int(time.time() + seconds))


def to_invitation_text(network: NetworkSettings, content: tuple[str, ...], expires: int) -> str:
    packed = msgspec.msgpack.encode(
        InvitationContent(
            VERSION,
            secrets.token_bytes(NUMBER_BYTES),
            expires,
            tuple(from_text(key, GroupKey.prefix, "group key") for key in network.group),
            network.encrypt,
            network.air,
            (network.strategy.name, network.strategy.options),
            (network.underlay.name, network.underlay.options),
            tuple(from_text(key, ContentKey.prefix, "content key") for key in content),
            network.modules,
        )
    )
    return PREFIX + base64.b32encode(_checksum(packed) + packed).decode().rstrip("=")


def read_invitation(text: str) -> Invitation:
    """What an invitation holds; `InputError` for one that is none, or damaged. It may have expired."""
    plain = "".join(text.split()).upper()  # chats and mails wrap lines
    if not plain.startswith(PREFIX) or len(plain) > LENGTH_MAX:
        raise InputError("invitation", f"is none; allowed: a text that begins with {PREFIX}")
    letters = plain.removeprefix(PREFIX)
    try:
        data = base64.b32decode(letters + "=" * (-len(letters) % 8))
        checksum, packed = data[:CHECKSUM_BYTES], data[CHECKSUM_BYTES:]
        if checksum != _checksum(packed):
            raise ValueError
        content = msgspec.msgpack.decode(packed, type=InvitationContent)
    except msgspec.ValidationError:
        raise InputError("invitation", "is of another version; update Roamcast, or ask for another") from None
    except (ValueError, RecursionError):
        raise InputError("invitation", "is damaged or not complete; ask for it again") from None
    network = NetworkSettings(
        group=tuple(to_text(key, GroupKey.prefix) for key in content.group),
        encrypt=content.encrypt,
        content=tuple(to_text(key, ContentKey.prefix) for key in content.content),
        air=content.air,
        strategy=PartSettings(name=content.strategy[0], options=content.strategy[1]),
        underlay=PartSettings(name=content.underlay[0], options=content.underlay[1]),
        modules=content.modules,
    )
    return Invitation(content.number.hex(), content.expires, network)


def join(path: Path, text: str, *, interface: str | None = None) -> Path:
    """Write the file of a new node from an invitation. An expired one, or one that this folder has used, is
    refused; on a device whose clock is not set nobody can tell the first."""
    invitation = read_invitation(text)
    now = time.time()
    if now * SECOND >= CLOCK_SET and now > invitation.expires:
        ago = int(now - invitation.expires) // 60
        raise InputError("invitation", f"expired {ago} min ago by this device's clock; ask for another")
    for other in sorted(path.resolve().parent.glob("*.toml")):
        if _invitation_of(other) == invitation.number:
            raise InputError("invitation", f"was used already, for {other.name}; ask for one for each device")
    write_fresh(path, invitation.network, interface=interface, invitation=invitation.number)
    try:
        load_config(path)  # an invitation of a newer version may ask for what is not here
    except InputError:
        path.unlink()
        raise
    return path


def _invitation_of(path: Path) -> str:
    try:
        return load_config(path).keys.invitation
    except (InputError, FileError):
        return ""  # no file of a node


def _checksum(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=CHECKSUM_BYTES, person=b"roamcast invite").digest()
