"""From the values of a node's file to the parts of a live node; an error names the key at fault."""

import asyncio
from pathlib import Path

from roamcast.errors import InputError
from roamcast.runtime.live.air import interface
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.segments import SegmentSource, TraceSegments, clock_identity
from roamcast.runtime.live.settings import AirSettings, KeySettings, LiveSettings
from roamcast.sealing import Identity, KeyRing
from roamcast.sealing.content import ContentKey, ContentKeys
from roamcast.strategy import LIVE_DEFAULT
from roamcast.units import Micros


def identity_in(settings: LiveSettings) -> Identity:
    try:
        return Identity.from_text(settings.keys.identity, settings.node.number)
    except InputError as error:
        key = "node.number" if error.where == "node" else "keys.identity"
        raise InputError(key, error.problem) from None


def name_in(settings: LiveSettings, identity: Identity) -> str:
    return settings.node.name or f"node-{identity.node}"


def key_ring_in(keys: KeySettings) -> KeyRing:
    try:
        return KeyRing.from_texts(list(keys.group))
    except InputError as error:
        raise InputError("keys.group", error.problem) from None


def content_keys_in(settings: LiveSettings) -> ContentKeys | None:
    if not settings.keys.content:
        return None
    try:
        return ContentKeys(*(ContentKey.from_text(text) for text in settings.keys.content))
    except InputError as error:
        raise InputError("keys.content", error.problem) from None


def interfaces_in(settings: AirSettings) -> tuple[str, ...]:
    """The names, the preferred ones first; none: those that this machine has."""
    if settings.address is not None:
        return (interface.with_address(settings.address, "air.address").name,)
    return settings.interfaces if settings.interface is None else (settings.interface,)


def trace_in(
    settings: LiveSettings,
    base: Path,
    identity: Identity,
    boot: int,
    now: Micros,
    loop: asyncio.AbstractEventLoop,
    counters: Counters,
) -> TraceSegments | None:
    trace = settings.trace
    if trace.folder is None:
        return None
    source = SegmentSource(
        node=identity.node,
        name=name_in(settings, identity),
        # Two groups that are collected in one folder stay apart.
        run=trace.run or f"group-{key_ring_in(settings.keys).sending.id:04x}",
        strategy=settings.strategy.name or LIVE_DEFAULT,
        boot=boot,
        epoch=now if trace.epoch is None else trace.epoch,
        clock=clock_identity(),
    )
    return TraceSegments(
        base / trace.folder,
        source,
        loop,
        counters,
        bytes_max=trace.bytes_max,
        segment_bytes=trace.segment_bytes,
        segment_seconds=trace.segment_seconds,
    )
