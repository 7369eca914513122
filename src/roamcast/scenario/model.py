"""The tables of a scenario file, version 1, as typed values.

What one key allows by itself is in its type here; what keys allow together is in `checks.py`. Times are
seconds and lengths metres, as people write them; `workload.py` puts them on the microsecond grid.

Note: in msgspec 0.22 a union of a constrained number and a tuple of fixed length (`float > 0` or
`tuple[float, float]`) reads past its own memory. A pair is therefore a tuple of any length, bounded to two.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from roamcast.errors import ScenarioError
from roamcast.event import ATTRIBUTES_MAX, DESTINATIONS_MAX, PAYLOAD_BYTES_MAX, EventClass, Name, Text
from roamcast.explain import shown
from roamcast.modulator import MODULATORS
from roamcast.plugins import ModuleNames
from roamcast.registry import ModelRegistry, PluginError, Registry
from roamcast.strategy import STRATEGIES
from roamcast.underlay import UNDERLAYS
from roamcast.units import Micros, micros
from roamcast.world.mobility import MOBILITY, Mobility, Model
from roamcast.world.radio import RADIOS, IdealRadio, Radio, RadioModel

# Chosen by us, against typing errors.
NODES_MAX = 10_000
DURATION_MAX = 10_000_000.0  # seconds; about four months
RATE_MAX = 100_000.0  # events per second and publisher
LIST_LENGTH_MAX = 1_000_000  # of subscriptions, publications, faults written out

NodeNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=NODES_MAX)]
Metres: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1e7)]
Instant: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=DURATION_MAX)]  # seconds since the run began
Pair: TypeAlias = Annotated[tuple[Metres, ...], msgspec.Meta(min_length=2, max_length=2)]
WholeNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
PayloadSize: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=PAYLOAD_BYTES_MAX)]  # octets
Attributes: TypeAlias = Annotated[
    dict[Name, bool | WholeNumber | float | Text], msgspec.Meta(max_length=ATTRIBUTES_MAX)
]
FileName: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
MotionFormat: TypeAlias = Literal["bonnmotion", "cabs", "csv", "fcd", "gpx", "ns2", "one"]
Chosen: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=NODES_MAX)] | tuple[NodeNumber, ...] | Literal["all"]
"""Who has a role: a count (the seed chooses), a list of node numbers, or all."""


Struct = TypeVar("Struct", bound=msgspec.Struct)


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TOML table whose keys are all known."""


class General(_Table, frozen=True, kw_only=True):
    """`[scenario]`"""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    duration: Annotated[float, msgspec.Meta(gt=0, le=DURATION_MAX)]  # simulated seconds
    warmup: Instant = 0.0  # left out of the metrics
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 1
    # Plug-ins, beside this file or installed. UNSET, so that `to_dict` has no such key without plug-ins.
    modules: ModuleNames | msgspec.UnsetType = msgspec.UNSET
    version: Literal[1] = 1


class RecordedTrace(_Table, frozen=True, kw_only=True, tag_field="model", tag="trace"):
    """`[world.mobility] model = "trace"`: recorded motion.

    The recording is shifted to begin at 0. Nodes are numbered as the reader numbers them.
    """

    file: FileName  # or a folder; relative to the scenario file
    format: MotionFormat | None = None  # None: guessed from the file's name and first rows
    max_gap: Annotated[float, msgspec.Meta(gt=0, le=1e11)] | None = (
        None  # seconds; absent if silent for longer
    )
    conflict: Literal["error", "last"] | None = None  # two places at one time: refuse, or take the later row
    geographic: bool = False  # an FCD file holds longitude and latitude


class WorldTable(_Table, frozen=True, kw_only=True):
    """`[world]`: either motion, area and range, or a contact plan."""

    nodes: Annotated[int, msgspec.Meta(ge=1, le=NODES_MAX)] | None = None  # None: as many as the file has
    area: Pair | None = None
    range: Metres | Pair | None = None  # a pair: each node draws its own
    mobility: Model | RecordedTrace | None = None  # `tables_type` says which models
    contacts: FileName | None = None  # a plan's file name, relative to the scenario file
    radio: Radio = IdealRadio()


class RolesTable(_Table, frozen=True, kw_only=True):
    """`[roles]`"""

    brokers: Chosen = "all"
    publishers: Chosen = 1
    subscribers: Chosen = "all"


class SubscriptionEntry(_Table, frozen=True, kw_only=True):
    """One of `workload.subscriptions`. Conditions given together must all hold; none means every event."""

    node: NodeNumber
    filter: Text | None = None  # a SQL condition
    xpath: Text | None = None  # an XPath condition, read with `workload.schema`
    topic: Text | None = None  # an MQTT topic filter
    type: Name | None = None
    modulator: dict[str, Any] | None = None  # `name`, and the parameters of that modulator
    since: Instant = msgspec.field(default=0.0, name="from")
    until: Instant | None = None


