"""A node's storage that is killed again and again; run as a program by `test_storage_killed.py`.

Each boot is a process of its own: it takes an epoch, numbers and keeps memorized events, and reports what it
used at once, and what is durable when it may be acknowledged. It is killed at a random instant. The next boot
must find everything that was acknowledged, and use no number again. Some events are retained, and take the
place of the one before of their topic: of each topic the next boot must find one, the last that was
acknowledged or a later one.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from roamcast.broker.core import Broker, Delivery
from roamcast.broker.store import StoreFullError
from roamcast.event import Publication, Value
from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.storage.database import DurableEventStore, NodeStorage
from roamcast.sealing import reserve_epoch
from roamcast.testing import FakeHost
from roamcast.units import SECOND

LIFETIME = 3_600 * SECOND


class Nobody:
    def on_event(self, delivery: Delivery) -> None:
        pass


def live(path: Path, report: int, seed: int) -> None:
    chance = random.Random(seed)
    storage = NodeStorage(LocalDisk(), path)
    os.write(report, b"epoch %d\n" % reserve_epoch(storage.stable, time.time()))
    host = FakeHost(1, stable=storage.stable)
    store = DurableEventStore(storage, 0, lambda: time.time_ns() // 1_000, entries_max=10**6)
    for kept in store.standing(0):
        os.write(report, b"found %d %s\n" % (kept.event.sequence, kept.event.topic.encode()))
    os.write(report, b"ready\n")
    broker = Broker(host, Nobody(), store=store)
    stamp = time.time_ns()
    while True:
        for _ in range(chance.randint(1, 4)):
            topic = chance.choice(["", "a", "b"])
            stamp += 1
            attributes: dict[str, Value] = {"mqtt": 4, "mqtt.at": stamp} if topic else {}
            event = broker.create(Publication(attributes, bytes(200), topic, lifetime=LIFETIME))
            os.write(report, b"used %d\n" % event.sequence)
            broker.keep(event, 0)
            line = b"durable %d %s\n" % (event.sequence, topic.encode())

            def tell(error: StoreFullError | None, line: bytes = line) -> None:
                assert error is None
                os.write(report, line)

            storage.on_durable(tell)
        time.sleep(
            chance.uniform(0.0, 0.003)
        )  # the rest of the loop turn; what is told by now is told too early
        storage.commit()


def main(path: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    epochs: set[int] = set()
    used: set[int] = set()
    durable: set[int] = set()
    retained: dict[str, int] = {}  # the last that is durable, by topic
    ready = 0
    for boot in range(kills + 1):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                live(path, writing, seed + boot)
            finally:
                os._exit(3)  # only an error gets here
        os.close(writing)
        text = b""
        # Some die while they boot, most while they work.
        if chance.random() < 0.3 and boot < kills:
            time.sleep(chance.uniform(0.0, 0.03))
        else:
            while b"ready" not in text and (piece := os.read(reading, 65_536)):
                text += piece
            time.sleep(chance.uniform(0.0, 0.08))
        os.kill(child, signal.SIGKILL)
        while piece := os.read(reading, 65_536):
            text += piece
        os.close(reading)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"seed {seed}, boot {boot}: it failed by itself"
        words = [line.split() for line in text.decode().splitlines()]
        found = {int(word[1]) for word in words if word[0] == "found" and len(word) == 2}
        newest = [(word[2], int(word[1])) for word in words if word[0] == "found" and len(word) == 3]
        if ["ready"] in words:
            ready += 1
            assert durable <= found, f"seed {seed}, boot {boot}: lost {sorted(durable - found)}"
            assert len(newest) == len(dict(newest)), f"seed {seed}, boot {boot}: {newest} are kept"
            for topic, sequence in retained.items():
                kept = dict(newest).get(topic, -1)
                assert kept >= sequence, f"seed {seed}, boot {boot}: {kept} on {topic}, not {sequence}"
        for word, *values in words:
            if word in {"epoch", "used"}:
                numbers = epochs if word == "epoch" else used
                assert int(values[0]) not in numbers, f"seed {seed}, boot {boot}: {word} {values} again"
                numbers.add(int(values[0]))
            elif word == "durable" and len(values) == 1:
                durable.add(int(values[0]))
            elif word == "durable":
                retained[values[1]] = int(values[0])
    sys.stdout.write(f"{ready} {len(used)} {len(durable)} {sum(retained.values())}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
