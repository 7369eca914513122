"""Checks across keys: keys that contradict each other, node numbers that do not exist."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from roamcast.errors import EventError, FilterError, InputError, ScenarioError
from roamcast.event import EventClass
from roamcast.explain import shown
from roamcast.filter.xpath.translation import DocumentShape
from roamcast.scenario.model import (
    AdvertisementEntry,
    Chosen,
    FaultEntry,
    FaultKind,
    General,
    PublicationEntry,
    RecordedTrace,
    Scenario,
    ScenarioTables,
    SubscriptionEntry,
    WorldTable,
)
from roamcast.scenario.workload import (
    count_of,
    faults,
    filter_of,
    modulator_of,
    publication_of,
    roles,
    schema_of,
)
from roamcast.scenario.world import nodes_in_world
from roamcast.strategy import STRATEGIES, check_underlay
from roamcast.strategy.base import ChecksBrokers, NamesNodes
from roamcast.underlay import UNDERLAYS
from roamcast.units import seconds

EVENTS_MAX = 10_000_000  # generated in one run; chosen by us: more would not fit in memory


def checked(tables: ScenarioTables, base: Path) -> Scenario:
    """The scenario, with the number of nodes filled in, or a `ScenarioError` for its first fault."""
    _check_general(tables.scenario)
    _check_world(tables.world)
    given = {name: getattr(tables.world, name) for name in WorldTable.__struct_fields__}
    world = WorldTable(**{**given, "nodes": nodes_in_world(tables, base)})
    parts = {name: getattr(tables, name) for name in ScenarioTables.__struct_fields__}
    scenario = Scenario(**{**parts, "world": world}, base=base)
    _check_mobility(scenario)
    _check_roles(scenario)
    _check_strategy(scenario)
    _check_workload(scenario)
    if scenario.underlay.name is not None:
        UNDERLAYS.check("underlay", scenario.underlay.name, scenario.underlay.options)
        check_underlay(scenario.strategy.name, scenario.strategy.parsed(), scenario.underlay.name)
    elif scenario.underlay.options:
        raise ScenarioError(
            "underlay.options", "is given without underlay.name, which says whose options they are"
        )
    _check_faults(scenario)
    return scenario


def _check_general(general: General) -> None:
    if general.warmup >= general.duration:
        raise ScenarioError(
            "scenario.warmup",
            f"is {general.warmup:g}; allowed: less than the duration, {general.duration:g} s",
        )


def _check_world(world: WorldTable) -> None:
    if world.contacts is not None:
        for key in ("mobility", "area", "range"):
            if getattr(world, key) is not None:
                raise ScenarioError(
                    f"world.{key}",
                    "stands beside world.contacts; allowed: links from motion, or from a plan, not both",
                )
    else:
        if world.mobility is None:
            raise ScenarioError(
                "world.mobility", "is missing; it must be a table, or world.contacts a plan's file"
            )
        recorded = isinstance(world.mobility, RecordedTrace)
        has_contacts = not isinstance(world.mobility, RecordedTrace) and world.mobility.HAS_CONTACTS
        if has_contacts and world.range is not None:
            raise ScenarioError(
                "world.range", "stands beside a model that says itself who hears whom; leave it out"
            )
        if not has_contacts and world.range is None:
            raise ScenarioError("world.range", "is missing; it must be metres, or [min, max] in metres")
        if recorded and world.area is not None:
            raise ScenarioError(
                "world.area", "stands beside a recorded trace, which has its own; leave it out"
            )
        if not recorded and world.area is None:
            raise ScenarioError("world.area", "is missing; it must be [width, height] in metres")
        if not recorded and world.nodes is None:
            raise ScenarioError("world.nodes", "is missing; it must be a whole number of at least 1")
    if isinstance(world.range, tuple) and world.range[0] > world.range[1]:
        raise ScenarioError("world.range", f"is {shown(world.range)}; allowed: [min, max] with min <= max")
    from_motion = world.range is not None
    if world.radio.sensing() != 1 and not from_motion:
        raise ScenarioError(
            "world.radio.sense", "is for links that follow from positions and a range; leave it out"
        )
    if problem := world.radio.problem():
        raise ScenarioError(f"world.radio.{problem[0]}", problem[1])


def _check_mobility(scenario: Scenario) -> None:
    mobility, area = scenario.world.mobility, scenario.world.area
    if mobility is not None and not isinstance(mobility, RecordedTrace):
        assert area is not None
        mobility.check(scenario.nodes, (area[0], area[1]))


def _check_roles(scenario: Scenario) -> None:
    roles = scenario.roles
    _check_chosen("roles.brokers", roles.brokers, scenario.nodes)
    _check_chosen("roles.publishers", roles.publishers, scenario.nodes)
    _check_chosen("roles.subscribers", roles.subscribers, scenario.nodes)


def _check_chosen(key: str, chosen: Chosen, nodes: int) -> None:
    if isinstance(chosen, int) and chosen > nodes:
        raise ScenarioError(key, f"is {chosen}; allowed: at most the {nodes} nodes there are")
    if isinstance(chosen, tuple):
        _check_numbers(key, chosen, nodes)


def _check_numbers(key: str, numbers: Sequence[int], nodes: int) -> None:
    seen: set[int] = set()
    for index, node in enumerate(numbers):
        _check_node(f"{key}[{index}]", node, nodes)
        if node in seen:
            raise ScenarioError(
                f"{key}[{index}]", f"is {node}, which the list has already; allowed: each node once"
            )
        seen.add(node)


def _check_node(key: str, node: int, nodes: int) -> None:
    if node >= nodes:
        raise ScenarioError(key, f"is {node}; allowed: a node number from 0 to {nodes - 1}")


def _check_time(key: str, time: float, scenario: Scenario) -> None:
    if time > scenario.scenario.duration:
        raise ScenarioError(
            key, f"is {time:g}; allowed: within the duration, 0 to {scenario.scenario.duration:g} s"
        )


def _check_workload(scenario: Scenario) -> None:
    workload = scenario.workload
    stop = seconds(scenario.stop)
    _check_time("workload.stop", stop, scenario)
    if workload.start > stop:
        raise ScenarioError(
            "workload.start", f"is {workload.start:g}; allowed: not after the stop at {stop:g} s"
        )
    if workload.event_class is EventClass.MEMORIZED and workload.lifetime == 0:
        raise ScenarioError("workload.lifetime", "is 0; allowed: above 0 seconds for memorized events")
    schema = _checked_schema(scenario)
    for index, subscription in enumerate(workload.subscriptions or ()):
        _check_subscription(f"workload.subscriptions[{index}]", subscription, scenario, schema)
    for index, advertisement in enumerate(workload.advertisements or ()):
        _check_advertisement(f"workload.advertisements[{index}]", advertisement, scenario)
    for index, publication in enumerate(workload.publications or ()):
        _check_publication(f"workload.publications[{index}]", publication, scenario)
    if workload.publications is None:
        publishers = count_of(scenario.roles.publishers, scenario.nodes)
        if (events := publishers * workload.rate * (stop - workload.start)) > EVENTS_MAX:
            raise ScenarioError(
                "workload.rate",
                f"is {workload.rate:g}, which makes {events:,.0f} events; allowed: at most {EVENTS_MAX:,}",
            )


def _checked_schema(scenario: Scenario) -> DocumentShape | None:
    try:
        return schema_of(scenario)
    except InputError as error:
        raise ScenarioError("workload.schema", f"is {shown(scenario.workload.schema)}: {error}") from None


def _check_advertisement(key: str, entry: AdvertisementEntry, scenario: Scenario) -> None:
    _check_node(f"{key}.node", entry.node, scenario.nodes)
    _check_standing(key, entry.since, entry.until, scenario)
    if not STRATEGIES.declared(scenario.strategy.name).takes_advertisements:
        able = " or ".join(STRATEGIES.names_with(lambda declared: declared.takes_advertisements))
        raise ScenarioError(key, f"is given; allowed: with the strategy {able} only")


def _check_standing(key: str, since: float, until: float | None, scenario: Scenario) -> None:
    _check_time(f"{key}.from", since, scenario)
    if until is not None and until <= since:
        raise ScenarioError(f"{key}.until", f"is {until:g}; allowed: later than `from`, {since:g} s")


def _check_subscription(
    key: str, entry: SubscriptionEntry, scenario: Scenario, schema: DocumentShape | None
) -> None:
    _check_node(f"{key}.node", entry.node, scenario.nodes)
    _check_standing(key, entry.since, entry.until, scenario)
    for name in ("filter", "xpath", "topic", "type"):
        with _filter_errors_at(f"{key}.{name}", getattr(entry, name)):
            filter_of(SubscriptionEntry(node=entry.node, **{name: getattr(entry, name)}), schema)
    with _filter_errors_at(key, "filter, xpath, topic and type"):
        filter_of(entry, schema)  # together they can be more than one filter may hold
    if entry.modulator is not None:
        if not STRATEGIES.declared(scenario.strategy.name).runs_modulators:
            able = " or ".join(STRATEGIES.names_with(lambda declared: declared.runs_modulators))
            raise ScenarioError(f"{key}.modulator", f"is given; allowed: with the strategy {able} only")
        try:
            modulator_of(entry)
        except InputError as error:
            raise ScenarioError(f"{key}.modulator", f"is {shown(entry.modulator)}: {error}") from None


def _check_publication(key: str, entry: PublicationEntry, scenario: Scenario) -> None:
    _check_node(f"{key}.node", entry.node, scenario.nodes)
    if entry.t >= scenario.scenario.duration:
        raise ScenarioError(
            f"{key}.t", f"is {entry.t:g}; allowed: before the end at {scenario.scenario.duration:g} s"
        )
    _check_numbers(f"{key}.to", entry.to, scenario.nodes)
    if entry.multimode and not entry.to:
        raise ScenarioError(f"{key}.multimode", "is true without `to`; allowed: only beside destinations")
    event_class = entry.event_class or scenario.workload.event_class
    lifetime = scenario.workload.lifetime if entry.lifetime is None else entry.lifetime
    if event_class is EventClass.MEMORIZED and lifetime == 0:
        raise ScenarioError(f"{key}.lifetime", "is 0; allowed: above 0 seconds for memorized events")
    if event_class is EventClass.REALTIME and entry.lifetime:
        raise ScenarioError(
            f"{key}.lifetime",
            f'is {entry.lifetime:g} beside class "realtime"; allowed: 0, or class = "memorized"',
        )
    try:
        publication_of(entry, scenario.workload)
    except EventError as error:
        raise ScenarioError(f"{key}.{error.where}", error.problem) from None


@contextmanager
def _filter_errors_at(key: str, text: str | None) -> Iterator[None]:
    try:
        yield
    except FilterError as error:
        raise ScenarioError(key, f"is {shown(text)}: {error.problem}") from None


def _check_strategy(scenario: Scenario) -> None:
    STRATEGIES.check("strategy", scenario.strategy.name, scenario.strategy.options)
    options = scenario.strategy.parsed()
    for option, node in options.nodes_named() if isinstance(options, NamesNodes) else ():
        if node >= scenario.nodes:
            raise ScenarioError(
                f"strategy.options.{option}",
                f"names node {node}; allowed: 0 to {scenario.nodes - 1}, as there are",
            )
    if isinstance(options, ChecksBrokers):
        options.check_brokers(roles(scenario).brokers)


def _check_faults(scenario: Scenario) -> None:
    for index, entry in enumerate(scenario.fault):
        _check_fault(f"fault[{index}]", entry, scenario)
    faults(scenario)


def _check_fault(key: str, entry: FaultEntry, scenario: Scenario) -> None:
    _check_time(f"{key}.at", entry.at, scenario)
    _check_numbers(f"{key}.nodes", entry.nodes, scenario.nodes)
    if entry.kind in (FaultKind.CRASH, FaultKind.RESTART):
        if entry.links:
            raise ScenarioError(
                f"{key}.links", f"stands beside kind {entry.kind.value}; allowed: with cut and heal only"
            )
        if not entry.nodes:
            raise ScenarioError(f"{key}.nodes", "is missing; it must be a list of node numbers")
    elif bool(entry.nodes) == bool(entry.links):
        raise ScenarioError(
            key, f"of kind {entry.kind.value} needs either nodes or links, not both and not neither"
        )
    for index, link in enumerate(entry.links):
        _check_numbers(f"{key}.links[{index}]", link, scenario.nodes)
