// The line of time: checkpoints from left to right; their steps, bytes, rows by sink, lag and
// watermark in lanes.
// The server sends a bounded number of checkpoints, so the picture is as quick for 10 000 as for 10.
import { age } from "./page.js";

const STEP_COLOURS = [0, 1, 2, 3, 4, 5, 6, 7];
const SINK_COLOURS = [2, 5, 1, 4, 0, 3, 6, 7];

const root = document.getElementById("history");
if (root !== null) start(root);

function start(root) {
  const place = root.dataset.place;
  const chart = root.querySelector("#chart");
  const canvas = chart.querySelector("canvas");
  const readout = root.querySelector("#readout");
  const drawn = root.querySelector("#drawn");
  const legend = root.querySelector("#legend");
  const LEFT = 80;
  const RIGHT = 10;
  const sinks = root.querySelector("#sinks");
  const MARKS = { start: "▶", recovery: "▲", fence: "║", rollback: "↩", pin: "★", fork: "Y", upgrade: "⬆", gap: "…", failed: "!", damage: "✕", unreadable: "?" };
  let data = null;
  let view = { first: null, last: null }; // null: the newest end
  let at = -1;
  let dragFrom = null;
  let dragTo = null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  async function load() {
    const query = new URLSearchParams();
    if (view.first !== null) query.set("first", view.first);
    if (view.last !== null) query.set("last", view.last);
    try {
      const answer = await fetch(`/api/p/${place}/history?${query}`);
      if (!answer.ok) throw new Error(String(answer.status));
      const before = data !== null && at >= 0 ? data.id[at] : null;
      data = await answer.json();
      at = before === null ? -1 : data.id.indexOf(before);
    } catch {
      drawn.textContent = "no answer; the picture is from before";
      return;
    }
    describe();
    draw();
  }

  function describe() {
    const { total, drawn: count, first, last } = data.window;
    drawn.textContent = count < total ? `${count} of ${total} checkpoints drawn, ${first} to ${last}` : `checkpoints ${first} to ${last}`;
    chart.setAttribute("aria-valuemax", String(Math.max(0, data.id.length - 1)));
    legend.replaceChildren(
      ...swatches(Object.keys(data.phases), STEP_COLOURS),
      ...Object.entries(MARKS).filter(([kind]) => data.events.some((event) => event.kind === kind)).map(([kind, mark]) => named(`${mark} ${kind}`)),
    );
    const written = Object.keys(data.rows);
    sinks.replaceChildren(...(written.length ? [named("rows by sink:")] : []), ...swatches(written, SINK_COLOURS));
  }

  function named(text) {
    const item = document.createElement("li");
    item.append(text);
    return item;
  }

  function swatches(names, order) {
    return names.map((name, n) => {
      const item = named(visible(name));
      const swatch = document.createElement("i");
      swatch.className = `k${order[n % 8]}`;
      item.prepend(swatch);
      return item;
    });
  }

  function lanes() {
    const n = data.id.length;
    const lag = Object.values(data.lag);
    const delays = data.watermark.map((mark, i) => (mark === null || data.at_ms[i] === null ? null : Math.max(0, (data.at_ms[i] - mark) / 1000)));
    const list = [
      { name: "steps", weight: 5, values: data.took.map((took) => took ?? 0), unit: seconds, stacked: data.phases, order: STEP_COLOURS },
      { name: "new", weight: 2, values: data.new_bytes.map((size) => size ?? 0), unit: bytes },
    ];
    const rows = Object.values(data.rows);
    if (rows.length) list.push({ name: "rows", weight: 2, values: Array.from({ length: n }, (_, i) => rows.reduce((sum, each) => sum + (each[i] ?? 0), 0)), unit: count, stacked: data.rows, order: SINK_COLOURS });
    if (lag.length) list.push({ name: "behind", weight: 2, values: Array.from({ length: n }, (_, i) => (lag.every((rows) => rows[i] === null) ? null : lag.reduce((sum, rows) => sum + (rows[i] ?? 0), 0))), unit: count, line: true });
    if (delays.some((delay) => delay !== null && delay < 4e8)) list.push({ name: "watermark", weight: 2, values: delays.map((delay) => (delay !== null && delay < 4e8 ? delay : null)), unit: seconds, line: true });
    return list;
  }

  function draw() {
    if (data === null) return;
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    const n = data.id.length;
    if (n === 0) return;
    const step = (width - LEFT - RIGHT) / n;
    const x = (i) => LEFT + i * step;
    const ink = colour("--soft");
    const rule = colour("--line");
    const top = 20;
    const bottom = height - 20;
    const list = lanes();
    const room = bottom - top - list.length * 10;
    const weights = list.reduce((sum, lane) => sum + lane.weight, 0);

    // what does not count, and what is damaged, as a ground under its bars
    data.status.forEach((status, i) => {
      if (status !== "damaged" && status !== "superseded" && status !== "failed" && status !== "unreadable") return;
      pen.fillStyle = colour(status === "superseded" ? "--idle-bg" : "--bad-bg");
      pen.fillRect(x(i), top, Math.max(step, 1.5), bottom - top);
    });

    let y = top;
    for (const lane of list) {
      const tall = (room * lane.weight) / weights;
      const most = Math.max(...lane.values.map((value) => value ?? 0), 1e-9);
      pen.strokeStyle = rule;
      pen.beginPath();
      pen.moveTo(LEFT, y + tall + 0.5);
      pen.lineTo(width - RIGHT, y + tall + 0.5);
      pen.stroke();
      pen.fillStyle = ink;
      pen.textAlign = "right";
      pen.textBaseline = "top";
      pen.fillText(lane.unit(most), LEFT - 8, y);
      pen.textBaseline = "bottom";
      pen.fillText(lane.name, LEFT - 8, y + tall);
      const gap = step > 4 ? 1 : 0;
      if (lane.stacked) stacked(pen, lane.stacked, lane.order, x, step - gap, y, tall, most);
      else if (lane.line) line(pen, lane.values, x, step, y, tall, most);
      else {
        pen.fillStyle = colour("--c7");
        lane.values.forEach((value, i) => pen.fillRect(x(i), y + tall - (tall * value) / most, Math.max(step - gap, 0.6), (tall * value) / most));
      }
      y += tall + 10;
    }

    marks(pen, x, step, top, bottom);
    times(pen, x, step, width, height, ink);
    if (at >= 0) cursor(pen, x(at), step, top, bottom);
    if (dragFrom !== null && dragTo !== null && dragFrom !== dragTo) {
      pen.fillStyle = colour("--focus");
      pen.globalAlpha = 0.18;
      pen.fillRect(x(Math.min(dragFrom, dragTo)), top, (Math.abs(dragTo - dragFrom) + 1) * step, bottom - top);
      pen.globalAlpha = 1;
    }
  }

  function stacked(pen, series, order, x, width, y, tall, most) {
    const columns = Object.values(series);
    for (let i = 0; i < data.id.length; i++) {
      let floor = y + tall;
      columns.forEach((values, k) => {
        const part = (tall * (values[i] ?? 0)) / most;
        floor -= part;
        pen.fillStyle = colours[order[k % 8]];
        pen.fillRect(x(i), floor, Math.max(width, 0.6), part);
      });
    }
  }

  let colours = [];
  function readColours() {
    colours = Array.from({ length: 8 }, (_, k) => colour(`--c${k}`));
  }

  function line(pen, values, x, step, y, tall, most) {
    pen.strokeStyle = colour("--c0");
    pen.lineWidth = 1.5;
    pen.beginPath();
    values.forEach((value, i) => {
      const where = [x(i) + step / 2, y + tall - (tall * (value ?? 0)) / most];
      if (value === null) return;
      if (i === 0 || values[i - 1] === null) pen.moveTo(...where); // nothing is drawn through what is not known
      else pen.lineTo(...where);
    });
    pen.stroke();
    pen.lineWidth = 1;
  }

  function marks(pen, x, step, top, bottom) {
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.font = "13px system-ui, sans-serif";
    let before = -99;
    for (const event of data.events) {
      const i = indexOf(event.id);
      const middle = x(i) + step / 2;
      const isBad = event.kind === "damage" || event.kind === "failed" || event.kind === "unreadable";
      pen.strokeStyle = pen.fillStyle = colour(isBad ? "--bad" : event.kind === "pin" ? "--c5" : "--c0");
      pen.setLineDash([2, 3]);
      pen.beginPath();
      pen.moveTo(middle, top);
      pen.lineTo(middle, bottom);
      pen.stroke();
      pen.setLineDash([]);
      if (middle - before < 11) continue;
      pen.fillText(MARKS[event.kind] ?? "•", middle, 2);
      before = middle;
    }
    pen.font = "11px system-ui, sans-serif";
  }

  function times(pen, x, step, width, height, ink) {
    pen.fillStyle = ink;
    pen.textBaseline = "bottom";
    const every = Math.max(1, Math.ceil(110 / step));
    const last = data.at_ms.length - 1;
    const spanned = (data.at_ms[last] ?? 0) - (data.at_ms[0] ?? 0);
    for (let i = 0; i <= last; i += every) {
      if (data.at_ms[i] === null) continue;
      const when = new Date(data.at_ms[i]);
      const text = spanned > 864e5 ? when.toISOString().slice(5, 16).replace("T", " ") : when.toISOString().slice(11, 19);
      pen.textAlign = "left";
      if (x(i) + 62 < width) pen.fillText(text, x(i), height - 2);
    }
  }

  function cursor(pen, left, step, top, bottom) {
    pen.strokeStyle = colour("--focus");
    pen.lineWidth = 1.5;
    pen.strokeRect(left - 0.5, top, Math.max(step, 2) + 1, bottom - top);
    pen.lineWidth = 1;
  }

  // the drawn checkpoint that is, or comes next after, an id
  function indexOf(id) {
    let low = 0;
    let high = data.id.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.id[middle] < id) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function point(i) {
    if (data === null || data.id.length === 0) return;
    at = Math.max(0, Math.min(data.id.length - 1, i));
    const facts = [
      ["epoch", data.epoch[at] ?? "–"],
      ["status", data.status[at] + (data.full[at] ? ", full" : "")],
      ["taken", data.at_ms[at] === null ? "–" : `${age(data.at_ms[at])} (${new Date(data.at_ms[at]).toISOString().slice(0, 19).replace("T", " ")} UTC)`],
      ["took", data.took[at] === null ? "–" : seconds(data.took[at])],
      ...Object.entries(data.phases).filter(([, took]) => took[at] > 0).map(([name, took]) => [name, seconds(took[at])]),
      ["new", data.new_bytes[at] === null ? "–" : bytes(data.new_bytes[at])],
      ["full", data.restore_bytes[at] === null ? "–" : bytes(data.restore_bytes[at])],
      ...Object.entries(data.rows).filter(([, rows]) => rows[at] !== null).map(([name, rows]) => [`rows to ${name}`, count(rows[at])]),
      ...Object.entries(data.lag).filter(([, rows]) => rows[at] !== null).map(([name, rows]) => [`${name} behind`, count(rows[at])]),
      ...(data.watermark[at] === null || data.at_ms[at] === null ? [] : [["watermark", `${seconds(Math.max(0, (data.at_ms[at] - data.watermark[at]) / 1000))} behind`]]),
      ...data.events.filter((event) => indexOf(event.id) === at).map((event) => [event.kind, event.text]),
    ];
    const link = document.createElement("a");
    link.href = `/p/${place}/checkpoint/${data.id[at]}`;
    link.textContent = `Checkpoint ${data.id[at]}`;
    const items = document.createElement("dl");
    for (const [name, value] of facts) {
      const pair = document.createElement("div");
      const term = document.createElement("dt");
      const text = document.createElement("dd");
      term.textContent = visible(name);
      text.textContent = visible(value);
      pair.append(term, text);
      items.append(pair);
    }
    readout.replaceChildren(link, items);
    chart.setAttribute("aria-valuenow", String(at));
    chart.setAttribute("aria-valuetext", `checkpoint ${data.id[at]}, ${facts.map(([name, value]) => visible(`${name} ${value}`)).join(", ")}`);
    draw();
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const inside = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    return Math.max(0, Math.min(data.id.length - 1, Math.floor(inside * data.id.length)));
  }

  function open() {
    if (at >= 0) location.assign(`/p/${place}/checkpoint/${data.id[at]}`);
  }

  function zoom(how) {
    if (data === null || data.all.first === null) return;
    const all = data.all;
    const { first, last } = data.window;
    const span = Math.max(1, last - first);
    const middle = at >= 0 ? data.id[at] : Math.round((first + last) / 2);
    const shift = Math.max(1, Math.round(span / 2));
    const between = (a, b) => ({ first: Math.max(all.first, Math.round(a)), last: Math.min(all.last, Math.round(b)) });
    if (how === "newest") view = { first: null, last: null };
    else if (how === "all") view = { first: all.first, last: all.last };
    else if (how === "in") view = between(middle - span / 4, middle + span / 4);
    else if (how === "out") view = between(middle - span, middle + span);
    else if (how === "older") view = between(first - shift, last - shift);
    else view = between(first + shift, last + shift);
    if (view.first !== null && view.first > view.last) view = { first: all.first, last: all.last };
    load();
  }

  root.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-zoom]");
    if (button !== null) zoom(button.dataset.zoom);
  });
  chart.addEventListener("pointerdown", (event) => {
    if (data === null || event.button !== 0) return;
    dragFrom = dragTo = under(event);
    if (event.pointerType === "mouse") chart.setPointerCapture(event.pointerId);
  });
  chart.addEventListener("pointermove", (event) => {
    if (data === null || data.id.length === 0) return;
    const i = under(event);
    if (dragFrom !== null && event.pointerType === "mouse") dragTo = i;
    if (i !== at || dragFrom !== null) point(i);
  });
  chart.addEventListener("pointerup", (event) => {
    if (data === null || dragFrom === null) return;
    const [a, b] = [Math.min(dragFrom, dragTo), Math.max(dragFrom, dragTo)];
    const isMouse = event.pointerType === "mouse";
    dragFrom = dragTo = null;
    if (isMouse && b - a >= 2) {
      view = { first: data.id[a], last: data.id[b] };
      load();
    } else {
      point(under(event));
      if (isMouse) open(); // a finger looks first, and follows the link below
    }
  });
  chart.addEventListener("pointercancel", () => { dragFrom = dragTo = null; });
  chart.addEventListener("keydown", (event) => {
    if (data === null || event.ctrlKey || event.metaKey || event.altKey) return;
    const here = at < 0 ? data.id.length - 1 : at;
    const moves = { ArrowLeft: here - 1, ArrowDown: here - 1, ArrowRight: here + 1, ArrowUp: here + 1, PageUp: here - 20, PageDown: here + 20, Home: 0, End: data.id.length - 1 };
    if (event.key in moves) point(moves[event.key]);
    else if (event.key === "Enter") open();
    else if (event.key === "+") zoom("in");
    else if (event.key === "-") zoom("out");
    else return;
    event.preventDefault();
  });
  document.addEventListener("seamark:changed", () => { if (view.last === null) load(); });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); });
  readColours();
  load();
}

// A name from a store, with the characters made visible that would turn or hide other text.
function visible(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (mark) => `\\u${mark.codePointAt(0).toString(16).padStart(4, "0")}`);
}

function seconds(value) {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} days`;
}

function bytes(value) {
  if (value < 1024) return `${Math.round(value)} B`;
  let unit = "KiB";
  let size = value / 1024;
  for (const larger of ["MiB", "GiB", "TiB"]) {
    if (size < 1023.5) break;
    size /= 1024;
    unit = larger;
  }
  return `${size >= 9.95 || unit === "KiB" ? size.toFixed(0) : size.toFixed(1)} ${unit}`;
}

function count(value) {
  return Math.round(value).toLocaleString("en").replaceAll(",", " ");
}