class PublicationEntry(_Table, frozen=True, kw_only=True):
    """One of `workload.publications`. What is None is taken from `[workload]`."""

    t: Instant
    node: NodeNumber
    attributes: Attributes = {}
    event_class: EventClass | None = msgspec.field(default=None, name="class")
    lifetime: Instant | None = None
    to: Annotated[tuple[NodeNumber, ...], msgspec.Meta(max_length=DESTINATIONS_MAX)] = ()
    multimode: bool = False
    topic: Text = ""
    type: Name = ""
    size: PayloadSize | None = None


class AdvertisementEntry(_Table, frozen=True, kw_only=True):
    """One of `workload.advertisements`: the node announces that events of a type will come."""

    node: NodeNumber
    type: Name
    since: Instant = msgspec.field(default=0.0, name="from")
    until: Instant | None = None


class ArrivalProcess(Enum):
    """How a publisher's events follow each other."""

    PERIODIC = "periodic"  # every 1 / rate seconds, from a random phase
    POISSON = "poisson"  # memoryless, 1 / rate seconds apart on average


class Workload(_Table, frozen=True, kw_only=True):
    """`[workload]`"""

    rate: Annotated[float, msgspec.Meta(ge=0, le=RATE_MAX)] = 1.0  # events per second and publisher
    size: PayloadSize = 256
    match: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0  # share of subscriptions an event matches
    arrival: ArrivalProcess = ArrivalProcess.PERIODIC
    start: Instant = 0.0  # of the generated publications
    stop: Instant | None = None  # None: `Scenario.stop`
    event_class: EventClass = msgspec.field(default=EventClass.REALTIME, name="class")
    lifetime: Instant = 0.0  # of memorized events
    schema: FileName | None = None  # of XML events, for `xpath`; relative to the scenario file
    subscriptions: (
        Annotated[tuple[SubscriptionEntry, ...], msgspec.Meta(max_length=LIST_LENGTH_MAX)] | None
    ) = None
    publications: Annotated[tuple[PublicationEntry, ...], msgspec.Meta(max_length=LIST_LENGTH_MAX)] | None = (
        None
    )
    # UNSET, so that `to_dict` has no such key without advertisements.
    advertisements: (
        Annotated[tuple[AdvertisementEntry, ...], msgspec.Meta(max_length=LIST_LENGTH_MAX)]
        | msgspec.UnsetType
    ) = msgspec.UNSET


class StrategyChoice(_Table, frozen=True, kw_only=True):
    """`[strategy]`. Each strategy defines its own options."""

    name: str
    options: dict[str, Any] = {}

    def parsed(self) -> msgspec.Struct:
        """The options as the strategy's own type, defaults filled in."""
        return msgspec.convert(self.options, STRATEGIES.options_type(self.name))


class UnderlayChoice(_Table, frozen=True, kw_only=True):
    """`[underlay]`. Without a name the strategy brings its own."""

    name: str | None = None
    options: dict[str, Any] = {}

    def parsed(self) -> msgspec.Struct | None:
        """The options as the underlay's own type; None where the strategy chooses."""
        if self.name is None:
            return None
        return msgspec.convert(self.options, UNDERLAYS.options_type(self.name))


class FaultKind(Enum):
    CRASH = "crash"  # nodes stop and lose what is volatile
    RESTART = "restart"  # crashed nodes boot again
    CUT = "cut"  # links carry nothing, whatever the motion says
    HEAL = "heal"  # cut links follow the motion again


class FaultEntry(_Table, frozen=True, kw_only=True):
    """One `[[fault]]`. For `cut` and `heal`, `nodes` means every link between them and the rest."""

    at: Instant
    kind: FaultKind
    nodes: tuple[NodeNumber, ...] = ()
    links: tuple[Annotated[tuple[NodeNumber, ...], msgspec.Meta(min_length=2, max_length=2)], ...] = ()


class LimitTable(_Table, frozen=True, kw_only=True):
    """`[limit]`: how a run is compared with what its contacts allow."""

    # Of how many events the fewest broadcasts are computed, spread evenly; 0: no limit is computed at all.
    events: Annotated[int, msgspec.Meta(ge=0, le=LIST_LENGTH_MAX)] = 5
    deadline: Instant = 10.0  # seconds after its publication in which a real-time event counts as delivered


