"""A treasure hunt: players walk, most of the time out of each other's reach, and claim what they find.

    python examples/game/hunt.py --socket ada.sock --player ada --treasures 1,4 --players 8

The work on Chapar tried its persistent events with a game of eight users. A claim is a memorized event: it
waits in the brokers for players who are away, so all agree in the end on who has found what, whoever was
where. Each player runs this beside the node of its device, whose file has `[strategy] name = "chapar"`. A
treasure that several claim belongs to the player whose name comes first.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from roamcast.client import connect
from roamcast.errors import RoamcastError
from roamcast.event import Publication, Value
from roamcast.units import micros

TOPIC = "hunt/claims"
LIFETIME_S = 3_600.0  # a game takes no longer


class Hunt:
    """What one player knows: whose each treasure is, and who has said that it is done."""

    def __init__(self) -> None:
        self.owners: dict[int, str] = {}
        self.done: set[str] = set()

    def on_claim(self, attributes: dict[str, Value]) -> None:
        player, treasure = str(attributes.get("player", "")), attributes.get("treasure")
        if treasure is None:
            self.done.add(player)
        elif isinstance(treasure, int) and not isinstance(treasure, bool):
            self.owners[treasure] = min(player, self.owners.get(treasure, player))

    def score(self) -> str:
        found = sorted(self.owners.values())
        return " ".join(f"{player}:{found.count(player)}" for player in sorted(self.done))


def claim(player: str, treasure: int | None) -> Publication:
    """Without a treasure: the player is done."""
    attributes: dict[str, Value] = {"player": player}
    if treasure is not None:
        attributes["treasure"] = treasure
    return Publication(attributes, topic=TOPIC, lifetime=micros(LIFETIME_S))


async def play(socket: Path, player: str, treasures: list[int], players: int, patience: float) -> Hunt:
    """Until every player is done, or nothing came for so long."""
    hunt = Hunt()
    async with connect(socket, name=player) as client, client.subscribe(topic=TOPIC) as messages:
        for treasure in (*treasures, None):
            await client.send(claim(player, treasure))
        while len(hunt.done) < players:
            hunt.on_claim(dict((await messages.next(patience)).event.attributes))
    return hunt


def main() -> int:
    parser = argparse.ArgumentParser(description="A treasure hunt over Chapar's memorized events.")
    parser.add_argument("--socket", type=Path, required=True, help="of this device's node")
    parser.add_argument("--player", required=True, help="a name that no other player has")
    parser.add_argument("--treasures", default="", help="what this player finds, e.g. 1,4")
    parser.add_argument("--players", type=int, default=8, help="how many play")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds without a claim, then it ends")
    given = parser.parse_args()
    try:
        treasures = [int(number) for number in given.treasures.split(",") if number]
        hunt = asyncio.run(play(given.socket, given.player, treasures, given.players, given.patience))
    except (RoamcastError, ValueError) as error:
        sys.stderr.write(f"hunt: {error}\n")
        return 2
    except TimeoutError:
        sys.stderr.write(f"hunt: no word of all {given.players} players for {given.patience:g} s\n")
        return 1
    sys.stdout.write(hunt.score() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
