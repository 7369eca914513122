"""The treasure hunt: eight players on two live nodes of Chapar, half of whom come a second later."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
from tests.daemon.programs import STARTED_WITHIN, NodeProgram, network_on_loopback

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "game"))

import hunt  # type: ignore[import-not-found]

PLAYERS = ["ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal"]


def test_a_treasure_that_two_claim_belongs_to_the_first_name_in_whatever_order_claims_come() -> None:
    claims = [
        {"player": "bob", "treasure": 1},
        {"player": "ada", "treasure": 1},
        {"player": "bob", "treasure": 2},
    ]
    for order in (claims, claims[::-1]):
        game = hunt.Hunt()
        for each in [*order, {"player": "ada"}, {"player": "bob"}]:
            game.on_claim(each)
        assert game.score() == "ada:1 bob:1"


@pytest.mark.realtime
def test_eight_players_agree_although_half_of_them_came_after_the_claims_of_the_others(
    tmp_path: Path,
) -> None:
    nodes = network_on_loopback(tmp_path, "one", "other")
    try:
        for node in nodes:
            node.add('[strategy]\nname = "chapar"')
            start(node)
        scores = asyncio.run(both_halves(nodes))
    finally:
        for node in nodes:
            node.kill()
    assert scores == {"ada:2 bob:1 cyd:1 dan:1 eve:1 fay:1 gus:1 hal:1"}


def start(node: NodeProgram) -> None:
    node.start()
    end = time.monotonic() + STARTED_WITHIN
    while not node.socket.exists():
        assert time.monotonic() < end, node.log
        time.sleep(0.05)


async def both_halves(nodes: list[NodeProgram]) -> set[str]:
    """Each finds a treasure of its own, and all of them number 100."""

    def game(number: int) -> asyncio.Task[hunt.Hunt]:
        half = nodes[number // 4]
        return asyncio.create_task(hunt.play(half.socket, PLAYERS[number], [number, 100], 8, STARTED_WITHIN))

    early = [game(number) for number in range(4)]
    await asyncio.sleep(1.0)
    late = [game(number) for number in range(4, 8)]
    return {played.score() for played in await asyncio.gather(*early, *late)}
