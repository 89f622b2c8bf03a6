// What all pages have: news without a reload, ages that stay right, commands to copy, checks that run.
// Whatever comes from the server is put in place as parsed nodes or as text, never as markup.

const PARTS = "[data-live][id]";

export function age(ms) {
  const seconds = Math.max(0, (Date.now() - ms) / 1000);
  for (const [size, one, many] of [[86400, "day", "days"], [3600, "h", "h"], [60, "min", "min"]]) {
    if (seconds >= size) {
      const count = Math.floor(seconds / size);
      return `${count} ${count === 1 ? one : many} ago`;
    }
  }
  return `${Math.floor(seconds)} s ago`;
}

function keepAges() {
  for (const time of document.querySelectorAll("time[data-ms]")) {
    const text = age(Number(time.dataset.ms));
    if (time.textContent !== text) time.textContent = text;
  }
}

// What is wider than its place can be scrolled with the keyboard too.
function openScrollers() {
  for (const box of document.querySelectorAll(".scroll")) {
    const isWide = box.scrollWidth > box.clientWidth;
    box.tabIndex = isWide ? 0 : -1;
    if (!isWide) box.removeAttribute("tabindex");
    if (isWide && !box.hasAttribute("role")) {
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", "Wide table");
    }
  }
}

let refreshing = false;
let again = false;

// The page once more, of which only the parts are taken that say something new.
export async function refresh() {
  if (refreshing) {
    again = true;
    return;
  }
  refreshing = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll(PARTS)) {
      const other = fresh.getElementById(part.id);
      if (other === null) {
        location.reload(); // it has become another kind of page, or the first checkpoint has come
        return;
      }
      if (other.innerHTML === part.innerHTML) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
      part.replaceChildren(...[...other.childNodes].map((node) => document.importNode(node, true)));
      if (focused) document.getElementById(focused)?.focus();
    }
    keepAges();
    openScrollers();
  } catch {
    // the server is gone for now; the stream of events says so
  } finally {
    refreshing = false;
    if (again) {
      again = false;
      refresh();
    }
  }
}

function say(text, kind) {
  const state = document.getElementById("connection");
  if (state.textContent !== text) state.textContent = text;
  state.className = `state ${kind}`;
}

// The step of a running epoch is no news of its store: it comes by itself.
function showRunning(now) {
  for (const box of document.querySelectorAll("[data-running]")) {
    if (box.dataset.running !== now.place) continue;
    const isRunning = now.epoch !== null;
    if (box.dataset.form === "epoch") box.textContent = isRunning ? `epoch ${now.epoch}` : "no epoch";
    else if (box.dataset.form === "line" || !isRunning) box.textContent = isRunning ? `epoch ${now.epoch}: ${now.step}` : now.step;
    else {
      const since = document.createElement("time");
      since.dataset.ms = String(now.since_ms);
      since.textContent = age(now.since_ms);
      box.replaceChildren(`${now.step}, since `, since);
    }
  }
}

let events = null;

// A page that nobody sees listens to nothing.
function listen() {
  if (document.hidden) {
    events?.close();
    events = null;
    return;
  }
  if (events !== null) return;
  let wasLost = false;
  events = new EventSource(document.body.dataset.events);
  events.onopen = () => {
    say("live", "on");
    if (wasLost) refresh();
  };
  events.onerror = () => {
    wasLost = true;
    say("connection lost, trying again", "off");
  };
  events.addEventListener("running", (event) => showRunning(JSON.parse(event.data)));
  events.addEventListener("changed", () => {
    refresh();
    document.dispatchEvent(new Event("seamark:changed"));
  });
  refresh();
}

async function copy(button) {
  const label = button.firstChild;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    label.textContent = "Copied";
  } catch {
    const range = document.createRange(); // no clipboard without TLS or loopback: mark it instead
    range.selectNodeContents(button.parentElement.querySelector("code"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    label.textContent = "Marked";
  }
  setTimeout(() => { label.textContent = "Copy"; }, 2000);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-copy]");
  if (button !== null) copy(button);
});

// Checks are started without leaving the page, and looked at while they run.
document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-check]");
  if (form === null) return;
  event.preventDefault();
  form.querySelector("button").disabled = true;
  const answer = await fetch(form.action, { method: "POST" });
  if (!answer.ok) location.assign(answer.url);
  await refresh();
  follow();
});

let following = false;

async function follow() {
  if (following) return;
  following = true;
  while (document.querySelector("[data-state=running]") !== null) {
    await new Promise((resolve) => setTimeout(resolve, 400));
    await refresh();
  }
  following = false;
}

setInterval(keepAges, 1000);
addEventListener("resize", openScrollers);
openScrollers();
document.addEventListener("visibilitychange", listen);
listen();
follow();
