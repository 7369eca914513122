"""Whole nodes in virtual time: `LiveNode`, local socket, MQTT listener, sessions and storage.

    world = VirtualWorld(seed)
    a, b = world.machine("a"), world.machine("b")
    world.link(a, b)
    a.start(); b.start()
    client = world.client(a, "pub"); …
    world.run(10.0)                       # seconds
    a.kill(); world.run(1.0); a.start()
    world.check()                         # what every client must have, and may not have (`model.py`)

Every draw follows from the seed, so a run repeats to the octet (`world.digest`). `schedules.py` plays whole
schedules of faults; `python -m tests.virtual SEED` plays one and says what happened.
"""

import logging
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.virtual import ledger
from tests.virtual.clients import ModelClient
from tests.virtual.disk import VirtualDisk
from tests.virtual.model import AnyClient, Model
from tests.virtual.network import Network, VirtualNetwork
from tests.virtual.programs import LocalProgram
from tests.virtual.timeline import ProcessLoop, Timeline

from roamcast.gateway.local.server import LocalServer
from roamcast.gateway.mqtt.listener import MqttListener
from roamcast.gateway.options import LocalOptions, MqttOptions
from roamcast.runtime.live.node import LiveNode
from roamcast.runtime.live.settings import (
    AirSettings,
    KeySettings,
    LiveSettings,
    NodeSettings,
    PartSettings,
    TraceSettings,
)
from roamcast.runtime.live.world import NodeWorld
from roamcast.sealing import GroupKey, Identity
from roamcast.strategy.base import MachineCounters

BEGAN_NS = 1_800_000_000 * 10**9  # wall clock when virtual time begins
MQTT_PORT = 1883
STATE = Path("/node/state.db")
GROUP = GroupKey(bytes(range(32))).to_text()


class VirtualWorld:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.timeline = Timeline()
        self.network = Network(self.timeline, Random(seed + 1))
        self.timeline.on_killed = self._on_killed
        self.machines: list[VirtualMachine] = []
        self.clients: list[ModelClient] = []
        self.programs: list[LocalProgram] = []
        self.outside = self.timeline.process("clients")  # programs that nothing happens to
        self.model = Model()
        self._folder = tempfile.TemporaryDirectory()  # for the names of local sockets
        self.folder = Path(self._folder.name)
        self.errors: list[str] = []  # logged with a traceback
        self._collector = _Collector(self.errors)
        logging.getLogger("roamcast").addHandler(self._collector)

    def close(self) -> None:
        logging.getLogger("roamcast").removeHandler(self._collector)
        for machine in self.machines:
            machine.kill()
        self.outside.kill()
        self._folder.cleanup()

    def __enter__(self) -> "VirtualWorld":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def now(self) -> float:
        return self.timeline.now

    @property
    def everyone(self) -> list[AnyClient]:
        return [*self.clients, *self.programs]

    @property
    def digest(self) -> int:
        """Of every datagram, with its time, and of all that clients said and heard."""
        return zlib.crc32(repr(self.model.log).encode(), self.network.carried)

    def machine(self, name: str, **settings: Any) -> "VirtualMachine":
        machine = VirtualMachine(self, name, len(self.machines) + 1, **settings)
        self.machines.append(machine)
        return machine

    def link(self, one: "VirtualMachine", other: "VirtualMachine", *, is_up: bool = True) -> None:
        pair = frozenset((one.address, other.address))
        (self.network.links.add if is_up else self.network.links.discard)(pair)

    def client(self, machine: "VirtualMachine", name: str, **options: Any) -> ModelClient:
        """A client of this machine's node, which connects at once, and again whenever the connection ends."""
        client = ModelClient(self, machine, name, **options)
        self.clients.append(client)
        return client

    def program(self, machine: "VirtualMachine", name: str) -> LocalProgram:
        """A program on this machine's local socket, which connects again whenever the connection ends."""
        program = LocalProgram(self, machine, name)
        self.model.programs.add(name)
        self.programs.append(program)
        return program

    def run(self, seconds: float, is_over: Callable[[], bool] | None = None) -> None:
        self.timeline.run(self.now + seconds, is_over)

    def call_later(self, seconds: float, action: Callable[..., object], *arguments: object) -> None:
        """Something that happens in this world by itself."""
        self.outside.call_later(seconds, action, *arguments)

    def check(self) -> None:
        """All that must be true now, if the world has been quiet for long enough."""
        problems = [*self.timeline.faults, *self.errors, *self.model.problems(self.now)]
        for machine in self.machines:
            if machine.node is not None and machine.listener is not None:
                problems += ledger.problems(machine.name, machine.node.counters)
        assert not problems, f"seed {self.seed}: " + "; ".join(problems[:10])

    def _on_killed(self, loop: ProcessLoop) -> None:
        self.network.killed(loop)
        loop.machine.died()  # type: ignore[attr-defined]


