// @ts-check
// MQTT 5 over a WebSocket, as much of it as a page needs: CONNECT, SUBSCRIBE, PUBLISH at QoS 0 and 1, pings, and
// connecting again by itself. (MQTT.js would be 340 kB and can do far more.) Section numbers are of MQTT 5.0.

/** @typedef {{topic: string, payload: Uint8Array, retained: boolean, attributes: [string, string][]}} Message */
/** @typedef {"connecting" | "open" | "refused" | "waiting" | "closed"} State */
/** @typedef {{qos?: 0 | 1, retain?: boolean, expiry?: number, attributes?: [string, string][]}} PublishOptions */

const KEEP_ALIVE = 15; // seconds
const PACKET_BYTES = 262_144; // the largest packet that a page takes; the node keeps larger ones from it
const ANSWER_SECONDS = 10; // for an answer to CONNECT and to a ping
const RETRY_SECONDS = [1, 2, 4, 8, 15];
const PACKET_MAX = 262_144; // octets; a node sends less
const CONNECT = 1, CONNACK = 2, PUBLISH = 3, PUBACK = 4, SUBSCRIBE = 8, SUBACK = 9;
const UNSUBSCRIBE = 10, UNSUBACK = 11, PINGREQ = 12, PINGRESP = 13, DISCONNECT = 14;
const EXPIRY = 0x02, USER_PROPERTY = 0x26, REASON_STRING = 0x1f, SERVER_KEEP_ALIVE = 0x13, MAXIMUM_PACKET_SIZE = 0x27;
// How many octets a property's value has (section 2.2.2.2); "text" and "pair" begin with lengths, "number" is variable.
/** @type {Record<number, number | "text" | "pair" | "number">} */
const PROPERTIES = {
  0x01: 1, 0x02: 4, 0x03: "text", 0x08: "text", 0x09: "text", 0x0b: "number", 0x11: 4, 0x12: "text", 0x13: 2,
  0x15: "text", 0x16: "text", 0x17: 1, 0x18: 4, 0x19: 1, 0x1a: "text", 0x1c: "text", 0x1f: "text", 0x21: 2,
  0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1, 0x26: "pair", 0x27: 4, 0x28: 1, 0x29: 1, 0x2a: 1,
};

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** What a node says about a refusal. @type {Record<number, string>} */
export const REASONS = {
  0x80: "refused", 0x83: "the node cannot do that", 0x86: "wrong name or password", 0x87: "not allowed",
  0x88: "the node is stopping", 0x89: "the node has too many clients", 0x8b: "the node is stopping",
  0x8e: "another window took this place", 0x8f: "no valid topic filter", 0x90: "no valid topic",
  0x95: "too large", 0x97: "the node is full", 0x9e: "not supported", 0xa1: "not supported", 0xa2: "not supported",
};

export class MqttClient {
  /** @param {string} url
   * @param {string} clientId */
  constructor(url, clientId) {
    this.url = url;
    this.clientId = clientId;
    /** @type {State} */
    this.state = "closed";
    /** @type {(state: State, why: string) => void} */
    this.onState = () => {};
    /** @type {(message: Message) => void} */
    this.onMessage = () => {};
    /** @type {WebSocket | null} */
    this._socket = null;
    this._name = "";
    this._password = "";
    /** @type {Set<string>} */
    this._filters = new Set();
    /** @type {Map<number, {resolve: () => void, reject: (error: Error) => void}>} */
    this._waiting = new Map();
    this._nextId = 1;
    this._tries = 0;
    this._stream = new Uint8Array(0);
    this._said = 0;
    /** @type {number} */
    this._timer = 0;
    /** @type {number} */
    this._deadline = 0;
    this._keepAlive = KEEP_ALIVE;
  }

  /** Connect, and again whenever the connection is lost, until `close`.
   * @param {string} name
   * @param {string} password */
  open(name, password) {
    this.close();
    this._name = name;
    this._password = password;
    this._tries = 0;
    this._connect();
  }

  close() {
    const socket = this._socket;
    if (socket !== null && socket.readyState === WebSocket.OPEN) this._send(DISCONNECT << 4, []);
    this._drop("closed", "");
  }

  /** @param {string} filter
   * @returns {Promise<void>} */
  async subscribe(filter) {
    await this._asked(SUBSCRIBE << 4 | 2, [0, ...text(filter), 1 | 8]); // QoS 1, retain as published
    this._filters.add(filter);
  }

  /** @param {string} filter
   * @returns {Promise<void>} */
  async unsubscribe(filter) {
    this._filters.delete(filter);
    await this._asked(UNSUBSCRIBE << 4 | 2, [0, ...text(filter)]);
  }

  /** Publish; at QoS 1 it is done when the node has accepted it.
   * @param {string} topic
   * @param {Uint8Array} payload
   * @param {PublishOptions} options
   * @returns {Promise<void>} */
  async publish(topic, payload, options = {}) {
    const { qos = 1, retain = false, expiry = 0, attributes = [] } = options;
    /** @type {number[]} */
    const properties = [];
    if (expiry > 0) properties.push(EXPIRY, ...number(expiry, 4));
    for (const [key, value] of attributes) properties.push(USER_PROPERTY, ...text(key), ...text(value));
    const tail = [...variable(properties.length), ...properties, ...payload];
    const first = PUBLISH << 4 | qos << 1 | (retain ? 1 : 0);
    if (qos === 1) return this._asked(first, tail, text(topic));
    this._need();
    this._send(first, [...text(topic), ...tail]);
  }

