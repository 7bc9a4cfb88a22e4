// The other views: alarms, frames, a frame, a transmitter, the receiver.

import { acknowledge, air, called, colour, column, named, newestAlarms, now, pending, seconds, span } from "./air.js";
import { card, download, empty, fact, h, pill } from "./dom.js";
import { COLOURS, figure, plot, scatter } from "./draw.js";
import { ask } from "./net.js";
import { alarmCard, cell, decisionTable, enrolling, naming, person, verdict } from "./parts.js";
import { ago, clock, decibel, duration, fixed, kilohertz, large, percent, when, whole } from "./words.js";

const FRAMES_EVERY_MS = 2000;

/** A part that is drawn anew when `key()` changes. */
function redrawn(root, key, draw) {
  let before = null;
  return () => {
    const found = key();
    if (found !== before) { before = found; root.replaceChildren(draw()); }
  };
}

export function alarmsView(again) {
  const root = h("div");
  const key = () => newestAlarms().map((alarm) => `${alarm.number}${alarm.updated_at}${alarm.state}`).join();
  const draw = () => {
    const all = newestAlarms(), open = all.filter((alarm) => alarm.state === "open").length;
    const actions = pending().length && air.about.operator ? [h("button", { type: "button", onclick: async () => { await acknowledge(pending().map((alarm) => alarm.number)); again(); } }, "Acknowledge all")] : [];
    return card("Alarms", { note: all.length ? `${open} open, ${pending().length} not acknowledged, ${all.length} remembered` : null, actions },
      all.length ? h("div", { class: "list" }, all.map((alarm) => alarmCard(alarm, again))) : empty("No alarms", "Nothing has needed attention."));
  };
  return { root, title: "Alarms", update: redrawn(root, key, draw) };
}

export function alarmView(again, number) {
  const root = h("div", { class: "list" });
  const key = () => JSON.stringify(air.alarms.get(number) ?? null);
  const decisions = h("div");
  const draw = () => {
    const alarm = air.alarms.get(number);
    if (!alarm) return card(`Alarm ${number}`, {}, empty("There is no such alarm", "Or it is no longer stored."));
    return h("div", { class: "list" }, crumbs(`Alarm ${number}`, "#/alarms", "All alarms"), alarmCard(alarm, again), decisions);
  };
  const alarm = air.alarms.get(number);
  if (alarm?.frames.length) {
    const wanted = new Set(alarm.frames);
    ask(`/api/decisions?limit=500&before=${Math.max(...alarm.frames) + 1}`).then((found) => {
      const own = found.filter((one) => wanted.has(one.number));
      if (own.length) decisions.replaceChildren(card("The frames that raised it", {}, decisionTable(own)));
    }, () => {});
  }
  return { root, title: `Alarm ${number}`, update: redrawn(root, key, draw) };
}

export function framesView() {
  const body = h("div"), count = h("span", { class: "muted" });
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => { paused = !paused; pause.setAttribute("aria-pressed", paused); pause.textContent = paused ? "Go on" : "Pause"; } }, "Pause");
  let paused = false, asked = 0, newest = null;
  const root = card("Frames", { note: "the newest first", actions: [pause, download("/api/annotations", "Annotations as SigMF ↓")] }, body, count);
  const fetched = async () => {
    asked = Date.now();
    const found = await ask("/api/decisions?limit=60").catch(() => null);
    if (!found || (found[0]?.number ?? -1) === newest) return;
    newest = found[0]?.number ?? -1;
    body.replaceChildren(found.length ? decisionTable(found) : empty("No frames yet", "Each frame that is found is listed here."));
  };
  return { root, title: "Frames", update() { if (!paused && Date.now() - asked > FRAMES_EVERY_MS) fetched(); } };
}

const crumbs = (title, href, back, ...more) => h("div", { class: "crumbs" }, h("h2", {}, title), h("a", { href }, `← ${back}`), ...more);
const key = (name, colour) => h("span", { class: "key", style: { "--key": colour } }, name);

export function frameView(again, number) {
  const root = h("div", { class: "list" }), title = `Frame ${number}`;
  const steps = [h("a", { href: `#/frame/${number - 1}` }, "previous"), h("a", { href: `#/frame/${number + 1}` }, "next")];
  const head = crumbs(title, "#/frames", "All frames", steps);
  root.append(head);
  Promise.all([ask(`/api/frames/${number}`), ask("/api/prototypes").catch(() => null)]).then(
    ([frame, prototypes]) => root.replaceChildren(head, ...frameParts(frame, prototypes, number)),
    (error) => root.replaceChildren(head, card("Samples", {}, empty("Not to be seen any more", error.message))));
  return { root, title, update() {} };
}

