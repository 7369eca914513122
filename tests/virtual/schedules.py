"""Random schedules of the whole node: a seed chooses machines, bounds, clients, faults and what is said.

Every bound is drawn small in some schedules (stores of 5 events, queues of 3 messages, 2 in flight), so that
what is rare in the field is the rule here. Then the faults end, everyone comes back, and after a quiet time
the model is asked (`model.py`).

    python -m tests.virtual SEED            one schedule, with its faults
    python -m tests.virtual FIRST COUNT     many
"""

from random import Random
from typing import Any, NamedTuple

from tests.virtual.clients import ModelClient, WillPlan
from tests.virtual.model import Message
from tests.virtual.nodes import VirtualMachine, VirtualWorld
from tests.virtual.programs import LocalProgram

from roamcast.gateway.mqtt.packets.values import V3_1_1, V5
from roamcast.strategy import STRATEGIES

# A new strategy stands here once its schedules pass; every seed then draws anew.
DRAWN = ("chapar", "directed", "epidemic", "flooding", "odmrp", "opportunistic", "tree")
AGAIN_FROM = 100_000  # from this seed on, the clients of every second one subscribe whenever they connect
QUIET = 150.0  # seconds after which nothing more will arrive
FAULTS = (
    "kill",
    "kill at a write",
    "cut",
    "drop",
    "leave",
    "slow disk",
    "full disk",
    "clock",
    "stop",
    "weather",
)


class Played(NamedTuple):
    digest: int
    messages: int
    acknowledged: int
    deliveries: int
    out_of_order: int
    kills: int
    told: list[str]


