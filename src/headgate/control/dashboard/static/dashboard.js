// Fetches the panels again every two seconds, while somebody looks.
"use strict";

const EVERY_MS = 2000;
const panels = document.getElementById("panels");
const state = document.getElementById("state");

async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch("/dashboard/panels", { credentials: "same-origin" });
    if (answer.status === 401) {
      location.assign("/login");
      return;
    }
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    panels.replaceChildren(...fresh.body.children);
    state.textContent = "live";
  } catch {
    state.textContent = "headgate does not answer";
  }
}

async function follow() {
  await refresh();
  setTimeout(follow, EVERY_MS);
}

document.addEventListener("visibilitychange", refresh);
setTimeout(follow, EVERY_MS);
