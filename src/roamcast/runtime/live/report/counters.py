"""What a node counts about itself, and how Prometheus reads it.

Names are those of the endpoint without the prefix `roamcast_`; `HELP` says what each means. Nothing
that comes from the air or from a client becomes a label, but for the numbers of the 64 peers heard last. So
the program fixes the number of series; `SERIES_MAX` bounds it all the same.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from roamcast.units import SECOND, Micros

PREFIX = "roamcast_"
SERIES_MAX = 10_000

Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A name and its labels."""


class Count:
    """One counter, for callers that count often and keep it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class LineLimit:
    """So that a crowd in motion, or strangers who send anything, do not fill the log."""

    def __init__(self, logger: logging.Logger, lines_per_minute: int) -> None:
        self._logger = logger
        self._most = lines_per_minute
        self._lines = 0
        self._minute = 0

    def log(
        self, now: Micros, level: int, line: str, *values: object, error: bool | BaseException = False
    ) -> None:
        """`error`: with its traceback, or that of the one being handled."""
        minute = now // (60 * SECOND)
        if minute != self._minute:
            if self._lines > self._most:
                self._logger.info("%d more lines in that minute", self._lines - self._most)
            self._minute, self._lines = minute, 0
        self._lines += 1
        if self._lines <= self._most:
            self._logger.log(level, line, *values, exc_info=error)


class Counters:
    def __init__(self) -> None:
        self._counts: dict[Series, Count] = {}
        self._gauges: dict[Series, Callable[[], float]] = {}
        self._families: dict[str, tuple[str, Callable[[], Iterable[tuple[str, float]]]]] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter; names end in `_total`."""
        self.counter(name, **labels).value += amount

    def counter(self, name: str, **labels: str) -> Count:
        """The counter itself."""
        series = (name, tuple(labels.items()))
        found = self._counts.get(series)
        if found is None:
            found = Count()
            if len(self._counts) < SERIES_MAX:
                self._counts[series] = found
        return found

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """A value that is read whenever the endpoint is asked; one whose name ends in `_total` only grows."""
        self._gauges[name, tuple(labels.items())] = read

    def family(self, name: str, label: str, read: Callable[[], Iterable[tuple[str, float]]]) -> None:
        """Values by one label that comes and goes, a bounded number of them."""
        self._families[name] = (label, read)

    def value(self, name: str, **labels: str) -> float:
        """What a counter has reached; 0 for one that never counted."""
        found = self._counts.get((name, tuple(labels.items())))
        return 0 if found is None else found.value

    def reading(self, name: str) -> float | None:
        """What a gauge reads now, the sum over all labels; None: there is none of that name."""
        found = [read() for (of, _), read in self._gauges.items() if of == name]
        return sum(found) if found else None

    def total(self, name: str) -> float:
        """The sum over all labels."""
        return sum(found.value for (of, _), found in self._counts.items() if of == name)

    def to_text(self) -> str:
        """The text format of Prometheus, version 0.0.4."""
        values: dict[Series, float] = {series: found.value for series, found in self._counts.items()}
        values.update({series: read() for series, read in self._gauges.items()})
        for name, (label, read_all) in self._families.items():
            values.update({(name, ((label, text),)): value for text, value in read_all()})
        return "\n".join(_lines(values)) + "\n"


def _lines(values: Mapping[Series, float]) -> list[str]:
    lines: list[str] = []
    described = ""
    for (name, labels), value in sorted(values.items()):
        if name != described:
            if name in HELP:
                lines.append(f"# HELP {PREFIX}{name} {_escaped(HELP[name])}")
            lines.append(f"# TYPE {PREFIX}{name} {'counter' if name.endswith('_total') else 'gauge'}")
            described = name
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        lines.append(f"{PREFIX}{name}{f'{{{inside}}}' if inside else ''} {_number(value)}")
    return lines


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


