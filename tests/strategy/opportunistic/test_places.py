"""Where modulators get to in whole networks: the ends of the way, wherever a plug-in moves them, the broker
that the information server names, the one that is nearer in time."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.strategy.opportunistic.test_adaptation_wired import home_of, line, strategy_of

from roamcast.modulator import MODULATORS
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import load_scenario, scenario_from
from roamcast.strategy.opportunistic.adaptation import ADAPTORS
from roamcast.strategy.opportunistic.adaptation.directory import CentralClient
from roamcast.strategy.opportunistic.adaptation.monitor import Pings
from roamcast.strategy.opportunistic.messages import Latencies, ServerAnswer
from roamcast.toml_text import tables_text
from roamcast.trace import Delivered, HandedOff, Published, Transmitted
from roamcast.units import SECOND

SHRINKS = {"name": "projection", "attributes": ["key"]}  # 2,000 octets to some
GROWS = {"name": "test_grow", "by": 2_000}
SHORT = {"rate": 1.0, "start": 15.0, "stop": 90.0}
ENDS = ["topology", "complex", "load_balancing", "placement", "ends"]


def played(tables: dict[str, Any]) -> Simulation:
    simulation = Simulation(scenario_from(tables))
    simulation.run()
    return simulation


def octets(simulation: Simulation, since: float, until: float) -> int:
    """Of data on the air, all hops."""
    frames = simulation.trace.of(Transmitted)
    return sum(f.size for f in frames if f.kind == "data" and since * SECOND <= f.t < until * SECOND)


# From the middle, an event of 2,000 octets makes two hops of 2,000 and two of few, or two of 4,000.
@pytest.mark.parametrize(("modulator", "end", "most"), [(SHRINKS, 0, 4 * 200), (GROWS, 4, 4 * 2_200)])
def test_a_modulator_runs_in_the_producer_or_the_consumer_where_that_saves_traffic(
    modulator: dict[str, Any], end: int, most: int
) -> None:
    """0 - 1 - 2 - 3 - 4: a producer, one broker in the middle, a consumer; both ends would be brokers."""
    assert modulator["name"] in MODULATORS.names()
    simulation = played(
        line(
            5,
            [2],
            0,
            options={"adaptors": ENDS, "willing": [0, 4]},
            workload={"subscriptions": [{"node": 4, "modulator": modulator}], **SHORT},
            scenario={"duration": 100.0},
        )
    )
    host = strategy_of(simulation, end).broker
    other = strategy_of(simulation, 4 - end).broker
    assert host is not None and 4 in host.homes.clients and home_of(simulation, 4) == end
    assert other is None
    assert octets(simulation, 80, 90) / 10 < most
    delivered = [d.sequence for d in simulation.trace.of(Delivered) if d.node == 4]
    assert delivered == [p.sequence for p in simulation.trace.of(Published)]  # none lost, doubled, reordered


def test_an_adaptor_from_outside_moves_modulators_up_and_down(tmp_path: Path) -> None:
    """A module beside the scenario's file; nothing of it is in this package."""
    (tmp_path / "lift.py").write_text(
        textwrap.dedent(
            """
            from roamcast.strategy.opportunistic.adaptation import ADAPTORS, Adaptor
            from roamcast.strategy.opportunistic.adaptation.events import Measured

            class Lift(Adaptor):
                def subscribe(self):
                    own = self.brokers.own
                    is_ours = lambda e: e.kind == "modulator" and e.node == own
                    self.channel.subscribe(Measured, self.process, is_ours)

                def process(self, event):
                    client, now = event.values["client"], event.values["now"]
                    move = self.relocation.upstream if now < 60e6 else self.relocation.downstream
                    move(client)

            ADAPTORS["lift"] = Lift
            """
        )
    )
    tables = line(
        5,
        [1, 2, 3],
        0,
        options={"adaptors": ["topology", "lift"], "neighbours_wanted": 1},
        workload={"subscriptions": [{"node": 4, "modulator": SHRINKS}], **SHORT},
        scenario={"modules": ["lift"], "duration": 100.0},
    )
    (tmp_path / "row.toml").write_text(tables_text(tables))
    try:
        simulation = Simulation(load_scenario(tmp_path / "row.toml"))
        simulation.run()
    finally:
        ADAPTORS.pop("lift", None)
    moves = [(h.source, h.destination) for h in simulation.trace.of(HandedOff) if h.outcome == "moved"]
    assert moves == [(3, 2), (2, 1), (1, 2), (2, 3)]
    delivered = [d.sequence for d in simulation.trace.of(Delivered) if d.node == 4]
    assert delivered == [p.sequence for p in simulation.trace.of(Published)]


def parted(**options: Any) -> dict[str, Any]:
    """0 - 1 - 2 - 3 - 4: producer and broker, node, broker, consumer, broker. The consumer hears 2 from 40 s
    on only, so that its first home is 4; from then on the way through 2 is the shorter one."""
    return line(
        5,
        [0, 2, 4],
        0,
        options={"adaptors": ["topology", "complex"], **options},
        workload={
            "subscriptions": [{"node": 3, "modulator": SHRINKS}],
            "rate": 1.0,
            "start": 30.0,
            "stop": 50.0,
        },
        scenario={"duration": 60.0},
        fault=[
            {"at": 0.0, "kind": "cut", "links": [[2, 3]]},
            {"at": 40.0, "kind": "heal", "links": [[2, 3]]},
        ],
    )


@pytest.mark.parametrize(
    ("options", "listener"),
    [
        ({"directory": 0}, (CentralClient, "on_answer")),
        ({"path_by": "latency", "share_frames": False}, (Pings, "on_message")),
    ],
)
def test_the_home_follows_by_the_server_s_word_and_in_time(
    options: dict[str, Any], listener: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = parted(**options)
    tables["world"]["radio"] = {"model": "disk", "delay": 0.01, "bitrate": 100_000_000}
    simulation = Simulation(scenario_from(tables))
    heard: list[tuple[int, Any]] = []
    listen = getattr(*listener)

    def overhear(self: object, sender: int, message: Any) -> None:
        heard.append((simulation.engine.now, message))
        listen(self, sender, message)

    monkeypatch.setattr(*listener, overhear)
    simulation.run()
    (move,) = (h for h in simulation.trace.of(HandedOff) if h.node == 3)
    assert (move.source, move.destination, move.outcome) == (4, 2, "moved") and home_of(simulation, 3) == 2
    (answer,) = (message for at, message in heard if at == move.started)  # not because none came
    if isinstance(answer, ServerAnswer):
        assert (answer.node, answer.hops) == (2, 0)
    else:  # 10 ms a hop: the producer's broker is two away from 2, the client one
        assert isinstance(answer, Latencies)
        assert dict(zip(answer.pairs[::2], answer.pairs[1::2], strict=True)) == {
            0: pytest.approx(20_000, abs=100),
            3: pytest.approx(10_000, abs=100),
        }
    delivered = [d.sequence for d in simulation.trace.of(Delivered) if d.node == 3]
    assert delivered == [p.sequence for p in simulation.trace.of(Published)]
