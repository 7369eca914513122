"""How much of a burst one frame is: what is handed over goes in bursts with a pause, for other senders."""

FRAGMENT_BYTES = 1_400  # what a radio sends in one piece, about


def fragments(octets: int) -> int:
    """A large frame counts as many as the pieces that it is sent in."""
    return 1 + octets // FRAGMENT_BYTES
