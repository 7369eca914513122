"""Two neighbours with two interfaces each; one way is cut while events flow: what is lost, how long it takes.

    python -m benchmarks.paths [--runs 3]

Whole nodes in network namespaces (root). An event every 10 ms; after 1.5 s the way by `eth0` is cut: at a
switch, so that neither end notices by itself, or by taking the interface down. What a frame in a TCP link
waits is seen with events of 20 kB, which `chapar` sends over links. The longest time from `publish` to a
subscriber after the cut is the time to heal; the median before the cut is what an event takes anyway.
"""

import argparse
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.runtime.live.air.devices import Devices, until, what_is_missing

EVENTS, CUT = 300, 150
INTERVAL = 0.01
CASES = [
    ("epidemic", "switch", 100),
    ("tree", "switch", 100),
    ("chapar", "switch", 100),
    ("chapar", "switch", 20_000),
    ("chapar", "device", 20_000),
]


def run(strategy: str, cut: str, size: int) -> tuple[int, int, float, float]:
    """Lost, doubled, the median before the cut, the longest after it, in seconds."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        air = f'interfaces = ["eth0", "wlan0"]\n[strategy]\nname = "{strategy}"'
        net = Devices(stack, folder, alice=air, bob=air)
        wire = net.switch("eth0", "10.1.0")
        net.switch("wlan0", "10.2.0")
        alice, bob = net.by_name.values()
        net.start()
        until(lambda: "eth0" in alice.reached() and "eth0" in bob.reached(), "eth0 is preferred")
        publisher, subscriber = stack.enter_context(alice.client()), stack.enter_context(bob.client())
        events = stack.enter_context(subscriber.subscribe(topic="n"))
        got: dict[int, list[float]] = {}
        warm = threading.Event()

        def listen() -> None:
            try:
                while True:
                    number = int(events.next(6.0).event.payload[:8])
                    got.setdefault(number, []).append(time.monotonic())
                    warm.set()
            except TimeoutError:
                pass

        listener = threading.Thread(target=listen)
        listener.start()
        while not warm.wait(0.2):
            publisher.publish(topic="n", payload=f"{EVENTS:08d}", lifetime=60.0)
        sent: list[float] = []
        for number in range(EVENTS):
            if number == CUT and cut == "switch":
                wire.ip("link set alice nomaster")
            elif number == CUT:
                alice.ip("link set eth0 down")
            sent.append(time.monotonic())
            publisher.publish(topic="n", payload=f"{number:08d}" + "x" * size, lifetime=60.0)
            time.sleep(INTERVAL)
        listener.join()
        got.pop(EVENTS, None)
        waits = {number: times[0] - sent[number] for number, times in got.items()}
        doubled = sum(len(times) > 1 for times in got.values())
        before = [wait for number, wait in waits.items() if number < CUT]
        after = [wait for number, wait in waits.items() if number >= CUT]
        return EVENTS - len(got), doubled, median(before), max(after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    missing = what_is_missing()
    if missing is not None:
        raise SystemExit(missing)
    print("strategy   cut at  octets  lost  doubled  median before  longest after, of each run")
    for strategy, cut, size in CASES:
        results = [run(strategy, cut, size) for _ in range(runs)]
        lost, doubled = sum(one[0] for one in results), sum(one[1] for one in results)
        longest = "  ".join(f"{one[3] * 1_000:.0f} ms" for one in results)
        typical = f"{median(one[2] for one in results) * 1_000:.0f} ms"
        print(f"{strategy:9}  {cut:6}  {size:6}  {lost:4}  {doubled:7}  {typical:>13}  {longest}", flush=True)


if __name__ == "__main__":
    main()
