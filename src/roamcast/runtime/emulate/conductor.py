"""The conductor: starts all parts, sets time zero, kills and restarts nodes as the scenario says, stops all.

Each node is a real `roamcast node` process in its own namespace, each with a state folder that outlives its
crashes. Time zero is `SETTLING` after all of them have answered. Until then the ether carries nothing, so a
run begins as in the simulator: every node is up and knows no other. All children end with this process,
however it ends.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from roamcast.client import ClientError
from roamcast.plugins import load_modules, shipment
from roamcast.runtime.emulate.applications import NodeApplication, play
from roamcast.runtime.emulate.namespaces import INTERFACE, Namespace, die_with_parent, enter
from roamcast.runtime.emulate.real_time import monotonic, percentile
from roamcast.runtime.emulate.stage import SOCKET, EmulationError, PartJournal, Stage
from roamcast.scenario.model import FaultKind, Scenario
from roamcast.scenario.workload import FaultPlan, faults, roles
from roamcast.sealing import GroupKey, Identity
from roamcast.toml_text import tables_text
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

SETTLING = SECOND
"""Between the last node's first answer and time zero, for start-up work that is not finished. This and the
times below are chosen by us; longer ones cost time at the start or end of a run and nothing else."""
STOPPING = 5.0  # seconds that a node has to stop by itself
ENDING = 10.0  # seconds that the ether has, after all others, to close its journal
PROGRESS = 0.25  # seconds between two reports
STARTED_AT_ONCE = 4  # nodes; a start is all computation, so more would only compete for the processors
CONTROL_BYTES_MAX = 1000  # of a line; a request for a fault has some twenty
LEAD = 100 * MILLISECOND  # the ether gets time zero this long before it, at least

FILE = "node.toml"
LOG = "log"
TRACE_BYTES_MAX = 2**36  # large enough that no segment goes: a run needs its whole trace
TRACED_RUN = "emulated"
PRIVATE = 0o600

Tell = Callable[..., None]
FAULT = re.compile(r"(cut|heal) (\d{1,3})-(\d{1,3})|(crash|restart) (\d{1,3})", re.ASCII)


def conduct(scenario: Scenario, namespaces: list[Namespace], stage: Stage, tell: Tell) -> None:
    """Play the whole scenario. Raises `EmulationError` when a part fails."""
    asyncio.run(Conductor(scenario, namespaces, stage, tell).run())


class Conductor:
    def __init__(self, scenario: Scenario, namespaces: list[Namespace], stage: Stage, tell: Tell) -> None:
        self._scenario = scenario
        self._stage = stage
        self._tell = tell
        self._epoch = self._zero = monotonic()
        self._journal = PartJournal(stage.applications)
        self._nodes = [NodeProcess(space, stage.of(space.node)) for space in namespaces]
        self._connecting: dict[NodeId, asyncio.Future[None]] = {}
        self._ether = EtherProcess(stage, [space.tap for space in namespaces])
        self._applications = [
            NodeApplication(node.number, node.socket, self._journal, self._clock) for node in self._nodes
        ]

    async def run(self) -> None:
        finished = False
        try:
            await self._ready()
            self._zero = monotonic() + SETTLING
            self._ether.begin(self._zero)
            self._journal.write("zero", self._epoch, self._zero)
            await asyncio.sleep((self._zero - monotonic()) / SECOND)
            await self._play()
            finished = True
        finally:
            for application in self._applications:
                await application.close()
            await self._stop()
            self._ether.stop(ENDING if finished else 0.0)
            self._write_delays()
            self._journal.close()

    # The beginning.

    async def _ready(self) -> None:
        configuration = Configuration(self._scenario, self._stage.traces, epoch=self._epoch)
        for node in self._nodes:
            configuration.write(node.number, node.folder)
        self._ether.start()
        turns = asyncio.Semaphore(STARTED_AT_ONCE)

        async def start(node: NodeProcess) -> None:
            async with turns:
                node.start()
                await self._answer(node, self._applications[node.number].connect())

        starting = [asyncio.ensure_future(start(node)) for node in self._nodes]
        try:
            await asyncio.gather(*starting)
        finally:
            for task in starting:
                task.cancel()
        self._ether.wait_until_ready()

    async def _answer(self, node: "NodeProcess", awaited: Coroutine[None, None, None]) -> None:
        """Wait for a node that was started, as long as its process lives."""
        connecting = asyncio.ensure_future(awaited)
        self._connecting[node.number] = connecting
        while not connecting.done():
            node.check()
            await asyncio.wait([connecting], timeout=0.1)
        if connecting.cancelled():
            raise asyncio.CancelledError  # killed again before it answered
        try:
            await connecting
        except TimeoutError:
            raise EmulationError(f"node {node.number} does not answer: {node.last_words()}") from None
        except ClientError as error:
            raise EmulationError(f"node {node.number}: {error}") from None

    # The run.

    async def _play(self) -> None:
        watching = [
            asyncio.ensure_future(part)
            for part in (self._watch(), self._show_progress(), self._play_faults())
        ]
        playing = asyncio.ensure_future(play(self._scenario, self._applications, self._clock))
        by_hand = await asyncio.start_unix_server(
            self._on_control, self._stage.control, limit=CONTROL_BYTES_MAX
        )
        try:
            await asyncio.wait([playing, watching[0]], return_when=asyncio.FIRST_COMPLETED)
            for part in (*watching, playing):
                if part.done():
                    part.result()  # its exception, if it has one
            await playing
        finally:
            by_hand.close()
            self._stage.control.unlink(missing_ok=True)
            for part in (*watching, playing):
                part.cancel()
            await asyncio.gather(*watching, playing, return_exceptions=True)

    async def _play_faults(self) -> None:
        restarting: list[asyncio.Task[None]] = []
        try:
            for fault in faults(self._scenario):
                if fault.kind in (FaultKind.CRASH, FaultKind.RESTART):
                    await asyncio.sleep(max((fault.time - self._clock()) / SECOND, 0))
                    restarting.append(asyncio.ensure_future(self._happen(fault)))
            await asyncio.gather(*restarting, return_exceptions=True)
        finally:
            for task in restarting:
                task.cancel()
            await asyncio.gather(*restarting, return_exceptions=True)
        for task in restarting:
            if not task.cancelled():
                task.result()  # its exception, if it has one

    async def _happen(self, fault: FaultPlan) -> None:
        node, application = self._nodes[fault.node], self._applications[fault.node]
        if fault.kind is FaultKind.CRASH:
            self._connecting[node.number].cancel()
            application.on_killed()
            node.kill()
        elif fault.kind is FaultKind.RESTART and not node.is_running:  # it may run already, by hand
            node.start()
            try:
                await self._answer(node, application.on_restarted())
            finally:  # also when the run ended first: then the node had not come back
                self._journal.write("restarted", self._clock() - fault.time, node.number)

    async def _on_control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of `roamcast fault`, answered when it has happened: whether it has, and a sentence."""
        answer = False, "the node was killed again before it answered"
        try:
            asked = (await reader.readline()).decode(errors="replace").rstrip("\n")
            fault = self._fault_by_hand(asked)
            self._ether.happen(fault)
            await self._happen(fault)
            answer = True, f"{asked} at {fault.time / SECOND:.1f} s"
        except (EmulationError, ValueError) as error:
            answer = False, str(error)
        finally:
            writer.write(msgspec.json.encode(answer) + b"\n")
            writer.close()

    def _fault_by_hand(self, asked: str) -> FaultPlan:
        found = FAULT.fullmatch(asked)
        if found is None:
            raise ValueError(f"is {asked!r}; allowed: cut 2-3, heal 2-3, crash 3, restart 3 (any nodes)")
        kind, *named = (word for word in found.groups() if word)
        nodes = sorted({int(node) for node in named})
        if len(nodes) < len(named) or nodes[-1] >= len(self._nodes):
            raise ValueError(f"is {asked!r}; allowed: nodes 0 to {len(self._nodes) - 1}, two for a link")
        fault = FaultPlan(self._clock(), FaultKind(kind), *nodes)
        if fault.peer is None and self._nodes[fault.node].is_running != (fault.kind is FaultKind.CRASH):
            raise ValueError(
                f"is {asked!r}, but that node is {'down' if kind == 'crash' else 'running'} already"
            )
        return fault

    async def _watch(self) -> None:
        """Ends with an error when a part has ended that should not have."""
        while True:
            await asyncio.sleep(0.2)
            for node in self._nodes:
                node.check()
            self._ether.check()

    async def _show_progress(self) -> None:
        while True:
            self._tell("progress", min(max(self._clock() / self._scenario.duration, 0), 1))
            await asyncio.sleep(PROGRESS)

    # The end.

    async def _stop(self) -> None:
        for node in self._nodes:
            node.ask_to_stop()
        end = monotonic() + STOPPING * SECOND
        while monotonic() < end and any(node.is_running for node in self._nodes):
            await asyncio.sleep(0.02)
        for node in self._nodes:
            node.kill()

    def _write_delays(self) -> None:
        delays = [delay for application in self._applications for delay in application.publish_delays]
        self._journal.write("publish_delay", percentile(delays, 0.99), max(delays, default=0))

    def _clock(self) -> Micros:
        return monotonic() - self._zero


