"""What a real machine has done and has left, as Linux counts it (`strategy/base.py: Machine`)."""

import os
import time

from roamcast.strategy.base import MachineCounters
from roamcast.units import SECOND, Micros

IDLE = (3, 4)  # columns of /proc/stat: doing nothing, and waiting for a disk
COLUMNS = 8  # those behind are parts of others (proc(5): guest time is in user time)


class LinuxMachine:
    """Elsewhere nobody can tell what other processes do, and what memory there is."""

    def __init__(self) -> None:
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1

    def read(self) -> MachineCounters:
        process = time.process_time_ns() // 1_000
        return MachineCounters(process, self._busy(), self._processors, _available())

    def _busy(self) -> Micros | None:
        try:
            with open("/proc/stat", "rb") as file:
                ticks = [int(number) for number in file.readline().split()[1 : 1 + COLUMNS]]
        except (OSError, ValueError):
            return None
        busy = sum(number for column, number in enumerate(ticks) if column not in IDLE)
        return busy * SECOND // self._ticks


def _available() -> int | None:
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * 1_024
    except (OSError, ValueError):
        pass
    return None
