"""Topic filters as clients write them: `$share/group/sensor/+/value?room=A&value>25`.

The part after `?` is a content filter in the form that EMQX 6.2 published: comparisons joined by `&`,
evaluated on the message's user properties (and on the attributes of events from other kinds of clients).
Here it becomes the mesh's own `Filter`, so an event that nobody wants is not sent over the radio.

Operators are `= != > >= < <=`. A value that looks like a number is one and compares with numbers, by
value: `level=5` matches `5` and `5.0`. Any other value is a text; `<` and `>` order texts by code point.
Names and values may be percent-encoded, for a `&` or `=` inside. A property that is absent matches nothing,
`!=` included. `!=` is true for a value of another type: the text `hot` is not 5.

Some clients (mosquitto_sub, Paho) check filters themselves and refuse a wildcard with `?` behind it. For them
the conditions can stand in front: `$where/room=A&value>25/sensor/#`, a `/` in them written as `%2F`.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote

from roamcast.errors import FilterError
from roamcast.event import NAME_LENGTH_MAX, TEXT_LENGTH_MAX
from roamcast.filter import Filter, check_topic_filter
from roamcast.filter.expression import And, Compare, Expression, Like, OneOf, OnTopic, Operator, Or
from roamcast.gateway.mqtt.mesh.mapping import number_in

CONDITIONS_MAX = 64
SHARE = "$share/"
WHERE = "$where/"

_CONDITION = re.compile(r"([^=!<>]+)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_OPERATORS = {
    "=": Operator.EQUAL,
    "!=": Operator.NOT_EQUAL,
    ">": Operator.GREATER,
    ">=": Operator.GREATER_OR_EQUAL,
    "<": Operator.LESS,
    "<=": Operator.LESS_OR_EQUAL,
}


class ClientFilter(NamedTuple):
    """The parts of a client's topic filter."""

    share: str  # the group's name; empty: not shared
    topic_filter: str
    wanted: Filter  # topic and content
    on_topic: Filter  # the topic alone: retained messages are compared by it


def parse_client_filter(text: str, content_filters: bool) -> ClientFilter:
    """FilterError unless the text is a topic filter, maybe shared, maybe with a content filter."""
    share, topic_filter = _without_share(text)
    conditions = ""
    has_content = False
    if content_filters and topic_filter.startswith(WHERE):
        conditions, _, topic_filter = topic_filter[len(WHERE) :].partition("/")
        has_content = True
    elif content_filters:
        topic_filter, mark, conditions = topic_filter.partition("?")
        has_content = bool(mark)
    check_topic_filter(topic_filter)
    on_topic = Filter(OnTopic(topic_filter))
    if not has_content:
        return ClientFilter(share, topic_filter, on_topic, on_topic)
    terms = [_condition(part, text) for part in conditions.split("&")]
    if len(terms) > CONDITIONS_MAX:
        raise FilterError(_shown(text), f"has {len(terms)} conditions; at most {CONDITIONS_MAX} are allowed")
    wanted = Filter(And((OnTopic(topic_filter), *terms)))
    return ClientFilter(share, topic_filter, wanted, on_topic)


def _without_share(text: str) -> tuple[str, str]:
    """MQTT 5.0, section 4.8.2: `$share/{ShareName}/{filter}`."""
    if not text.startswith(SHARE):
        return "", text
    share, slash, topic_filter = text[len(SHARE) :].partition("/")
    if not share or not slash or "+" in share or "#" in share:
        raise FilterError(_shown(text), "a shared subscription is `$share/name/filter`, the name without + #")
    return share, topic_filter


def _condition(part: str, text: str) -> Expression:
    found = _CONDITION.fullmatch(part)
    if found is None:
        raise FilterError(_shown(text), f"{part[:40]!r} is no condition; `name=value` or `name>value` is")
    name, value = unquote(found[1]).strip(), unquote(found[3]).strip()
    if not name or len(name) > NAME_LENGTH_MAX or len(value) > TEXT_LENGTH_MAX:
        raise FilterError(_shown(text), f"the condition {part[:40]!r} has an empty name or is too long")
    return _comparison(name, _OPERATORS[found[2]], value)


def _comparison(name: str, operator: Operator, value: str) -> Expression:
    number = number_in(value)
    if operator is Operator.EQUAL and number is None and value in ("true", "false"):
        return OneOf(name, (value, value == "true"))  # a property's text, or a Python client's truth value
    if operator is not Operator.NOT_EQUAL:
        return Compare(name, operator, value if number is None else number)
    if number is not None:
        return Or((Compare(name, operator, number), Like(name, "%")))  # or any text
    any_number = (Compare(name, Operator.LESS_OR_EQUAL, 0), Compare(name, Operator.GREATER, 0))
    return Or((Compare(name, operator, value), *any_number))


def _shown(text: str) -> str:
    return f"topic filter {text[:80]!r}"
