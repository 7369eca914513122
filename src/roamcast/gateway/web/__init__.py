"""The browser's way in: MQTT over WebSockets, and the node's page.

To read in this order:

- `gateway/options.py`: the `[web]` table, with every bound.
- `answers.py`: who may ask, under which name, from which page; what a GET gets: files of the page, documents
  about the node.
- `plain.py`: publishing and subscribing by plain requests.
- `server.py`: sockets; a request, then an answer or an upgrade. A WebSocket is the
  transport of an MQTT connection; `gateway/mqtt` does the rest.

The page itself is in `roamcast/pages/live/`: HTML, CSS and JavaScript, served as they are.

HTTP and RFC 6455 are parsed by `websockets` (its layer without I/O). Left out: compression
(`permessage-deflate`), HTTP/2, chunked bodies. `docs/use/web.md` is for users.
"""
