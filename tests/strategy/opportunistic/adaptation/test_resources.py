"""What a real processor has left for modulators, by hand."""

import pytest

from roamcast.strategy.base import MachineCounters
from roamcast.strategy.opportunistic.adaptation.monitor import ProcessorWatch
from roamcast.strategy.opportunistic.stream import RoundTrips
from roamcast.testing import FakeHost
from roamcast.units import MILLISECOND, SECOND


class Laptop:
    """`own` and `others`: processors in use, on average."""

    def __init__(self, host: FakeHost, processors: int) -> None:
        self._host = host
        self.processors = processors
        self.own = self.others = 0.0

    def read(self) -> MachineCounters:
        now = self._host.now()
        return MachineCounters(
            int(now * self.own), int(now * (self.own + self.others)), self.processors, None
        )


@pytest.mark.parametrize(
    ("processors", "own", "others", "modulators", "taken"),
    [
        (2, 0.5, 0.0, 0.2, 0.3),  # the node's other work
        (2, 0.2, 1.0, 0.2, 0.0),  # another program, on the other processor
        (2, 0.2, 1.5, 0.2, 0.5),  # others leave half a processor
        (1, 0.1, 0.6, 0.0, 0.7),
        (4, 0.1, 2.9, 0.3, 0.0),  # what was still counted as modulators' is no more than all
    ],
)
def test_what_is_gone_of_one_processor(
    processors: int, own: float, others: float, modulators: float, taken: float
) -> None:
    host = FakeHost(1)
    laptop = Laptop(host, processors)
    laptop.own, laptop.others = own, others
    watch = ProcessorWatch(host, laptop)
    watch.sample()
    assert watch.taken(modulators) == 0.0  # one reading says nothing
    host.advance(4 * SECOND)
    watch.sample()
    assert watch.taken(modulators) == pytest.approx(taken)


def test_only_the_last_ten_seconds_count_and_a_model_has_no_machine() -> None:
    host = FakeHost(1)
    laptop = Laptop(host, 1)
    watch = ProcessorWatch(host, laptop)
    counters = iter([(0, 0), (9, 9), *((9, 9) for _ in range(12))])  # busy in the first second, idle since

    def read() -> MachineCounters:
        own, machine = next(counters)
        return MachineCounters(own * SECOND // 9, machine * SECOND // 9, 1, None)

    laptop.read = read  # type: ignore[method-assign]
    for second in range(13):
        watch.sample()
        if second == 1:
            assert watch.taken(0.0) == pytest.approx(1.0)
        if second == 10:
            assert watch.taken(0.0) == pytest.approx(0.1)
        host.advance(SECOND)
    assert watch.taken(0.0) == 0.0
    nothing = ProcessorWatch(host, None)
    nothing.sample()
    assert nothing.taken(0.0) == 0.0


def test_bandwidth_is_what_the_largest_messages_had() -> None:
    trips = RoundTrips()
    assert trips.bandwidth() is None
    trips.measure(64, 20 * MILLISECOND, is_alone=True)  # 10 ms each way
    trips.measure(1 << 15, 510 * MILLISECOND, is_alone=True)  # and 500 ms for 32,768 octets
    assert trips.bandwidth() == pytest.approx((1 << 15) / 0.5, rel=0.01)
