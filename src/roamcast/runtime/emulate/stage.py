"""The folder that the parts of one emulation share, and the program that runs the conductor.

`python -m roamcast.runtime.emulate.stage FOLDER PARENT` enters its namespaces first and only then loads what
the conductor needs: numpy starts threads, and a process with threads may not make a user namespace.

It reports to its parent by lines on standard output, each a JSON array: `["progress", share]`,
`["cannot", where, problem]` (the user's fault), `["failed", text]`, `["done"]`.
"""

import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from roamcast.errors import InputError, RoamcastError
from roamcast.runtime.emulate.namespaces import allow_namespaces, die_with_parent, make_namespaces
from roamcast.trace import Record

if TYPE_CHECKING:
    from roamcast.scenario.model import Scenario
    from roamcast.units import NodeId

SCENARIO = "scenario.json"
SOCKET = "s"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Any]).decode
FLUSHED_AFTER = 1 << 16  # octets; chosen by us: fewer system calls against lines that a kill loses
TIDYING_UP = 50  # attempts, a tenth of a second apart; chosen by us, for nodes that are being killed


class EmulationError(RoamcastError):
    """A part of the emulation failed; the measurements so far are not usable."""


class ParentGone(SystemExit):
    """Our parent has ended."""


class Stage:
    """Where everything is. Names are short: a socket's path may have 107 octets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scenario = folder / SCENARIO
        self.ether = folder / "ether.log"
        self.applications = folder / "applications.log"
        self.control = folder / "c"  # the socket for faults by hand, while the scenario is played
        self.traces = folder / "traces"  # every node's segments; a link where they are to be kept

    def of(self, node: "NodeId") -> Path:
        """A node's own folder: configuration, state, log."""
        return self.folder / f"n{node}"

    def socket_of(self, node: "NodeId") -> Path:
        """The node's local socket, for clients; there once the node has started."""
        return self.of(node) / SOCKET


class PartJournal:
    """What a part of an emulation writes during a run and reads back afterwards: one JSON array per line.

    A part may be killed at any instant, so each line stands for itself, and an incomplete last line is
    ignored. Buffered, so `close` it.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=FLUSHED_AFTER)

    def write(self, kind: str, *values: object) -> None:
        self._file.write(_encode((kind, *values)) + b"\n")

    def record(self, record: Record) -> None:
        """A record without sets of nodes: those may be larger than a JSON integer."""
        self.write(record.TABLE, *msgspec.structs.astuple(record))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> Iterator[list[Any]]:
    """The lines of a journal; none if there is no file."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return
            yield _decode(line)


def write_scenario(scenario: "Scenario", path: Path) -> None:
    base = str(scenario.base.resolve())
    path.write_bytes(msgspec.json.encode({"base": base, "scenario": scenario.to_dict()}))


def read_scenario(path: Path) -> "Scenario":
    from roamcast.scenario.load import scenario_from

    document = msgspec.json.decode(path.read_bytes())
    return scenario_from(document["scenario"], Path(document["base"]))


def tell(*words: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(words) + b"\n")
    sys.stdout.buffer.flush()


def main(folder: Path, parent: int) -> int:
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop_alone)
    die_with_parent(parent, signal.SIGHUP)
    try:
        allow_namespaces()
        die_with_parent(parent, signal.SIGHUP)  # again: becoming root inside cancels the first request
        from roamcast.runtime.emulate.conductor import conduct

        scenario = read_scenario(folder / SCENARIO)
        conduct(scenario, make_namespaces(scenario.nodes), Stage(folder), tell)
        tell("done")
    except InputError as error:
        tell("cannot", error.where, error.problem)
    except (ParentGone, BrokenPipeError):  # broken pipe: the parent is ending, its signal will follow
        _tidy_up(folder)
    except (RoamcastError, OSError) as error:
        tell("failed", str(error))
    return 0


def _tidy_up(folder: Path) -> None:
    """Remove the folder when the parent is gone. A node that is being killed may still write to it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for _ in range(TIDYING_UP):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(0.1)


def _stop(_: int, __: object) -> NoReturn:
    raise SystemExit(1)


def _stop_alone(_: int, __: object) -> NoReturn:
    # A signal of its own: for a moment after it our parent still looks alive.
    raise ParentGone(1)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2])))
