"""One number per boot. It is durable before it is used, so that no boot can repeat the nonces of another.

A node without storage, or whose storage was lost, takes its epoch from the wall clock, in eighths of a
second: this exceeds all earlier epochs, as long as the node is not restarted more often than that. If the
clock is not set either (a board without a battery), it draws a random one; `docs/use/security.md` has more
on lost storage.
"""

import secrets
from collections.abc import Callable, MutableMapping

from roamcast.errors import InputError
from roamcast.sealing.frame import EPOCH_MAX

STABLE_KEY = "sealing epoch"
CLOCK_BEGINS = 1_767_225_600  # Unix time of 2026-01-01, UTC; an earlier time means that the clock is not set
PER_SECOND = 8  # 32 bits then last until 2043
RANDOM_BELOW = 2**31  # a random first epoch leaves half of the numbers for later boots


def reserve_epoch(
    stable: MutableMapping[str, bytes],
    unix_time: float = 0.0,
    draw: Callable[[int], int] = secrets.randbelow,
) -> int:
    """The epoch of this boot; durable on return. `unix_time`: the wall clock, in seconds."""
    stored = stable.get(STABLE_KEY)
    if stored is not None:
        epoch = int.from_bytes(stored, "big") + 1
    elif unix_time >= CLOCK_BEGINS:
        epoch = 1 + int((unix_time - CLOCK_BEGINS) * PER_SECOND)
    else:
        epoch = 1 + draw(RANDOM_BELOW)
    if epoch > EPOCH_MAX:
        raise InputError("storage", "has used up all epochs of this identity; generate a new identity")
    stable[STABLE_KEY] = epoch.to_bytes(4, "big")
    return epoch
