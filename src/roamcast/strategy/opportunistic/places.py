"""Where modulators run: a broker's processor, and the functions of its clients on it.

Work is done in the order in which it came, one piece after the other; in `sim` a piece takes its cost divided
by the broker's capacity, so that load and queueing delay are quantities of the model. What costs nothing and
has nothing before it is done at once.
"""

from collections import deque
from collections.abc import Callable

from roamcast.errors import InputError
from roamcast.event import Event
from roamcast.host import Host, TimerName
from roamcast.modulator import Content, Guard, Meter, ModulatorError, make
from roamcast.modulator.base import modulated
from roamcast.modulator.guard import OverTimeError
from roamcast.strategy.opportunistic.clients import Client
from roamcast.strategy.opportunistic.messages import Interest
from roamcast.units import SECOND, Micros

LOAD_WINDOW: Micros = 10 * SECOND
QUEUE_MAX = 100_000


class ModelledMeter:
    """A function takes what it says it costs: the model's time. Too much of it is too long."""

    def __init__(self, limit: Micros) -> None:
        self._limit = limit

    def run(self, call: Callable[[], Content | None], modelled: Micros) -> tuple[Content | None, Micros]:
        if modelled > self._limit:
            raise OverTimeError(f"its cost is {modelled} microseconds, the limit {self._limit}")
        return call(), modelled


class Processor:
    """First come, first served. The timer is `"processor"`."""

    def __init__(self, host: Host, capacity: float) -> None:
        self._host = host
        self._capacity = capacity
        self._queue: deque[tuple[Micros, Callable[[], None]]] = deque()  # how long, and what then
        self._demanded: deque[tuple[Micros, Micros]] = deque()  # when, and how long it takes

    def submit(self, cost: Micros, work: Callable[[], None]) -> bool:
        """Do `work` when all before it is done and `cost` has passed. False: too much is waiting."""
        takes = int(cost / self._capacity)
        if not takes and not self._queue:
            work()
            return True
        if len(self._queue) >= QUEUE_MAX:
            return False
        self._queue.append((takes, work))
        if takes:
            self._demanded.append((self._host.now(), takes))
        if len(self._queue) == 1:
            self._host.set_timer("processor", self._host.now() + takes)
        return True

    def on_timer(self, name: TimerName) -> None:
        # The one in front stays in the queue while it works, so that what it submits waits behind it.
        while self._queue:
            self._queue[0][1]()
            self._queue.popleft()
            if self._queue and self._queue[0][0]:
                self._host.set_timer("processor", self._host.now() + self._queue[0][0])
                return

    def load(self) -> int:
        """Work of the last seconds over what can be done in them, in hundredths; overload is above 100."""
        now = self._host.now()
        while self._demanded and self._demanded[0][0] <= now - LOAD_WINDOW:
            self._demanded.popleft()
        return round(100 * sum(takes for _, takes in self._demanded) / LOAD_WINDOW)


class Places:
    """The modulators of a broker's clients."""

    def __init__(
        self, processor: Processor, meter: Meter, on_failure: Callable[[Client, int, str], None]
    ) -> None:
        """`on_failure` gets the client, the subscription and what is wrong; the modulator runs no more."""
        self._processor = processor
        self._guard = Guard(meter)
        self._on_failure = on_failure

    def install(self, client: Client, states: dict[int, bytes] | None = None) -> None:
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
                instance = make(interest.modulator)
                if states is not None:
                    self._guard.restore(instance, states[number])
                client.modulators[number] = instance
            except (InputError, ModulatorError) as error:
                self._on_failure(client, number, str(error))

    def cost(self, client: Client, event: Event, matched: list[Interest]) -> Micros:
        """What an event will cost for one client; a function that cannot even tell is cut off when run."""
        total = 0
        for interest in matched:
            modulator = client.modulators.get(interest.number)
            if modulator is not None:
                try:
                    total += max(int(modulator.cost(event)), 0)
                except Exception:
                    continue
        return total

    def run(self, client: Client, number: int, event: Event) -> Event | None:
        """What the modulator of a subscription makes of an event."""
        modulator = client.modulators.get(number)
        if modulator is None:
            return None
        try:
            content, took = self._guard.run(modulator, event)
        except ModulatorError as error:
            client.modulators[number] = None
            self._on_failure(client, number, str(error))
            return None
        client.took[number] = client.took.get(number, 0) + took
        return None if content is None else modulated(event, content)

    def states(self, client: Client) -> dict[int, bytes]:
        """For a handoff. A modulator that cannot give its state does not move, and its owner is told."""
        states: dict[int, bytes] = {}
        for number, modulator in client.modulators.items():
            if modulator is None:
                continue
            try:
                states[number] = self._guard.state_of(modulator)
            except ModulatorError as error:
                client.modulators[number] = None
                self._on_failure(client, number, str(error))
        return states
