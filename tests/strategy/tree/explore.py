"""An explicit-state model checker over the protocol classes themselves, where the work has Petri nets (3.3).

A state of the network is the state of each node (everything reachable from its `Overlay`, and its armed
timers) and the messages in flight. From each state every message in flight may arrive or be lost, and every
armed timer may fire, in any order: links reorder, and no timer is assumed to be longer than another. States
are hashed, so each is expanded once. A node's step depends on that node alone, so it is computed once for
each of its states and inputs: by playing the inputs that led there to a fresh `Overlay`.

`losses` and `timers` bound how many messages are lost and how many timers fire on one path; within these
bounds a search that is not stopped by the number of states is complete. The clock stands still: an offer
never lapses, which only adds behaviour. A loss is silent: no frame is reported as failed. Timers without
delay fire at once.

Checked in every state: no cycle, and the invariants P and Q of `docs/protocols/tree.md` (`against`), which
are the evolved protocol's alone. When nothing is in flight, no part of the overlay may be without a leader
and without a timer that could change that (figure 3.16).
"""

from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from types import FunctionType, MethodType
from typing import Any, NamedTuple, TypeAlias

import msgspec

from roamcast.host import Frame, Position, SendFailure, TimerName
from roamcast.strategy.tree.overlay.evolved import Evolved
from roamcast.strategy.tree.overlay.layer import Overlay
from roamcast.strategy.tree.overlay.messages import Label
from roamcast.strategy.tree.overlay.multicast_table import LinkState, OverlayListener, TreeLink
from roamcast.strategy.tree.overlay.original import Original
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.trace import Record
from roamcast.underlay.base import Underlay
from roamcast.units import Micros, NodeId

Input: TypeAlias = tuple[Any, ...]  # ("receive", sender, payload), ("timer", index), ("down", peer), …
InFlight: TypeAlias = tuple[NodeId, Input]  # to whom, and what


class Scene(NamedTuple):
    """A tree that stands, and what happens to it first."""

    options: TreeOptions
    parents: dict[NodeId, NodeId | None]  # the tree; a root leads
    in_range: frozenset[tuple[NodeId, NodeId]]  # after what happens
    first: tuple[InFlight, ...]  # what its nodes notice, each at any time
    crashed: NodeId | None = None
    members: frozenset[NodeId] | None = None  # None: all
    apart: tuple[NodeId, ...] = ()  # on no tree


class Bounds(NamedTuple):
    losses: int
    timers: int
    states: int = 2_000_000


@dataclass
class Found:
    states: int = 0
    steps: int = 0
    cycles: int = 0
    leaderless: int = 0
    against: int = 0  # states in which a link has no lower end, or goes against the labels
    complete: bool = True


class View(NamedTuple):
    """What a node's state says to the properties."""

    held: frozenset[tuple[NodeId, int]]
    parent: NodeId | None
    label: Label
    leads: bool
    timers: int
    takes_part: bool


def explore(scene: Scene, bounds: Bounds, stops: Callable[[Found], object] = lambda _: False) -> Found:
    """All states within the bounds, breadth first; `stops`: what was found is enough."""
    found = Found()
    nodes = sorted({*scene.parents, *scene.apart} - {scene.crashed})
    locals_ = {node: LocalStates(scene, node) for node in nodes}
    start = (tuple(0 for _ in nodes), tuple(sorted(scene.first)), bounds.losses, bounds.timers)
    seen = {start}
    frontier: list[tuple[Any, ...]] = [start]
    verdicts: dict[tuple[int, ...], tuple[bool, bool]] = {}
    index = {node: place for place, node in enumerate(nodes)}
    while frontier:
        following: list[tuple[Any, ...]] = []
        for states, in_flight, losses, timers in frontier:
            found.states += 1
            if states not in verdicts:
                verdicts[states] = _judge([locals_[node].views[states[index[node]]] for node in nodes], nodes)
            has_cycle, is_against = verdicts[states]
            found.cycles += has_cycle
            found.against += is_against
            if not in_flight and _is_leaderless(
                {node: locals_[node].views[states[index[node]]] for node in nodes}
            ):
                found.leaderless += 1
            for moved, left, lost, fired in _successors(states, in_flight, losses, timers, locals_, index):
                found.steps += 1
                state = (moved, left, lost, fired)
                if state not in seen:
                    seen.add(state)
                    following.append(state)
            if len(seen) > bounds.states or stops(found):
                found.complete = False
                return found
        frontier = following
    return found


