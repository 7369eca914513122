"""The small parts by themselves: the processor."""

from tests.strategy.opportunistic.station import PartLayer

from roamcast.strategy.opportunistic.modulators import Processor
from roamcast.testing import FakeHost
from roamcast.units import SECOND


def test_a_processor_works_in_order_and_its_load_is_what_was_asked_of_it() -> None:
    host = FakeHost(node=1)
    processor = Processor(host, capacity=2.0)
    host.attach(PartLayer())
    done: list[tuple[str, int]] = []
    processor.submit(0, lambda: done.append(("free", host.now())))
    processor.submit(4 * SECOND, lambda: done.append(("long", host.now())))
    processor.submit(2 * SECOND, lambda: done.append(("short", host.now())))
    processor.submit(0, lambda: done.append(("behind", host.now())))
    assert done == [("free", 0)] and processor.load() == 30  # 3 s of work in the last 10 s
    host.advance(5 * SECOND)
    assert done[1:] == [("long", 2 * SECOND), ("short", 3 * SECOND), ("behind", 3 * SECOND)]
    host.advance(6 * SECOND)
    assert processor.load() == 0
