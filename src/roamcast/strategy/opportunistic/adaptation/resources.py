"""How much of a real processor is not there for modulators (overlays, 3.3: CPU load).

A model's processor does nothing else. A real one also does the rest of this node's work, and that of other
programs, which matters as soon as they leave no processor free. What is gone is a part of a broker's load,
so that clients keep away from a machine that is busy with something else.
"""

from collections import deque

from roamcast.host import Host
from roamcast.strategy.base import Machine, MachineCounters
from roamcast.strategy.opportunistic.homes.demand import WINDOW
from roamcast.units import Micros


class ProcessorWatch:
    """Over the last seconds, as all loads."""

    def __init__(self, host: Host, machine: Machine | None) -> None:
        self._host = host
        self._machine = machine
        self._read: deque[tuple[Micros, MachineCounters]] = deque()

    def sample(self) -> None:
        if self._machine is None:
            return
        now = self._host.now()
        self._read.append((now, self._machine.read()))
        while len(self._read) > 2 and self._read[1][0] <= now - WINDOW:
            self._read.popleft()

    @property
    def is_known(self) -> bool:
        """Whether there are two readings to compare."""
        return len(self._read) >= 2

    def taken(self, modulators: float) -> float:
        """The share of one processor that is gone for other reasons than modulators, which take that much."""
        if not self.is_known:
            return 0.0
        (began, before), (ended, after) = self._read[0], self._read[-1]
        span = max(ended - began, 1)
        own = (after.process - before.process) / span
        others = 0.0
        if before.machine is not None and after.machine is not None:
            others = max((after.machine - before.machine) / span - own, 0.0)
        # As long as others leave one processor alone, they take nothing from a node that uses one.
        return max(own - modulators, 0.0) + max(others - (after.processors - 1), 0.0)
