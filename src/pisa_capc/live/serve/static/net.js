// Questions to the service, and its events.

import { h } from "./dom.js";

export class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

export async function ask(path, { method = "GET", body = undefined } = {}) {
  const headers = method === "GET" ? {} : { "X-Pisa": "page", "Content-Type": "application/json" };
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), credentials: "same-origin" });
  if (answer.status === 401 && path !== "/api/login") { await login(); return ask(path, { method, body }); }
  if (!answer.ok) {
    const found = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, typeof found.detail === "string" ? found.detail : `The service answers ${answer.status}.`);
  }
  return answer.json();
}

let asking = null;

/** Ask for the token, once for everybody who waits for it. */
function login() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("dialog");
    const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
    const token = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, "aria-label": "Token" });
    const send = async (event) => {
      event.preventDefault();
      try {
        await ask("/api/login", { method: "POST", body: { token: token.value.trim() } });
        dialog.close();
        asking = null;
        resolve();
      } catch (error) {
        wrong.textContent = error.message;
        wrong.hidden = false;
        token.select();
      }
    };
    dialog.replaceChildren(h("form", { onsubmit: send }, h("h2", {}, "Token"),
      h("span", { class: "muted" }, "The service printed it when it began, or reads it from its token file. A link with a token is good once."),
      token, wrong, h("div", { class: "actions" }, h("button", { class: "main" }, "Go on"))));
    dialog.oncancel = (event) => event.preventDefault();
    dialog.showModal();
  });
  return asking;
}

/** Events until the page is closed. on: {events, open, lost}. */
export function listen(kinds, on) {
  let wait = 500;
  const begin = () => {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/api/events?kinds=${kinds}`);
    socket.onopen = () => { wait = 500; on.open(); };
    socket.onmessage = (message) => on.events(JSON.parse(message.data));
    socket.onclose = (event) => {
      on.lost(event.reason || "the connection to the service is lost");
      setTimeout(begin, wait);
      wait = Math.min(2 * wait, 10000);
    };
  };
  begin();
}
