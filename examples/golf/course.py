"""The golf course of `forum.toml`: who stands where, who walks with whom, and what happens at each hole.

    python examples/golf/course.py        # writes course.csv and forum.toml beside this file

Eighteen officials stand at their greens. Six players, each followed by a gallery of six, begin at different
tees and walk from hole to hole; each gallery is a group whose members roam around their player. When a player
has holed out, the official there publishes the score. A model of `[world.mobility]` moves all nodes alike,
so the walk is written as a recording.
"""

import math
from itertools import pairwise
from pathlib import Path
from random import Random

from roamcast.streams import stream

HERE = Path(__file__).parent
PLAYERS = ["woods", "palmer", "nicklaus", "player", "hogan", "snead"]  # as in forum.xsd
FOLLOWERS = 6  # in each gallery
HOLES = 18
DURATION = 900.0  # seconds
WALK = 1.2  # m/s
PUTTING = 40.0  # seconds on a green
RADIUS = 40.0  # metres: no follower is farther from where the player is
STEP = 15.0  # seconds from one place of a follower to the next
PAR = 4
WISHES = [  # what the members of each gallery want to hear of; {me} is the player they walk with
    "/PGMFORUM[player = '{me}']",
    "/PGMFORUM[player = '{rival}' or player = '{me}']",
    "/PGMFORUM[currentrank <= 2]",
    "/PGMFORUM[hole >= 15]",
    "/PGMFORUM[holescore <= 3 and not(player = '{me}')]",
    "//player[starts-with(., '{start}')]",
]


def main() -> None:
    random = stream(2005, "golf")
    walks = {player: walk(3 * number) for number, player in enumerate(PLAYERS)}
    rows = [(hole, t, *green(hole)) for hole in range(HOLES) for t in (0.0, DURATION)]
    for number, player in enumerate(PLAYERS):
        for follower in range(FOLLOWERS):
            node = HOLES + FOLLOWERS * number + follower
            rows += [(node, t, x, y) for t, x, y in roam(walks[player], random)]
    lines = ["node,time,x,y", *(f"{node},{t:.1f},{x:.1f},{y:.1f}" for node, t, x, y in rows)]
    (HERE / "course.csv").write_text("\n".join(lines) + "\n")
    (HERE / "forum.toml").write_text(scenario(walks, random))


def green(hole: int) -> tuple[float, float]:
    """Three rows of six, up and down: the next tee is beside the last green."""
    row, place = divmod(hole % HOLES, 6)
    column = place if row % 2 == 0 else 5 - place
    return 100.0 + 180.0 * column, 100.0 + 190.0 * row


def walk(first: int) -> list[tuple[float, float, float]]:
    """When a player is where: green to green, with a stop at each; (time, x, y)."""
    t, hole = 0.0, first
    x, y = green(first - 1)
    fixes = [(t, x, y)]
    while t < DURATION:
        there = green(hole)
        t += math.dist((x, y), there) / WALK
        fixes.append((t, *there))
        t += PUTTING
        fixes.append((t, *there))
        x, y = there
        hole += 1
    return fixes


def place(fixes: list[tuple[float, float, float]], t: float) -> tuple[float, float]:
    for (t0, x0, y0), (t1, x1, y1) in pairwise(fixes):
        if t0 <= t <= t1:
            share = (t - t0) / (t1 - t0)
            return x0 + share * (x1 - x0), y0 + share * (y1 - y0)
    return fixes[-1][1:]


def roam(fixes: list[tuple[float, float, float]], random: Random) -> list[tuple[float, float, float]]:
    """A follower: every few seconds somewhere else in the disc around the player."""
    found = []
    for step in range(round(DURATION / STEP) + 1):
        x, y = place(fixes, step * STEP)
        radius, angle = RADIUS * math.sqrt(random.random()), 2 * math.pi * random.random()
        found.append((step * STEP, x + radius * math.cos(angle), y + radius * math.sin(angle)))
    return found


def scenario(walks: dict[str, list[tuple[float, float, float]]], random: Random) -> str:
    lines = [HEAD]
    for number, me in enumerate(PLAYERS):
        for follower in range(FOLLOWERS):
            node = HOLES + FOLLOWERS * number + follower
            rival = PLAYERS[(number + 1) % len(PLAYERS)]
            wish = WISHES[follower].format(me=me, rival=rival, start=rival[:2])
            lines.append(f'  {{ node = {node}, xpath = "{wish}" }},')
    lines.append("]\npublications = [")
    lines += scores(walks, random)
    lines.append(TAIL)
    return "\n".join(lines)


def scores(walks: dict[str, list[tuple[float, float, float]]], random: Random) -> list[str]:
    """One publication of the hole's official each time a player leaves a green."""
    left = sorted(
        (t, player, hole)
        for number, player in enumerate(PLAYERS)
        for hole, (t, _, _) in enumerate(walks[player][2::2], 3 * number)
        if t < DURATION - 10
    )
    total: dict[str, list[int]] = {player: [] for player in PLAYERS}
    lines = []
    for number, (t, player, hole) in enumerate(left, 1):
        strokes = PAR + int(random.random() * 4) - 1
        total[player].append(strokes - PAR)
        rank = 1 + sum(sum(each) < sum(total[player]) for each in total.values())
        content = (
            f'"@id" = "{number:03}", "@timestamp" = "2005-03-13T12:{int(t) // 60:02}:{int(t) % 60:02}Z", '
            f'player = "{player}", hole = {hole % HOLES + 1}, holescore = {strokes}, '
            f"totalscore = {sum(total[player]) + PAR * len(total[player])}, currentrank = {rank}"
        )
        official = hole % HOLES
        lines.append(
            f'  {{ t = {t:.1f}, node = {official}, type = "PGMFORUM", attributes = {{ {content} }} }},'
        )
    return lines


HEAD = """# The PGM Golf Forum (Pub/Sub ODMRP, section 4), written by course.py; forum.py plays it.
# Nodes 0 to 17 are the officials at holes 1 to 18; 18 to 53 the galleries of six players, six devices each.

[scenario]
name = "golf"
duration = 900.0
seed = 1

[world]
range = 200.0        # of 802.11, as the paper has it

[world.mobility]
model = "trace"
file = "course.csv"

[world.radio]
model = "csma"

[workload]
size = 320           # octets of a document such as woods-at-15.xml
schema = "forum.xsd"
subscriptions = ["""

TAIL = """]

[strategy]
name = "odmrp"
"""

if __name__ == "__main__":
    main()
