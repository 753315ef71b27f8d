// SPDX-License-Identifier: MIT
//
// The live panel: what the server does with its memory, disk and queue, from GET status every two
// seconds while the page is visible.

import { element } from "./dom.js";
import { getJson } from "./server.js";

const kPollMs = 2000;
const kMaxPollMs = 30000;
const kStates = { starting: "Starting", loading: "Loading", ready: "Ready", draining: "Ending", stuck: "Stuck" };

function number(value) {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : 0;
}

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1000 && unit < units.length - 1; unit++) bytes /= 1024;
  return `${unit > 0 && bytes < 100 ? bytes.toFixed(bytes < 10 ? 2 : 1) : Math.round(bytes)} ${units[unit]}`;
}

function rateText(bytes) {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB/s` : `${Math.round(bytes / 1e6)} MB/s`;
}

function count(value) {
  return Math.round(number(value)).toLocaleString("en");
}

// A named figure; its value changes in place, so that a reader is not thrown back.
function figure(name) {
  const value = element("dd");
  const node = element("div", { class: "figure" }, element("dt", {}, name), value);
  return { node, set(text) {
    if (value.textContent !== text) value.textContent = text;
    node.hidden = text === "";
  } };
}

export class StatusPanel {
  constructor(state, body) {
    this.state = state;
    this.isOnline = null;
    this.latest = null;
    this.planned = element("div", { class: "bar-planned" });
    this.resident = element("div", { class: "bar-resident" });
    this.bar = element("div", { class: "bar", role: "meter", "aria-label": "Memory of the budget in use",
                                "aria-valuemin": "0" }, this.planned, this.resident);
    this.memory = figure("Memory");
    this.plan = figure("Planned");
    this.weights = figure("Weights in memory");
    this.disk = figure("From disk");
    this.speed = figure("Speed");
    this.running = figure("Running");
    this.queue = figure("Queue");
    this.pages = figure("KV pages");
    body.append(element("dl", {}, this.memory.node), this.bar, element("dl", {}, ...[
      this.plan, this.weights, this.disk, this.speed, this.running, this.queue, this.pages].map(({ node }) => node)));
    this.body = body;
    this.body.hidden = true;
    this.waitMs = kPollMs;
    document.addEventListener("visibilitychange", () => this.poll());
  }

  // Asks now and goes on asking. `onReachable` is called when the server answers again.
  start(onReachable) {
    this.onReachable = onReachable;
    this.poll();
  }

  async poll() {
    clearTimeout(this.timer);
    if (document.visibilityState !== "visible" || this.isPolling) return;
    this.isPolling = true;
    try {
      this.show(await getJson("status"));
      this.waitMs = kPollMs;
      if (this.isOnline === false) this.onReachable();
      this.isOnline = true;
    } catch (error) {
      this.latest = null;
      const needsKey = error.status === 401;
      this.setState(needsKey ? "Needs an API key" : error.status ? "No figures" : "Not reachable", "off");
      this.body.hidden = true;
      this.isOnline = error.status > 0;
      this.waitMs = Math.min(kMaxPollMs, this.waitMs * 2);
    }
    this.isPolling = false;
    this.timer = setTimeout(() => this.poll(), this.waitMs);
  }

  setState(text, kind) {
    if (this.state.textContent !== text) this.state.textContent = text;
    this.state.dataset.kind = kind;
  }

  show(status) {
    this.latest = status;
    const state = typeof status?.state === "string" ? status.state : "";
    this.setState(kStates[state] ?? (state || "Unknown"), state === "ready" ? "ready" : "busy");
    this.body.hidden = false;
    this.showMemory(status?.memory);
    const share = number(status?.stream?.resident_share);
    const rate = number(status?.stream?.bytes_per_second);
    this.weights.set(share > 0 ? `${Math.round(Math.min(1, share) * 100)} %` : "");
    this.disk.set(share >= 1 && rate === 0 ? "nothing" : rateText(rate));
    this.speed.set(`${number(status?.tokens_per_second).toFixed(1)} tokens/s`);
    const parked = number(status?.parked);
    this.running.set(count(status?.running) + (parked > 0 ? `, ${count(parked)} parked` : ""));
    const waiting = number(status?.queue?.requests);
    this.queue.set(waiting > 0 ? `${count(waiting)}, ${count(status.queue.prompt_tokens)} tokens` : "empty");
    const pages = number(status?.kv?.pages);
    const used = Math.max(0, pages - number(status?.kv?.free));
    const shared = number(status?.kv?.shared);
    this.pages.set(pages > 0 ? `${count(used)} of ${count(pages)}` + (shared > 0 ? `, ${count(shared)} shared` : "") : "");
  }

  showMemory(memory) {
    const budget = number(memory?.budget_bytes);
    const planned = number(memory?.planned_bytes);
    const resident = number(memory?.resident_bytes);
    const share = (bytes) => `${budget > 0 ? Math.min(100, bytes / budget * 100).toFixed(1) : 0}%`;
    const text = `${bytesText(resident)} of ${bytesText(budget)}`;
    this.memory.set(text);
    this.plan.set(bytesText(planned));
    this.planned.style.width = share(planned);
    this.resident.style.width = share(resident);
    this.bar.setAttribute("aria-valuemax", String(budget));
    this.bar.setAttribute("aria-valuenow", String(Math.min(budget, resident)));
    this.bar.setAttribute("aria-valuetext", text);
  }

  // What a request that has not begun is waiting for.
  waitingText() {
    const waiting = number(this.latest?.queue?.requests);
    if (waiting > 1) return `Waiting in the queue with ${count(waiting - 1)} other request${waiting === 2 ? "" : "s"}`;
    return waiting === 1 ? "Waiting in the queue" : "Waiting for the server";
  }
}
