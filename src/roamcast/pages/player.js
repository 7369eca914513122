// @ts-check
// The player: controls, maps, timeline, list and address of one run, or of two in step.
import { EventList, eventDetail, nodeDetail } from "./details.js";
import { make } from "./elements.js";
import { legend } from "./legend.js";
import { Run } from "./run.js";
import { Scene } from "./scene.js";
import { Timeline } from "./timeline.js";

const SPEEDS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 2, 5, 10, 30, 100, 300];
const WATCHED = 6; // seconds of the viewer's time that the spread of a watched event takes

class Player {
  playButton = make("button", { id: "play", onclick: () => this.play(!this.playing) }, "▶ play");
  speeds = make(
    "select",
    { id: "speed", "aria-label": "Speed", onchange: () => this.pace(Number(this.speeds.value)) },
    ...SPEEDS.map((speed) => make("option", { value: speed }, `${speed}×`)),
  );
  clock = make("output", { id: "clock" });
  link = make("button", { id: "link", title: "The address of this instant", onclick: () => this.#share() }, "link");
  detail = make("section", { id: "detail", "aria-live": "polite" });
  nodeBox = make("div", { id: "node" });

  /** @param {Run[]} runs */
  constructor(runs) {
    this.runs = runs;
    this.seconds = runs[0].seconds(0);
    this.end = Math.max(...runs.map((run) => run.seconds(run.end)));
    this.speed = this.#comfortable();
    this.playing = false;
    this.until = Infinity; // where a watched event ends
    this.event = "";
    this.node = -1;
    this.follow = false;
    this.miss = -1;
    this.missIn = runs[0];
    this.drawn = 0; // pictures so far: how smooth it is can be measured
    this.dirty = true;
    this.scenes = runs.map((run) => new Scene(make("canvas", { "aria-label": `Map of ${run.head.strategy}` }), run));
    this.list = new EventList(runs, (name) => this.choose(name, true));
    const time = make("canvas", { "aria-label": "Timeline; a click seeks" });
    this.timeline = new Timeline(time, runs, (t) => this.seek(runs[0].seconds(t)));
    this.before = 0;
    this.toldAt = 0;
    const start = location.hash.slice(1) || document.body.dataset.start || ""; // before the address is our own
    this.#build();
    this.read(start);
    addEventListener("hashchange", () => this.read(location.hash.slice(1)));
    addEventListener("resize", () => (this.dirty = true));
    addEventListener("keydown", (event) => this.#onKey(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.dirty = true));
    requestAnimationFrame((now) => this.#step(now));
  }

  // What a viewer, an address or a test can ask for.

  /** @param {boolean} playing */
  play(playing) {
    if (playing && this.seconds >= this.end) this.seconds = this.runs[0].seconds(0);
    this.playing = playing;
    this.playButton.textContent = playing ? "❚❚ pause" : "▶ play";
    this.playButton.setAttribute("aria-pressed", String(playing));
    this.#changed();
  }

  /** @param {number} seconds */
  seek(seconds) {
    this.seconds = Math.min(this.end, Math.max(this.runs[0].seconds(0), seconds));
    this.until = Infinity;
    this.#changed();
  }

  /** @param {number} speed */
  pace(speed) {
    this.speed = speed;
    this.speeds.value = String(speed);
    if (this.speeds.value !== String(speed)) this.speeds.append(make("option", { value: speed, selected: true }, `${speed}×`));
    this.#changed();
  }

  /** @param {string} name
   * @param {boolean} seeks */
  choose(name, seeks) {
    this.event = name;
    this.miss = -1;
    this.list.choose(name, true);
    const e = this.runs[0].byName.get(name);
    if (e !== undefined && seeks) this.seek(this.runs[0].seconds(this.#lastOf(name)));
    this.#describe();
    this.#changed();
  }

  /** @param {number} node */
  chooseNode(node) {
    this.node = node;
    if (node < 0) this.follow = false;
    this.#describe();
    this.#changed();
  }

  /** Play the chosen event from its publication to its end, so slowly that it can be seen. */
  watch() {
    const e = this.runs[0].byName.get(this.event);
    if (e === undefined) return;
    const begin = this.runs[0].seconds(this.runs[0].columns["event.t"][e]);
    const end = this.runs[0].seconds(this.#lastOf(this.event));
    const length = Math.max(end - begin, 0.001);
    this.seek(begin - 0.05 * length);
    this.until = end + 0.1 * length;
    this.pace(Number((length / WATCHED).toPrecision(2)));
    this.play(true);
  }

  nextEvent() {
    const e = this.runs[0].eventAfter(this.runs[0].ticks(this.seconds));
    if (e >= 0) this.#stopAt(this.runs[0].seconds(this.runs[0].columns["event.t"][e]), this.runs[0].eventName(e));
  }

  previousEvent() {
    const e = this.runs[0].eventBefore(Math.floor(this.runs[0].ticks(this.seconds)));
    if (e >= 0) this.#stopAt(this.runs[0].seconds(this.runs[0].columns["event.t"][e]), this.runs[0].eventName(e));
  }

  nextLoss() {
    let best = /** @type {{run: Run, miss: number, at: number} | null} */ (null);
    for (const run of this.runs) {
      const miss = run.lossAfter(Math.floor(run.ticks(this.seconds) + 1e-6));
      const at = miss < 0 ? Infinity : run.seconds(run.columns["miss.t"][miss]);
      if (miss >= 0 && (best === null || at < best.at)) best = { run, miss, at };
    }
    if (best !== null) this.#showLoss(best.run, best.miss);
  }

  /** What stands after `#` in an address that brings a viewer here. */
  get address() {
    const parts = [`t=${this.seconds.toFixed(6).replace(/\.?0+$/, "")}`];
    if (this.event) parts.push(`event=${encodeURIComponent(this.event).replace("%3A", ":")}`);
    if (this.node >= 0) parts.push(`node=${encodeURIComponent(this.runs[0].head.labels[this.node])}`);
    if (this.follow) parts.push("follow=1");
    parts.push(`speed=${this.speed}`);
    return parts.join("&");
  }

  /** @param {string} address */
  read(address) {
    if (address === "" || address === this.address) return;
    const given = new URLSearchParams(address);
    const speed = Number(given.get("speed"));
    if (speed > 0 && Number.isFinite(speed)) this.pace(speed);
    this.node = this.runs[0].head.labels.indexOf(given.get("node") ?? "");
    this.follow = given.get("follow") === "1" && this.node >= 0;
    this.choose(given.get("event") ?? "", !given.has("t"));
    const seconds = Number(given.get("t"));
    if (given.has("t") && Number.isFinite(seconds)) this.seek(seconds);
    if (given.get("play") === "1") this.play(true);
  }

  // Private.

  /** @param {string} name
   * @returns {number} ticks of the first run: when the last thing happened to the event in any run */
  #lastOf(name) {
    const times = this.runs.map((run) => {
      const e = run.byName.get(name);
      return e === undefined ? 0 : run.seconds(run.lastOf(e));
    });
    return this.runs[0].ticks(Math.max(...times));
  }

  /** @param {number} seconds
   * @param {string} event */
  #stopAt(seconds, event) {
    this.play(false);
    this.choose(event, false);
    this.seek(seconds);
  }

  /** @param {Run} run
   * @param {number} miss */
  #showLoss(run, miss) {
    this.#stopAt(run.seconds(run.columns["miss.t"][miss]), run.eventName(run.eventOfLoss(miss)));
    this.miss = miss;
    this.missIn = run;
    this.chooseNode(run.columns["miss.node"][miss]);
  }

  /** The speed at which the whole lasts about two minutes. */
  #comfortable() {
    const wanted = (this.end - this.seconds) / 120;
    return SPEEDS.reduce((best, speed) => (Math.abs(Math.log(speed / wanted)) < Math.abs(Math.log(best / wanted)) ? speed : best), 1);
  }

  #build() {
    const { runs } = this;
    const head = runs[0].head;
    const title = runs.length > 1 ? `${runs.map((run) => run.head.strategy).join(" and ")} side by side` : head.strategy;
    const header = make(
      "header",
      {},
      make("h1", {}, `${head.name} `, make("small", {}, `${title}, seed ${head.seed}${head.runtime === "sim" ? "" : `, ${head.runtime}`}`)),
      make("div", { class: "group" }, this.playButton, this.speeds, this.clock),
      make(
        "div",
        { class: "group" },
        make("button", { id: "previous", title: "To the event before (shift+e)", onclick: () => this.previousEvent() }, "◀ event"),
        make("button", { id: "next", title: "To the next event (e)", onclick: () => this.nextEvent() }, "event ▶"),
        make("button", { id: "loss", title: "To the next delivery that failed (l)", onclick: () => this.nextLoss() }, "loss ▶"),
      ),
      make("div", { class: "group" }, this.link),
    );
    const maps = make("div", { id: "maps" });
    for (const scene of this.scenes) {
      const { head, nodes, events } = scene.run;
      const caption = make("figcaption", {}, head.strategy, make("small", {}, `${nodes} nodes, ${events} events`));
      maps.append(make("figure", {}, caption, scene.view.canvas));
      scene.view.onChange = () => (this.dirty = true);
      scene.view.onClick = (x, y) => this.chooseNode(scene.view.pick(x, y, scene.xs, scene.ys));
    }
    const side = make("aside", {}, this.list.element, this.detail, legend(runs, this.scenes, () => (this.dirty = true)));
    const notes = [...new Set(runs.flatMap((run) => run.head.notes))];
    if (notes.length) side.append(make("section", { id: "notes" }, ...notes.map((note) => make("p", {}, note))));
    document.getElementById("old")?.remove();
    document.body.prepend(header, maps, make("div", { id: "time" }, this.timeline.canvas), side);
    this.list.refresh();
    this.pace(this.speed);
    this.#describe();
  }

  #describe() {
    const does = {
      watch: () => this.watch(),
      miss: (/** @type {Run} */ run, /** @type {number} */ miss) => this.#showLoss(run, miss),
      node: (/** @type {Run} */ run, /** @type {number} */ node, /** @type {number} */ t) => {
        this.chooseNode(node);
        this.seek(run.seconds(t));
      },
    };
    /** @type {HTMLElement[]} */
    const parts = [];
    if (this.node >= 0) {
      const follow = make("button", { id: "follow", "aria-pressed": String(this.follow), onclick: () => this.#toggleFollow() }, "follow it");
      parts.push(make("h2", {}, `Node ${this.runs[0].head.labels[this.node]}`, follow), this.nodeBox);
    }
    if (this.event) {
      parts.push(make("h2", {}, `Event ${this.event}`));
      for (const run of this.runs) {
        if (this.runs.length > 1) parts.push(make("h2", {}, run.head.strategy));
        const detail = eventDetail(run, this.event, does);
        detail.dataset.run = run.head.strategy;
        parts.push(detail);
      }
    }
    if (!parts.length) parts.push(make("p", { class: "note" }, "Choose an event in the list to see its way, or a node on the map. Drag to move the map, turn the wheel to zoom, double-click to see all."));
    this.detail.replaceChildren(...parts);
    this.#describeNode();
  }

  #describeNode() {
    if (this.node < 0) return;
    const shown = this.runs.map((run) => nodeDetail(run, this.node, run.ticks(this.seconds)));
    this.nodeBox.replaceChildren(...shown);
  }

  #toggleFollow() {
    this.follow = !this.follow;
    this.#describe();
    this.#changed();
  }

  async #share() {
    const address = `${location.href.split("#")[0]}#${this.address}`;
    history.replaceState(null, "", `#${this.address}`);
    try {
      await navigator.clipboard.writeText(address);
      this.link.textContent = "copied";
    } catch {
      this.link.textContent = "in the address bar"; // pages from files may not touch the clipboard
    }
    setTimeout(() => (this.link.textContent = "link"), 1500);
  }

