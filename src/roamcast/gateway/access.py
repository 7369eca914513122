"""Who may use a gateway, and for what: users with passwords, rights by topic, TLS.

`users = { name = "password" }` and rights stand in the gateway's table of the node's file. Who has no
rights by name may do everything. A password stands there as `roamcast key password` prints it:

    scrypt:13:SALT:DIGEST        13: two to this power is the cost; salt and digest in base64

Files of version 0.2 have it in clear; that still works, and the node warns of it when it starts.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from roamcast.errors import FilterError, InputError, ScenarioError
from roamcast.event import Publication
from roamcast.filter import Filter
from roamcast.filter.expression import OnTopic, Or
from roamcast.filter.topic import check_topic_filter, topic_covers, topic_matches
from roamcast.kit.rates import Bucket
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.units import MILLISECOND, SECOND, Micros

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
        """The part of a subscription that is allowed; `InputError` if nothing of it is."""
        if self.subscribe is None:
            return wanted
        if not self.subscribe:
            raise InputError("subscription", "is refused: this user may not subscribe")
        parts = tuple(OnTopic(one) for one in self.subscribe)
        return wanted & Filter(parts[0] if len(parts) == 1 else Or(parts))


Rights: TypeAlias = dict[str, TopicRights]
"""By user name."""


def rights_of(rights: Rights, user: str) -> TopicRights | None:
    """The rights of a user; None: without limits."""
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


HASHED = "scrypt:"
COST = 13  # 8 MB, and 27 ms here: with more, a guess would stall a small device
COSTS = range(10, 17)  # that a file may ask for
SALT_BYTES = DIGEST_BYTES = 16
PASSWORD_LENGTH_MIN = 8  # characters; of users who may come from beyond the device; chosen by us

# Guesses; chosen by us.
GUESS_EVERY: Micros = 2 * SECOND  # of one name from one address, in the long run,
GUESSES_AT_ONCE = 5
HASH_EVERY: Micros = 200 * MILLISECOND  # of all: a tenth of the processor, at most
HASHES_AT_ONCE = 20  # as when the clients of a node come back after its restart
GUESSERS_MAX = 1_024

Admission: TypeAlias = Literal["yes", "no", "later"]


class Accounts:
    """Users with passwords. A right password is recognised quickly from the second time on; wrong ones are
    slowed down by name and address, and all together, because each takes a while to check."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self._secret = secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}  # by user: a quick digest of the password that was right
        self._guesses: BoundedDict[tuple[str, str], Bucket] = BoundedDict(GUESSERS_MAX, unreported)
        self._hashes = Bucket(HASH_EVERY, HASHES_AT_ONCE)

    def __bool__(self) -> bool:
        return bool(self._passwords)

    def admission(self, name: str, password: bytes | None, address: str, now: Micros) -> Admission:
        """Whether these are the name and the password of a user; "later" if this is not asked now."""
        if password is None:
            return "no"
        digest = hmac.digest(self._secret, password, "sha256")
        if hmac.compare_digest(self._right.get(name, b""), digest):
            return "yes"
        guesses = self._guesses.setdefault((name, address), Bucket(GUESS_EVERY, GUESSES_AT_ONCE))
        if max(guesses.earliest(now), self._hashes.earliest(now)) > now:
            return "later"
        guesses.spend(now)
        self._hashes.spend(now)
        expected = self._passwords.get(name)
        # Compared even for an unknown name, so that the time taken does not reveal which names exist.
        if not _is_password(_NOBODY if expected is None else expected, password) or expected is None:
            return "no"
        self._right[name] = digest
        return "yes"


def hashed(password: str) -> str:
    """The password's hash as it stands in a node's file."""
    if len(password) < PASSWORD_LENGTH_MIN:
        raise InputError("password", f"is too short; allowed: {PASSWORD_LENGTH_MIN} characters and more")
    salt = secrets.token_bytes(SALT_BYTES)
    digest = _scrypt(password.encode(), salt, COST)
    return f"{HASHED}{COST}:{base64.b64encode(salt).decode()}:{base64.b64encode(digest).decode()}"


def check_passwords(key: str, users: Mapping[str, str]) -> None:
    """`ScenarioError` for a hash that is none."""
    for name, text in users.items():
        if text.startswith(HASHED) and _parsed(text) is None:
            raise ScenarioError(
                f"{key}.{name}", "is no hash of a password; allowed: what `roamcast key password` prints"
            )


def _is_password(expected: str, password: bytes) -> bool:
    if not expected.startswith(HASHED):
        return hmac.compare_digest(expected.encode(), password)
    parsed = _parsed(expected)
    assert parsed is not None, "checked when the file was read"
    cost, salt, digest = parsed
    return hmac.compare_digest(_scrypt(password, salt, cost), digest)


def _parsed(text: str) -> tuple[int, bytes, bytes] | None:
    try:
        cost, salt, digest = text.removeprefix(HASHED).split(":")
        found = int(cost), base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
    except (ValueError, binascii.Error):
        return None
    return found if found[0] in COSTS and len(found[1]) == len(found[2]) == SALT_BYTES else None


def _scrypt(password: bytes, salt: bytes, cost: int) -> bytes:
    """RFC 7914, with r = 8 and p = 1."""
    return hashlib.scrypt(password, salt=salt, n=1 << cost, r=8, p=1, maxmem=1 << 28, dklen=DIGEST_BYTES)


_NOBODY = f"{HASHED}{COST}:{'A' * 22}==:{'A' * 22}=="


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
            context.load_verify_locations(base / client_authority)
        except (OSError, ssl.SSLError) as error:
            raise InputError(f"{table}.tls_client_authority", f"{base / client_authority}: {error}") from None
    return context
