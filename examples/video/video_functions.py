"""What brokers must know to serve video: a player's modulator that thins a stream out and scales its frames.

There is no codec here: a frame is octets of a recorded size. Frames after a key frame build on each other, so
whoever drops one drops the rest up to the next key frame; `keep` is the share that stays. A frame scaled down
by a factor has so many times fewer octets.
"""

import zlib
from typing import Annotated

import msgspec

from roamcast.errors import WireError
from roamcast.event import Event
from roamcast.modulator import MODULATORS, Content, Modulator

NAME = "video_scale"


class ScaleParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keep: Annotated[float, msgspec.Meta(gt=0, le=1)] = (
        1.0  # share of each group of frames, from its key frame on
    )
    factor: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1  # octets of a frame are divided by it
    passes: Annotated[int, msgspec.Meta(ge=0, le=100)] = (
        4  # over each frame: what transcoding costs the broker
    )


class Scale(Modulator):
    """Knows how far the current group of frames has come; that is its state when it moves."""

    def __init__(self, parameters: ScaleParameters) -> None:
        self._parameters = parameters
        self._position = 0  # in the group
        self._length = 1  # of the group before, which the share is of

    def process(self, event: Event) -> Content | None:
        if event.attributes.get("key") is True:
            self._length, self._position = max(1, self._position), 0
        self._position += 1
        keep = self._parameters.keep
        if keep < 1 and 1 < self._position > keep * self._length:
            return None
        for _ in range(self._parameters.passes):
            zlib.compress(event.payload)
        scaled = event.payload[: max(1, len(event.payload) // self._parameters.factor)]
        return Content(dict(event.attributes), scaled, event.topic)

    def state(self) -> bytes:
        return msgspec.msgpack.encode((self._position, self._length))

    def restore(self, state: bytes) -> None:
        try:
            self._position, self._length = msgspec.msgpack.decode(state, type=tuple[int, int])
        except msgspec.DecodeError as error:
            raise WireError("state of video_scale", 0, str(error)) from None


if NAME not in MODULATORS.names():
    MODULATORS.add(NAME, ScaleParameters, lambda _, parameters: Scale(parameters))
