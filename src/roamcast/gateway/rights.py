"""What a user of a gateway may publish and subscribe to, by topic. Who is not named may do everything."""

from typing import TypeAlias

import msgspec

from roamcast.errors import FilterError, InputError, ScenarioError
from roamcast.event import Publication
from roamcast.filter import Filter
from roamcast.filter.expression import OnTopic, Or
from roamcast.filter.topic import check_topic_filter, topic_covers, topic_matches

EVERYONE = "*"  # stands for all users who are not named


class TopicRights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topic filters. None: everything; an empty list: nothing."""

    publish: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None

    def may_publish(self, topic: str) -> bool:
        """An event without a topic belongs to none: who has rights by topic may not publish it."""
        return self.publish is None or any(topic and topic_matches(one, topic) for one in self.publish)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether all that this asks for is allowed."""
        return self.subscribe is None or any(topic_covers(one, topic_filter) for one in self.subscribe)

    def check_publication(self, publication: Publication) -> None:
        if not self.may_publish(publication.topic):
            allowed = ", ".join(self.publish or ()) or "none"
            topic = repr(publication.topic[:80]) if publication.topic else "absent"
            raise InputError("topic", f"is {topic}, where this user may not publish; allowed: {allowed}")

    def narrowed(self, wanted: Filter) -> Filter:
        """The part of what is wanted that is allowed; `InputError` if nothing is."""
        if self.subscribe is None:
            return wanted
        if not self.subscribe:
            raise InputError("subscription", "is refused: this user may not subscribe")
        parts = tuple(OnTopic(one) for one in self.subscribe)
        return wanted & Filter(parts[0] if len(parts) == 1 else Or(parts))


Rights: TypeAlias = dict[str, TopicRights]
"""By user name."""


def rights_of(rights: Rights, user: str) -> TopicRights | None:
    """None: without limits."""
    return rights.get(user, rights.get(EVERYONE))


def check_rights(rights: Rights, key: str) -> None:
    """`ScenarioError` for what is no topic filter."""
    for user, one in rights.items():
        for name, filters in (("publish", one.publish), ("subscribe", one.subscribe)):
            for text in filters or ():
                try:
                    check_topic_filter(text)
                except FilterError as error:
                    raise ScenarioError(f"{key}.{user}.{name}", f"has {text!r}: {error.problem}") from None
