// The first view: who is on the air, and when they were.

import { air, called, colour, column, namedAddress, newestAlarms, now, recent, seconds, sorted, span, taken } from "./air.js";
import { card, empty, h, s, set } from "./dom.js";
import { lane, marks, spark, tokenColour } from "./draw.js";
import { cell, naming, swatch, verdict } from "./parts.js";
import { ago, clock, decibel, fixed, kilohertz, large, percent, whole } from "./words.js";

const LANES = 24;

/** One transmitter's line of the table; its elements stay while their content changes. */
class Line {
  constructor() {
    this.who = h("th", { scope: "row" });
    this.address = cell("Address");
    this.meter = h("meter", { min: 0, max: 1, low: 0.5, high: 0.8, optimum: 1 });
    this.sure = h("span", { class: "number" });
    this.votes = h("small");
    this.claim = cell("Claim");
    this.cfo = over("far");
    this.snr = over();
    this.last = cell("Last seen");
    this.last.classList.add("number");
    this.frames = cell("Frames");
    this.frames.classList.add("number");
    this.row = h("tr", {}, this.who, this.address, cell("Confidence", h("div", { class: "sure" }, this.meter, this.sure, this.votes)),
      this.claim, cell("Offset", this.cfo.all), cell("SNR", this.snr.all), this.last, this.frames);
    this.known = "";
  }

  update(row, again) {
    const known = JSON.stringify([row.device, row.address, called(row), row.verdict]);
    if (known !== this.known) {
      this.row.className = taken(row) ? "bad" : row.device === null ? "strange" : "";
      const label = row.device !== null ? row.device : `most like ${row.like}`;
      this.who.replaceChildren(h("div", { class: "who" }, swatch(row.device),
        h("span", {}, h("a", { href: `#/transmitter/${row.id}` }, called(row)), called(row) === label ? null : h("small", {}, label)), naming(row, again) ?? ""));
      this.address.replaceChildren(row.address === null ? h("span", { class: "muted" }, "none") : h("code", { class: "address" }, row.address));
      this.claim.replaceChildren(verdict(row.verdict));
      this.known = known;
    }
    this.row.classList.toggle("stale", !recent(row));
    this.meter.value = row.confidence ?? 0;
    this.meter.setAttribute("aria-label", `Confidence ${percent(row.confidence)}`);
    set(this.sure, percent(row.confidence));
    this.meter.hidden = this.sure.hidden = row.device === null;
    set(this.votes, `${row.agree} of ${row.of} ${row.device === null ? "unknown" : "agree"}`);
    this.cfo.update(column(row, "cfo_hz"), kilohertz(row.cfo_hz), 400, "Carrier offset");
    this.snr.update(column(row, "snr_db"), decibel(row.snr_db), 6, "SNR");
    set(this.last, ago(seconds(row.last_at)));
    set(this.frames, whole(row.frames));
  }
}

/** A value and how it was over time. */
function over(kind = "") {
  const line = s("svg", { class: "spark", role: "img" }), value = h("span", { class: "number" });
  return {
    all: h("div", { class: `over ${kind}` }, line, value),
    update([steps, values], text, least, name) {
      spark(line, steps, values, span(), least);
      line.setAttribute("aria-label", `${name} over ten minutes, now ${text}`);
      set(value, text);
    },
  };
}

/** Several may be unknown: their addresses tell them apart. */
const laneName = (row) => (row.device === null ? namedAddress(row.address) ?? row.address : null) ?? called(row);

function tile(name) {
  const value = h("span"), note = h("small"), all = h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value, note));
  return { all, update(text, small, kind = "") { set(value, text); set(note, small); all.className = `tile ${kind}`; } };
}

