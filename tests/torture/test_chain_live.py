"""Three real nodes in a row, a - b - c, with every strategy: how long the subscriber at c waits when a
cable was out, when b was killed, and when c was killed and its subscriber came late. Prints the seconds.

    python -m pytest tests/torture/test_chain_live.py -s
"""

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.runtime.live.air.devices import Device, Devices, until, what_is_missing

from roamcast.client.client import ClientError
from roamcast.strategy import STRATEGIES

pytestmark = pytest.mark.realtime

AWAY = 5.0  # seconds that a cable is out, or a node dead
SETTLED = 10.0  # seconds after which three nodes know each other, whatever the strategy
LIFETIME = 600.0


class Listener:
    """`roamcast subscribe` in a shell, and when each payload came."""

    def __init__(self, device: Device) -> None:
        command = device.call("subscribe", "-t", "#", "--json", "--wait", "60", "--socket", device.socket)
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.came: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def waited(self, *texts: str, since: float) -> float:
        """Seconds until the last of them was there."""
        until(lambda: self.came.keys() >= set(texts), f"{texts}, only {self.counts}")
        return max(self.came[text] for text in texts) - since

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                text = json.loads(line)["text"]
                self.came.setdefault(text, time.monotonic())
                self.counts[text] += 1


@contextmanager
def listening(device: Device) -> Iterator[Listener]:
    listener = Listener(device)
    try:
        until(lambda: device.status().subscriptions_total, f"a subscription at {device.config.stem}")
        yield listener
    finally:
        listener.close()


def published(device: Device, text: str, lifetime: float | None = LIFETIME) -> float:
    """The instant before it."""
    with device.client() as client:
        began = time.monotonic()
        client.publish(topic="chain/x", payload=text, lifetime=lifetime)
    return began


@pytest.mark.timeout(900)
@pytest.mark.parametrize("strategy", STRATEGIES.own_names())
def test_a_row_of_three_heals(strategy: str, tmp_path: Path) -> None:
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    with ExitStack() as stack:
        interfaces = {"a": '["eth0"]', "b": '["eth0", "eth1"]', "c": '["eth1"]'}
        row = Devices(
            stack, tmp_path, strategy, **{name: f"interfaces = {it}" for name, it in interfaces.items()}
        )
        row.cable("a.eth0", "b.eth0", "10.1.1")
        row.cable("b.eth1", "c.eth1", "10.1.2")
        seconds = waits(row, strategy)
    print(f"\n{strategy}", *(f"{name} {value:.2f}" for name, value in seconds.items()), sep=" | ")  # noqa: T201


def waits(row: Devices, strategy: str) -> dict[str, float]:
    seconds: dict[str, float] = {}
    a, b, c = row.by_name.values()
    row.start()
    with listening(c) as here:
        time.sleep(SETTLED)
        seconds["real-time"] = here.waited("now", since=published(a, "now", None))
        if not STRATEGIES.declared(strategy).hands_over:
            with pytest.raises(ClientError, match="does not bring events to nodes that were away"):
                published(a, "refused")
            return seconds
        seconds["memorized"] = here.waited("1", since=published(a, "1"))
        b.ip("link set eth1 down")
        published(a, "2")
        time.sleep(AWAY)
        b.ip("link set eth1 up")
        seconds["cut, healed"] = here.waited("2", since=time.monotonic())
        b.kill()
        published(a, "3")
        time.sleep(AWAY)
        began = time.monotonic()
        b.start()
        seconds["b killed, restarted"] = here.waited("3", since=began)
        c.kill()
        assert set(here.counts.values()) == {1}, here.counts
    published(a, "4")
    time.sleep(AWAY)
    began = time.monotonic()
    c.start()
    with listening(c) as late:
        seconds["c killed, all 4 at a late subscriber"] = late.waited("1", "2", "3", "4", since=began)
        time.sleep(1.0)
        assert set(late.counts.values()) == {1}, late.counts
    return seconds
