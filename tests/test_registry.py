"""Parts by name: loaded when named, described without loading, and their declarations are true."""

import subprocess
import sys

import msgspec
import pytest

from roamcast.errors import InputError, ScenarioError
from roamcast.modulator import MODULATORS
from roamcast.registry import BUILT_IN, NothingDeclared, PluginError, Registry
from roamcast.strategy import LIVE_DEFAULT, STRATEGIES
from roamcast.strategy.base import LimitsModulators, Strategy
from roamcast.underlay import UNDERLAYS, Underlay

LAZY = {
    "roamcast.strategy": ("roamcast.strategy.chapar", "roamcast.strategy.flooding", "roamcast.strategy.tree"),
    "roamcast.underlay": ("roamcast.underlay.olsr", "roamcast.underlay.beacons"),
    "roamcast.modulator": ("roamcast.modulator.built_in", "roamcast.modulator.built_in"),
}


class Options(msgspec.Struct, frozen=True):
    depth: int = 1


@pytest.mark.parametrize("package", sorted(LAZY))
def test_a_part_is_loaded_when_it_is_named_and_not_before(package: str) -> None:
    script = f"import sys, {package}\nprint(*(name for name in {LAZY[package]!r} if name in sys.modules))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


@pytest.mark.parametrize("name", STRATEGIES.own_names())
def test_what_a_strategy_declares_is_what_it_does(name: str) -> None:
    made, declared = STRATEGIES.maker(name), STRATEGIES.declared(name)
    options = STRATEGIES.options_type(name)()
    assert issubclass(made, Strategy)
    assert declared.carries_sealed == (made.seal_id is not Strategy.seal_id)
    assert declared.runs_modulators == isinstance(options, LimitsModulators)
    assert declared.default_underlay in UNDERLAYS
    assert set(declared.live_options) <= set(options.__struct_fields__)
    assert STRATEGIES.origin(name) == BUILT_IN and not STRATEGIES.is_plugin(name)


@pytest.mark.parametrize("name", UNDERLAYS.names())
def test_every_underlay_is_where_it_is_declared(name: str) -> None:
    assert issubclass(UNDERLAYS.maker(name), Underlay)
    assert UNDERLAYS.options_type(name)() is not None


def test_every_modulator_is_where_it_is_declared() -> None:
    for name in MODULATORS.names():
        assert issubclass(MODULATORS.options_type(name), msgspec.Struct)
        assert callable(MODULATORS.maker(name))


def test_the_live_default_is_a_strategy() -> None:
    assert LIVE_DEFAULT in STRATEGIES


def things() -> Registry[None, object, NothingDeclared]:
    registry: Registry[None, object, NothingDeclared] = Registry("thing", "roamcast.things", NothingDeclared)
    registry.declare("own", "collections:OrderedDict")
    return registry


def test_one_call_adds_a_part() -> None:
    registry = things()
    registry.add("mine", Options, lambda context, options: options)
    assert registry.names() == ["mine", "own"] and "mine" in registry
    assert registry.make("mine", None) == Options()
    assert registry.make("mine", None, Options(3)) == Options(3)
    assert registry.origin("mine") == __file__ and registry.is_plugin("mine")
    registry.remove("mine")
    assert registry.names() == ["own"]


def test_a_part_with_the_name_of_another_is_named_with_where_it_came_from() -> None:
    registry = things()
    with pytest.raises(PluginError) as caught:
        registry.add("own", Options, lambda context, options: options)
    assert str(caught.value) == f"thing 'own' ({__file__}): has the name of another, built in"


def test_a_part_without_an_options_struct_is_named_with_where_it_came_from() -> None:
    registry = things()
    with pytest.raises(PluginError, match=r"thing 'mine' \(.*test_registry.py\): has no options struct but "):
        registry.add("mine", dict, lambda context, options: options)  # type: ignore[arg-type]
    assert registry.names() == ["own"]


def test_an_unknown_name_gets_the_nearest_and_all() -> None:
    with pytest.raises(InputError, match=r"thing: is 'onw' \(did you mean `own`\?\); allowed: own"):
        things().options_type("onw")
    with pytest.raises(ScenarioError, match=r'thing.name: is "onw" \(did you mean `own`\?\); allowed: own'):
        things().check("thing", "onw", {})
