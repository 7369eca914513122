"""Overlays drawn by hand, with the figures worked out on paper."""

from roamcast.lab.run.derived import OverlayJudged
from roamcast.lab.run.overlay_graph import overlay_health
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
