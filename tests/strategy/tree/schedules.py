"""Random schedules: links that come and go, crashes, restarts, loss and delay, then rest.

`play(seed)` is one schedule, the same for ever: a failure says its seed, and
`python -m tests.strategy.tree.schedules SEED` plays it again.
"""

import sys
from random import Random

from tests.strategy.tree.network import Network, Pair, Weather, pair

from roamcast.host import Kind
from roamcast.strategy.tree.overlay.parameters import TreeOptions, TreePreset
from roamcast.units import MILLISECOND, SECOND

REST_S = 90  # within which one tree per partition must stand, once links rest


def play(seed: int, preset: TreePreset = TreePreset.DRIVING) -> Network:
    random = Random(seed)
    size = random.randint(3, 12)
    density = random.choice([0.2, 0.35, 0.6])
    possible = [pair(a, b) for a in range(size) for b in range(a)]
    weather = Weather(
        loss=random.choice([0.0, 0.05, 0.2]),
        delay=(100, random.choice([1, 20, 200]) * MILLISECOND),
        detection=(0, random.choice([0, 300, 2_000]) * MILLISECOND),
        replay=random.choice([0.0, 0.1]),
    )
    options = TreeOptions(
        preset=preset,
        adaptive=random.random() < 0.2,
        reply_wait=random.choice([0.05, None]),
        discover_timeout=random.choice([0.3, 1.0]),
    )
    network = Network(
        range(size),
        [each for each in possible if random.random() < density],
        options=options,
        weather=weather,
        seed=seed,
    )
    end = random.choice([10, 30]) * SECOND
    for _ in range(random.choice([10, 60, 200])):
        network.at(random.randrange(end), lambda: change(network, random, size, possible))
    for _ in range(random.choice([0, 40])):
        network.at(random.randrange(end), lambda: send(network, random))
    network.run(end / SECOND)
    for number in range(size):
        if number not in network.nodes and random.random() < 0.7:
            network.boot(number)
    rested = network.now
    while network.faults_at_rest() and network.now - rested < REST_S * SECOND:
        network.run(2.5)
    network.rest_s = (network.now - rested) / SECOND
    faults = network.faults_at_rest()
    assert not faults, f"seed {seed}: {'; '.join(faults)}"
    return network


def change(network: Network, random: Random, size: int, possible: list[Pair]) -> None:
    """One thing happens."""
    dice = random.random()
    if dice < 0.45:
        links = random.sample(possible, min(len(possible), random.choice([1, 1, 3])))
        network.cut(*links)
    elif dice < 0.75:
        network.connect(random.choice(possible))
    elif dice < 0.85:
        number = random.randrange(size)
        if number in network.nodes:
            network.crash(number)
            if random.random() < 0.5:
                network.boot(number)  # so fast that nobody may notice
        else:
            network.boot(number)
    else:
        tree = sorted(network.open_tree())
        if tree:
            network.cut(random.choice(tree))


def send(network: Network, random: Random) -> None:
    """Some data over a link that its sender believes in."""
    if not network.nodes:
        return
    overlay = network.nodes[random.choice(sorted(network.nodes))].overlay
    believed = overlay.neighbours()
    for _ in range(4 if believed else 0):
        to = random.choice(believed)
        overlay.send(to, b"data", kind=Kind.DATA, message="data", event=None, own=True)


if __name__ == "__main__":
    first = int(sys.argv[1])
    for each in range(first, int(sys.argv[2]) if len(sys.argv) > 2 else first + 1):
        try:
            played = play(each)
        except AssertionError as error:
            sys.stdout.write(f"{error}\n")
