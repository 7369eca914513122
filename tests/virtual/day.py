"""A day of a small network, in which everything happens that happens in the field: links are cut and heal,
cables are pulled, nodes restart and are killed, a device is revoked and pardoned, a clock is wrong for a
while, a disk fills, a foreign device passes by. Every warning in a log or a status must have its cause.

    python -m tests.virtual.day SEED [HOURS]
"""

import asyncio
import logging
import sys
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from tests.virtual.nodes import VirtualMachine, VirtualWorld

AFTER = 200.0  # seconds that a word may stand after its cause: a device that does not fit is named for 120
HOUR_NS = 3_600 * 10**9


class Word(NamedTuple):
    """A warning, or an error, that a person reads."""

    at: float
    machine: str
    text: str


class Day:
    def __init__(self, seed: int, strategy: str = "epidemic") -> None:
        self.random = Random(seed)
        self.world = VirtualWorld(seed)
        self.machines = [
            self.world.machine(name, strategy=strategy, is_derived=True)
            for name in ("base", "hut", "car", "dog")
        ]
        # A ring: a pardon does not reach who has no neighbour but the one that it is for.
        self.pairs = list(zip(self.machines, [*self.machines[1:], self.machines[0]], strict=True))
        for one, other in self.pairs:
            self.world.link(one, other)
        self.causes: list[tuple[str, str, float, float]] = []  # machine, part of the word, from, until
        self.words: list[Word] = []
        self.happened: list[str] = []
        self._listener = _Listener(self)

    def play(self, events: Iterable[str], *, pause: float) -> "Day":
        """One after the other, with a pause of up to so many seconds between them."""
        logging.getLogger("roamcast").addHandler(self._listener)
        try:
            with self.world as world:
                for machine in self.machines:
                    machine.start()
                self._speaker()
                for machine in self.machines:
                    self._cause(machine, "no other node", 0.0, 30.0)
                world.run(120.0)
                for name in events:
                    self._event(name)
                    self._run(self.random.uniform(20.0, pause))
                self._run(2 * AFTER)
                self.last = [(one.name, one.node.status().problems) for one in self.machines if one.node]
                assert not self.world.errors, self.world.errors
        finally:
            logging.getLogger("roamcast").removeHandler(self._listener)
        return self

    def without_cause(self) -> list[Word]:
        return [word for word in self.words if not self._has_cause(word)]

    # What happens.

    def cut(self) -> None:
        """A link is gone for a while, as when people walk apart."""
        one, other = self.random.choice(self.pairs)
        self.world.link(one, other, is_up=False)
        away = self._away()
        self._run(away)
        self.world.link(one, other)
        self._all("no other node", away)

    def unplug(self) -> None:
        machine = self._any()
        machine.is_plugged = False
        cables = [pair for pair in self.pairs if machine in pair]
        for one, other in cables:
            self.world.link(one, other, is_up=False)
        away = self._away()
        self._run(away)
        machine.is_plugged = True
        for one, other in cables:
            self.world.link(one, other)
        self._cause(machine, "interface eth0 is down", self.world.now - away, 10.0)
        self._all("no other node", away)

    def restart(self) -> None:
        machine = self._any()
        machine.stop()
        self._start(machine)

    def kill(self) -> None:
        machine = self._any()
        machine.kill()
        self._start(machine)

    def revoke(self) -> None:
        """A device is lost, and found again."""
        issuer, lost = self.machines[0], self.random.choice(self.machines[1:])
        assert issuer.node is not None
        issuer.process.call_soon(issuer.node.revoke, lost.number)  # type: ignore[union-attr]
        away = self._away()
        self._run(away)
        issuer.process.call_soon(lambda: issuer.node.revoke(lost.number, undo=True))  # type: ignore[union-attr]
        self._run(60.0)
        away += 60.0
        self._all("is revoked, says", away)
        self._all("of a device that was revoked", away)
        self._cause(lost, "this node was revoked", self.world.now - away, AFTER)
        self._all("no other node", away)

    def wrong_clock(self) -> None:
        """Two hours late, as after a night without power; then it is set."""
        machine = self._any()
        machine.wall_ahead_ns = -2 * HOUR_NS
        away = self._away()
        self._run(away)
        machine.wall_ahead_ns = 0
        self._all("has a clock that is", away)

    def full_disk(self) -> None:
        machine = self._any()
        machine.disk.is_full = True
        away = 30.0 + self._away()
        self._run(away)
        machine.disk.is_full = False
        self._run(120.0)
        for part in ("octets left", "the store of events was full, or the disk"):
            self._cause(machine, part, self.world.now - away - 120.0, AFTER)

    def rain(self) -> None:
        """A third of all datagrams is lost."""
        self.world.network.loss = 0.3
        self._run(self._away())
        self.world.network.loss = 0.0

    # Private.

    def _event(self, name: str) -> None:
        began = self.world.now
        getattr(self, name)()
        self.happened.append(f"{began:8.0f} to {self.world.now:8.0f} {name}")

    def _start(self, machine: VirtualMachine) -> None:
        away = self._away()
        self._run(away)
        machine.start()
        self._run(10.0)
        self._all("no other node", away + 10.0)

    def _any(self) -> VirtualMachine:
        return self.random.choice(self.machines)

    def _away(self) -> float:
        return self.random.choice((3.0, 8.0, 30.0, 90.0, 400.0))

    def _all(self, part: str, lasting: float) -> None:
        for machine in self.machines:
            self._cause(machine, part, self.world.now - lasting, AFTER)

    def _cause(self, machine: VirtualMachine, part: str, since: float, after: float) -> None:
        self.causes.append((machine.name, part, since, self.world.now + after))

    def _has_cause(self, word: Word) -> bool:
        return any(
            machine == word.machine and part in word.text and since <= word.at <= until
            for machine, part, since, until in self.causes
        )

    def _run(self, seconds: float) -> None:
        """With a look at every status, as a person on duty takes it."""
        until = self.world.now + seconds
        while self.world.now < until:
            self.world.run(min(15.0, until - self.world.now))
            for machine in self.machines:
                if machine.node is not None:
                    for problem in machine.node.status().problems:
                        self.words.append(Word(self.world.now, machine.name, f"status: {problem.text}"))

    def _speaker(self) -> None:
        """Some messages all day, so that there is something to acknowledge and to lose."""
        first, last = self.machines[0], self.machines[-1]
        publisher, subscriber = self.world.client(first, "pub"), self.world.client(last, "sub")
        subscriber.subscribe("t/#")

        def speak() -> None:
            for qos in (0, 1):
                publisher.publish("t/x", qos)
            self.world.call_later(20.0, speak)

        self.world.call_later(5.0, speak)


EVENTS = ("cut", "unplug", "restart", "kill", "revoke", "wrong_clock", "full_disk", "rain")


class _Listener(logging.Handler):
    def __init__(self, day: Day) -> None:
        super().__init__(logging.WARNING)
        self._day = day

    def emit(self, record: logging.LogRecord) -> None:
        try:
            machine = asyncio.get_running_loop().machine.name  # type: ignore[attr-defined]
        except (RuntimeError, AttributeError):
            machine = "?"
        self._day.words.append(Word(self._day.world.now, machine, record.getMessage()))


def main(seed: int, hours: float) -> None:
    day = Day(seed)

    def events() -> Iterator[str]:
        while day.world.now < hours * 3_600:
            yield day.random.choice(EVENTS)

    day.play(events(), pause=900.0)
    lines = [*day.happened, f"{len(day.words)} words, without a cause:"]
    lines += [f"{word.at:8.0f} {word.machine:5} {word.text}" for word in day.without_cause()[:50]]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 24.0)
