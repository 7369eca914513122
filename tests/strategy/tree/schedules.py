"""Random schedules: links that come and go, crashes, restarts, loss and delay, then rest.

`play(seed)` is one schedule, the same for ever: a failure says its seed. Objects are sent meanwhile, and no
node may get one twice. Many at once, in one process, with a line for each setting:

    python -m tests.strategy.tree.schedules FIRST [LAST] [--settings walking,driving,prompt,adaptive,members]
"""

import argparse
import sys
import time
from random import Random
from typing import cast

from tests.strategy.tree.network import Network, Pair, Weather, pair

from roamcast.strategy.tree.parameters import TreeOptions, TreePreset
from roamcast.units import MILLISECOND, SECOND

REST_S = 90  # within which one tree per partition must stand, once links rest
SETTINGS = ("walking", "driving", "prompt", "adaptive", "members")


def play(seed: int, setting: str = "driving") -> Network:
    """`setting`: a preset, one schedule of five adaptive, or `adaptive`; or `members`, driving, in which only
    some nodes are members, and not always the same."""
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
    is_adaptive = random.random() < 0.2 or setting == "adaptive"
    options = TreeOptions(
        preset=cast(TreePreset, {"adaptive": "walking", "members": "driving"}.get(setting, setting)),
        membership="users" if setting == "members" else "all",
        adaptive=is_adaptive,
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
    if setting == "members":
        share = random.choice([0.2, 0.5, 0.8])
        for _ in range(random.choice([size, 3 * size])):
            network.at(random.randrange(end), lambda: join_or_leave(network, random, share))
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


def join_or_leave(network: Network, random: Random, share: float) -> None:
    if network.nodes:
        node = random.choice(sorted(network.nodes))
        network.step(node, lambda: network.nodes[node].protocol.set_member(random.random() < share))


def send(network: Network, random: Random) -> None:
    """An object to all whom the sender's tree reaches."""
    if network.nodes:
        network.nodes[random.choice(sorted(network.nodes))].send_object()


def main() -> int:
    parser = argparse.ArgumentParser(description="Play schedules of the acyclic overlay.")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--settings", default="driving")
    given = parser.parse_args()
    failures = 0
    for setting in given.settings.split(","):
        began, rests, objects = time.process_time(), [], 0
        for seed in range(given.first, (given.first if given.last is None else given.last) + 1):
            try:
                played = play(seed, setting)
                rests.append(played.rest_s)
                objects += played.objects_received
            except AssertionError as error:
                failures += 1
                sys.stdout.write(f"{setting}, seed {seed}: {error}\n")
        rests.sort()
        shares = ", ".join(
            f"{share:.1%} {rests[int(share * (len(rests) - 1))]:g}" for share in (0.5, 0.99, 1)
        )
        spent = time.process_time() - began
        sys.stdout.write(
            f"{setting}: {len(rests)} schedules without a fault, {objects} objects received once, "
            f"at rest within (s): {shares}; {spent:.0f} processor seconds\n"
        )
        sys.stdout.flush()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
