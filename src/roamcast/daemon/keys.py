"""Fresh keys as texts, and the keys of a file by their ids."""

from pathlib import Path

from roamcast.daemon.config import load_config
from roamcast.sealing import GroupKey, Identity
from roamcast.sealing.content import ContentKey


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
