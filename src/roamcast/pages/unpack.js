// @ts-check
// What `lab/play/packing.py` packed: a JSON head and columns of numbers, gzipped and in base64.

/** @typedef {Uint8Array | Uint16Array | Uint32Array | Int32Array | Float32Array | Float64Array} Column */
/** @typedef {{name: string, type: string, offset: number, length: number, delta: boolean}} ColumnEntry */

/** @type {Record<string, new (buffer: ArrayBuffer, offset: number, length: number) => Column>} */
const TYPES = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  f4: Float32Array,
  f8: Float64Array,
};

/** @param {string} text base64
 * @returns {Promise<ArrayBuffer>} */
export async function unzipped(text) {
  const octets = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([octets]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** The head and the columns by name.
 * @param {ArrayBuffer} data
 * @returns {{head: any, columns: Record<string, Column>}} */
export function unpacked(data) {
  const size = new DataView(data).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, size)));
  const base = Math.ceil((4 + size) / 8) * 8;
  /** @type {Record<string, Column>} */
  const columns = {};
  for (const entry of /** @type {ColumnEntry[]} */ (head.columns)) {
    const column = new TYPES[entry.type](data, base + entry.offset, entry.length);
    if (entry.delta) for (let i = 1; i < column.length; i++) column[i] += column[i - 1];
    columns[entry.name] = column;
  }
  return { head, columns };
}