export function nowView(again) {
  const tiles = Object.fromEntries(["Transmitters now", "Frames", "Delay", "Samples missed", "New alarms"].map((name) => [name, tile(name)]));
  const lines = new Map(), lanes = new Map();
  const body = h("tbody"), laneBody = h("tbody");
  const heads = ["Device", "Address claimed", "Confidence", "Claim", "Carrier offset", "SNR", "Last seen", "Frames"];
  const table = h("div", { class: "wide" }, h("table", { class: "cards air" }, h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))), body));
  const none = h("div");
  const axis = h("div", { class: "axis", "aria-hidden": "true" });
  const timeline = h("table", { class: "timeline" }, laneBody, h("tfoot", {}, h("tr", {}, h("th", {}, "Time"), h("td", {}, axis))));
  const transmitters = card("Transmitters", { note: "the last ten minutes; those that need attention come first" }, none, table);
  const times = card("Timeline", { note: "a bar is two seconds; the fuller, the more frames" }, timeline);
  const root = h("div", { class: "list" }, h("dl", { class: "tiles" }, Object.values(tiles).map((one) => one.all)), transmitters, times);

  function showTiles() {
    const st = air.status, silent = st.source !== "connected", all = [...air.rows.values()];
    const unknown = all.filter((row) => recent(row) && row.device === null).length;
    tiles["Transmitters now"].update(whole(all.filter(recent).length), unknown ? `${unknown} not known` : "all known", unknown ? "warn" : "");
    tiles.Frames.update(`${fixed(st.frames_per_s, st.frames_per_s < 10 ? 1 : 0)} /s`, `${large(st.frames)} in all`);
    tiles.Delay.update(st.frames ? `${fixed(st.delay_ms[0], 1)} ms` : "–", st.frames ? `${fixed(st.delay_ms[1], 0)} ms at 99 %` : "no frame yet", st.delay_ms[1] > 1000 ? "warn" : "");
    tiles["Samples missed"].update(large(st.missed), st.missed ? `of ${large(st.samples)}` : silent && !st.samples ? "none received yet" : "none", now() - air.missedAt < 600e3 ? "warn" : "");
    const alarms = Math.max(st.alarms, st.unseen); // some may be from before the last start
    tiles["New alarms"].update(whole(st.unseen), alarms ? `${whole(alarms)} in all` : "none so far", st.unseen ? "bad" : "");
    if (!all.length) tiles["Transmitters now"].update("0", silent ? "nothing comes from the source" : "no frame yet");
  }

  function showTable(rows) {
    const shown = new Set(rows.map((row) => row.id));
    for (const id of lines.keys()) if (!shown.has(id)) { lines.get(id).row.remove(); lines.delete(id); }
    rows.forEach((row, i) => {
      if (!lines.has(row.id)) lines.set(row.id, new Line());
      const line = lines.get(row.id);
      line.update(row, again);
      if (body.children[i] !== line.row) body.insertBefore(line.row, body.children[i] ?? null);
    });
    table.hidden = !rows.length;
    times.hidden = !rows.length;
    none.hidden = !!rows.length;
    if (!rows.length) {
      none.replaceChildren(air.status.source === "connected"
        ? empty("No transmitter is active", `Samples come from ${air.about.source}; no frame has been found in them yet.`)
        
        : air.status.source === "ended" ? empty("The source has ended", `There were no frames in what came from ${air.about.source}.`)
          : empty("Waiting for samples", `Nothing comes from ${air.about.source} yet. Frames are shown as soon as they are received.`));
    }
  }

  function showTimeline(rows) {
    const [first, last] = span(), wanted = [null, ...rows.slice(0, LANES)];
    const shown = new Set(wanted.map((row) => row?.id ?? null));
    for (const [id, own] of lanes) if (!shown.has(id)) { own.row.remove(); lanes.delete(id); }
    wanted.forEach((row, i) => {
      const id = row?.id ?? null;
      if (!lanes.has(id)) {
        const canvas = h("canvas", { role: "img" }), head = h("th", { scope: "row" });
        lanes.set(id, { canvas, head, row: h("tr", {}, head, h("td", {}, canvas)) });
      }
      const own = lanes.get(id);
      if (laneBody.children[i] !== own.row) laneBody.insertBefore(own.row, laneBody.children[i] ?? null);
      set(own.head, row ? laneName(row) : "Alarms");
      own.head.title = row ? `${called(row)} ${row.address ?? ""}` : "";
      if (row === null) {
        const found = newestAlarms().map((a) => [Math.floor(Date.parse(a.at) / 1000 / air.stepS), tokenColour(a.state !== "open" ? "--muted" : a.kind === "receiver" ? "--warn" : "--bad")]);
        marks(own.canvas, found, [first, last]);
        own.canvas.setAttribute("aria-label", `${found.filter(([step]) => step >= first).length} alarms in ten minutes`);
      } else {
        const steps = [...row.history.keys()], frames = steps.map((step) => row.history.get(step).frames);
        lane(own.canvas, steps, frames, [first, last], colour(row.device) ?? tokenColour("--muted"));
        own.canvas.setAttribute("aria-label", `${called(row)}: ${whole(frames.reduce((sum, n) => sum + n, 0))} frames in ten minutes`);
      }
    });
    const marksAt = [0, 0.25, 0.5, 0.75, 1].map((part) => clock(1000 * air.stepS * (first + part * (last - first))));
    axis.replaceChildren(...marksAt.map((text) => h("span", {}, text)));
  }

  return { root, title: "On the air", update() { const rows = sorted(); showTiles(); showTable(rows); showTimeline(rows); } };
}
