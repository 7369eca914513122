"""Which broker shall be a client's home: the five steps of section 2.4, as a function."""

from typing import NamedTuple


class Candidate(NamedTuple):
    """`path`: the average path from every producer to the client through this broker, in hops."""

    load: int  # hundredths of its capacity
    path: float


def should_move(home: Candidate, found: Candidate, threshold: int | None) -> bool:
    """Whether the discovered broker takes the client over. `threshold`: None without overload control."""
    if threshold is not None:
        is_home_over, is_found_over = home.load > threshold, found.load > threshold
        if is_home_over and is_found_over:
            return found.load < home.load
        if is_home_over or is_found_over:
            return is_home_over
    return found.path < home.path
