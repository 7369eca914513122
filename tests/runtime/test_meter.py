"""Functions that hang are stopped, and the clock that is asked is the right one."""

import signal
import threading
import time
from typing import NoReturn

import pytest

from roamcast.event import Event
from roamcast.modulator import Content, Guard, Modulator, ModulatorError
from roamcast.modulator.guard import OverTimeError
from roamcast.runtime.meter import LiveMeter, SimMeter
from roamcast.units import MILLISECOND, SECOND

pytestmark = pytest.mark.realtime

CONTENT = Content({"a": 1})


def spin() -> NoReturn:
    while True:
        pass


def stubborn() -> NoReturn:
    while True:
        try:
            spin()
        except Exception:
            continue


def swallow_everything_once() -> NoReturn:
    try:
        spin()
    except BaseException:
        spin()


def test_in_sim_time_is_the_model_s() -> None:
    assert SimMeter(SECOND).run(lambda: CONTENT, 700) == (CONTENT, 700)
    with pytest.raises(OverTimeError, match="cost is 1000001"):
        SimMeter(SECOND).run(lambda: CONTENT, 1_000_001)


def test_live_time_is_the_processor_s() -> None:
    content, took = LiveMeter(SECOND).run(lambda: time.sleep(0.02), 7)
    assert content is None and 20 * MILLISECOND <= took < SECOND


@pytest.mark.parametrize("hang", [spin, stubborn, swallow_everything_once])
def test_what_hangs_is_stopped(hang: object) -> None:
    assert callable(hang)
    for meter in (SimMeter(SECOND, hang_limit=50 * MILLISECOND), LiveMeter(50 * MILLISECOND)):
        began = time.monotonic()
        with pytest.raises(OverTimeError, match="stopped after 50000"):
            meter.run(hang, 10)
        assert time.monotonic() - began < 5
    time.sleep(0.12)  # no alarm is left behind


def test_an_exception_passes_and_the_alarm_of_another_goes_on() -> None:
    rang = []
    before = signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(ZeroDivisionError):
            LiveMeter(SECOND).run(lambda: 1 // 0, 0)
        time.sleep(0.2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rang == [1]


def test_off_the_main_thread_slowness_is_found_out_afterwards() -> None:
    found: list[object] = []

    def work() -> None:
        try:
            LiveMeter(10 * MILLISECOND).run(lambda: time.sleep(0.03), 0)
        except OverTimeError as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(found) == 1


def test_the_guard_tells_the_owner() -> None:
    class Hangs(Modulator):
        def process(self, event: Event) -> Content | None:
            spin()

    with pytest.raises(ModulatorError, match="took too long"):
        Guard(SimMeter(SECOND, hang_limit=30 * MILLISECOND)).run(Hangs(), Event(1, 1))
