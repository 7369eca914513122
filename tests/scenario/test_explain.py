"""Every kind of misfit gets the key, the value and what is allowed, in one line."""

from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from roamcast.errors import ScenarioError
from roamcast.explain import converted


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Round(msgspec.Struct, tag_field="shape", tag="round", frozen=True, forbid_unknown_fields=True):
    radius: Annotated[float, msgspec.Meta(gt=0)]


class Square(msgspec.Struct, tag_field="shape", tag="square", frozen=True, forbid_unknown_fields=True):
    side: float = 1.0


class Item(msgspec.Struct, forbid_unknown_fields=True):
    count: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    colour: Colour = Colour.RED
    labels: dict[str, bool | int | str] = {}


class Everything(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    shape: Round | Square = Square()
    items: tuple[Item, ...] = ()
    pair: Annotated[tuple[float, ...], msgspec.Meta(min_length=2, max_length=2)] | None = None
    who: int | tuple[int, ...] | Literal["all"] = "all"
    point: tuple[float, float] = (0.0, 0.0)
    on: bool = False
    title: Annotated[str, msgspec.Meta(max_length=3)] = ""
    any_number: float = 0.0
    at_most: Annotated[float, msgspec.Meta(le=2)] = 0.0


class Lenient(msgspec.Struct):
    interval: float = 1.0


@pytest.mark.parametrize(
    ("table", "key", "problem"),
    [
        ({}, "name", "is missing; it must be a text"),
        ({"name": 3}, "name", "is 3; allowed: a text"),
        ({"nmae": "x"}, "nmae", "is no known key (did you mean `name`?); allowed: name, shape, items, pair"),
        ({"shape": {}}, "shape.shape", 'is missing; it must be "round" or "square"'),
        ({"shape": {"shape": "oval"}}, "shape.shape", 'is "oval"; allowed: "round" or "square"'),
        ({"shape": {"shape": 4}}, "shape.shape", 'is 4; allowed: "round" or "square"'),
        ({"shape": 7}, "shape", 'is 7; allowed: a table with shape = "round" or "square"'),
        ({"shape": {"shape": "round"}}, "shape.radius", "is missing; it must be a number above 0"),
        ({"shape": {"shape": "round", "radius": -5}}, "shape.radius", "is -5; allowed: a number above 0"),
        (
            {"shape": {"shape": "square", "radius": 5}},
            "shape.radius",
            "is no known key; allowed: shape, side",
        ),
        ({"items": [{}, {"count": 10}]}, "items[1].count", "is 10; allowed: a whole number from 1 to 9"),
        ({"items": [{"count": 1.5}]}, "items[0].count", "is 1.5; allowed: a whole number from 1 to 9"),
        ({"items": [{"colour": "pink"}]}, "items[0].colour", 'is "pink"; allowed: "red" or "blue"'),
        ({"items": 5}, "items", "is 5; allowed: a list, each a table"),
        (
            {"items": [{"labels": {"a": 1, "b": [2]}}]},
            "items[0].labels.b",
            "is [2]; allowed: true or false or a whole number or a text",
        ),
        ({"pair": [1.0]}, "pair", "is [1.0]; allowed: a list of 2 values, each a number"),
        ({"pair": [1.0, "x"]}, "pair[1]", 'is "x"; allowed: a number'),
        (
            {"who": "none"},
            "who",
            'is "none"; allowed: a whole number or a list, each a whole number or "all"',
        ),
        ({"who": True}, "who", "is true; allowed: a whole number or a list, each a whole number or"),
        ({"point": [1, 2, 3]}, "point", "is [1, 2, 3]; allowed: a list of 2 values: a number; a number"),
        ({"on": 1}, "on", "is 1; allowed: true or false"),
        ({"title": "long"}, "title", 'is "long"; allowed: a text of at most 3 characters'),
        ({"any_number": float("inf")}, "any_number", "is inf; allowed: a finite number"),
        (
            {"items": [{"labels": {"a": float("nan")}}]},
            "items[0].labels.a",
            "is nan; allowed: a finite number",
        ),
        ({"at_most": 3}, "at_most", "is 3; allowed: a number of at most 2"),
        ({"title": "x" * 500}, "title", 'is "xxxxxxxx'),
    ],
)
def test_a_misfit_is_told_with_key_value_and_what_is_allowed(
    table: dict[str, Any], key: str, problem: str
) -> None:
    table = {"name": "n"} | table if table and not {"nmae", "name"} & set(table) else table
    with pytest.raises(ScenarioError) as caught:
        converted(table, Everything)
    assert caught.value.where == key
    assert caught.value.problem.startswith(problem)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250


def test_whole_numbers_are_numbers() -> None:
    assert converted({"name": "n", "any_number": 3, "pair": [1, 2]}, Everything).pair == (1.0, 2.0)


def test_a_struct_that_would_let_unknown_keys_pass_is_still_checked() -> None:
    with pytest.raises(ScenarioError, match=r"^strategy.options.intervall: is no known key \(did you mean"):
        converted({"intervall": 2}, Lenient, "strategy.options")
