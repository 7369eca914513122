"""A host whose layer only runs timers: for parts of the kit by themselves."""

from typing import Any

from roamcast.host import Layer
from roamcast.testing import FakeHost


class TimerLayer(Layer):
    def on_timer(self, name: Any) -> None:
        name.due()


def timed_host() -> FakeHost:
    host = FakeHost(1)
    host.attach(TimerLayer())
    return host
