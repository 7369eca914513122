"""Worlds for tests of parts of a live node: this machine, with what a test holds in its own hands."""

import asyncio
import time
from random import Random

from roamcast.runtime.live.linux import LinuxMachine, LinuxNetwork, LocalDisk
from roamcast.runtime.live.world import MachineClock, NodeDisk, NodeNetwork, NodeWorld
from roamcast.units import Micros


class HandClock:
    """Shows `now`, in microseconds; `began` is the wall clock's time then."""

    def __init__(self, now: Micros = 0, began: Micros = 0) -> None:
        self.now = now
        self.began = began

    def monotonic_ns(self) -> int:
        return self.now * 1_000

    def time_ns(self) -> int:
        return (self.began + self.now) * 1_000


def world(
    loop: asyncio.AbstractEventLoop,
    *,
    clock: MachineClock = time,
    disk: NodeDisk | None = None,
    network: NodeNetwork | None = None,
) -> NodeWorld:
    return NodeWorld(loop, clock, disk or LocalDisk(), network or LinuxNetwork(), LinuxMachine(), Random(1))