function frameParts(frame, prototypes, number) {
  const antenna = h("select", { "aria-label": "Antenna", onchange: () => draw() }, frame.i.map((_, k) => h("option", { value: k }, `antenna ${k}`)));
  const plots = h("div", { class: "plots" });
  const rate = frame.sample_rate_hz, us = (k) => (1e6 * k) / rate;
  const length = frame.samples, tall = { height: 200 };
  function draw() {
    const k = Number(antenna.value), i = frame.i[k], q = frame.q[k], envelope = frame.envelope[k];
    const times = i.map((_, n) => us(n)), wide = envelope.map((_, n) => us((n / envelope.length) * length));
    const bins = frame.spectrum_db[k].map((_, n) => (((n / frame.spectrum_db[k].length) - 0.5) * rate) / 1e6);
    const most = Math.max(...i.map(Math.abs), ...q.map(Math.abs)) || 1;
    plots.replaceChildren(
      figure("I and Q", [key("I", COLOURS[0]), key("Q", COLOURS[1]), `the first ${i.length} samples`],
        plot(`I and Q of antenna ${k}`, [{ xs: times, ys: i, colour: COLOURS[0] }, { xs: times, ys: q, colour: COLOURS[1] }], { x: "time in µs", y: "of the largest", yRange: [-most, most], ...tall })),
      figure("Magnitude", `the whole frame, ${whole(length)} samples`,
        plot(`Magnitude of antenna ${k}`, [{ xs: wide, ys: envelope, colour: COLOURS[2] }], { x: "time in µs", y: "of the largest", yRange: [0, Math.max(...envelope) || 1], ...tall })),
      figure("Spectrum", frame.spectrum_db.length > 1 ? `antenna ${k}; the others are faint` : null,
        plot(`Spectrum of antenna ${k}`, [...frame.spectrum_db.map((ys) => ({ xs: bins, ys, colour: "color-mix(in srgb, var(--muted) 35%, transparent)" })),
          { xs: bins, ys: frame.spectrum_db[k], colour: COLOURS[3] }], { x: "frequency in MHz", y: "dB", height: 380, least: 20 })),
      prototypes ? figure("Among the prototypes", `two directions that show ${percent(prototypes.explained)} of how source frames differ; before the calibration`,
        scatter("Where the frame lies among the devices", prototypes.devices, prototypes.frames, frame.place, (d) => colour(d) ?? COLOURS[0], named)) : "");
  }
  draw();
  const d = frame.decision;
  const facts = d === null ? h("p", { class: "muted" }, "Its decision is no longer stored.") : h("dl", { class: "facts" },
    fact("Device", person(d.device)), fact(d.device === null ? "Most like" : "Confidence", d.device === null ? `${named(d.like)}, ${percent(d.probability)} among the known` : percent(d.probability)),
    fact("Address claimed", d.address === null ? "none" : h("code", {}, d.address)), fact("Claim", verdict(d.verdict)),
    fact("Received", `${when(d.at).replace(/ ?[\d:]+$/, "")} ${clock(d.at, true)}`), fact("To", d.receiver === null ? "–" : h("code", {}, d.receiver)),
    fact("Kind", [d.kind, d.rate_mbps === null ? null : `${d.rate_mbps} Mbit/s`].filter(Boolean).join(", ") || "–"),
    fact("Carrier offset by antenna", d.cfo_hz.map((value) => (value === null ? "dead" : kilohertz(value))).join(", ")),
    fact("SNR by antenna", d.snr_db.map(decibel).join(", ")), fact("First sample", whole(d.start)),
    ...frame.measured.map((one) => fact(one.name[0].toUpperCase() + one.name.slice(1), `${one.frame}; ${named(d.like)} has ${one.device}`)));
  return [card("Decision", { actions: [download(`/api/frames/${number}/sigmf`, "Frame as SigMF ↓")] }, facts), card("Samples", { actions: [antenna] }, plots)];
}

