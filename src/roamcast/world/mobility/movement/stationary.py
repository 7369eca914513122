"""Stationary start: the draws that put a node where a long run would have put it.

A node that begins a trip at time 0 from a uniform place is not in the long-run distribution of its own
model: for minutes its mean speed falls and the nodes gather in the middle, and a metric of that time measures
the drift. Leaving out a warm-up only makes the drift smaller. The start can be drawn exactly instead: what an
observer sees at a random *instant* is what happens per *trip*, weighted by how long it lasts (Palm
inversion), and the instant lies uniformly within it.

- A node rests with probability `E[pause] / (E[pause] + E[travel])`.
- Travel time is length over speed, and the two are independent, so the weight factorises: a leg is drawn
  with density proportional to its length, the place uniformly along it, and the speed with
  density proportional to `1/v` (slow trips last longer).
- A rest is drawn with density proportional to its duration; what is left of it is a uniform share.

W. Navidi and T. Camp, "Stationary distributions for the random waypoint mobility model", IEEE
Transactions on Mobile Computing 3(1), 2004. J.-Y. Le Boudec and M. Vojnović, "Perfect simulation and
stationarity of a class of mobility models", INFOCOM 2005, for the argument in general.
"""

import math
from random import Random

from roamcast.world.mobility.model import Range


def resting_share(pause: Range, travel_seconds: float) -> float:
    """The share of time a node rests, given the mean duration of its trips."""
    rest_seconds = (pause[0] + pause[1]) / 2
    return rest_seconds / (rest_seconds + travel_seconds)


def mean_inverse_speed(speed: Range) -> float:
    """`E[1/v]` for a speed drawn uniformly per trip, seconds per metre: times a length, it gives the time."""
    low, high = speed
    if high - low <= 1e-9 * high:
        return 1 / high  # the limit of the quotient below, which loses its digits here
    return math.log(high / low) / (high - low)


def speed_in_passing(random: Random, speed: Range) -> float:
    """The speed of a trip met at a random instant: density `1/v`, by inverting its distribution."""
    low, high = speed
    # Powers may differ in the last digit between C libraries; nine decimals are the same everywhere.
    drawn = round(low * math.pow(high / low, random.random()), 9)
    return min(max(drawn, low), high)


def rest_left(random: Random, pause: Range) -> float:
    """What is left of a rest met at a random instant, seconds."""
    low, high = pause
    whole = math.sqrt(low * low + (high * high - low * low) * random.random())  # density p on [low, high]
    return whole * random.random()
