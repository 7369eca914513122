"""Members of JSON payloads as attributes, for clients that send no user properties (`[mqtt.json]`).

    "owntracks/#" = ["lat", "lon", "batt"]
    "msh/#" = ["type", "payload.latitude_i"]

A payload is a stranger's: its size is bounded, only the levels that a rule names are looked into, and what is
no JSON is counted and passed on as it is.
"""

from collections.abc import Callable, Mapping

import msgspec

from roamcast.errors import FilterError, ScenarioError
from roamcast.event import NAME_LENGTH_MAX, Value
from roamcast.filter.topic import check_topic_filter, topic_matches

# Chosen by us.
JSON_BYTES_MAX = 16_384  # of a payload that is looked into
TEXT_MAX = 256  # characters of a member that becomes an attribute
LEVELS_MAX = 8  # of `one.inside.another`
INTEGER_MAX = 2**63

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUE = msgspec.json.Decoder(bool | int | float | str | None)
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def check_members(rules: Mapping[str, tuple[str, ...]], key: str) -> None:
    """`ScenarioError` for what is no topic filter, and for what can be no attribute."""
    for topic_filter, members in rules.items():
        try:
            check_topic_filter(topic_filter)
        except FilterError as error:
            raise ScenarioError(key, f"has {topic_filter!r}: {error.problem}") from None
        for name in members:
            levels = name.split(".")
            is_ours = name == "mqtt" or levels[0] in ("mqtt", "roamcast")
            if not all(levels) or len(levels) > LEVELS_MAX or len(name) > NAME_LENGTH_MAX or is_ours:
                problem = f"has {name[:40]!r}; allowed: names of members, such as lat or position.lat"
                raise ScenarioError(f"{key}.{topic_filter}", problem)


class JsonMembers:
    def __init__(self, rules: Mapping[str, tuple[str, ...]], count: Callable[[str], None]) -> None:
        """`count`: gets the reason why members did not become attributes, as a label."""
        self._rules = rules
        self._count = count

    def of(self, topic: str, payload: bytes) -> dict[str, Value]:
        """The attributes that the rules for this topic find in a payload."""
        names = [name for one, some in self._rules.items() if topic_matches(one, topic) for name in some]
        if not names or not payload:
            return {}
        if len(payload) > JSON_BYTES_MAX:
            self._count("too_long")
            return {}
        found: dict[str, Value] = {}
        try:
            objects = {"": _OBJECT.decode(payload)}  # by the name of the member that it is
            for name in names:
                raw = _member(objects, name)
                if raw is not None and (value := self._value(raw)) is not None:
                    found[name] = value
        except _NO_JSON:
            self._count("no_json")
            return {}
        return found

    def _value(self, raw: msgspec.Raw) -> Value:
        try:
            value = _VALUE.decode(raw)
        except msgspec.ValidationError:
            value = ()
        is_number = type(value) is float or (type(value) is int and -INTEGER_MAX <= value < INTEGER_MAX)
        if (
            value is None
            or type(value) is bool
            or is_number
            or (type(value) is str and len(value) <= TEXT_MAX)
        ):
            return value  # type: ignore[no-any-return]
        self._count("no_attribute")
        return None


def _member(objects: dict[str, dict[str, msgspec.Raw]], name: str) -> msgspec.Raw | None:
    """A member, whole; None if there is none. Each object is decoded once."""
    outer, _, inner = name.rpartition(".")
    if outer not in objects:
        raw = _member(objects, outer)
        is_object = raw is not None and bytes(memoryview(raw)[:1]) == b"{"
        objects[outer] = _OBJECT.decode(raw) if is_object and raw is not None else {}
    return objects[outer].get(inner)
