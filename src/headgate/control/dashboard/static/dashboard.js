// Follows the page that is shown: the server says over SSE which parts have changed, and they are changed in place, so
// that what somebody has opened, typed or focused stays as it is.
"use strict";

const AGAIN_MS = 5000;
const liveUrl = document.body.dataset.live;
const state = document.getElementById("state");
const hold = document.getElementById("hold");
let source = null;
let again = 0;

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);
const isAlike = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName;

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  const isField = old.matches("input, select, textarea");
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !(isField && name === "value" && old.type !== "hidden")) {
      old.setAttribute(name, value);
    }
  }
  if (!isField) morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const found = key ? keyed.get(key) : at && !keyOf(at) ? at : null;
    if (!found || !isAlike(found, wanted)) {
      old.insertBefore(document.importNode(wanted, true), at);
      continue;
    }
    if (key) keyed.delete(key);
    if (found === at) at = at.nextSibling;
    else old.insertBefore(found, at);
    morph(found, wanted);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function show(event) {
  const parser = new DOMParser();
  for (const html of Object.values(JSON.parse(event.data))) {
    const fresh = parser.parseFromString(html, "text/html").body.firstElementChild;
    const old = document.getElementById(fresh.id);
    if (old) morph(old, fresh);
  }
  say("live");
  document.body.dataset.updates = String(Number(document.body.dataset.updates || 0) + 1);
}

function say(text) {
  if (state.textContent !== text) state.textContent = text;
}

function close() {
  clearTimeout(again);
  if (source) source.close();
  source = null;
}

function open() {
  close();
  if (document.hidden || hold.getAttribute("aria-pressed") === "true") return;
  source = new EventSource(liveUrl);
  source.onopen = () => say("live");
  source.onmessage = show;
  source.onerror = () => {
    say("headgate does not answer");
    // A browser tries again by itself unless it was refused: the session may be over.
    if (source && source.readyState === EventSource.CLOSED) again = setTimeout(ask, AGAIN_MS);
  };
}

async function ask() {
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.status === 404) location.reload();
  } catch {
    // It is still away.
  }
  open();
}

if (liveUrl) {
  hold.hidden = false;
  hold.addEventListener("click", () => {
    const holds = hold.getAttribute("aria-pressed") !== "true";
    hold.setAttribute("aria-pressed", String(holds));
    hold.textContent = holds ? "Go on" : "Hold";
    if (holds) {
      close();
      say("held");
    } else open();
  });
  document.addEventListener("visibilitychange", open);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
}