class ScenarioTables(_Table, frozen=True, kw_only=True):
    """A whole scenario file."""

    scenario: General
    world: WorldTable
    roles: RolesTable = RolesTable()
    workload: Workload = Workload()
    strategy: StrategyChoice
    underlay: UnderlayChoice = UnderlayChoice()
    limit: LimitTable = LimitTable()
    fault: Annotated[tuple[FaultEntry, ...], msgspec.Meta(max_length=LIST_LENGTH_MAX)] = ()


MOBILITY.add("trace", RecordedTrace)
MODELS: dict[str, tuple[ModelRegistry[Any, Any, Any], Any]] = {
    "mobility": (MOBILITY, Mobility | RecordedTrace),
    "radio": (RADIOS, RadioModel),
}
"""The fields of `WorldTable` that hold a model: which there are, and the type of our own."""


def tables_type(tables: Mapping[str, Any]) -> type[ScenarioTables]:
    """The type of a whole file: its models may be ours or of plug-ins. `tables` are not checked yet."""
    world = tables.get("world")
    given = world if isinstance(world, Mapping) else {}
    mobility, radio = (model_type(field, given.get(field)) for field in MODELS)
    return _tables_type(mobility | None, radio)


def model_type(field: str, table: Any) -> Any:
    """All models that a field of `WorldTable` may hold; a model of an entry point once a table names it."""
    registry, own = MODELS[field]
    name = table.get("model") if isinstance(table, Mapping) else None
    if isinstance(name, str) and name in registry:
        try:
            registry.options_type(name)
        except PluginError as error:
            raise ScenarioError(f"world.{field}.model", f"is {shown(name)}: {error}") from error
    for model in registry.added():
        own |= model
    return own


@lru_cache(maxsize=4)
def _tables_type(mobility: Any, radio: Any) -> type[ScenarioTables]:
    return _with_types(ScenarioTables, world=_with_types(WorldTable, mobility=mobility, radio=radio))


def _with_types(kind: type[Struct], **types: Any) -> type[Struct]:
    """A struct like `kind`, in which some fields have other types."""
    fields = [
        (field.name, types.get(field.name, field.type), msgspec.field(default=field.default))
        for field in msgspec.structs.fields(kind)
    ]
    made: Any = msgspec.defstruct(
        kind.__name__, fields, bases=(kind,), frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    return made  # type: ignore[no-any-return]


def model_name(model: msgspec.Struct) -> str:
    return str(model.__struct_config__.tag)


class Scenario(ScenarioTables, frozen=True, kw_only=True):
    """A scenario that was checked: `load_scenario` and `scenario_from` make it, and nothing else does.

    `base` is the folder to which the file names in it are relative. It is not part of `to_dict`, so that
    a trace does not depend on the file's place.
    """

    base: Path = Path()

    @property
    def nodes(self) -> int:
        assert self.world.nodes is not None, "loading fills it in"
        return self.world.nodes

    @property
    def seed(self) -> int:
        return self.scenario.seed

    @property
    def duration(self) -> Micros:
        return micros(self.scenario.duration)

    @property
    def warmup(self) -> Micros:
        return micros(self.scenario.warmup)

    @property
    def stop(self) -> Micros:
        """When the last generated event may be published.

        By default one second before the end (half-way, if the run is shorter than two seconds), so that
        what is published can still arrive.
        """
        if self.workload.stop is not None:
            return micros(self.workload.stop)
        return self.duration - min(micros(1), self.duration // 2)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with every default written out; `scenario_from` reads them back."""
        builtins: dict[str, Any] = msgspec.to_builtins(self._tables())
        return builtins

    def to_json(self) -> str:
        return msgspec.json.encode(self._tables()).decode()

    def _tables(self) -> ScenarioTables:
        return ScenarioTables(**{name: getattr(self, name) for name in ScenarioTables.__struct_fields__})


def parts_of(scenario: Scenario) -> Iterator[tuple[str, Registry[Any, Any, Any], str]]:
    """Every part that a scenario is made of: the key that chooses it, its registry, its name."""
    strategy = scenario.strategy.name
    yield "strategy.name", STRATEGIES, strategy
    yield "underlay.name", UNDERLAYS, scenario.underlay.name or STRATEGIES.declared(strategy).default_underlay
    if scenario.world.mobility is not None:
        yield "world.mobility.model", MOBILITY, model_name(scenario.world.mobility)
    yield "world.radio.model", RADIOS, model_name(scenario.world.radio)
    for index, entry in enumerate(scenario.workload.subscriptions or ()):
        if entry.modulator is not None:
            yield f"workload.subscriptions[{index}].modulator", MODULATORS, str(entry.modulator["name"])
