// Enhances pages that work without it: sends the login token, follows the overview live, goes on with long work, copies commands,
// moves by keyboard.

const policy = window.trustedTypes?.createPolicy("keyturn", { createHTML: (text) => text }) ?? { createHTML: (text) => text };

// The login token stands in the fragment, which no server sees. It is taken out of the address before anything else.
const login = document.getElementById("login");
function useToken() {
  if (!login || location.hash.length <= 20) return;
  login.elements.token.value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname + location.search);
  login.requestSubmit();
}
useToken();
window.addEventListener("hashchange", useToken); // a link that is opened where the login page is open already

document.documentElement.classList.add("script"); // buttons that only a script can serve are shown now

// Live: parts of the page take over what the server's HTML for them says. The server escapes every text in it, and a parsed
// document runs nothing. Elements that stay the same stay in place: a focus, a selection or a click under way is not lost.
const STALE_MS = 5000;
const pulse = document.querySelector("[data-live]");

function replaceParts(html) {
  const fresh = new DOMParser().parseFromString(policy.createHTML(html), "text/html");
  for (const part of fresh.querySelectorAll("[data-part]")) {
    const here = document.getElementById(part.id);
    if (here) takeOver(here, part);
  }
}

function takeOver(here, fresh) {
  if (here.nodeName !== fresh.nodeName || here.dataset?.key !== fresh.dataset?.key) {
    here.replaceWith(document.adoptNode(fresh)); // another thing: it shall not have the old one's button under the pointer
    return;
  }
  if (here.nodeType !== Node.ELEMENT_NODE) {
    if (here.data !== fresh.data) here.data = fresh.data;
    return;
  }
  for (const { name } of [...here.attributes]) if (!fresh.hasAttribute(name)) here.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (here.getAttribute(name) !== value) here.setAttribute(name, value);
  const [before, after] = [[...here.childNodes], [...fresh.childNodes]];
  after.forEach((child, n) => (n < before.length ? takeOver(before[n], child) : here.append(document.adoptNode(child))));
  before.slice(after.length).forEach((child) => child.remove());
}

function follow() {
  let source = null;
  let heard = Date.now();
  const say = (state, text) => {
    if (pulse.textContent !== text) pulse.textContent = text;
    pulse.className = `pulse ${state}`;
    document.body.classList.toggle("stale-page", state === "stale");
  };
  const start = () => {
    if (source || document.hidden) return;
    heard = Date.now();
    source = new EventSource(pulse.dataset.live);
    source.addEventListener("overview", (event) => {
      heard = Date.now();
      replaceParts(JSON.parse(event.data).html);
      say("live", "live");
    });
  };
  const stop = () => {
    source?.close();
    source = null;
    say("paused", "paused");
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  window.addEventListener("pagehide", stop);
  setInterval(() => {
    const silent = Date.now() - heard;
    if (source && silent > STALE_MS) say("stale", `stale: nothing heard for ${Math.round(silent / 1000)} s`);
    if (source && source.readyState === EventSource.CLOSED) {
      source = null; // the server refused or is gone: ask again
      setTimeout(start, 1000);
    }
  }, 1000);
  start();
}
if (pulse && "EventSource" in window) follow();

// A long piece of work is done in steps: the form of the next one is sent when the page has shown how far it came.
const next = document.querySelector("[data-go-on] form");
if (next) setTimeout(() => next.requestSubmit(), 300);

// The menu is open where there is room for it.
const menu = document.querySelector(".menu");
const wide = matchMedia("(width >= 60rem)");
if (menu) {
  menu.open = wide.matches;
  wide.addEventListener("change", () => (menu.open = wide.matches));
}

// Commands are copied by a click; where the browser has no clipboard, they are selected.
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.(".copy");
  if (!button) return;
  const command = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(command.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  } catch {
    getSelection()?.selectAllChildren(command);
  }
});

// Keyboard: / search, j and k rows, Enter opens the chosen row, ? lists the keys.
let chosen = -1;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea, dialog[open]")) return;
  const rows = [...document.querySelectorAll(".list tbody tr, .recent li")];
  if (event.key === "?") {
    document.getElementById("keys")?.showModal();
  } else if (event.key === "g") {
    document.querySelector(".brand")?.click();
  } else if (event.key === "/") {
    const search = document.querySelector(".search input[type=search]");
    if (!search) return;
    event.preventDefault();
    search.focus();
  } else if ((event.key === "j" || event.key === "k") && rows.length) {
    chosen = Math.max(0, Math.min(rows.length - 1, chosen + (event.key === "j" ? 1 : -1)));
    rows.forEach((row, n) => row.classList.toggle("chosen", n === chosen));
    rows[chosen].querySelector("a")?.focus();
    rows[chosen].scrollIntoView({ block: "nearest" });
  }
});
