// Parts that several views have.

import { air, called, colour, acknowledge, load, named, namedAddress, rename } from "./air.js";
import { download, h, pill } from "./dom.js";
import { ask } from "./net.js";
import { when, whole } from "./words.js";

const VERDICTS = { genuine: ["genuine", "good"], "not the device": ["not the device", "bad"],
  "several devices": ["several devices", "bad"], undecided: ["undecided", ""] };
const KINDS = {
  "unknown device": ["?", "Unknown device"], "not its address": ["≠", "Not its address"], "shared address": ["×2", "Shared address"],
  changed: ["Δ", "Device has changed"], receiver: ["⚠", "Receiver"], "many alarms": ["…", "More alarms wait"],
};

export const verdict = (value) => (value in VERDICTS ? pill(...VERDICTS[value]) : pill("no claim", "none"));
export const swatch = (device) => h("span", { class: colour(device) ? "swatch" : "swatch unknown", "aria-hidden": "true",
  style: colour(device) ? { background: colour(device) } : {} });
export const person = (device) => h("span", { class: "who" }, swatch(device), h("span", {}, device === null ? "unknown device" : named(device),
  device !== null && named(device) !== device ? h("small", {}, device) : null));

/** A button that asks for a name; nothing where there is nothing to name, or who looks may only look. */
export function naming(row, done) {
  if (!air.about.operator) return null;
  const [kind, key] = row.device !== null ? ["device", row.device] : ["address", row.address];
  if (key === null) return null;
  const before = kind === "device" ? air.about.names.device[key] : namedAddress(key);
  const open = () => {
    const dialog = document.getElementById("dialog");
    const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
    const input = h("input", { maxlength: 64, value: before ?? "", placeholder: key, "aria-label": "Name" });
    const send = async (event) => {
      event.preventDefault();
      try { await rename(kind, key, input.value); dialog.close(); done(); } catch (error) { wrong.textContent = error.message; wrong.hidden = false; }
    };
    dialog.replaceChildren(h("form", { onsubmit: send }, h("h2", {}, `Name this ${kind}`), h("code", {}, key), input, wrong,
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { class: "main" }, "Save"))));
    dialog.oncancel = null;
    dialog.showModal();
  };
  return h("button", { type: "button", class: "quiet edit", title: "Name it", "aria-label": `Name ${called(row)}`, onclick: open }, "✎");
}

/** A button that adds who is not known to the model, by its recent frames. */
export function enrolling(row, done) {
  if (row.device !== null || !air.about.operator) return null;
  const open = () => {
    const dialog = document.getElementById("dialog");
    const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
    const input = h("input", { maxlength: 64, required: true, "aria-label": "Name of the device" });
    const anyway = h("input", { type: "checkbox" }), also = h("label", { hidden: true }, anyway, " It is another device all the same");
    const button = h("button", { class: "main" }, "Enrol");
    const send = async (event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        await ask("/api/enrol", { method: "POST", body: { transmitter: row.id, name: input.value.trim(), anyway: anyway.checked } });
        await load();
        dialog.close();
        done();
      } catch (error) {
        wrong.textContent = error.message;
        wrong.hidden = also.hidden = false;
      }
      button.disabled = false;
    };
    dialog.replaceChildren(h("form", { onsubmit: send }, h("h2", {}, "Enrol a device"),
      h("span", { class: "muted" }, "Its recent frames are added to the model as a new device; nothing is trained. Frames from now on are decided with it."),
      h("code", {}, row.address ?? "no address"), input, wrong, also,
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), button)));
    dialog.oncancel = null;
    dialog.showModal();
  };
  return h("button", { type: "button", onclick: open }, "Enrol…");
}

export function alarmCard(alarm, done, { brief = false } = {}) {
  const [mark, title] = KINDS[alarm.kind] ?? ["!", alarm.kind];
  const links = brief ? [] : alarm.frames.map((number) => h("a", { href: `#/frame/${number}` }, `frame ${number}`));
  const seen = alarm.state === "acknowledged", open = alarm.state === "open";
  const times = alarm.times > 1 ? `, found ${whole(alarm.times)} times` : "";
  const state = seen ? `acknowledged ${when(alarm.updated_at)}${alarm.by ? ` by ${alarm.by}` : ""}` : open ? "open" : `resolved ${when(alarm.updated_at)}`;
  return h("article", { class: `alarm ${seen ? "" : "new"} ${alarm.kind === "receiver" ? "receiver" : ""}` },
    h("span", { class: "mark", "aria-hidden": "true" }, mark),
    h("div", {}, h("h3", {}, title, h("small", {}, `${when(alarm.at)} · ${state}${times}`)), h("p", {}, alarm.text),
      links.length ? h("p", { class: "evidence" }, "Evidence: ", links) : null),
    h("div", { class: "actions" },
      brief ? h("a", { class: "button", href: `#/alarm/${alarm.number}` }, "Look") : null,
      alarm.snippet && !brief ? download(`/api/alarms/${alarm.number}/snippet`, "SigMF snippet ↓") : null,
      seen || !air.about.operator ? null : h("button", { type: "button", onclick: async () => { await acknowledge([alarm.number]); done(); } }, "Acknowledge")));
}

/** A table of decisions. */
export function decisionTable(decisions) {
  const heads = ["Frame", "Received", "Device", "Address claimed", "Confidence", "Claim", "Kind"];
  const row = (d) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `#/frame/${d.number}` }, d.number)),
    cell("Received", h("span", { class: "number" }, when(d.at))),
    cell("Device", person(d.device)),
    cell("Address", d.address === null ? h("span", { class: "muted" }, "none") : h("code", {}, d.address)),
    cell("Confidence", h("span", { class: "number" }, `${(100 * d.probability).toFixed(0)} %`, d.device === null ? h("span", { class: "muted" }, ` like ${named(d.like)}`) : null)),
    cell("Claim", verdict(d.verdict)),
    cell("Kind", [d.kind, d.rate_mbps === null ? null : `${d.rate_mbps} Mbit/s`].filter(Boolean).join(", ") || "–"));
  return h("div", { class: "wide" }, h("table", { class: "cards" },
    h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, decisions.map(row))));
}

export const cell = (label, ...children) => h("td", { "data-label": label }, ...children);