  // Connecting.

  _connect() {
    this._set("connecting", "");
    const socket = new WebSocket(this.url, ["mqtt"]);
    socket.binaryType = "arraybuffer";
    this._socket = socket;
    this._stream = new Uint8Array(0);
    this._expect("the node did not answer");
    socket.onopen = () => this._sayConnect();
    socket.onmessage = (event) => {
      if (this._socket === socket) this._receive(new Uint8Array(event.data));
    };
    socket.onclose = () => {
      if (this._socket === socket) this._retry("the node is not there");
    };
  }

  _sayConnect() {
    const flags = 0x02 | (this._name ? 0x80 : 0) | (this._password ? 0x40 : 0);
    const properties = [MAXIMUM_PACKET_SIZE, ...number(PACKET_BYTES, 4)];
    const body = [...text("MQTT"), 5, flags, ...number(KEEP_ALIVE, 2), properties.length, ...properties];
    body.push(...text(this.clientId));
    if (this._name) body.push(...text(this._name));
    if (this._password) body.push(...text(this._password));
    this._send(CONNECT << 4, body);
  }

  /** Wait for an answer, or connect anew.
   * @param {string} problem */
  _expect(problem) {
    window.clearTimeout(this._deadline);
    this._deadline = window.setTimeout(() => this._retry(problem), ANSWER_SECONDS * 1000);
  }

  _answered() {
    window.clearTimeout(this._deadline);
  }

  /** @param {string} why */
  _retry(why) {
    this._drop("waiting", why);
    const seconds = RETRY_SECONDS[Math.min(this._tries, RETRY_SECONDS.length - 1)];
    this._tries += 1;
    this._timer = window.setTimeout(() => this._connect(), seconds * 1000);
  }

  /** End the connection without a word.
   * @param {State} state
   * @param {string} why */
  _drop(state, why) {
    window.clearTimeout(this._timer);
    window.clearTimeout(this._deadline);
    const socket = this._socket;
    this._socket = null;
    if (socket !== null) socket.close();
    for (const { reject } of this._waiting.values()) reject(new Error(why || "the connection was closed"));
    this._waiting.clear();
    this._set(state, why);
  }

  /** @param {State} state
   * @param {string} why */
  _set(state, why) {
    if (state === this.state && !why) return;
    this.state = state;
    this.onState(state, why);
  }

  // Octets in.

  /** @param {Uint8Array} data */
  _receive(data) {
    const stream = new Uint8Array(this._stream.length + data.length);
    stream.set(this._stream);
    stream.set(data, this._stream.length);
    let at = 0;
    try {
      for (;;) {
        const length = variableAt(stream, at + 1);
        if (length === null) break;
        const end = length.next + length.value;
        if (end - at > PACKET_MAX) throw new Error("the node sent a packet that is too long");
        if (end > stream.length) break;
        this._onPacket(stream[at], stream.subarray(length.next, end));
        if (this._socket === null) return;
        at = end;
      }
    } catch (error) {
      this._retry(error instanceof Error ? error.message : "the node sent something else");
      return;
    }
    this._stream = stream.slice(at);
  }

  /** @param {number} first
   * @param {Uint8Array} body */
  _onPacket(first, body) {
    switch (first >> 4) {
      case CONNACK:
        this._onConnack(body);
        break;
      case PUBLISH:
        this._onPublish(first, body);
        break;
      case PUBACK:
        this._onAnswer(body, body.length > 2 ? body[2] : 0);
        break;
      case SUBACK:
      case UNSUBACK:
        this._onAnswer(body, body[body.length - 1]);
        break;
      case PINGRESP:
        this._answered();
        break;
      case DISCONNECT:
        this._retry(REASONS[body[0]] ?? "the node ended the connection");
        break;
    }
  }

  /** @param {Uint8Array} body */
  _onConnack(body) {
    this._answered();
    const properties = propertiesAt(body, 2).found;
    if (body[1] !== 0) {
      const why = REASONS[body[1]] ?? `refused (${body[1]})`;
      if (body[1] === 0x86 || body[1] === 0x87) this._drop("refused", why);
      else this._retry(why);
      return;
    }
    const keepAlive = properties.find(([id]) => id === SERVER_KEEP_ALIVE);
    this._keepAlive = keepAlive === undefined ? KEEP_ALIVE : Math.max(1, Number(keepAlive[1]));
    this._tries = 0;
    this._set("open", "");
    for (const filter of [...this._filters]) this.subscribe(filter).catch(() => {});
    this._ping();
  }

  _ping() {
    window.clearTimeout(this._timer);
    this._timer = window.setTimeout(() => {
      this._send(PINGREQ << 4, []);
      this._expect("the node does not answer any more");
      this._ping();
    }, this._keepAlive * 666);
  }

