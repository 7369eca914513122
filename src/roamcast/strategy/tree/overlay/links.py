"""One end's view of a tree link.

The overlay is the graph of links that both ends hold under the same number. A link that one end holds
and the other does not is no link: data sent over it is refused, and the refusal closes it.
"""

from dataclasses import dataclass
from enum import Enum

from roamcast.units import Micros, NodeId


class LinkState(Enum):
    ADOPTED = "adopted"  # we took the peer as our upstream and wait for its confirmation
    OPEN = "open"  # the peer has used this link


@dataclass(slots=True)
class TreeLink:
    peer: NodeId
    number: int
    state: LinkState
    # How often the upstream end has changed sides. A message that turns the link carries the number of its
    # turn, so a repeated or delayed one cannot turn it back.
    turn: int = 0
    url: str = ""  # where the peer can be reached (reactive manager)
    opened_here: bool = False  # whether this end sent the activation over the jump
    # For link breakage by failed frames: how many in a row, by the numbers of the frames sent.
    frames_sent: int = 0
    last_failed: int = -1
    failures: int = 0
    suspected_at: Micros | None = None  # when failed data last caused a probe
    # For link breakage by silence: when data last came, and the usual time between two data messages
    # (a moving average; the newest counts an eighth, chosen by us).
    heard_at: Micros | None = None
    usual_gap: Micros | None = None
    is_watched: bool = False

    def on_sent(self) -> int:
        self.frames_sent += 1
        return self.frames_sent

    def on_failed(self, frame: int) -> int:
        """How many frames in a row, up to this one, have failed."""
        self.failures = self.failures + 1 if frame == self.last_failed + 1 else 1
        self.last_failed = frame
        return self.failures

    def on_data(self, now: Micros) -> None:
        if self.heard_at is not None:
            gap = now - self.heard_at
            self.usual_gap = gap if self.usual_gap is None else (7 * self.usual_gap + gap) // 8
        self.heard_at = now


@dataclass(frozen=True, slots=True)
class LinkOffer:
    """A link whose upstream end we become if the peer takes it."""

    peer: NodeId
    number: int
    until: Micros
    url: str
