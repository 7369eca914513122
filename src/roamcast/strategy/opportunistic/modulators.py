"""Where modulators run: a broker's processor, and the functions of its clients on it.

Work is done in the order in which it came, one piece after the other; in `sim` a piece takes its cost divided
by the broker's capacity, so that load and queueing delay are quantities of the model. What costs nothing and
has nothing before it is done at once.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from roamcast.event import Event
from roamcast.host import Host
from roamcast.kit.protocol import Timer
from roamcast.modulator import MODULATORS, Guard, Meter, Modulator, ModulatorError, make
from roamcast.modulator.base import modulated
from roamcast.modulator.guard import OverTimeError
from roamcast.strategy.opportunistic.messages import Interest
from roamcast.units import SECOND, Micros

if TYPE_CHECKING:
    from roamcast.strategy.opportunistic.homes import HomeClient

QUEUE_MAX = 100_000
WINDOW: Micros = 10 * SECOND

Outcome = TypeVar("Outcome")


class ModelledMeter:
    """A function takes what it says it costs: the model's time. Too much of it is too long."""

    def __init__(self, limit: Micros) -> None:
        self._limit = limit

    def run(self, call: Callable[[], Outcome], modelled: Micros) -> tuple[Outcome, Micros]:
        self.check(modelled)
        return call(), modelled

    def check(self, modelled: Micros) -> None:
        if modelled > self._limit:
            raise OverTimeError(f"its cost is {modelled} microseconds, the limit {self._limit}")


class Demand:
    """How much work came in lately: a sum over a window that slides with the clock."""

    def __init__(self) -> None:
        self._parts: deque[tuple[Micros, Micros]] = deque()  # when, how much
        self._total: Micros = 0

    def add(self, now: Micros, amount: Micros) -> None:
        if amount:
            self._parts.append((now, amount))
            self._total += amount

    def total(self, now: Micros) -> Micros:
        """The processor time of the last `WINDOW`."""
        while self._parts and self._parts[0][0] <= now - WINDOW:
            self._total -= self._parts.popleft()[1]
        return self._total


class Processor:
    """First come, first served."""

    def __init__(self, host: Host, capacity: float) -> None:
        self._host = host
        self.capacity = capacity
        self._queue: deque[tuple[Micros, Callable[[], None]]] = deque()  # how long, and what then
        self._demand = Demand()
        self._timer = Timer(host, self._work)

    def submit(self, cost: Micros, work: Callable[[], None]) -> bool:
        """Do `work` when all before it is done and `cost` has passed. False: too much is waiting."""
        takes = int(cost / self.capacity)
        if not takes and not self._queue:
            work()
            return True
        if len(self._queue) >= QUEUE_MAX:
            return False
        self._queue.append((takes, work))
        self._demand.add(self._host.now(), takes)
        if len(self._queue) == 1:
            self._timer.after(takes)
        return True

    def stop(self) -> None:
        self._timer.cancel()

    def _work(self) -> None:
        # The one in front stays in the queue while it works, so that what it submits waits behind it.
        while self._queue:
            self._queue[0][1]()
            self._queue.popleft()
            if self._queue and self._queue[0][0]:
                self._timer.after(self._queue[0][0])
                return

    def on_spent(self, cost: Micros) -> None:
        """More than was submitted has been spent."""
        self._demand.add(self._host.now(), int(cost / self.capacity))

    def load(self) -> int:
        """Work of the last seconds over what can be done in them, in hundredths; overload is above 100."""
        return round(100 * self._demand.total(self._host.now()) / WINDOW)

    def waiting(self) -> int:
        """Pieces of work that are not done."""
        return len(self._queue)


class Places:
    """The modulators of a broker's clients."""

    def __init__(self, meter: Meter, on_failure: "Callable[[HomeClient, int, str], None]") -> None:
        """`on_failure` gets the client, the subscription and what is wrong; the modulator is stopped."""
        self._guard = Guard(meter)
        self._on_failure = on_failure

    def install(self, client: "HomeClient", states: dict[int, bytes] | None = None) -> None:
        """Make the instances that the client's interests ask for; those that stand go on."""
        standing, client.modulators = client.modulators, {}
        for interest in client.interests:
            if interest.modulator is None:
                continue
            number = interest.number
            if number in standing:
                client.modulators[number] = standing[number]
                continue
            client.modulators[number] = None
            if states is not None and number not in states:
                continue  # was cut off where it came from
            try:
                instance = self._guard.make(partial(make, interest.modulator))
                if states is not None:
                    self._guard.restore(instance, states[number])
                client.modulators[number] = instance
            except ModulatorError as error:
                self._on_failure(client, number, str(error))

    def knows(self, interest: Interest) -> bool:
        """Whether a subscription's modulator, if it has one, is registered in this node."""
        return interest.modulator is None or interest.modulator.name in MODULATORS.names()

    def keeps_state(self, interest: Interest) -> bool:
        """Whether a subscription's modulator remembers anything from event to event."""
        if interest.modulator is None:
            return False
        try:
            made = self._guard.make(partial(make, interest.modulator))
        except ModulatorError:
            return False  # its owner is told when it is installed
        return type(made).state is not Modulator.state

    def cost(self, client: "HomeClient", event: Event, matched: list[Interest]) -> Micros:
        """What an event will cost for one client; a function that cannot even tell is cut off."""
        total = 0
        for interest in matched:
            modulator = client.modulators.get(interest.number)
            if modulator is not None:
                try:
                    total += self._guard.cost(modulator, event)
                except ModulatorError as error:
                    self._cut_off(client, interest.number, error)
        return total

    def run(self, client: "HomeClient", number: int, event: Event) -> Event | None:
        """What the modulator of a subscription makes of an event."""
        modulator = client.modulators.get(number)
        if modulator is None:
            return None
        try:
            content, took = self._guard.run(modulator, event)
        except ModulatorError as error:
            self._cut_off(client, number, error)
            return None
        client.traffic.took += took
        return None if content is None else modulated(event, content)

    def states(self, client: "HomeClient") -> dict[int, bytes]:
        """For a handoff. A modulator that cannot give its state does not move, and its owner is told."""
        states: dict[int, bytes] = {}
        for number, modulator in client.modulators.items():
            if modulator is None:
                continue
            try:
                states[number] = self._guard.state_of(modulator)
            except ModulatorError as error:
                self._cut_off(client, number, error)
        return states

    def _cut_off(self, client: "HomeClient", number: int, error: ModulatorError) -> None:
        client.modulators[number] = None
        self._on_failure(client, number, str(error))
