/**
 * The tiers as lanes, and every job a mark in one: left of the gate what waits, right of it what
 * runs. A mark goes where its job goes, so that one sees starts, preemptions and ways down.
 */

import { byId, element, oncePerFrame, point, prepared, write } from "./dom.js";
import { amount, count, exactGpuHours, gpuHours, visible } from "./format.js";
import { caption, colours, mark, swatch, whenColoursChange } from "./marks.js";

const PITCHES_PX = [18, 15, 12, 9, 7, 5, 4, 3];
const TALLEST_PX = 460;
const LEAST_LANE_PX = 40;
const LABEL_PX = 132;
const NARROW_PX = 560;
const GATE_PX = 18;
const HEAD_PX = 16;
const WAITING_SHARE = 0.46;
const MOVES_MS = 900;

const canvas = byId("lanes-canvas");
const place = canvas.parentElement;
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

export class Lanes {
  #state = null;
  #laid = null;
  /** Where each job was drawn when the present move began, and when that was. */
  #from = new Map();
  #began = 0;
  #inSight = true;

  constructor() {
    this.#again = oncePerFrame((now) => this.#frame(now));
    const relay = oncePerFrame(() => this.#layOut(false));
    new ResizeObserver(relay).observe(place);
    new IntersectionObserver(([entry]) => {
      this.#inSight = entry.isIntersecting;
      this.#again();
    }).observe(place);
    whenColoursChange(() => this.#again());
    canvas.addEventListener("pointermove", (event) => this.#hover(event));
    canvas.addEventListener("pointerleave", (event) => point(event, ""));
    canvas.addEventListener("click", (event) => this.#click(event));
  }

  #again;

  show(state) {
    this.#state = state;
    this.#fillTable();
    this.#layOut(true);
  }

  #fillTable() {
    const body = byId("tiers-table").tBodies[0];
    const { tiers } = this.#state;
    if (body.rows.length !== tiers.length) {
      body.replaceChildren(...tiers.map((tier) => line(tier)));
    }
    tiers.forEach((tier, i) => {
      const values = [tier.pending_jobs, tier.pending_gpus, tier.running_jobs, tier.running_gpus];
      write(body.rows[i].cells[1], range(tier));
      values.forEach((value, j) => write(body.rows[i].cells[j + 2], amount(value)));
    });
  }

  // Where everything goes

  #layOut(moves) {
    if (!this.#state || !place.clientWidth) return;
    const width = place.clientWidth;
    const label = width < NARROW_PX ? 0 : LABEL_PX;
    const gate = label + Math.round((width - label) * WAITING_SHARE);
    const groups = this.#groups();
    const area = { width, label, gate };
    const fits = (pitch) => heights(groups, area, pitch).reduce((a, b) => a + b, 0) <= TALLEST_PX;
    const pitch = PITCHES_PX.find(fits) ?? PITCHES_PX.at(-1);
    const laid = laidOut(groups, area, pitch);
    laid.ids = laid.order.map((row) => this.#state.jobs.job_id[row]);
    const now = performance.now();
    const share = this.#share(now);
    const where = () => this.#laid.ids.map((id, i) => [id, this.#spot(i, share)]);
    this.#from = new Map(moves && this.#laid && !calm.matches ? where() : []);
    this.#began = now;
    this.#laid = laid;
    this.#again();
  }

  /** For each tier the rows of its jobs that wait, the next first, and of those that run. */
  #groups() {
    const { jobs, tiers } = this.#state;
    const groups = tiers.map((tier) => ({ tier, waiting: [], running: [] }));
    for (let row = 0; row < jobs.job_id.length; row++) {
      const group = groups[jobs.tier[row] ?? -1];
      if (group && jobs.state[row] !== "completing") {
        group[jobs.state[row] === "running" ? "running" : "waiting"].push(row);
      }
    }
    for (const { waiting, running } of groups) {
      waiting.sort((a, b) => jobs.rank[a] - jobs.rank[b]);
      running.sort((a, b) => (jobs.progress[a] ?? 0) - (jobs.progress[b] ?? 0));
      // Progress is looked up by row when the lane is laid out.
      running.progress = running.map((row) => jobs.progress[row]);
    }
    return groups;
  }

  // Drawing

  #frame(now) {
    if (!this.#laid || !this.#inSight) return;
    const { width, height } = this.#laid;
    const context = prepared(canvas, width, height);
    this.#drawHead(context);
    for (const lane of this.#laid.lanes) this.#drawLane(context, lane);
    const { kinds, size } = this.#laid;
    const share = this.#share(now);
    kinds.forEach((kind, i) => mark(context, kind, ...this.#spot(i, share), size, size));
    if (share < 1) this.#again();
    else this.#from = new Map();
  }

  #drawHead(context) {
    const middle = this.#laid.gate + GATE_PX / 2;
    caption(context, "wait", middle - 8, 11, { align: "right" });
    caption(context, "run", middle + 8, 11);
  }

  #drawLane(context, { tier, top, height }) {
    const { width, label, gate } = this.#laid;
    const colour = colours();
    context.strokeStyle = colour.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(0, top + height + 0.5);
    context.lineTo(width, top + height + 0.5);
    context.stroke();
    context.fillStyle = colour.line;
    context.fillRect(gate + GATE_PX / 2 - 1, top + 4, 2, height - 8);
    const name = `Tier ${tier.tier}`;
    if (!label) return caption(context, name, 2, top + 12, { font: "600 11px" });
    caption(context, name, 2, top + 17, { font: "600 13px", colour: colour.ink });
    caption(context, range(tier), 2, top + 32);
  }

  /** How far the jobs are on the way to their places. */
  #share(now) {
    return this.#from.size ? eased((now - this.#began) / MOVES_MS) : 1;
  }

  /** Where a job is drawn on this part of its way. */
  #spot(i, share) {
    const { ids, x, y } = this.#laid;
    const [left, top] = (share < 1 && this.#from.get(ids[i])) || [x[i], y[i]];
    return [left + (x[i] - left) * share, top + (y[i] - top) * share];
  }

  // The pointer

  #under(event) {
    if (!this.#laid) return -1;
    const box = canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    const { ids, x, y, pitch } = this.#laid;
    for (let i = 0; i < ids.length; i++) {
      if (px >= x[i] && px < x[i] + pitch && py >= y[i] && py < y[i] + pitch) return i;
    }
    return -1;
  }

  #hover(event) {
    const found = this.#under(event);
    canvas.style.cursor = found < 0 ? "" : "pointer";
    point(event, found < 0 ? "" : this.#sentence(this.#laid.ids[found]));
  }

  #click(event) {
    const found = this.#under(event);
    if (found >= 0) location.hash = `#/jobs/${encodeURIComponent(this.#laid.ids[found])}`;
  }

  #sentence(id) {
    const { jobs, rows } = this.#state;
    const row = rows.get(id);
    if (row === undefined) return `job ${id}`;
    const does = jobs.state[row] === "running" ? `runs on ${jobs.nodes[row]}` : "waits";
    const who = visible(`${jobs.name[row]} of ${jobs.user[row]}`);
    const used = `${gpuHours(jobs.attained_gpu_s[row])} used`;
    return `job ${id}, ${who}: ${count(jobs.gpus[row], "GPU")}, ${does}, ${used}`;
  }
}

function line(tier) {
  const name = element("th", { scope: "row" }, swatch(tier.tier, prepared), ` ${tier.tier}`);
  const numbers = Array.from({ length: 4 }, () => element("td", { class: "number" }));
  return element("tr", {}, name, element("td"), ...numbers);
}

/** From where to where a tier reaches. */
function range({ from_gpu_s: from, to_gpu_s: to }) {
  if (to === null) return `${exactGpuHours(from)} and more`;
  return from ? `${exactGpuHours(from)} to ${exactGpuHours(to)}` : `below ${exactGpuHours(to)}`;
}

const eased = (share) => (share >= 1 ? 1 : 1 - (1 - Math.max(0, share)) ** 3);

/** How many marks of ``pitch`` pixels stand beside each other, on both sides of the gate. */
const across = ({ width, label, gate }, pitch) => [
  Math.max(1, Math.floor((gate - label - 6) / pitch)),
  Math.max(1, Math.floor((width - gate - GATE_PX) / pitch)),
];

/** How high each lane has to be for its marks. */
function heights(groups, area, pitch) {
  const [columns, ways] = across(area, pitch);
  const head = area.label ? 0 : HEAD_PX;
  return groups.map(({ waiting, running }) => {
    const high = Math.max(Math.ceil(waiting.length / columns), Math.ceil(running.length / ways));
    return Math.max(LEAST_LANE_PX, high * pitch + 10) + head;
  });
}

/** Where every mark of every lane is. */
function laidOut(groups, area, pitch) {
  const { width, label, gate } = area;
  const total = groups.reduce((sum, { waiting, running }) => sum + waiting.length + running.length, 0);
  const [x, y] = [new Float32Array(total), new Float32Array(total)];
  const laid = { width, label, gate, pitch, size: Math.max(2, pitch - (pitch > 7 ? 2 : 1)), x, y };
  const head = label ? 0 : HEAD_PX;
  const begin = gate + GATE_PX;
  const [, ways] = across(area, pitch);
  const high = heights(groups, area, pitch);
  const [order, kinds, lanes] = [[], [], []];
  let top = HEAD_PX;
  for (const [i, { tier, waiting, running }] of groups.entries()) {
    const height = high[i];
    const rows = Math.max(1, Math.floor((height - head - 8) / pitch));
    const down = (row) => top + head + 5 + row * pitch;
    waiting.forEach((row, i) => {
      x[order.length] = gate - (Math.floor(i / rows) + 1) * pitch;
      y[order.length] = down(i % rows);
      order.push(row);
      kinds.push(tier.tier);
    });
    const piled = new Uint16Array(ways);
    placed(running, piled, rows).forEach(([column, level], i) => {
      x[order.length] = begin + column * pitch;
      y[order.length] = down(level);
      order.push(running[i]);
      kinds.push(tier.tier);
    });
    lanes.push({ tier, top, height });
    top += height + 1;
  }
  return { ...laid, lanes, order, kinds, height: top };
}

/** Column and level of each running job: by its progress, and next to that where it is full. */
function placed(running, piled, rows) {
  const last = piled.length - 1;
  let next = 0;
  return running.map((_, i) => {
    const progress = running.progress[i];
    let column = progress === null ? next : Math.round(progress * last);
    while (column < last && piled[column] >= rows) column++;
    while (column > 0 && piled[column] >= rows) column--;
    next = column;
    return [column, piled[column]++];
  });
}
