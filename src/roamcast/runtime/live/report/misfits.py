"""Devices that are heard and do not fit: by group, version, strategy, underlay, settings or clock.

Two nodes of one group with different strategies understand no frame of each other. So each announcement of a
node (`sealing/opener.py`) carries its `NodeProfile`, and whoever hears it compares. What cannot be
opened at all is known by the address that it comes from. Each misfit is logged once until it has been away,
listed in the status, and counted.

Anyone can send us frames from any address: the table is bounded, and so are the lines in the log.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Annotated, Protocol

import msgspec

from roamcast.host import Channel
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.runtime.live.report.counters import Counters, LineLimit
from roamcast.runtime.live.report.names import Names
from roamcast.sealing import Refusal
from roamcast.units import SECOND, Micros, NodeId, seconds
from roamcast.wire.status import Misfit

logger = logging.getLogger("roamcast.misfits")

# Chosen by us.
MISFITS_MAX = 64
EXPIRY: Micros = 120 * SECOND  # without a frame of it
LINES_PER_MINUTE = 10
CLOCKS_APART = 60  # seconds: far more than clocks drift, and than announcements take
OPTIONS_LENGTH_MAX = 120
KINDS = ("group", "version", "strategy", "underlay", "settings", "program", "clock", "identity")
_DEAF = {"strategy": Channel.STRATEGY, "underlay": Channel.UNDERLAY}
_ERRORS = frozenset({"strategy", "underlay", "version", "identity"})
REFUSED = {
    Refusal.UNKNOWN_KEY: ("group", "is of another group: this node does not have its group key"),
    Refusal.VERSION: ("version", "speaks another version of our frames, or is another program on this port"),
    Refusal.BAD_ANNOUNCEMENT: ("version", "announces itself in a form that this version does not know"),
    Refusal.IDENTITY: ("identity", "claims a node number that is known with another key"),
    Refusal.CLASH: ("identity", "has our own node number; a copied identity endangers both"),
}

ShortText = Annotated[str, msgspec.Meta(max_length=32)]


class NodeProfile(msgspec.Struct, frozen=True, array_like=True):
    """What must agree among neighbours. Later versions may add fields at the end."""

    program: ShortText
    strategy: ShortText
    underlay: ShortText
    options: Annotated[str, msgspec.Meta(max_length=OPTIONS_LENGTH_MAX)]  # those that are not the defaults
    clock: int  # Unix time, seconds; 0: not set

    def encode(self) -> bytes:
        return _encoder.encode(self)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(NodeProfile)


def options_text(*options: msgspec.Struct | None) -> str:
    """The options that differ from their defaults, as `name=value`; a digest where that is too long."""
    texts: list[str] = []
    for one in options:
        if one is None:
            continue
        for field in msgspec.structs.fields(one):
            value = getattr(one, field.name)
            if field.default is msgspec.NODEFAULT or value != field.default:
                texts.append(f"{field.name}={msgspec.json.encode(value, enc_hook=str).decode()}")
    text = " ".join(sorted(texts))
    if len(text) <= OPTIONS_LENGTH_MAX and text.isascii():
        return text
    return f"digest:{blake2b(text.encode(), digest_size=8).hexdigest()}"


class HeardPeer(Protocol):
    @property
    def heard_at(self) -> Micros: ...


class _Noticed:
    __slots__ = ("at", "frames", "problem")

    def __init__(self) -> None:
        self.at: Micros = 0
        self.frames = 0
        self.problem = ""


class Misfits:
    def __init__(self, counters: Counters, names: Names) -> None:
        self._counters = counters
        self._names = names
        self._noticed: BoundedDict[tuple[str, str, NodeId | None], _Noticed] = BoundedDict(
            MISFITS_MAX, unreported
        )
        self._log = LineLimit(logger, LINES_PER_MINUTE)
        for kind in KINDS:
            counters.gauge("misfits", partial(self._count, kind), kind=kind)

    def refused(self, reason: Refusal, address: str, detail: str, now: Micros) -> None:
        """A frame could not be opened; nothing that it says of its sender is believed."""
        found = REFUSED.get(reason)
        if found is not None:
            kind, problem = found
            self._notice(kind, address, None, f"{problem} ({detail})", now)

    def introduced(
        self, own: NodeProfile, node: NodeId, address: str, profile: bytes, now: Micros
    ) -> Sequence[Channel]:
        """A member has announced itself: does it fit? Returns the layers of ours that cannot read its frames,
        because it has other ones in their place."""
        try:
            theirs = _decoder.decode(profile)
        except (msgspec.DecodeError, ValueError):
            self._notice("version", address, node, "does not say what it is", now)
            return ()
        differences = _differences(own, theirs)
        kinds = {kind for kind, _ in differences}
        for key in [key for key in self._noticed if key[2] == node and key[1] not in kinds]:
            del self._noticed[key]  # it fits by now
        for kind, problem in differences:
            self._notice(kind, address, node, problem, now)
        return [_DEAF[kind] for kind, _ in differences if kind in _DEAF]

    def look(self, now: Micros, peers: Mapping[NodeId, HeardPeer]) -> None:
        """A member that does not fit is listed as long as it is heard: its announcements alone would be too
        rare."""
        for (_, _, node), one in self._noticed.items():
            peer = None if node is None else peers.get(node)
            if peer is not None and peer.heard_at > one.at:
                one.at = now

    def standing(self, now: Micros) -> list[Misfit]:
        """Errors first, the latest first."""
        self._noticed.forget(lambda one: now - one.at >= EXPIRY)
        found = [
            Misfit(
                address=address,
                node=node,
                kind=kind,
                problem=self._said(node, one.problem),
                age=seconds(now - one.at),
                frames=one.frames,
            )
            for (address, kind, node), one in self._noticed.items()
        ]
        return sorted(found, key=lambda one: (not is_error(one), one.age))

    def _count(self, kind: str) -> int:
        return sum(key[1] == kind for key in self._noticed)

    def _notice(self, kind: str, address: str, node: NodeId | None, problem: str, now: Micros) -> None:
        self._noticed.forget(lambda one: now - one.at >= EXPIRY)
        key = (address, kind, node)
        one = self._noticed.get(key)
        is_new = one is None
        if one is None:
            one = _Noticed()
            self._counters.count("misfits_seen_total", kind=kind)
        one.at = now
        one.frames += 1
        self._noticed.renew(key, one)
        if is_new or one.problem != problem:
            one.problem = problem
            level = logging.ERROR if kind in _ERRORS else logging.WARNING
            said = "a neighbour does not fit: %s %s"
            self._log.log(now, level, said, address, self._said(node, problem))

    def _said(self, node: NodeId | None, problem: str) -> str:
        return problem if node is None else f"{self._names.called(node)} {problem}"


def is_error(misfit: Misfit) -> bool:
    """Whether it keeps the two from hearing each other; a foreign group does too, but it may be meant so."""
    return misfit.kind in _ERRORS


def _differences(own: NodeProfile, theirs: NodeProfile) -> list[tuple[str, str]]:
    found = []
    if theirs.strategy != own.strategy:
        found.append(
            ("strategy", f"has the strategy {theirs.strategy!r}, this one {own.strategy!r}: neither "
             f"understands the other; set strategy.name alike")
        )  # fmt: skip
    elif theirs.underlay != own.underlay:
        found.append(
            ("underlay", f"has the underlay {theirs.underlay!r}, this one {own.underlay!r}: they are no "
             f"neighbours; set underlay.name alike")
        )  # fmt: skip
    elif theirs.options != own.options:
        found.append(
            ("settings", f"has other options of the strategy ({theirs.options or 'the defaults'}) than this "
             f"one ({own.options or 'the defaults'}); they may not fit")
        )  # fmt: skip
    if theirs.program != own.program:
        found.append(("program", f"runs roamcast {theirs.program}, this one {own.program}"))
    if not theirs.clock or not own.clock:
        if theirs.clock != own.clock:
            late = "its clock is not set" if not theirs.clock else "our clock is not set"
            found.append(("clock", f"and this one disagree about the time: {late}"))
    elif abs(theirs.clock - own.clock) > CLOCKS_APART:
        found.append(
            ("clock", f"has a clock that is {theirs.clock - own.clock:+d} s from ours; retained messages and "
             f"invitations go by it")
        )  # fmt: skip
    return found
