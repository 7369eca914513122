"""Who may use a gateway, and for what: users with passwords, rights by topic, TLS.

`users = { name = "password" }` and rights stand in the gateway's table of the node's file. Who has no
rights by name may do everything.
"""

import hmac
import ssl
from collections.abc import Mapping
from pathlib import Path
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


def is_user(users: Mapping[str, str], name: str, password: bytes | None) -> bool:
    """Whether these are the name and the password of a user."""
    expected = users.get(name)
    # Compared even for an unknown name, so that the time taken does not reveal which names exist.
    same = hmac.compare_digest((expected or "").encode(), password or b"")
    return expected is not None and password is not None and same


def server_context(
    table: str, base: Path, certificate: str, key: str = "", client_authority: str = ""
) -> ssl.SSLContext:
    """File names are relative to `base`; `table` is the one of the node's file that has them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    chain, secret = base / certificate, base / (key or certificate)
    try:
        context.load_cert_chain(chain, secret)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"{table}.tls_certificate", f"{chain}, {secret}: {error}") from None
    if client_authority:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_authority)
        except (OSError, ssl.SSLError) as error:
            raise InputError(f"{table}.tls_client_authority", f"{client_authority}: {error}") from None
    return context