def _successors(
    states: tuple[int, ...],
    in_flight: tuple[InFlight, ...],
    losses: int,
    timers: int,
    locals_: dict[NodeId, "LocalStates"],
    index: dict[NodeId, int],
) -> Iterable[tuple[tuple[int, ...], tuple[InFlight, ...], int, int]]:
    last: InFlight | None = None
    for place, each in enumerate(in_flight):
        if each == last:
            continue  # the same message twice in flight
        last = each
        to, what = each
        rest = in_flight[:place] + in_flight[place + 1 :]
        if losses and what[0] == "receive":
            yield states, rest, losses - 1, timers
        yield (*_moved(states, rest, to, what, locals_, index), losses, timers)
    if timers:
        for node, local in locals_.items():
            for timer in range(local.views[states[index[node]]].timers):
                yield (*_moved(states, in_flight, node, ("timer", timer), locals_, index), losses, timers - 1)


def _moved(
    states: tuple[int, ...],
    in_flight: tuple[InFlight, ...],
    node: NodeId,
    what: Input,
    locals_: dict[NodeId, "LocalStates"],
    index: dict[NodeId, int],
) -> tuple[tuple[int, ...], tuple[InFlight, ...]]:
    place = index[node]
    after, sent = locals_[node].step(states[place], what)
    moved = (*states[:place], after, *states[place + 1 :])
    return moved, tuple(sorted(in_flight + sent)) if sent else in_flight


def _edges(views: dict[NodeId, View]) -> set[tuple[NodeId, NodeId]]:
    return {
        (min(node, peer), max(node, peer))
        for node, view in views.items()
        for peer, number in view.held
        if peer in views and (node, number) in views[peer].held
    }


def _groups(
    views: dict[NodeId, View], edges: Iterable[tuple[NodeId, NodeId]]
) -> tuple[dict[NodeId, NodeId], bool]:
    """Whose group each node is in, and whether an edge closed a cycle."""
    group = {node: node for node in views}
    closes = False
    for a, b in edges:
        one, other = group[a], group[b]
        closes = closes or one == other
        group = {node: one if each == other else each for node, each in group.items()}
    return group, closes


def _judge(views: list[View], nodes: list[NodeId]) -> tuple[bool, bool]:
    by_node = dict(zip(nodes, views, strict=True))
    edges = _edges(by_node)
    _, closes = _groups(by_node, edges)
    against = False
    for a, b in edges:
        one, other = by_node[a], by_node[b]
        below = [(x, y) for x, y, n in ((one, other, b), (other, one, a)) if x.parent == n]
        against = against or not below
        against = against or (len(below) == 1 and not below[0][1].label.better_than(below[0][0].label))
    return closes, against


def _is_leaderless(views: dict[NodeId, View]) -> bool:
    group, _ = _groups(views, _edges(views))
    alive = {group[node] for node, view in views.items() if view.leads or view.timers or not view.takes_part}
    return set(group.values()) != alive


class LocalStates:
    """The states of one node that were met, and its steps between them."""

    def __init__(self, scene: Scene, node: NodeId) -> None:
        self._scene = scene
        self._node = node
        self._histories: list[tuple[Input, ...]] = []
        self._numbers: dict[Any, int] = {}
        self._steps: dict[tuple[int, Input], tuple[int, tuple[InFlight, ...]]] = {}
        self.views: list[View] = []
        self._enter(ModelNode(scene, node), ())

    def step(self, state: int, what: Input) -> tuple[int, tuple[InFlight, ...]]:
        known = self._steps.get((state, what))
        if known is None:
            node = ModelNode(self._scene, self._node)
            for each in self._histories[state]:
                node.take(each)
            node.host.sent.clear()
            node.take(what)
            sent = tuple(node.host.sent)
            known = self._steps[state, what] = self._enter(node, (*self._histories[state], what)), sent
        return known

    def _enter(self, node: "ModelNode", history: tuple[Input, ...]) -> int:
        frozen = freeze((node.overlay, node.host.timers, node.host.counting.drawn))
        number = self._numbers.setdefault(frozen, len(self.views))
        if number == len(self.views):
            self._histories.append(history)
            self.views.append(node.view())
        return number


class ModelNode(OverlayListener):
    def __init__(self, scene: Scene, node: NodeId) -> None:
        reach = sorted({b if a == node else a for a, b in scene.in_range if node in (a, b)})
        self.host = ModelHost(node, reach)
        self.overlay = Overlay(self.host, Underlay(), scene.options, self)
        protocol, table = self.overlay.protocol, self.overlay.table
        protocol.is_member = scene.members is None or node in scene.members
        protocol._has_started = True
        assert protocol.nearby is not None
        known = {peer for to, what in scene.first if to == node and what[0] == "up" for peer in what[1:]}
        protocol.nearby.update(set(reach) - known)
        if node in scene.apart:
            if isinstance(protocol, Evolved):
                protocol.start_over()
            return
        _stand(protocol, table, scene.parents, node)

    def take(self, what: Input) -> None:
        match what:
            case "receive", sender, payload:
                self.overlay.on_receive(sender, payload)
            case "down", peer:
                protocol = self.overlay.protocol
                assert protocol.nearby is not None
                protocol.nearby.discard(peer)
                protocol.on_neighbour_down(peer)
            case "up", peer:
                self.overlay.on_neighbour_up(peer)
            case ("join",):
                self.overlay.protocol.set_member(True)
            case "timer", number:
                self._fire(list(self.host.timers)[number])
        while now := [name for name, at in self.host.timers.items() if at <= self.host.now()]:
            self._fire(now[0])

    def _fire(self, name: TimerName) -> None:
        del self.host.timers[name]
        self.overlay.on_timer(name)

    def view(self) -> View:
        table, protocol = self.overlay.table, self.overlay.protocol
        held = {(link.peer, link.number) for link in table.links.values()}
        if isinstance(protocol, Evolved):
            held.update((offer.peer, number) for number, offer in protocol.offers.items())
        takes_part = protocol.is_member or bool(table.links)
        timers = len(self.host.timers)
        return View(frozenset(held), table.parent, table.label, table.is_leader, timers, takes_part)


