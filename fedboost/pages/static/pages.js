// What the pages do where scripts run: sign in from the link, let times tick, follow what happens.
// Everything here can be missing: then a reload shows the same.
"use strict";

const TICK_MS = 1000;
const TRIES_MS = [2000, 3000, 5000, 10000]; // between looks while the daemon does not answer

// Signing in: the token stands behind the # of the link, which browsers send to nobody.
function signIn() {
  const form = document.getElementById("sign-in");
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  if (!form) return;
  form.elements.token.value = found[1];
  form.requestSubmit();
}

// Times. The daemon's clock counts, not the browser's.
let ahead = Number(document.body.dataset.now) * 1000 - Date.now();

function inWords(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (n) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  const minutes = Math.round(whole / 60);
  return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}

function tick() {
  const now = (Date.now() + ahead) / 1000;
  for (const time of document.querySelectorAll("time.since")) {
    time.textContent = inWords(now - Number(time.dataset.since));
  }
  for (const time of document.querySelectorAll("time.until")) {
    time.textContent = inWords(Number(time.dataset.until) - now);
  }
}

// Following: the same page is asked for again, and the parts of it that changed are put in place.
const follows = Number(document.body.dataset.follows || 0) * 1000;
const given = new Map(); // each part as the daemon sent it last
let mark = "";
let failed = 0;
let lostAt = null;

function within(part) {
  const focused = document.activeElement;
  const kept = { focus: null, open: [], scrolled: [] };
  if (focused && part.contains(focused)) {
    kept.focus = [...part.querySelectorAll("a, button, summary, [tabindex]")].indexOf(focused);
  }
  kept.open = [...part.querySelectorAll("details")].map((one) => one.open);
  kept.scrolled = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  return kept;
}

function restore(part, kept) {
  part.querySelectorAll("details").forEach((one, n) => { if (kept.open[n]) one.open = true; });
  part.querySelectorAll(".scroll").forEach((one, n) => { one.scrollLeft = kept.scrolled[n] || 0; });
  if (kept.focus !== null) {
    const again = part.querySelectorAll("a, button, summary, [tabindex]")[kept.focus];
    if (again) again.focus({ preventScroll: true });
  }
}

function bare(part) { // without what only time changes
  for (const time of part.querySelectorAll("time.since, time.until")) time.textContent = "";
  return part.innerHTML;
}

function putIn(fresh) {
  for (const part of fresh.querySelectorAll(".live")) {
    const old = document.getElementById(part.id);
    const now = bare(part);
    if (!old || given.get(part.id) === now) continue;
    given.set(part.id, now);
    const said = old.querySelector("#said");
    const next = part.querySelector("#said");
    const kept = within(old);
    if (said && next) { // the same element with other words is what a screen reader says
      const words = next.textContent;
      next.replaceWith(said);
      if (said.textContent !== words) said.textContent = words;
    }
    old.replaceChildren(...part.childNodes);
    restore(old, kept);
  }
  document.title = fresh.title;
}

function lost(isLost) {
  const banner = document.getElementById("lost");
  if (!isLost) {
    lostAt = null;
    if (banner.textContent) banner.textContent = "";
    return;
  }
  lostAt = lostAt || new Date();
  const words = `The daemon has not answered since ${lostAt.toLocaleTimeString()}. Trying again …`;
  if (banner.textContent !== words) banner.textContent = words;
}

async function look() {
  let next = follows;
  if (!document.hidden) {
    try {
      const headers = mark ? { "If-None-Match": mark } : {};
      const how = { headers, cache: "no-store", redirect: "manual", credentials: "same-origin" };
      const answer = await fetch(location.pathname + location.search, how);
      if (answer.type === "opaqueredirect") return location.reload(); // to the sign-in
      if (answer.status === 200) {
        mark = answer.headers.get("ETag") || "";
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        ahead = Number(fresh.body.dataset.now) * 1000 - Date.now();
        putIn(fresh);
        tick();
        if (!fresh.body.dataset.follows) { lost(false); return; }
      } else if (answer.status !== 304) {
        throw new Error(String(answer.status));
      }
      failed = 0;
      lost(false);
    } catch (error) {
      next = TRIES_MS[Math.min(failed, TRIES_MS.length - 1)];
      failed += 1;
      lost(failed > 1);
    }
  }
  setTimeout(look, next);
}

// A chosen file's text goes into the field, where it can be read before it is sent.
function takeFiles() {
  for (const input of document.querySelectorAll("input[type=file][data-into]")) {
    input.addEventListener("change", async () => {
      const [file] = input.files;
      if (!file) return;
      document.getElementById(input.dataset.into).value = await file.text();
      input.value = "";
    });
  }
}

// What has just been done is no news for long, and none after a reload.
const NEWS_MS = 10000;
function forgetNews() {
  const asked = new URLSearchParams(location.search);
  if (!asked.has("done")) return;
  asked.delete("done");
  const left = asked.toString();
  history.replaceState(null, "", location.pathname + (left ? `?${left}` : "") + location.hash);
  setTimeout(() => document.querySelector(".done-note")?.remove(), NEWS_MS);
}

// A form is sent once, however often its button is pressed.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});
window.addEventListener("pageshow", () => {
  for (const form of document.forms) delete form.dataset.sent;
});

signIn();
window.addEventListener("hashchange", signIn); // the link, pasted where the page is open already
takeFiles();
forgetNews();
if (document.querySelector("time.since, time.until") || follows) setInterval(tick, TICK_MS);
if (follows) {
  for (const part of document.querySelectorAll(".live")) {
    given.set(part.id, bare(part.cloneNode(true)));
  }
  setTimeout(look, follows);
}
