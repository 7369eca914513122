"""The small parts of the live runtime: timers, inputs, counters, addresses."""

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.runtime.live.nodes import faults, free_port, running, settings, until

from roamcast.host import TimerName
from roamcast.runtime.live import routes
from roamcast.runtime.live.air.interface import Endpoint, named
from roamcast.runtime.live.inputs import REMAINS_MIN, TRACEBACKS_PER_MINUTE, Clock, Inputs, NodeTimers
from roamcast.runtime.live.linux import LinuxNetwork
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.routes import (
    HeardAddresses,
    KernelRoutes,
    NumberedAddresses,
    numbers_of_hosts,
)
from roamcast.underlay.addresses import HostRoute, Subnet, parse_dotted
from roamcast.units import MILLISECOND, SECOND
from roamcast.wire.olsr import is_host_address


def inputs() -> Inputs:
    return Inputs(Clock(time), Counters(), lambda: None)


def test_timers_that_are_moved_again_and_again_leave_no_heap_behind() -> None:
    async def play() -> None:
        timers = NodeTimers(inputs(), asyncio.get_running_loop())
        layer = timers.layer()
        fired: list[TimerName] = []
        layer.handler = fired.append
        far = Clock(time).now + 3_600 * SECOND
        for turn in range(100):
            for name in range(100):
                layer.set(("silent", name), far + turn)
        assert len(timers) == 100
        assert len(timers._heap) <= 2 * REMAINS_MIN + 200
        for name in range(99):
            layer.cancel(("silent", name))
        layer.set(("silent", 99), 0)
        await until(lambda: fired)
        assert fired == [("silent", 99)] and len(timers) == 0
        timers.close()

    asyncio.run(play())


def test_thousands_of_timers_fire_in_order_and_none_before_its_time() -> None:
    async def play() -> None:
        made = inputs()
        timers = NodeTimers(made, asyncio.get_running_loop())
        layer = timers.layer()
        due = {name: made.clock.read() + (name * 7_919) % 50_000 for name in range(3_000)}
        fired: list[int] = []

        def on_timer(name: TimerName) -> None:
            assert isinstance(name, int)
            assert made.clock.now >= due[name]
            fired.append(name)

        layer.handler = on_timer
        for name, at in due.items():
            layer.set(name, at)
        await until(lambda: len(fired) == len(due))
        assert fired == sorted(due, key=lambda name: (due[name], name))
        timers.close()

    asyncio.run(play())


def test_a_layer_that_sets_a_timer_for_now_for_ever_does_not_keep_the_loop_to_itself() -> None:
    async def play() -> None:
        made = inputs()
        timers = NodeTimers(made, asyncio.get_running_loop())
        layer = timers.layer()
        layer.handler = lambda name: layer.set(name, 0)
        layer.set("again", 0)
        await asyncio.sleep(0.01)  # comes back only if the loop has turns for others
        timers.close()

    asyncio.run(play())


def test_a_fault_of_ours_costs_one_input_and_is_counted() -> None:
    counters = Counters()
    after: list[str] = []
    made = Inputs(Clock(time), counters, lambda: after.append("after"))

    def faulty() -> None:
        raise AssertionError("ours")

    with faults() as seen:
        made.handle(faulty)
        made.handle(lambda: after.append("handled"))
    assert [str(error) for error in seen] == ["ours"]
    assert after == ["after", "handled", "after"]
    assert counters.value("handler_errors_total") == 1
    with faults() as seen:
        for _ in range(100):
            made.handle(faulty)
    assert counters.value("handler_errors_total") == 101 and len(seen) < TRACEBACKS_PER_MINUTE
    made.close()
    made.handle(lambda: after.append("too late"))
    assert "too late" not in after


@given(st.integers(0, 2**31 - 1))
@hypothesis_settings(max_examples=200)
def test_every_number_has_an_address_that_olsr_may_carry(number: int) -> None:
    addresses = NumberedAddresses()
    address = addresses.address(number)
    assert is_host_address(address) and addresses.node(address) == number
    assert number >= 2**24 - 2 or address == Subnet().address(number)


def test_the_routing_table_of_this_machine_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KernelRoutes().routes()  # whatever it is
    route, arp = tmp_path / "route", tmp_path / "arp"
    route.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "wlan0\t0300000A\t0200000A\t0007\t0\t0\t2\tFFFFFFFF\t0\t0\t0\n"
    )
    arp.write_text(
        "IP address       HW type     Flags       HW address            Mask     Device\n"
        "10.0.0.2         0x1         0x2         02:00:00:00:00:02     *        wlan0\n"
    )
    monkeypatch.setattr(routes, "ROUTES", route)
    monkeypatch.setattr(routes, "LINK", arp)
    two, three = parse_dotted("10.0.0.2"), parse_dotted("10.0.0.3")
    assert KernelRoutes().routes() == [HostRoute(three, two, 2), HostRoute(two, None, 1)]


@pytest.mark.realtime
def test_hosts_are_numbered_by_their_addresses_where_ours_says_so() -> None:
    async def play() -> None:
        async with running(settings(6, port=free_port())) as (node,):
            air, peers = node.radio.air, node.radio.peers
            peers.heard(9, Endpoint("127.0.0.9", 4748, "lo"), 100, 1)
            heard = numbers_of_hosts(6, air, peers)
            assert isinstance(heard, HeardAddresses)
            assert heard.node(parse_dotted("127.0.0.9")) == 9 and heard.address(9) == parse_dotted(
                "127.0.0.9"
            )
            assert heard.node(parse_dotted("127.0.0.8")) is None
            air.used[0].seen = named(LinuxNetwork(), "lo", "")._replace(address="10.0.3.7", prefix=24)
            by_plan = numbers_of_hosts(6, air, peers)
            assert by_plan.node(parse_dotted("10.0.3.200")) == 199

    asyncio.run(play())


def test_a_clock_never_goes_back_and_never_shows_less_than_a_timers_time() -> None:
    clock = Clock(time)
    early = clock.now
    clock.enter_not_before(early + 10 * MILLISECOND)
    assert clock.now >= early + 10 * MILLISECOND
    before = clock.now
    clock.enter()
    assert clock.now >= before
