// What the page knows: about, status, transmitters with their history, alarms.

import { COLOURS } from "./draw.js";
import { ask } from "./net.js";

const MOST_ROWS = 256, MOST_ALARMS = 500;
const FIELDS = ["frames", "cfo_hz", "snr_db", "confidence"];
export const RECENT_S = 60;

export const air = { about: null, status: null, rows: new Map(), alarms: new Map(), stepS: 2, steps: 300, skew: 0, missedAt: -Infinity };

/** The service's clock, in milliseconds. */
export const now = () => Date.now() + air.skew;
export const seconds = (at) => (now() - Date.parse(at)) / 1000;
export const recent = (row) => seconds(row.last_at) < RECENT_S;
/** First and last step that are shown. */
export function span() {
  const last = Math.floor(now() / 1000 / air.stepS);
  return [last - air.steps + 1, last];
}

export async function load() {
  const [about, status, found, alarms] = await Promise.all(
    ["/api/about", "/api/status", "/api/transmitters", "/api/alarms?limit=500"].map((path) => ask(path)));
  Object.assign(air, { about, stepS: found.step_s, steps: found.steps });
  took(status);
  air.rows = new Map();
  for (const row of found.transmitters) merge(row);
  air.alarms = new Map(alarms.map((alarm) => [alarm.number, alarm]));
}

function took(status) {
  air.skew = Date.parse(status.now) - Date.now();
  if (air.status && status.missed > air.status.missed) air.missedAt = now();
  air.status = status;
}

/** A row as the service says it, joined with the history that is known of it. */
function merge(row) {
  const history = air.rows.get(row.id)?.history ?? new Map();
  row.history.step.forEach((step, i) => history.set(step, Object.fromEntries(FIELDS.map((name) => [name, row.history[name][i]]))));
  const [first] = span();
  for (const step of history.keys()) if (step < first) history.delete(step);
  air.rows.set(row.id, { ...row, history });
  if (air.rows.size > MOST_ROWS) {
    const enrolled = (one) => (one.address === null ? one.device : one.verdict) !== null;  // strangers go first
    const [oldest] = [...air.rows.values()].sort((one, other) => enrolled(one) - enrolled(other) || one.newest - other.newest);
    air.rows.delete(oldest.id);
  }
}

let learning = false;

/** A device that is not known here: the model was exchanged. */
async function learn(rows) {
  if (learning || rows.every((row) => row.device === null || air.about.devices.includes(row.device))) return;
  learning = true;
  air.about = await ask("/api/about").catch(() => air.about);
  learning = false;
}

export function heard(events) {
  for (const event of events) {
    if (event.event === "status") took(event);
    else if (event.event === "alarm") air.alarms.set(event.number, event);
    else if (event.event === "transmitters") event.transmitters.forEach(merge);
    if (event.event === "transmitters") learn(event.transmitters);
  }
  while (air.alarms.size > MOST_ALARMS) air.alarms.delete([...air.alarms.values()].sort((one, other) => worth(one) - worth(other) || one.number - other.number)[0].number);
}

/** What is forgotten last: an open alarm about a device that is enrolled. */
const worth = (alarm) => 2 * (alarm.kind !== "unknown device") + (alarm.state === "open");

/** A column of a row's history, with a gap where steps are apart. */
export function column(row, name) {
  const steps = [], values = [];
  let before = null;
  for (const step of [...row.history.keys()].sort((one, other) => one - other)) {
    if (before !== null && step - before > 15) { steps.push(before + 1); values.push(null); }
    steps.push(step);
    values.push(row.history.get(step)[name]);
    before = step;
  }
  return [steps, values];
}

export const newestAlarms = () => [...air.alarms.values()].sort((one, other) => other.number - one.number);
export const pending = () => newestAlarms().filter((alarm) => alarm.state !== "acknowledged");

// Names and colours.

export function colour(device) {
  const k = air.about?.devices.indexOf(device) ?? -1;
  return k < 0 ? null : COLOURS[k % COLOURS.length];
}
export const named = (device) => air.about?.names.device[device] ?? device;
export const namedAddress = (address) => air.about?.names.address[address] ?? null;
/** What a transmitter is called: its device, or else its address, or else that nobody knows it. */
export const called = (row) => (row.device !== null ? named(row.device) : namedAddress(row.address) ?? "unknown device");

/** Whether somebody else sends under its address. */
export const taken = (row) => row.verdict === "not the device" || row.verdict === "several devices";

/** Those that need a look first; then known ones by name; who is silent comes last. */
export function sorted() {
  const rank = (row) => (taken(row) ? 0 : row.device === null ? 1 : 2) + (recent(row) ? 0 : 10);
  return [...air.rows.values()].sort((one, other) =>
    rank(one) - rank(other) || called(one).localeCompare(called(other)) || one.id - other.id);
}

// What is changed.

export async function acknowledge(numbers) {
  const changed = await ask("/api/acknowledge", { method: "POST", body: { numbers } });
  for (const alarm of changed) air.alarms.set(alarm.number, alarm);
}

export async function rename(kind, key, name) {
  air.about.names = await ask("/api/names", { method: "PUT", body: { kind, key, name } });
}