export function transmitterView(again, id) {
  const root = h("div", { class: "list" }), head = h("div"), lines = h("div", { class: "plots" }), frames = h("div");
  root.append(head, lines, frames);
  let asked = 0;
  async function list() {
    asked = Date.now();
    const found = await ask(`/api/decisions?limit=20&transmitter=${id}`).catch(() => []);
    if (found.length) frames.replaceChildren(card("Its newest frames", {}, decisionTable(found)));
  }
  function update() {
    const row = air.rows.get(id);
    if (!row) { head.replaceChildren(crumbs("Transmitter", "#/", "Now"), card("Not heard", {}, empty("Nothing is stored about it", "It was silent for too long."))); return; }
    const minutes = (steps) => steps.map((step) => 1000 * air.stepS * step), limits = minutes(span());
    const one = (name, label, unit, colour, options, factor = 1, note = "mean of two seconds") => {
      const [steps, values] = column(row, name);
      const ys = values.map((value) => (value === null ? null : factor * value));
      return h("div", { class: "card" }, figure(label, note, plot(label, [{ xs: minutes(steps), ys, colour }], { x: "time", y: unit, xRange: limits, xStep: 120e3, tick: (t) => clock(t).slice(0, 5), ...options })));
    };
    head.replaceChildren(crumbs(called(row), "#/", "Now", naming(row, again), enrolling(row, again)), card("Transmitter", {}, h("dl", { class: "facts" },
      fact("Device", person(row.device)), fact("Confidence", row.device === null ? `${row.agree} of ${row.of} frames unknown` : `${percent(row.confidence)}, ${row.agree} of ${row.of} frames agree`),
      fact("Address claimed", row.address === null ? "none" : h("code", {}, row.address)), fact("Claim", verdict(row.verdict)),
      fact("Carrier offset", kilohertz(row.cfo_hz)), fact("SNR", decibel(row.snr_db)), fact("Last seen", ago(seconds(row.last_at))),
      fact("Frames", `${whole(row.frames)} since ${when(row.first_at)}`))));
    lines.replaceChildren(one("cfo_hz", "Carrier offset", "kHz", COLOURS[0], { least: 0.4 }, 1e-3), one("snr_db", "SNR", "dB", COLOURS[2], { least: 6 }),
      one("confidence", "Confidence", "", COLOURS[3], { yRange: [0, 1] }), one("frames", "Frames in two seconds", "", COLOURS[1], { least: 4 }, 1, null));
    if (Date.now() - asked > FRAMES_EVERY_MS) list();
  }
  return { root, title: "Transmitter", update };
}

export function receiverView() {
  const root = h("div", { class: "list" });
  function update() {
    const st = air.status, about = air.about, part = st.rate_hz / about.sample_rate_hz, lost = st.samples ? st.missed / st.samples : 0;
    const antennas = Array.from({ length: about.antennas }, (_, k) => {
      const [text, kind] = st.dead.includes(k) ? ["dead: look at its cable", "bad"] : st.clipped.includes(k) ? ["clips: lower the gain", "warn"] : st.samples ? ["well", "good"] : ["nothing yet", ""];
      return h("tr", {}, h("th", { scope: "row" }, `Antenna ${k}`), cell("State", pill(text, kind)));
    });
    const states = { connected: ["connected", "good"], waiting: ["waiting", "warn"], ended: ["ended", "bad"] };
    root.replaceChildren(h("div", { class: "columns" },
      card("Source", {}, h("dl", { class: "facts" }, fact("From", h("code", {}, about.source)), fact("State", pill(...states[st.source])),
        fact("Listening for", duration((now() - Date.parse(st.since)) / 1000)), fact("Interruptions", whole(st.breaks)),
        fact("Sample rate", `${large(st.rate_hz)}S/s, ${fixed(100 * part, 1)} % of ${large(about.sample_rate_hz)}S/s`),
        fact("Carrier", about.carrier_hz === null ? "not said" : `${fixed(about.carrier_hz / 1e6, 3)} MHz`))),
      card("Samples", {}, h("dl", { class: "facts" }, fact("Received, each antenna", large(st.samples)),
        fact("Missed", st.missed ? pill(`${whole(st.missed)}, ${lost < 1e-5 ? "under 0.001" : (100 * lost).toPrecision(2)} %`, "warn") : pill("none", "good")),
        fact("Waiting to be looked at", `${fixed(1000 * st.waiting_s, 1)} ms`), fact("Frames decided", whole(st.frames)), fact("Frames a second", fixed(st.frames_per_s, 1)),
        fact("Delay of decisions", `${fixed(st.delay_ms[0], 1)} ms, ${fixed(st.delay_ms[1], 1)} ms at 99 %`),
        fact("Alarms", `${whole(st.alarms)}, ${whole(st.open_alarms)} open, ${whole(Object.values(st.withheld).reduce((one, other) => one + other, 0))} had to wait`), fact("Not shown here", `${whole(st.lost)} frames`))),
      h("div", { class: "list" }, card("Antennas", {}, h("table", {}, h("tbody", {}, antennas))),
      card("For programs", {}, h("ul", {}, ["/api/openapi.json", "/metrics", "/healthz"].map((path) => h("li", {}, h("a", { href: path }, path)))),
        h("p", { class: "muted" }, `pisa serve ${about.version}; ${about.devices.length} devices are known to the model.`)))));
  }
  return { root, title: "Receiver", update };
}
