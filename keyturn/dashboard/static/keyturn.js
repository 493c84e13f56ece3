// Enhances pages that work without it: sends the login token, follows the overview live, copies commands, moves by keyboard.

const policy = window.trustedTypes?.createPolicy("keyturn", { createHTML: (text) => text }) ?? { createHTML: (text) => text };

// The login token stands in the fragment, which no server sees. It is taken out of the address before anything else.
const login = document.getElementById("login");
if (login && location.hash.length > 20) {
  login.elements.token.value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname + location.search);
  login.requestSubmit();
}

// Live: parts of the page are replaced where the server's HTML for them has changed. The server escapes every text in it, and
// a parsed document runs nothing.
const STALE_MS = 5000;
const pulse = document.querySelector("[data-live]");

function replaceParts(html) {
  const fresh = new DOMParser().parseFromString(policy.createHTML(html), "text/html");
  for (const part of fresh.querySelectorAll("[data-part]")) {
    const here = document.getElementById(part.id);
    if (!here || here.outerHTML === part.outerHTML) continue;
    const focused = here === document.activeElement;
    here.replaceWith(document.adoptNode(part));
    if (focused) part.focus();
  }
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

// The menu is open where there is room for it.
const menu = document.querySelector(".menu");
const wide = matchMedia("(width >= 60rem)");
if (menu) {
  menu.open = wide.matches;
  wide.addEventListener("change", () => (menu.open = wide.matches));
}

// Commands are copied by a click; where the browser has no clipboard, they are selected.
document.addEventListener("click", async (event) => {
  const command = event.target.closest?.(".cli");
  if (!command) return;
  try {
    await navigator.clipboard.writeText(command.textContent);
    command.classList.add("copied");
    setTimeout(() => command.classList.remove("copied"), 1500);
  } catch {
    getSelection()?.selectAllChildren(command);
  }
});

// Keyboard: / search, j and k rows, Enter opens the chosen row.
let chosen = -1;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
  const rows = [...document.querySelectorAll(".list tbody tr")];
  if (event.key === "/") {
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
