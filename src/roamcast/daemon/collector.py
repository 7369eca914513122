"""Python's collector of cycles, set so that it holds up no event for long.

A busy node remembers hundreds of thousands of event numbers, and a pass over all of them takes tenths of a
second. None of them is in a cycle: they go by their reference counts. So young objects are looked at often,
a few thousand at a time (milliseconds); what has survived two looks is put aside (`gc.freeze`) and looked
at again only every ten minutes, for the sake of closed connections, which do leave cycles.
"""

import asyncio
import gc
from typing import Any

YOUNG = 2_000  # objects; a first look
SECOND_LOOK = 5  # first looks
NEVER = 1_000_000
FULL_EVERY = 600.0  # seconds

_USUAL = gc.get_threshold()
_full: asyncio.TimerHandle | None = None


def calm(loop: asyncio.AbstractEventLoop) -> None:
    """Once everything is loaded: that stays for good."""
    gc.set_threshold(YOUNG, SECOND_LOOK, NEVER)
    if _put_aside not in gc.callbacks:
        gc.callbacks.append(_put_aside)
    _look_at_all(loop)


def as_usual() -> None:
    if _full is not None:
        _full.cancel()
    if _put_aside in gc.callbacks:
        gc.callbacks.remove(_put_aside)
    gc.set_threshold(*_USUAL)
    gc.unfreeze()


def _put_aside(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == 1:
        gc.freeze()


def _look_at_all(loop: asyncio.AbstractEventLoop) -> None:
    global _full
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _full = loop.call_later(FULL_EVERY, _look_at_all, loop)