class PartProcess:
    """A child process, through all its crashes and restarts."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None  # None: it is down on purpose

    def check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            code = self._process.returncode
            raise EmulationError(f"{self.name} ended by itself, exit {code}: {self.last_words()}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    def _begin(self, command: list[str], network: int | None, **options: Any) -> None:
        conductor = os.getpid()

        def before() -> None:
            if network is not None:
                enter(network)
            die_with_parent(conductor)

        # Nothing in these processes computes in threads, and idle threads of a dozen processes cost memory.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with self._log.open("ab") as log:
            given: dict[str, Any] = {"stdout": log, "stderr": log, "env": environment} | options
            # The one thread here is the loop's own, so running Python between fork and exec is safe.
            self._process = subprocess.Popen([sys.executable, "-m", *command], preexec_fn=before, **given)


class NodeProcess(PartProcess):
    """One `roamcast node`."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        super().__init__(f"node {namespace.node}", folder / LOG)
        self.number: NodeId = namespace.node
        self.folder = folder
        self.socket = folder / SOCKET
        self._namespace = namespace

    def start(self) -> None:
        self._begin(["roamcast", "node", str(self.folder / FILE)], self._namespace.network)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.terminate()


class EtherProcess(PartProcess):
    """It ends by itself with the scenario."""

    def __init__(self, stage: Stage, taps: list[int]) -> None:
        super().__init__("the ether", stage.folder / "ether.err")
        self._stage = stage
        self._taps = taps

    def start(self) -> None:
        files = [str(self._stage.scenario), str(self._stage.ether)]
        command = ["roamcast.runtime.emulate.ether", *files, *map(str, self._taps)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._begin(command, None, pass_fds=self._taps, **pipes)

    def wait_until_ready(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise EmulationError(f"the ether did not start: {self.last_words()}")

    def begin(self, zero: Micros) -> None:
        assert self._process is not None and self._process.stdin is not None
        assert zero >= monotonic() + LEAD
        self._process.stdin.write(f"{zero}\n".encode())
        self._process.stdin.flush()

    def happen(self, fault: FaultPlan) -> None:
        """Now, beside what the scenario says."""
        assert self._process is not None and self._process.stdin is not None
        with suppress(BrokenPipeError):  # the scenario has just ended
            self._process.stdin.write(msgspec.json.encode(fault) + b"\n")
            self._process.stdin.flush()

    def check(self) -> None:
        if self._process is not None and self._process.poll():  # exit 0: the scenario is over
            super().check()

    def stop(self, wait: float) -> None:
        """Wait for it: on a busy machine it ends later than the conductor."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(wait)
            self.kill()


class Configuration:
    def __init__(self, scenario: Scenario, traces: Path, *, epoch: Micros) -> None:
        """`traces`: where all nodes put their segments; `epoch`: where these have their zero, on the
        machine's monotonic clock."""
        self._traces = traces
        self._scenario = scenario
        self._brokers = roles(scenario).brokers
        self._epoch = epoch
        self._group = GroupKey.generate().to_text()
        modules = scenario.scenario.modules or ()
        self._modules = shipment(load_modules(modules, scenario.base, "scenario.modules"))

    def write(self, node: NodeId, folder: Path) -> None:
        folder.mkdir()
        self._modules.write(folder)
        path = folder / FILE
        path.touch(PRIVATE)
        path.write_text(tables_text(self.tables(node, folder)))

    def tables(self, node: NodeId, folder: Path) -> dict[str, dict[str, Any]]:
        strategy, underlay = self._scenario.strategy, self._scenario.underlay
        tables: dict[str, dict[str, Any]] = {
            "node": {"number": node, "state": str(folder / "state"), "broker": node in self._brokers}
            | ({"modules": self._modules.modules} if self._modules.plugins else {}),
            "keys": {"identity": Identity.generate(node).to_text(), "group": [self._group]},
            "air": {"interface": INTERFACE},
            "strategy": {"name": strategy.name, "options": strategy.options},
            "clients": {"socket": str(folder / SOCKET)},
            "trace": {
                "folder": str(self._traces),
                "run": TRACED_RUN,
                "epoch": self._epoch,
                "bytes_max": TRACE_BYTES_MAX,
            },
        }
        if underlay.name is not None:
            tables["underlay"] = {"name": underlay.name, "options": underlay.options}
        return tables