class VirtualMachine:
    """A machine with one node. It outlives the node's processes."""

    def __init__(
        self,
        world: VirtualWorld,
        name: str,
        number: int,
        *,
        strategy: str = "epidemic",
        is_derived: bool = False,
        events_max: int = 10_000,
        mqtt: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        trace: TraceSettings | None = None,
        has_programs: bool = False,
    ) -> None:
        """`has_programs`: its node has a local socket."""
        self.world = world
        self.name = name
        identity = Identity(bytes([number] * 32), None if is_derived else number)
        self.number = identity.node
        self.address = f"10.0.0.{number}"
        self.is_plugged = True  # whether its interface has a cable
        self.disk = VirtualDisk()
        self.wall_ahead_ns = 0  # of the wall clock
        self.boots = 0
        self._let_pass = 0  # by earlier processes
        self.deaths: list[float] = []
        self.process: ProcessLoop | None = None
        self.node: LiveNode | None = None
        self.listener: MqttListener | None = None
        self.local: LocalServer | None = None
        self.has_programs = has_programs
        self.on_died: Callable[[], None] = lambda: None
        self.settings = LiveSettings(
            node=NodeSettings(
                name=name if is_derived else None,
                number=None if is_derived else number,
                state=str(STATE),
                events_max=events_max,
            ),
            keys=KeySettings(identity=identity.to_text(), group=(GROUP,)),
            air=AirSettings(interface="eth0", own_port=5_000),
            strategy=PartSettings(name=strategy, options=options or {}),
            trace=trace or TraceSettings(),
        )
        self.mqtt = MqttOptions(port=MQTT_PORT, **{"qos1_lifetime": 86_400.0, **(mqtt or {})})

    @property
    def is_up(self) -> bool:
        return self.process is not None

    def start(self) -> None:
        """A new process; it may die before it is ready."""
        assert self.process is None
        self.boots += 1
        loop = self.world.timeline.process(f"{self.name}.{self.boots}")
        loop.machine = self  # type: ignore[attr-defined]
        self.process = self.disk.process = loop
        loop.create_task(self._serve(loop))

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            process = self.process
            process.kill()
            self.world.network.killed(process)
            self.died()

    def stop(self) -> None:
        """In good order."""
        node, listener, local, process = self.node, self.listener, self.local, self.process
        assert node is not None and listener is not None and process is not None

        async def leave() -> None:
            if local is not None:
                await local.stop()
            await listener.stop()
            await node.stop()

        self.world.timeline.complete(process, leave())
        if self.process is process:
            process.kill()
            self.world.network.killed(process)
            self.died()

    @property
    def let_pass(self) -> int:
        """Events that its nodes have handed over without their predecessors."""
        return self._let_pass + (0 if self.node is None else self.node.node.broker.held_back.let_pass)

    def died(self) -> None:
        self._let_pass = self.let_pass
        self.process = self.node = self.listener = self.local = None
        self.deaths.append(self.world.now)
        self.on_died()

    # Clocks, of `MachineClock`.

    def monotonic_ns(self) -> int:
        loop = self.process or self.world.outside
        return round(loop.time() * 1e9)

    def time_ns(self) -> int:
        return BEGAN_NS + self.monotonic_ns() + self.wall_ahead_ns

    # Private.

    async def _serve(self, loop: ProcessLoop) -> None:
        world = NodeWorld(
            loop,
            self,
            self.disk,
            VirtualNetwork(self.world.network, loop, self.address, lambda: self.is_plugged),
            _Unmeasured(),
            Random(f"{self.world.seed} {self.name} {self.boots}"),
        )
        node = await LiveNode.start(self.settings, Path("/"), world)
        listener = MqttListener(node, self.mqtt)
        await listener.start()
        local = None
        if self.has_programs:
            local = LocalServer(node, LocalOptions(socket=str(self.world.folder / f"{self.name}.sock")))
            await local.start()
        self.node, self.listener, self.local = node, listener, local


class _Unmeasured:
    def read(self) -> MachineCounters:
        return MachineCounters(0, None, 1, None)

    def processor_seconds(self) -> float:
        return 0.0

    def resident_bytes(self) -> int:
        return 0

    def clock_identity(self) -> str:
        return "virtual"


class _Collector(logging.Handler):
    def __init__(self, errors: list[str]) -> None:
        super().__init__()
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None:
            self._errors.append(f"{record.getMessage()}: {record.exc_info[1]!r}")