def _stand(protocol: Any, table: Any, parents: dict[NodeId, NodeId | None], node: NodeId) -> None:
    """As if the tree had stood for long."""
    path = [node]
    while (above := parents[path[-1]]) is not None:
        path.append(above)
    table.parent = parents[node]
    table.label, table.hops = Label(9, path[-1], (len(path) - 1) << 20), len(path) - 1
    is_original = isinstance(protocol, Original)
    for peer in [
        *([table.parent] if table.parent is not None else []),
        *(n for n in parents if parents[n] == node),
    ]:
        low, high = sorted((node, peer))
        table.links[peer] = TreeLink(peer, 0 if is_original else 1000 * low + high, LinkState.OPEN)
    if is_original:
        protocol._joined = True
        table.is_leader = table.parent is None
        if table.is_leader:
            protocol._hello_timer.after(1)
    elif table.parent is None:
        protocol.leader.start()
    else:
        protocol.leader.await_grph()


class CountingRandom(Random):
    """Numbers that no two nodes share; what is drawn evenly is always the middle."""

    def __init__(self, node: NodeId) -> None:
        super().__init__(0)
        self.node = node
        self.drawn = 0

    def getrandbits(self, k: int) -> int:
        self.drawn += 1
        return (self.node + 1) * 1_000_000 + self.drawn

    def random(self) -> float:
        return 0.5

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start // 2


class ModelHost:
    def __init__(self, node: NodeId, reach: list[NodeId]) -> None:
        self.node = node
        self.counting = CountingRandom(node)
        self.random: Random = self.counting
        self.stable: MutableMapping[str, bytes] = {}
        self.timers: dict[TimerName, Micros] = {}
        self.sent: list[InFlight] = []
        self._reach = reach

    def now(self) -> Micros:
        return 0

    def set_timer(self, name: TimerName, at: Micros) -> None:
        self.timers[name] = at

    def cancel_timer(self, name: TimerName) -> None:
        self.timers.pop(name, None)

    def broadcast(self, frame: Frame) -> None:
        self.sent += [(to, ("receive", self.node, frame.payload)) for to in self._reach]

    def unicast(
        self, to: NodeId, frame: Frame, on_failure: Callable[[SendFailure], None] | None = None
    ) -> None:
        if to in self._reach:
            self.sent.append((to, ("receive", self.node, frame.payload)))

    def airtime(self, octets: int) -> Micros:
        return 0

    def position(self) -> Position | None:
        return None

    def trace(self, record: Record) -> None:
        pass


# What cannot tell two states of a node apart: how often something was counted, and what never changes.
SKIPPED = {
    "_number",
    "frames_sent",
    "_host",
    "host",
    "messenger",
    "_messenger",
    "options",
    "_options",
    "handlers",
}


def freeze(value: Any) -> Any:
    """A hashable value, equal for two object graphs of the same shape and content."""
    return _freeze(value, {})


def _freeze(value: Any, met: dict[int, int]) -> Any:
    match value:
        case None | int() | str() | bytes() | float():
            return value.value if isinstance(value, Enum) else value
        case Enum():
            return value.name
        case dict():
            return tuple(
                sorted(((repr(_freeze(k, met)), _freeze(v, met)) for k, v in value.items()), key=_first)
            )
        case set() | frozenset():
            return tuple(sorted(value))
        case tuple() | list():
            return tuple(_freeze(each, met) for each in value)
        case type() | Random() | Underlay() | ModelHost():
            return None
        case MethodType():
            return value.__qualname__, _freeze(value.__self__, met)
        case partial():
            return _freeze((value.func, value.args, tuple(value.keywords.items())), met)
        case FunctionType():
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            return value.__qualname__, tuple(_freeze(each, met) for each in cells)
        case msgspec.Struct():
            return type(value).__name__, msgspec.structs.astuple(value)
    if id(value) in met:
        return "met", met[id(value)]
    met[id(value)] = len(met)
    names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
    return type(value).__name__, tuple(
        (name, _freeze(getattr(value, name), met)) for name in sorted(names) if name not in SKIPPED
    )


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]