  /** @param {number} first
   * @param {Uint8Array} body */
  _onPublish(first, body) {
    const qos = first >> 1 & 3;
    const topic = textAt(body, 0);
    const id = qos > 0 ? body[topic.next] << 8 | body[topic.next + 1] : 0;
    const { found, next } = propertiesAt(body, topic.next + (qos > 0 ? 2 : 0));
    const pairs = found.filter(([id]) => id === USER_PROPERTY).map(([, value]) => value);
    if (qos > 0) this._send(PUBACK << 4, number(id, 2));
    this.onMessage({
      topic: topic.value,
      payload: body.slice(next),
      retained: (first & 1) === 1,
      attributes: /** @type {[string, string][]} */ (pairs),
    });
  }

  /** @param {Uint8Array} body
   * @param {number} reason */
  _onAnswer(body, reason) {
    const id = body[0] << 8 | body[1];
    const waiting = this._waiting.get(id);
    this._waiting.delete(id);
    if (reason < 0x80) waiting?.resolve();
    else waiting?.reject(new Error(REASONS[reason] ?? `refused (${reason})`));
  }

  // Octets out.

  /** Send a packet with an identifier; resolves with its acknowledgement.
   * @param {number} first
   * @param {number[]} tail what follows the identifier
   * @param {number[]} head what comes before it
   * @returns {Promise<void>} */
  _asked(first, tail, head = []) {
    this._need();
    if (this._waiting.size >= 64) throw new Error("the node is slow; too many requests wait");
    do this._nextId = this._nextId % 65_535 + 1;
    while (this._waiting.has(this._nextId));
    const id = this._nextId;
    return new Promise((resolve, reject) => {
      this._waiting.set(id, { resolve, reject });
      this._send(first, [...head, ...number(id, 2), ...tail]);
    });
  }

  _need() {
    if (this.state !== "open") throw new Error("there is no connection to the node");
  }

  /** @param {number} first
   * @param {number[]} body */
  _send(first, body) {
    if (this._socket?.readyState === WebSocket.OPEN) {
      this._socket.send(Uint8Array.from([first, ...variable(body.length), ...body]));
    }
  }
}

// Values of packets (section 1.5).

/** @param {number} value
 * @param {number} octets
 * @returns {number[]} */
function number(value, octets) {
  return Array.from({ length: octets }, (_, at) => value >>> (8 * (octets - 1 - at)) & 255);
}

/** @param {string} value
 * @returns {number[]} */
function text(value) {
  const octets = encoder.encode(value);
  if (octets.length > 65_535) throw new Error("a text is longer than MQTT can carry");
  return [...number(octets.length, 2), ...octets];
}

/** @param {number} value
 * @returns {number[]} */
function variable(value) {
  const octets = [];
  do {
    octets.push(value % 128 | (value > 127 ? 128 : 0));
    value = Math.floor(value / 128);
  } while (value > 0);
  return octets;
}

/** A number of one to four octets and the position after it; null if it is not whole.
 * @param {Uint8Array} data
 * @param {number} at
 * @returns {{value: number, next: number} | null} */
function variableAt(data, at) {
  let value = 0;
  for (let count = 0; count < 4; count++) {
    if (at + count >= data.length) return null;
    value += (data[at + count] & 127) << (7 * count);
    if (data[at + count] < 128) return { value, next: at + count + 1 };
  }
  throw new Error("the node sent a length that is none");
}

/** @param {Uint8Array} data
 * @param {number} at
 * @returns {{value: string, next: number}} */
function textAt(data, at) {
  const end = at + 2 + (data[at] << 8 | data[at + 1]);
  if (end > data.length) throw new Error("the node sent a text that is cut");
  return { value: decoder.decode(data.subarray(at + 2, end)), next: end };
}

/** @param {Uint8Array} data
 * @param {number} at
 * @returns {{found: [number, string | number | [string, string]][], next: number}} */
function propertiesAt(data, at) {
  /** @type {[number, string | number | [string, string]][]} */
  const found = [];
  if (at >= data.length) return { found, next: at };
  const length = variableAt(data, at);
  if (length === null || length.next + length.value > data.length) throw new Error("properties are cut");
  const end = length.next + length.value;
  at = length.next;
  while (at < end) {
    const id = data[at++];
    const kind = PROPERTIES[id];
    if (kind === "text") {
      // Binary data has the same form and may be no text; nobody here needs it.
      const stop = at + 2 + (data[at] << 8 | data[at + 1]);
      if (id === REASON_STRING) found.push([id, textAt(data, at).value]);
      at = stop;
    } else if (kind === "pair") {
      const key = textAt(data, at);
      const value = textAt(data, key.next);
      found.push([id, [key.value, value.value]]);
      at = value.next;
    } else if (kind === "number") {
      at = variableAt(data, at)?.next ?? end;
    } else if (kind !== undefined) {
      found.push([id, data.subarray(at, at + kind).reduce((sum, octet) => sum * 256 + octet, 0)]);
      at += kind;
    } else {
      throw new Error(`the node sent a property ${id} that is none`);
    }
  }
  return { found, next: end };
}
