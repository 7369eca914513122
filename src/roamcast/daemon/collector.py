"""Python's cyclic garbage collector, set so that it delays no event for long.

A busy node remembers hundreds of thousands of event numbers, and a pass over all of them takes tenths of a
second. None of them is in a cycle: their reference counts free them. So young objects are examined often, a
few thousand at a time (milliseconds). Objects that survived two passes are put aside (`gc.freeze`) and
examined again only every ten minutes, because asyncio's closed connections do leave small cycles.

What a burst of clients needed is given back to the system. Without that, glibc keeps freed memory between
what is still in use: of 64 MB that a thousand slow clients took, 29 stayed.
"""

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable
from typing import Any

# Chosen by us. At 10,000 events a second a first pass used to take 30 ms, which was the tail of the latency.
YOUNG = 2_000  # new objects until a first pass
SECOND_LOOK = 5  # first passes until a second pass
NEVER = 1_000_000
FULL_EVERY = 600.0  # seconds between two passes over everything
TRIM_EVERY = 30.0  # seconds; it takes about a millisecond

_USUAL = gc.get_threshold()
_full: asyncio.TimerHandle | None = None
_trim: asyncio.TimerHandle | None = None


def calm(loop: asyncio.AbstractEventLoop) -> None:
    """Call once everything is loaded: what exists then is put aside."""
    gc.set_threshold(YOUNG, SECOND_LOOK, NEVER)
    if _put_aside not in gc.callbacks:
        gc.callbacks.append(_put_aside)
    _look_at_all(loop)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:  # glibc has it
        _give_back(loop, trim)


def as_usual() -> None:
    for timer in (_full, _trim):
        if timer is not None:
            timer.cancel()
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


def _give_back(loop: asyncio.AbstractEventLoop, trim: Callable[[int], int]) -> None:
    global _trim
    trim(0)
    _trim = loop.call_later(TRIM_EVERY, _give_back, loop, trim)