  #changed() {
    this.dirty = true;
    if (!this.playing) this.#tell();
  }

  #tell() {
    this.toldAt = performance.now();
    history.replaceState(null, "", `#${this.address}`);
    this.#describeNode();
  }

  /** @param {number} now */
  #step(now) {
    const passed = Math.min(0.25, (now - this.before) / 1000);
    this.before = now;
    if (this.playing) {
      const stop = Math.min(this.end, this.until);
      this.seconds = Math.min(stop, this.seconds + passed * this.speed);
      this.dirty = true;
      if (now - this.toldAt > 500) this.#tell();
      if (this.seconds >= stop) this.play(false);
    }
    if (this.dirty) {
      this.dirty = false;
      this.#draw();
    }
    requestAnimationFrame((then) => this.#step(then));
  }

  #draw() {
    this.drawn++;
    for (const scene of this.scenes) {
      const run = scene.run;
      const event = run.byName.get(this.event) ?? -1;
      const miss = this.missIn === run ? this.miss : -1;
      const choice = { event, node: this.node, follow: this.follow, miss };
      scene.draw(run.ticks(this.seconds), choice, (this.speed * 1e6) / run.head.tick);
    }
    this.timeline.draw(this.runs[0].ticks(this.seconds), this.runs[0].byName.get(this.event) ?? -1);
    const digits = this.speed < 0.1 ? 6 : this.speed < 1 ? 3 : 2;
    this.clock.textContent = `${this.seconds.toFixed(digits)} s`;
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) return;
    const onControl = event.target instanceof HTMLButtonElement || event.target instanceof HTMLSelectElement;
    const step = 0.1 * this.speed;
    if (event.key === " " && !onControl) this.play(!this.playing);
    else if (event.key === "ArrowRight" && !onControl) this.seek(this.seconds + step);
    else if (event.key === "ArrowLeft" && !onControl) this.seek(this.seconds - step);
    else if (event.key === "e") this.nextEvent();
    else if (event.key === "E") this.previousEvent();
    else if (event.key === "l") this.nextLoss();
    else if (event.key === "+" || event.key === "-") {
      const up = event.key === "+";
      const next = up ? SPEEDS.find((speed) => speed > this.speed) : SPEEDS.findLast((speed) => speed < this.speed);
      if (next !== undefined) this.pace(next);
    } else return;
    event.preventDefault();
  }
}

const texts = document.querySelectorAll('script[type="application/x-roamcast-run"]');
try {
  const runs = await Promise.all([...texts].map((element) => Run.of(element.textContent ?? "")));
  for (const element of texts) element.remove(); // the text is large, and now there are the columns
  Object.assign(window, { roamcastPlayer: new Player(runs) });
  document.documentElement.dataset.ready = "yes";
} catch (error) {
  const old = document.getElementById("old");
  if (old !== null) old.textContent += ` It said: ${error}`;
  throw error;
}
