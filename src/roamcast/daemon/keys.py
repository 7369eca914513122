"""Keys of a file shown, its group keys changed in place, and invitations for new devices.

`roamcast key rotate` leaves the rest of the file as it is. Three steps, each on every device before the
next (`docs/use/security.md`): the new key is accepted, then used for sending, then the old ones go.

An invitation is a short text with all that a new device needs to join a network, and no identity:

    ROAMCAST: base32( checksum 32 | MessagePack of `InvitationContent` )

It holds the group key, so it is as secret as a node's file; it is short enough for a QR code. It expires, and
each has a number of its own, which the new node's file keeps: so a folder knows which it has used, and the
members of the network that two devices came by the same one.
"""

import base64
import os
import re
import secrets
import time
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from roamcast.daemon.config import load_config
from roamcast.daemon.fresh import (
    NetworkSettings,
    network_of,
    secret_from,
    sync_folder,
    write_fresh,
    write_private,
)
from roamcast.errors import FileError, InputError
from roamcast.explain import read_tables, shown
from roamcast.runtime.live.settings import PartSettings
from roamcast.runtime.live.storage.database import CLOCK_SET
from roamcast.sealing import GroupKey, Identity
from roamcast.sealing.content import ContentKey
from roamcast.sealing.identity import KEY_BYTES, from_text, to_text
from roamcast.toml_text import value_text
from roamcast.units import SECOND

_TABLE = re.compile(r"^\[keys\][^\n]*\n(?:(?!^\[).*\n?)*", re.MULTILINE)
_GROUP = re.compile(r"^group\s*=\s*\[[^\]]*\]", re.MULTILINE)


def accept_new(path: Path, *, key_file: Path | None, out: Path | None) -> GroupKey:
    """Step 1: accept another key. Without a file of it, a fresh one, which is written to `out`."""
    groups = list(load_config(path).keys.group)
    if key_file is not None:
        key = GroupKey.from_text(secret_from(key_file))
        if key.to_text() in groups:
            raise InputError(
                str(path), "accepts this key already; next: --send, once every device accepts it"
            )
    elif out is None:
        raise InputError("--out", "is missing; allowed: a new file for the fresh key, or --key-file with one")
    else:
        key = GroupKey.generate()
        write_private(out, key.to_text() + "\n")
    replace_groups(path, [*groups, key.to_text()])
    return key


def send_with_newest(path: Path) -> GroupKey:
    """Step 2: seal with the key that was added last."""
    groups = list(load_config(path).keys.group)
    if len(groups) < 2:
        raise InputError(str(path), "has one group key; first add the new one on every device")
    replace_groups(path, [groups[-1], *groups[:-1]])
    return GroupKey.from_text(groups[-1])


def keep_first(path: Path) -> GroupKey:
    """Step 3: accept nothing but the key that seals."""
    groups = list(load_config(path).keys.group)
    if len(groups) < 2:
        raise InputError(str(path), "has one group key already")
    replace_groups(path, groups[:1])
    return GroupKey.from_text(groups[0])


def replace_groups(path: Path, groups: list[str]) -> None:
    """Write the file anew with these group keys, whole or not at all."""
    text = path.read_text(encoding="utf-8")
    table = _TABLE.search(text)
    places = [] if table is None else list(_GROUP.finditer(text, table.start(), table.end()))
    if len(places) != 1:
        raise FileError(str(path), "has its group keys in a form that only a person can change: [keys] group")
    place = places[0]
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    write_private(beside, text[: place.start()] + f"group = {value_text(groups)}" + text[place.end() :])
    try:
        if list(load_config(beside).keys.group) != groups:
            raise FileError(str(path), "cannot be changed safely; change [keys] group by hand")
        os.replace(beside, path)
        sync_folder(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def fresh(kind: Literal["group", "content", "identity"]) -> str:
    """A new key as text."""
    kinds: dict[str, type[GroupKey] | type[ContentKey] | type[Identity]]
    kinds = {"group": GroupKey, "content": ContentKey, "identity": Identity}
    return kinds[kind].generate().to_text()


def described(path: Path) -> list[str]:
    """One line for each key of a node's file, without the secrets."""
    config = load_config(path)
    own = Identity.from_text(config.keys.identity, config.node.number)
    lines = [f"node      {own.node}, public key {own.public_key.hex()}"]
    for kind, texts, others in (
        (GroupKey, config.keys.group, "accepted"),
        (ContentKey, config.keys.content, "opens"),
    ):
        for number, text in enumerate(texts):
            name = kind.prefix.removesuffix(":")
            lines.append(f"{name:10}{kind.from_text(text).id:04x} ({others if number else 'seals'})")
    return lines


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
    return PREFIX + base64.b32encode(checksum(packed) + packed).decode().rstrip("=")


def read_invitation(text: str) -> Invitation:
    """What an invitation holds; `InputError` for one that is none, or damaged. It may have expired."""
    plain = "".join(text.split()).upper()  # chats and mails wrap lines
    if not plain.startswith(PREFIX) or len(plain) > LENGTH_MAX:
        raise InputError("invitation", f"is none; allowed: a text that begins with {PREFIX}")
    letters = plain.removeprefix(PREFIX)
    try:
        data = base64.b32decode(letters + "=" * (-len(letters) % 8))
        packed = data[CHECKSUM_BYTES:]
        if data[:CHECKSUM_BYTES] != checksum(packed):
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


def join(path: Path, text: str, *, interface: str | None = None, modules: bool = False) -> Path:
    """Write the file of a new node from an invitation. An expired one, or one that this folder has used, is
    refused; on a device whose clock is not set nobody can tell the first. `modules`: load those that it
    names."""
    invitation = read_invitation(text)
    if (named := invitation.network.modules) and not modules:
        raise InputError(
            "invitation",
            f"names Python modules that would run on this device: {shown(', '.join(named))};"
            " allowed: --modules, if you know them",
        )
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


def _invitation_of(path: Path) -> object:
    """The invitation in a file that may be anything; so nothing that it names is loaded."""
    try:
        keys = read_tables(path).get("keys")
    except (InputError, FileError):
        return ""
    return keys.get("invitation") if isinstance(keys, dict) else ""


def checksum(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=CHECKSUM_BYTES, person=b"roamcast invite").digest()