class Schedule:
    def __init__(
        self,
        seed: int,
        *,
        strategy: str = "",
        faults: tuple[str, ...] = FAULTS,
        is_swarm: bool = True,
        has_programs: bool = True,
    ) -> None:
        """`is_swarm`: the seed draws the strategy too, and who may publish where. `has_programs`: there are
        programs on local sockets, and wills. Without them old seeds play what they played when they were
        found."""
        self.seed = seed
        self.random = random = Random(seed)
        self.swarm = Random(f"{seed} swarm") if is_swarm else None
        self.extra = Random(f"{seed} programs") if has_programs else None
        self.programs: list[LocalProgram] = []
        if not strategy:
            strategy = "epidemic" if self.swarm is None else self.swarm.choice(DRAWN)
        self.world = VirtualWorld(seed)
        self.told: list[str] = []
        self.kills = 0
        self.strategy = strategy
        self.declared = STRATEGIES.declared(strategy)
        self.world.model.keeps_order = self.declared.hands_over
        if not self.declared.survives_relays:
            self.world.model.is_waiting = self._is_waiting
        self.names = "abc"[: random.choice((1, 2, 2, 3, 3))]
        self.machines = [self._machine(name) for name in self.names]
        # A chain; sometimes everyone hears everyone.
        self.pairs = list(zip(self.machines, self.machines[1:], strict=False))
        if len(self.machines) == 3 and random.random() < 0.3:
            self.pairs.append((self.machines[0], self.machines[2]))
        for one, other in self.pairs:
            self.world.link(one, other)
        self.faults = [fault for fault in faults if random.random() < 0.5] or [random.choice(faults)]
        self.weather = self.world.network
        self.is_healed = self.is_over = False

    def _machine(self, name: str) -> VirtualMachine:
        random = self.random
        mqtt: dict[str, Any] = {}
        if random.random() < 0.5:
            mqtt["queue_messages_max"] = random.choice((1, 3, 10))
        if random.random() < 0.5:
            mqtt["inflight_max"] = random.choice((1, 2, 5))
        if random.random() < 0.5:
            mqtt["receive_maximum"] = random.choice((2, 5, 20))
        if random.random() < 0.3:
            mqtt["write_bytes_max"] = 1_024
        events_max = random.choice((5, 8, 20, 60, 10_000))
        if self.swarm is not None and len(self.names) > 1 and not self.declared.survives_relays:
            events_max = 10_000
        machine = self.world.machine(
            name,
            strategy=self.strategy,
            events_max=events_max,
            mqtt=mqtt,
            has_programs=self.extra is not None,
        )
        self.world.model.has_room &= events_max > 1_000
        if random.random() < 0.3:
            low, high = random.choice(((0.001, 0.01), (0.02, 0.06)))
            machine.disk.slow = lambda: self.random.uniform(low, high)
        machine.on_died = lambda: self._on_died(machine)
        return machine

    # Playing.

    def play(self) -> Played:
        with self.world as world:
            for machine in self.machines:
                machine.start()
            world.run(2.0)
            self._clients()
            world.run(10.0)
            rounds = self.random.randrange(2, 7)
            for _ in range(rounds):
                self._talk()
                self._fault(self.random.choice(self.faults))
                self._talk()
            self._heal()
            until, deliveries = world.now + QUIET, 0
            while world.now < until and not self._is_done():
                world.run(1.0)
                if world.model.deliveries > deliveries:
                    until, deliveries = world.now + QUIET, world.model.deliveries
            world.run(5.0)  # for what might come twice
            self._check_retained()
            self._check_receipts()
            self.is_over = True
            world.check()
            model = world.model
            return Played(
                world.digest,
                len(model.messages),
                model.acknowledged_count,
                model.deliveries,
                model.out_of_order,
                self.kills,
                self.told,
            )

    def _clients(self) -> None:
        random, world = self.random, self.world
        self.publishers: list[ModelClient] = []
        self.subscribers: list[ModelClient] = []
        is_small = any(machine.settings.node.events_max < 1_000 for machine in self.machines)
        source = self.machines[0] if is_small and self.swarm is None else None
        for number in range(random.randrange(1, 3)):
            machine = source or random.choice(self.machines)
            client = world.client(
                machine,
                f"pub{number}",
                version=random.choice((V5, V5, V3_1_1)),
                inflight_max=2,
                will=self._will(),
            )
            self.publishers.append(client)
        for number in range(random.randrange(1, 4)):
            receive = random.choice((None, None, 1, 3))
            client = world.client(
                random.choice(self.machines), f"sub{number}", receive_maximum=receive, will=self._will()
            )
            client.subscribe(random.choice(("t/#", "t/+", "t/0")), random.choice((2, 2, 2, 1)))
            client.subscribes_again = self.seed >= AGAIN_FROM and bool(self.seed & 1)
            self.subscribers.append(client)
        if self.extra is not None:
            for number in range(self.extra.randrange(1, 3)):
                program = world.program(self.extra.choice(self.machines), f"program{number}")
                program.subscribe(self.extra.choice(("t/#", "t/+", "t/0")))
                self.programs.append(program)

    def _will(self) -> WillPlan | None:
        if self.extra is None or self.extra.random() < 0.4:
            return None
        size = self.extra.choice((0, 0, 100, 2_000))
        qos = self.extra.choice((0, 1, 2, 2)) if self.declared.hands_over else 0
        return WillPlan(f"t/{self.extra.randrange(2)}", qos, self.extra.choice((0, 0, 3, 30)), size)

    def _talk(self) -> None:
        random = self.random
        for _ in range(random.randrange(5, 25)):
            client = random.choice(self.publishers)
            large = random.random() < 0.03
            size = random.choice((70_000, 200_000)) if large else random.choice((0, 0, 0, 100, 2_000, 20_000))
            if self.strategy == "chapar" and size == 20_000:
                size = 2_000  # more than it keeps, and refused: `test_chapar_refuses_what_it_would_not_keep`
            retain = random.random() < 0.1
            topic = f"r/{random.randrange(2)}/{client.name}" if retain else f"t/{random.randrange(2)}"
            qos = random.choice((1, 2, 2, 2) if retain else (0, 1, 1, 2, 2, 2))
            client.publish(topic, qos if self.declared.hands_over else 0, retain=retain, size=size)
            if self.extra is not None and self.extra.random() < 0.3:
                self._say(self.extra)
            self.world.run(random.choice((0.0, 0.0, 0.001, 0.01, 0.2)))
        self.world.run(random.uniform(0.0, 2.0))

    def _say(self, random: Random) -> None:
        """A program publishes."""
        lifetime = random.choice((0.0, 3_600.0, 86_400.0)) if self.declared.hands_over else 0.0
        size, receipts = random.choice((0, 0, 100, 2_000)), random.choice((0, 0, 0, 1, 2, 5))
        topic = f"t/{random.randrange(2)}"
        random.choice(self.programs).publish(topic, lifetime=lifetime, size=size, receipts=receipts)

    # Faults.

    def _tell(self, text: str) -> None:
        self.told.append(f"{self.world.now:9.3f} {text}")

    def _fault(self, fault: str) -> None:
        random, world = self.random, self.world
        machine = random.choice(self.machines)
        if self.extra is not None and fault in ("drop", "leave") and self.extra.random() < 0.4:
            program = self.extra.choice(self.programs)
            self._tell(f"{fault} {program.name}")
            program.leave()
            world.call_later(self.extra.choice((0.0, 0.3, 20.0)), program.come)
            return
        self._tell(f"{fault} {machine.name}")
        match fault:
            case "kill":
                world.call_later(random.uniform(0.0, 0.1), machine.kill)
            case "kill at a write":
                machine.disk.kill_at = machine.disk.points + random.randrange(60)
            case "stop":
                if machine.node is not None:
                    machine.stop()
            case "cut" if self.pairs:
                one, other = random.choice(self.pairs)
                world.link(one, other, is_up=False)
                world.call_later(random.uniform(0.5, 60.0), world.link, one, other)
            case "drop":
                random.choice(world.clients).drop()
            case "leave":
                client = random.choice(world.clients)
                client.leave(politely=random.random() < 0.5)
                world.call_later(random.uniform(0.1, 30.0), client.come)
            case "slow disk":
                machine.disk.slow = lambda: random.uniform(0.01, 0.08)
                world.call_later(10.0, self._mend_disk, machine)
            case "full disk":
                machine.disk.is_full = True
                here = (client for client in world.everyone if client.machine is machine)
                world.model.on_full_disk(world.now, *(client.name for client in here))
                world.call_later(random.uniform(0.1, 20.0), self._mend_disk, machine)
            case "clock":
                world.model.clocks_jump = True
                machine.wall_ahead_ns += random.choice((-400 * 86_400, -3_600, -5, 5, 50)) * 10**9
            case "weather":
                network = world.network
                network.loss, network.doubled = random.uniform(0.0, 0.3), random.uniform(0.0, 0.1)
                network.delays = (0.0005, random.choice((0.003, 0.05, 0.3)))

    def _on_died(self, machine: VirtualMachine) -> None:
        machine.disk.kill_at = None
        if self.is_over:
            return
        self.kills += 1
        self._tell(f"{machine.name} died after {machine.disk.points} writes")
        off = self.random.choice((0.1, 1.0, 5.0, 30.0, 70.0, 200.0))
        if self.random.random() < 0.3 and not self.is_healed:  # and dies again while it starts
            machine.disk.kill_at = machine.disk.points + self.random.randrange(30)
        self.world.call_later(off, self._start, machine)

    def _start(self, machine: VirtualMachine) -> None:
        if machine.process is None and not self.is_over:
            machine.start()

    def _mend_disk(self, machine: VirtualMachine) -> None:
        machine.disk.is_full = False
        machine.disk.slow = lambda: 0.0

    def _heal(self) -> None:
        self.is_healed = True
        network = self.world.network
        network.loss, network.doubled, network.delays = 0.0, 0.0, (0.0005, 0.003)
        for one, other in self.pairs:
            self.world.link(one, other)
        for machine in self.machines:
            self._mend_disk(machine)
            machine.disk.kill_at = None
            self._start(machine)
        for client in self.world.everyone:
            client.come()

    def _is_waiting(self, message: Message) -> bool:
        """A node that keeps what was published on it, in a store that is full, has no room for long."""
        listeners = [one.listener for one in self.machines if one.listener is not None]
        return any(
            one.message.payload == message.payload
            for listener in listeners
            for one in listener.incoming.unpublished
        )

    def _is_done(self) -> bool:
        if any(machine.node is None for machine in self.machines):
            return False
        is_idle = all(client.is_idle for client in self.world.everyone)
        return is_idle and not self.world.model.lost(self.world.now)

    def _check_retained(self) -> None:
        """A client that comes last gets the newest retained message of each topic. A full store pushes out
        what everyone has had, retained messages too."""
        if any(machine.settings.node.events_max < 1_000 for machine in self.machines):
            return
        machine = self.random.choice(self.machines)
        late = self.world.client(machine, "late", lasting=False)
        late.subscribe("r/#")
        self.world.run(10.0 if self.declared.stores_everywhere else 60.0)
        model = self.world.model
        for topic in sorted({one.topic for one in model.messages if one.retain}):
            newest = model.newest_retained(topic)
            if newest is not None and not model.has("late", newest):
                model.problem(f"late has not got {newest}, which is retained")

    def _check_receipts(self) -> None:
        """At rest, whoever wants receipts gets them of all nodes that have a subscriber."""
        model = self.world.model
        if not self.programs or not model.has_room or not self._is_done():
            return
        program = self.programs[0]
        others = model.takers("t/0") - {program.machine.number}
        if others:
            lifetime = 3_600.0 if self.declared.hands_over else 0.0
            program.publish("t/0", lifetime=lifetime, receipts=len(others))
            self.world.run(30.0)
            if others != set(program.asked[-1].nodes):
                model.problem(f"receipts of {program.asked[-1].nodes}, not of {sorted(others)}")


def play(seed: int, **options: Any) -> Played:
    return Schedule(seed, **options).play()
