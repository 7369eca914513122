"""Fresh keys as texts, the keys of a file by their ids, and the group keys of a file changed in place.

`roamcast key rotate` leaves the rest of the file as it is. Three steps, each on every device before the
next (`docs/use/security.md`): the new key is accepted, then used for sending, then the old ones go.
"""

import os
import re
from pathlib import Path

from roamcast.daemon.config import load_config
from roamcast.daemon.fresh import secret_from, write_private
from roamcast.errors import FileError, InputError
from roamcast.sealing import GroupKey, Identity
from roamcast.sealing.content import ContentKey
from roamcast.toml_text import value_text

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
    finally:
        beside.unlink(missing_ok=True)


def fresh_group_key() -> str:
    return GroupKey.generate().to_text()


def fresh_content_key() -> str:
    return ContentKey.generate().to_text()


def fresh_identity() -> str:
    return Identity.generate().to_text()


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
