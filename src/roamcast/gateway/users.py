"""Users of a gateway: `users = { name = "password" }` in its table of the node's file."""

import hmac
from collections.abc import Mapping


def is_user(users: Mapping[str, str], name: str, password: bytes | None) -> bool:
    """Whether these are the name and the password of a user."""
    expected = users.get(name)
    # Compared even for an unknown name, so that the time taken does not reveal which names exist.
    same = hmac.compare_digest((expected or "").encode(), password or b"")
    return expected is not None and password is not None and same
