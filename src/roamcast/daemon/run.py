"""The daemon: starts and stops node, gateways and metrics, and handles signals."""

import asyncio
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from roamcast.daemon import collector
from roamcast.daemon.config import (
    Config,
    LogFormat,
    LogSettings,
    MetricsSettings,
    clear_passwords,
    listening_address,
    load_config,
    web_users,
)
from roamcast.errors import InputError
from roamcast.runtime.live.inputs import TRACEBACKS_PER_MINUTE
from roamcast.runtime.live.node import LiveNode
from roamcast.runtime.live.report.counters import Counters, LineLimit

if TYPE_CHECKING:
    from roamcast.gateway.web.server import WebServer

logger = logging.getLogger("roamcast.daemon")

FILES_MAX = 65_536


class Service(Protocol):
    """A gateway or an endpoint beside the node."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Daemon:
    """A node and its services. File names in the configuration are relative to `base`."""

    def __init__(self, config: Config, base: Path) -> None:
        self._config = config
        self._base = base
        self._services: list[Service] = []
        self._node: LiveNode | None = None

    @property
    def node(self) -> LiveNode:
        assert self._node is not None, "the daemon has not started"
        return self._node

    async def start(self) -> None:
        """Everything open, or nothing: an `InputError` leaves no service running."""
        try:
            self._node = await LiveNode.start(self._config.live, self._base)
            for service in _services(self._config, self._node, self._base):
                await service.start()
                self._services.append(service)
        except BaseException:
            await self.stop()
            raise

    def reload_keys(self, path: Path) -> None:
        """SIGHUP: take the group keys that are in the file now. If the file has errors, nothing changes."""
        try:
            self.node.replace_group_keys(load_config(path).keys)
        except InputError as error:
            logger.error("the group keys stay as they are: %s", error)
        else:
            logger.info("group keys as in %s from now on", path)

    async def stop(self) -> None:
        while self._services:
            await self._services.pop().stop()
        if self._node is not None:
            await self._node.stop()


def run(path: Path, on_ready: Callable[[Daemon], None] | None = None) -> None:
    """Run the node of a file until SIGTERM or SIGINT; SIGHUP reads its group keys again."""
    config = load_config(path)
    set_up_logs(config.log)
    if path.stat().st_mode & 0o077:
        logger.warning("%s holds secret keys and others may read it; chmod 600 helps", path)
    if clear := clear_passwords(config):
        hint = "`roamcast key password` makes hashes to put there instead"
        logger.warning("%s: passwords in clear (%s); %s", path, ", ".join(clear), hint)
    _allow_many_sockets()
    asyncio.run(_run(config, path, on_ready))


async def _run(config: Config, path: Path, on_ready: Callable[[Daemon], None] | None) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    daemon = Daemon(config, path.parent)
    await daemon.start()
    loop.set_exception_handler(CallbackErrors(daemon.node).on_error)
    loop.add_signal_handler(signal.SIGHUP, daemon.reload_keys, path)
    collector.calm(loop)
    try:
        _tell_service_manager("READY=1")
        if on_ready is not None:
            on_ready(daemon)
        await told.wait()
        _tell_service_manager("STOPPING=1")
    finally:
        collector.as_usual()
        await daemon.stop()


class CallbackErrors:
    """What a gateway's callback raises: counted, and logged with its traceback a few times a minute."""

    def __init__(self, node: LiveNode) -> None:
        self._node = node
        self._log = LineLimit(logger, TRACEBACKS_PER_MINUTE)

    def on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._node.counters.count("handler_errors_total")
        error = context.get("exception")
        self._log.log(
            self._node.clock.enter(), logging.ERROR, "%s", context.get("message", ""), error=error or False
        )


def _services(config: Config, node: LiveNode, base: Path) -> list[Service]:
    services: list[Service] = []
    if config.mqtt is not None or config.web is not None:
        from roamcast.gateway.mqtt.listener import MqttListener
        from roamcast.gateway.options import MqttOptions

        mqtt = MqttListener(node, config.mqtt or MqttOptions(), base, listens=config.mqtt is not None)
        services.append(mqtt)
        if config.web is not None:
            from roamcast.gateway.web.answers import JSON, Document
            from roamcast.gateway.web.server import WebServer

            view = Document(JSON, lambda: msgspec.json.encode(node.view()))
            documents = {"/node.json": view}
            web = WebServer(config.web, web_users(config), node.counters, documents, mqtt, base=base)
            node.counters.gauge("web_connections", lambda: len(web.connections))
            services.append(web)
    if config.bridge is not None:
        from roamcast.gateway.bridge.bridge import Bridge

        services.append(Bridge(node, config.bridge, base))
    if config.metrics is not None:
        services.append(metrics_server(node.counters, config.metrics))
    if config.clients is not None:  # last: whoever waits for the socket finds the others open
        from roamcast.gateway.local import LocalServer

        options = msgspec.structs.replace(config.clients, socket=str(base / config.clients.socket))
        services.append(LocalServer(node, options))
    return services


def metrics_server(counters: Counters, settings: MetricsSettings) -> "WebServer":
    """GET /metrics, for Prometheus."""
    from roamcast.gateway.options import WebOptions
    from roamcast.gateway.web.answers import Document
    from roamcast.gateway.web.server import WebServer

    host, port = listening_address(settings.listen)
    # Bounds chosen by us; a scrape of Prometheus needs far less.
    options = WebOptions(host=host, port=port, page=False, connections_max=16, request_timeout=5.0)
    text = Document("text/plain; version=0.0.4; charset=utf-8", lambda: counters.to_text().encode())
    documents = {"/metrics": text}
    return WebServer(options, {}, counters, documents, key="metrics.listen", any_host=True)


def _allow_many_sockets() -> None:
    """Links and clients may be more than the usual soft limit of 1,024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _tell_service_manager(state: str) -> None:
    """sd_notify(3), where systemd started us with Type=notify."""
    import socket

    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        manager.connect("\0" + address[1:] if address.startswith("@") else address)
        manager.send(state.encode())


def set_up_logs(settings: LogSettings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.format is LogFormat.JSON else _text())
    root = logging.getLogger("roamcast")
    root.handlers = [handler]
    root.setLevel(settings.level.name)
    root.propagate = False


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "part": record.name.removeprefix("roamcast."),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _text() -> logging.Formatter:
    formatter = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    return formatter


def _time(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment * 1000) % 1000:03d}Z"
