"""What a client without a broker and its broker say to each other.

| message | sent | in the trace |
|---|---|---|
| `BrokerSearch` | flooded by the client, a few hops far | `broker_search` |
| `BrokerOffer` | by each broker that the search reaches | `broker_offer` |
| `Registration` | by the client: what it wants and advertises; again before its lease ends | `registration` |
| `Registered` | by the broker: has it, or needs it in full | `registered` |
| `ClientEvent` | a publication to the broker, an event to the client | `client_event` |
| `EventReceipt` | by whoever got it | `receipt` |

All but the first travel in a `Carried`, hop by hop.
"""

from typing import Annotated, TypeAlias

import msgspec

from roamcast.event import Count, Event, Name

FILTER_BYTES_MAX = 8_192
FILTERS_MAX = 256
TYPES_MAX = 64
HOPS_MAX = 255

Hops: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=HOPS_MAX)]
FilterBytes: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=FILTER_BYTES_MAX)]


class _Struct(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Fields have an order instead of names."""


class BrokerSearch(_Struct, frozen=True, tag=4):
    client: Count
    number: Count  # of this client's search
    hops: Hops  # radio hops before this one


class BrokerOffer(_Struct, frozen=True, tag=1):
    number: Count  # of the search


class Registration(_Struct, frozen=True, tag=2):
    """`filters` None: as in the version that the broker has."""

    version: Count
    filters: Annotated[tuple[FilterBytes, ...], msgspec.Meta(max_length=FILTERS_MAX)] | None
    types: Annotated[tuple[Name, ...], msgspec.Meta(max_length=TYPES_MAX)] = ()  # that it advertises


class Registered(_Struct, frozen=True, tag=3):
    version: Count
    known: bool  # False: send it in full


class ClientEvent(_Struct, frozen=True, tag=4):
    hops: Hops  # radio hops before this unicast
    age: Count
    event: Event


class EventReceipt(_Struct, frozen=True, tag=5):
    publisher: Count
    sequence: Count


ClientContent: TypeAlias = BrokerOffer | Registration | Registered | ClientEvent | EventReceipt

NAMES: dict[type[msgspec.Struct], str] = {
    BrokerOffer: "broker_offer",
    Registration: "registration",
    Registered: "registered",
    ClientEvent: "client_event",
    EventReceipt: "receipt",
}
"""As the trace names them."""


class Carried(_Struct, frozen=True, tag=5):
    """Unicast between a client and its broker, over the nodes between them."""

    origin: Count
    target: Count
    hops: Hops
    content: ClientContent