HELP = {
    "build_info": "The program and its parts, as labels; always 1.",
    "uptime_seconds": "Seconds since the node started.",
    "events_published_total": "Events that applications of this node published.",
    "events_delivered_total": "Events handed to applications of this node, one for each application.",
    "events_stored": "Memorized events that this node keeps now.",
    "events_held_back": "Memorized events that wait for the one before them on their topic.",
    "events_let_pass_total": "Memorized events handed over although the one before them had not come.",
    "broker_load": "Share of this broker's capacity that is taken, by modulators or anything else; 0: none.",
    "large_payloads_coming": "Payloads in chunks that are under way to applications of this node.",
    "subscriptions": "Subscriptions of this node's applications now.",
    "inquiries": "Requests and publications that wait for answers or receipts now.",
    "queries": "Queries over memorized events that wait for other nodes now.",
    "answers_dropped_total": "Replies and receipts that fitted no open request, by reason.",
    "receipts_sent_total": "Receipts for events of other nodes that this node sent.",
    "receipts_enough_total": "Words of this node that it has receipts enough of its own events.",
    "receipts_dropped_total": "Receipts that were wanted and not sent, by reason.",
    "publications_shed_total": "Real-time publications refused because the mesh had no room.",
    "publications_slowed_seconds_total": "Seconds that publishers had to wait because the mesh had no room.",
    "publish_rate_allowed": "Publications per second that the mesh has room for; 0: not limited.",
    "congestion_reports_total": "Reports that frames come too fast for a node, by origin.",
    "frames_sent_total": "Frames handed to the kernel, by kind and layer.",
    "frame_bytes_sent_total": "Octets of these frames, with seal and records, without IP.",
    "frames_refused_total": "Frames that arrived and were not accepted, by reason.",
    "frames_unheard_total": "Data broadcasts not sent because no other node has been heard.",
    "frames_queued": "Frames in TCP links that are not acknowledged yet.",
    "drops_total": "Frames and events that this node gave up, by reason.",
    "datagrams_unsent_total": "Datagrams that could not be sent, by reason.",
    "datagrams_dropped_by_kernel": "Datagrams that came faster than they were read.",
    "receive_errors_total": "Errors of the kernel while receiving, by error.",
    "peers": "Nodes in the address book: heard within ten minutes.",
    "peers_up": "Nodes that are heard now.",
    "peers_came_total": "How often a peer appeared.",
    "peers_went_total": "How often a peer fell silent.",
    "peer_up": "1 for a peer that is heard now; the 64 peers heard last.",
    "peer_quality": "Share of the last intervals in which a peer was heard.",
    "peer_received_bytes_total": "Octets of sealed frames from a peer.",
    "peer_sent_bytes_total": "Octets of frames to a peer alone; broadcasts are not counted.",
    "peers_moved_total": "How often a peer was reached by another interface or address from then on.",
    "frames_heard_twice_total": "Broadcasts that came by a second interface too; taken once.",
    "addresses_doubted_total": "How often a peer was heard from a further address while its own still spoke.",
    "neighbours": "Neighbours with a link in both directions, by the underlay.",
    "misfits": "Devices heard now that do not fit, by kind.",
    "misfits_seen_total": "How often such a device appeared, by kind.",
    "statements_refused_total": "Statements about membership that were not believed, by reason.",
    "links": "TCP links now.",
    "links_opened_total": "TCP links that this node opened.",
    "links_failed_total": "TCP links that could not be opened.",
    "links_broken_total": "TCP links that broke with frames in them.",
    "links_refused_total": "TCP links of others that were refused, by reason.",
    "table_evictions_total": "Entries that a full table let go, by table.",
    "routes_refused_total": "Routes that the kernel refused, by error (open OLSR).",
    "routes_unbelieved": "Announced routes that are not believed now (open OLSR).",
    "interface_up": "1 for an interface that is used now, 0 for one that is waited for.",
    "interface_peers": "Peers heard now that are reached by an interface.",
    "interface_changes_total": "How often an interface appeared, came back or changed its address.",
    "interface_reopened_total": "How often the sockets on an interface were opened anew.",
    "interface_away_seconds_total": "Seconds without any usable interface.",
    "handler_errors_total": "Inputs dropped because a handler raised an error: faults of the program.",
    "timers": "Timers that are set now.",
    "trace_segments_dropped_total": "Trace segments removed to stay within trace.bytes_max.",
    "trace_records_unwritten_total": "Trace records for which the disk had no room.",
    "local_clients": "Programs connected to the local socket now.",
    "local_received_total": "Publications of programs on the local socket that were published, or shed.",
    "mqtt_clients": "MQTT clients connected now.",
    "mqtt_sessions": "MQTT sessions, connected or not.",
    "mqtt_waiting": "Messages that wait for MQTT clients.",
    "mqtt_in_flight": "Messages that MQTT clients were sent and have not acknowledged.",
    "mqtt_mesh_subscriptions": "Distinct subscriptions of all MQTT clients together.",
    "mqtt_received": "Messages of MQTT clients that were published, or shed.",
    "mqtt_matched": "Messages for MQTT clients, one for each client: delivered, dropped, waiting, in flight.",
    "mqtt_delivered": "Messages that MQTT clients have acknowledged; of QoS 0, that they were sent.",
    "mqtt_connected_total": "MQTT connections accepted, by version.",
    "mqtt_refused_total": "MQTT connections refused, by reason.",
    "mqtt_closed_total": "MQTT connections ended by this node, by reason.",
    "mqtt_disconnected_total": "MQTT connections ended, by reason.",
    "mqtt_json_total": "JSON payloads without the members that were asked for, by reason.",
    "mqtt_malformed_total": "MQTT packets that are none, by reason.",
    "mqtt_subscriptions_refused_total": "Subscriptions of MQTT clients that were refused, by reason.",
    "mqtt_waits_total": "Publishing MQTT clients that had to wait, by reason.",
    "mqtt_unpublished_total": "Messages of MQTT clients that were shed or refused, by reason.",
    "mqtt_dropped_total": "Messages for MQTT clients that were dropped, by reason.",
    "mqtt_damaged_total": "Stored MQTT sessions that could not be read.",
    "mqtt_storage_refusals_total": "Writes of MQTT sessions that the storage refused.",
    "web_connections": "Connections of browsers now.",
    "web_refused_total": "Requests of browsers that were refused, by reason.",
    "web_socket_errors_total": "WebSockets ended for an error, by reason.",
    "bridge_carrying": "1 while this node carries the bridge.",
    "bridge_waiting": "Events that wait for the broker elsewhere.",
    "bridge_up_total": "Events handed to the broker elsewhere.",
    "bridge_down_total": "Messages that came from the broker elsewhere.",
    "bridge_dropped_total": "Messages of the bridge that were given up, by reason.",
    "bridge_ended_total": "How often a connection to the broker elsewhere ended.",
}
"""What each metric of `GET /metrics` means. The names there begin with `roamcast_`."""
