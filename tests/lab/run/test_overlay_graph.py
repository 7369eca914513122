"""Overlays drawn by hand, with the figures worked out on paper."""

from random import Random

import pytest

from roamcast.lab.run.overlay_graph import overlay_health
from roamcast.lab.run.tables import OverlayJudged
from roamcast.trace import FaultHappened, LinkChanged, OverlayChanged
from roamcast.units import SECOND, Micros, NodeId


def both(t: float, a: NodeId, b: NodeId, *, up: bool = True) -> list[OverlayChanged]:
    change = "link_up" if up else "link_down"
    at: Micros = round(t * SECOND)
    return [OverlayChanged(at, a, change, b), OverlayChanged(at, b, change, a)]


def contact(t: float, a: NodeId, b: NodeId, *, up: bool = True) -> LinkChanged:
    return LinkChanged(round(t * SECOND), a, b, True, up)


def health(
    overlay: list[OverlayChanged],
    links: list[LinkChanged],
    faults: list[FaultHappened] | None = None,
    *,
    nodes: int = 3,
    warmup: float = 0,
) -> OverlayJudged:
    return overlay_health(
        overlay, links, faults or [], nodes=nodes, warmup=round(warmup * SECOND), duration=10 * SECOND
    )


LINE = [contact(0, 0, 1), contact(0, 1, 2)]


def test_a_tree_over_the_whole_network_is_healthy_from_the_instant_it_stands() -> None:
    # Two components too many for 2 s, one for 2 s, none for 6 s: (2 * 2 + 1 * 2) / 10.
    assert health([*both(2, 0, 1), *both(4, 1, 2)], LINE) == OverlayJudged(0, 0.6)


def test_the_warm_up_is_left_out() -> None:
    # One too many from 3 to 4, over 7 s.
    assert health([*both(2, 0, 1), *both(4, 1, 2)], LINE, warmup=3) == OverlayJudged(0, 1 / 7)


def test_a_link_that_one_end_has_given_up_is_no_link() -> None:
    overlay = [*both(0, 0, 1), *both(0, 1, 2), OverlayChanged(5 * SECOND, 2, "link_down", 1)]
    assert health(overlay, LINE) == OverlayJudged(0, 0.5)


def test_a_cycle_is_counted_at_each_change_while_it_stands() -> None:
    ring = [*LINE, contact(0, 0, 2)]
    overlay = [*both(0, 0, 1), *both(0, 1, 2), *both(1, 0, 2), *both(3, 0, 1, up=False)]
    assert health(overlay, ring) == OverlayJudged(1, 0.0)
    assert health([*overlay[:6], *both(2, 1, 2, up=False), *both(2, 1, 2)], ring).cycles == 2


def test_a_cycle_within_one_instant_is_none() -> None:
    overlay = [*both(0, 0, 1), *both(0, 1, 2), *both(1, 0, 2), *both(1, 0, 1, up=False)]
    assert health(overlay, [*LINE, contact(0, 0, 2)]).cycles == 0


def test_a_crash_takes_its_links_and_its_node() -> None:
    faults = [FaultHappened(4 * SECOND, "crash", 1), FaultHappened(6 * SECOND, "restart", 1)]
    # Whole until 4; until 6 the other two are two parts in both graphs; from then on two too many.
    overlay = [*both(0, 0, 1), *both(0, 1, 2)]
    assert health(overlay, LINE, faults) == OverlayJudged(0, 0.8)


def test_one_way_contacts_join_nothing() -> None:
    links = [LinkChanged(0, 0, 1, False, True), contact(0, 1, 2)]
    assert health([*both(0, 1, 2)], links) == OverlayJudged(0, 0.0)


@pytest.mark.parametrize("seed", range(60))
def test_the_figures_are_those_of_counting_components_anew_at_every_instant(seed: int) -> None:
    random = Random(seed)
    nodes = random.randint(1, 7)
    overlay: list[OverlayChanged] = []
    links: list[LinkChanged] = []
    faults: list[FaultHappened] = []
    down: set[NodeId] = set()
    for t in sorted(random.choices(range(40), k=60)):
        a, b = random.randrange(nodes), random.randrange(nodes)
        kind = random.random()
        if kind < 0.1:
            faults.append(FaultHappened(t, "restart" if a in down else "crash", a))
            down ^= {a}
        elif a != b and kind < 0.55 and a not in down:
            overlay.append(OverlayChanged(t, a, random.choice(["link_up", "link_up", "link_down"]), b))
        elif a != b:
            links.append(LinkChanged(t, a, b, random.random() < 0.7, random.random() < 0.6))
    judged = overlay_health(overlay, links, faults, nodes=nodes, warmup=5, duration=30)
    cycles = excess = 0
    instants = {*(o.t for o in overlay), *(link.t for link in links), *(f.t for f in faults)}
    for now in range(5, 30):
        up, tree, heard = _at(now, nodes, overlay, links, faults)
        excess += _components(up, tree) - _components(up, heard)
        cycles += now in instants and len(tree) > len(up) - _components(up, tree)
    assert judged == OverlayJudged(cycles, excess / 25), f"seed {seed}"


Pair = tuple[NodeId, NodeId]


def _at(
    now: Micros,
    nodes: int,
    overlay: list[OverlayChanged],
    links: list[LinkChanged],
    faults: list[FaultHappened],
) -> tuple[set[NodeId], set[Pair], set[Pair]]:
    """The nodes that are up, and the links of the tree and of the network between them."""
    up = set(range(nodes))
    ends: set[Pair] = set()
    heard: set[Pair] = set()
    records: list[OverlayChanged | LinkChanged | FaultHappened] = [*links, *faults, *overlay]
    for record in sorted((r for r in records if r.t <= now), key=lambda r: r.t):
        match record:
            case FaultHappened(kind="crash", node=node):
                up.discard(node)
                ends = {end for end in ends if end[0] != node}
            case FaultHappened(node=node):
                up.add(node)
            case OverlayChanged(node=node, peer=int() as peer):
                ends = ends | {(node, peer)} if record.change == "link_up" else ends - {(node, peer)}
            case LinkChanged(sender=a, receiver=b):
                changed = {(a, b), (b, a)} if record.both else {(a, b)}
                heard = heard | changed if record.up else heard - changed
    return up, _between(up, ends), _between(up, heard)


def _between(up: set[NodeId], ends: set[Pair]) -> set[Pair]:
    return {(a, b) for a, b in ends if a < b and (b, a) in ends and {a, b} <= up}


def _components(up: set[NodeId], pairs: set[Pair]) -> int:
    groups = [{node} for node in up]
    for pair in pairs:
        touched = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if group not in touched] + [set().union(*touched)]
    return len(groups)
