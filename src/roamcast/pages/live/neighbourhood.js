// @ts-check
// A node's surroundings as a picture: itself in the middle, neighbours around it, further nodes by their hops.

import { COLOURS, MapView } from "../map.js";

/** @typedef {{number: number, hops: number | null, next_hop: number | null}} KnownNode */
/** @typedef {{x: number, y: number}} Place */

const SHOWN = 60; // nodes; more is no picture any more

export class Neighbourhood {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.map = new MapView(canvas);
    /** @type {any} */
    this._view = null;
    this.map.onChange = () => this.draw(this._view);
  }

  /** @param {any} view the node's view, as `wire/view.py` has it */
  draw(view) {
    if (view === null) return;
    const isFirst = this._view === null;
    this._view = view;
    const map = this.map;
    const own = view.status.number;
    /** @type {Map<number, any>} */
    const peers = new Map(view.status.peers.map((/** @type {any} */ one) => [one.number, one]));
    const known = knownNodes(view).slice(0, SHOWN);
    const places = arranged(own, known);
    const reach = Math.max(1, ...known.map((one) => one.hops ?? 1)) + 0.25;
    if (isFirst || reach !== map.bounds.top) map.fit({ left: -reach, right: reach, bottom: -reach, top: reach });
    map.begin();
    const links = new Set(view.links.map((/** @type {any} */ link) => link.peer));
    for (const one of known) {
      const place = at(places, one.number);
      const from = at(places, one.hops === 1 ? own : one.next_hop ?? own);
      const ends = [from.x, from.y, place.x, place.y];
      const quality = peers.get(one.number)?.quality ?? 1;
      if (links.has(one.number)) {
        const whole = at(places, own);
        map.lines([whole.x, whole.y, place.x, place.y], 4, COLOURS.vermillion, 9, [], 0.75);
      }
      if (one.hops === 1) map.lines(ends, 4, COLOURS.blue, 1 + 2 * quality, [], 0.35 + 0.65 * quality);
      else map.lines(ends, 4, map.faint, 1, [4, 4]);
    }
    for (const one of known) {
      const place = at(places, one.number);
      const colour = one.hops === 1 ? COLOURS.blue : map.faint;
      map.node(place.x, place.y, 7, "circle", colour, map.paper);
      map.label(place.x, place.y, view.status.names[one.number] ?? String(one.number), map.ink, place.y < 0 ? 17 : -15, 11); // away from the lines
    }
    map.node(0, 0, 9, "star", COLOURS.vermillion, map.paper);
    map.label(0, 0, view.status.name, map.ink, 20, 12);
  }
}

/** The underlay's nodes, and those that are heard and not (yet) neighbours.
 * @param {any} view
 * @returns {KnownNode[]} */
function knownNodes(view) {
  /** @type {KnownNode[]} */
  const known = [...view.known];
  const numbers = new Set(known.map((one) => one.number));
  for (const peer of view.status.peers) {
    if (!numbers.has(peer.number) && peer.is_up) known.push({ number: peer.number, hops: 1, next_hop: peer.number });
  }
  return known.sort((a, b) => (a.hops ?? 99) - (b.hops ?? 99) || a.number - b.number);
}

/** Rings by hops; a node stands near the one that leads to it. The same nodes stand in the same places.
 * @param {number} own
 * @param {KnownNode[]} known
 * @returns {Map<number, Place>} */
export function arranged(own, known) {
  const places = new Map([[own, { x: 0, y: 0 }]]);
  const near = known.filter((one) => (one.hops ?? 1) <= 1);
  /** @type {Map<number, number>} */
  const angles = new Map();
  near.forEach((one, at) => {
    const angle = Math.PI / 5 + (2 * Math.PI * at) / Math.max(near.length, 1); // not upright: names need room
    angles.set(one.number, angle);
    places.set(one.number, { x: Math.cos(angle), y: Math.sin(angle) });
  });
  const far = known.filter((one) => (one.hops ?? 1) > 1);
  for (const one of far) {
    const siblings = far.filter((other) => other.hops === one.hops && other.next_hop === one.next_hop);
    const spread = (2 * Math.PI) / Math.max(near.length, 1) / (siblings.length + 1);
    const from = angles.get(one.next_hop ?? -1) ?? Math.PI / 5;
    const angle = from + spread * (siblings.indexOf(one) - (siblings.length - 1) / 2);
    places.set(one.number, { x: (one.hops ?? 2) * Math.cos(angle), y: (one.hops ?? 2) * Math.sin(angle) });
  }
  return places;
}

/** @param {Map<number, Place>} places
 * @param {number} number
 * @returns {Place} */
function at(places, number) {
  return places.get(number) ?? { x: 0, y: 0 };
}
