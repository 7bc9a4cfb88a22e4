// Which view is shown, and when it is drawn.

import { air, heard, load, pending } from "./air.js";
import { empty, h, set } from "./dom.js";
import { listen } from "./net.js";
import { nowView } from "./now.js";
import { alarmCard } from "./parts.js";
import { alarmView, alarmsView, frameView, framesView, receiverView, transmitterView } from "./views.js";

const STATES = { connected: ["listening", "good"], waiting: ["waiting for samples", "warn"], ended: ["source has ended", "bad"] };
const VIEWS = [
  [/^#?\/?$/, "now", nowView], [/^#\/alarms$/, "alarms", alarmsView], [/^#\/alarm\/(\d{1,15})$/, "alarms", alarmView],
  [/^#\/frames$/, "frames", framesView], [/^#\/frame\/(\d{1,15})$/, "frames", frameView],
  [/^#\/transmitter\/(\d{1,15})$/, "now", transmitterView], [/^#\/receiver$/, "receiver", receiverView],
];

const element = (id) => document.getElementById(id);
let view = null, lost = null, banner = null;

function open() {
  if (!air.about || location.hash === "#content") return;
  const found = VIEWS.map(([pattern, tab, make]) => [location.hash.match(pattern), tab, make]).find(([match]) => match);
  for (const link of document.querySelectorAll("nav a")) {
    if (found && link.dataset.view === found[1]) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view = found ? found[2](draw, Number(found[0][1])) : { root: empty("There is nothing here", "The link leads nowhere."), title: "Nothing", update() {} };
  element("content").replaceChildren(view.root);
  window.scrollTo(0, 0);
  draw();
}

function draw() {
  if (!view || !air.status) return;
  view.update();
  const count = pending().length, [text, kind] = lost ? [lost, "bad"] : STATES[air.status.source];
  set(element("state"), text);
  element("state").className = `pill ${kind}`;
  set(element("source"), air.about.source);
  set(element("unseen"), count);
  element("unseen").hidden = !count;
  document.title = `${count ? `(${count}) ` : ""}${view.title} · pisa`;
  showBanner();
}

/** The newest alarm that is not acknowledged, in every view but that of alarms. */
function showBanner() {
  const newest = location.hash.startsWith("#/alarm") ? null : pending()[0] ?? null;
  const key = newest && `${newest.number} ${newest.state}`;
  if (key === banner) return;
  banner = key;
  element("banner").replaceChildren(...(newest ? [alarmCard(newest, draw, { brief: true })] : []));
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* where nothing may be stored, it lasts as long as the page */ }
  open();
}

async function begin() {
  try {
    await load();
    lost = null;
    if (!view) open();
    draw();
  } catch (error) {
    lost = error.message;
    if (!view) element("content").replaceChildren(empty("No answer", `${error.message} Trying again.`));
    draw();
  }
}

const chosen = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
element("theme").addEventListener("click", theme);
window.addEventListener("hashchange", open);
window.addEventListener("resize", draw);
element("content").replaceChildren(h("p", { class: "empty" }, "…"));
await begin();
listen("alarm,status,transmitters", {
  open: begin,
  events: (events) => { heard(events); draw(); },
  lost: (why) => { lost = why; draw(); },
});
setInterval(draw, 1000);
