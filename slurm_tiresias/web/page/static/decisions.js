/** What was decided in the last cycle, what happened before, and why jobs wait. */

import { byId, element, jobLink, replace, write } from "./dom.js";
import { amount, count, moment, timeOfDay, visible } from "./format.js";

const MOST_DECIDED = 12;
const MOST_EVENTS = 200;

export class Decisions {
  #words;
  #newest = null;
  #keys = new Set();

  constructor(words) {
    this.#words = words;
  }

  show(state) {
    this.#decided(state);
    this.#events(state.events);
    this.#reasons(state);
  }

  // The last cycle

  #decided({ jobs, acts }) {
    write(byId("decisions-title"), acts ? "Recent decisions" : "What the controller would do");
    write(byId("now-title"), acts ? "In the last cycle" : "Now, if it acted");
    const lines = [];
    const rows = [...jobs.action.keys()].filter((row) => jobs.action[row] === "start");
    for (const row of rows) lines.push(start(jobs, row, acts));
    for (let row = 0; row < jobs.action.length; row++) {
      if (jobs.action[row] === "preempt") lines.push(preemption(jobs, row, acts));
    }
    const more = lines.splice(MOST_DECIDED).length;
    if (more) lines.push(element("li", { class: "quiet" }, `and ${amount(more)} more`));
    const nothing = acts ? "Nothing starts, and no job is preempted." : "It would start and preempt nothing.";
    if (!lines.length) lines.push(element("li", { class: "quiet" }, nothing));
    const list = byId("decided");
    replace(list, ...lines);
  }

  // Before that

  #events(events) {
    const list = byId("events");
    const fresh = events.filter((event) => !this.#keys.has(keyOf(event)));
    const first = this.#newest === null;
    if (!events.length) {
      if (!list.children.length) list.append(element("li", { class: "quiet none" }, "Nothing yet."));
      this.#newest ??= 0;
      return;
    }
    if (fresh.length) list.querySelector(".none")?.remove();
    for (const event of fresh) list.prepend(told(event));
    while (list.children.length > MOST_EVENTS) list.lastChild.remove();
    this.#keys = new Set(events.map(keyOf));
    this.#newest = events.at(-1).at_s;
    if (!first && fresh.length) write(byId("news"), inBrief(fresh));
  }

  // Why jobs wait

  #reasons({ acts, jobs: { state, reason, slurm_reason: slurmReason, would, gpus } }) {
    const slurms = (row) => slurmReason[row] || "None";
    const rows = summed(state, gpus, acts ? (row) => reason[row] : slurms).map(([code, sum]) => {
      const known = this.#words.reasons[code];
      return acts ? reasonRow(known?.short ?? code, known?.means ?? "", sum) : reasonRow(code, this.#words.slurm?.[code] ?? "", sum);
    });
    write(byId("reasons-title"), acts ? "Why jobs wait" : "Why jobs wait, and what the controller would do");
    for (const [code, sum] of acts ? [] : summed(state, gpus, (row) => (would[row] ? reason[row] : ""))) {
      const known = this.#words.reasons[code];
      if (code) rows.push(reasonRow(known?.would_do ?? code, known?.would ?? "", sum));
    }
    const body = byId("reasons-table").tBodies[0];
    if (!rows.length) rows.push(element("tr", {}, element("td", { colspan: 3, class: "quiet" }, "No job waits.")));
    body.replaceChildren(...rows);
  }
}

function reasonRow(short, means, [jobs, gpus]) {
  const name = element("th", { scope: "row" }, element("strong", {}, short));
  if (means) name.append(element("span", { class: "quiet below" }, means));
  const number = (value) => element("td", { class: "number" }, amount(value));
  return element("tr", {}, name, number(jobs), number(gpus));
}

/** Waiting jobs and the GPUs they ask for, by what is said of them, the most jobs first. */
function summed(state, gpus, said) {
  const sums = new Map();
  for (let row = 0; row < state.length; row++) {
    if (state[row] !== "pending") continue;
    const sum = sums.get(said(row)) ?? [0, 0];
    sum[0] += 1;
    sum[1] += gpus[row];
    sums.set(said(row), sum);
  }
  return [...sums].sort(([, a], [, b]) => b[0] - a[0]);
}

function start(jobs, row, acts) {
  const line = element("li", {}, kind(acts ? "start" : "would start"), " ", jobLink(jobs.job_id[row], `job ${jobs.job_id[row]}`));
  line.append(visible(` of ${jobs.user[row]}: ${count(jobs.gpus[row], "GPU")}`));
  if (jobs.start_on[row]) line.append(visible(` on ${jobs.start_on[row]}`));
  const victims = jobs.victims[jobs.job_id[row]] ?? [];
  const leave = acts ? (victims.length > 1 ? " leave" : " leaves") : " would be preempted";
  if (victims.length) line.append(", for which ", ...linked(victims), leave);
  return line;
}

function preemption(jobs, row, acts) {
  const line = element("li", {}, kind(acts ? "preempt" : "would preempt"), " ", jobLink(jobs.job_id[row], `job ${jobs.job_id[row]}`));
  line.append(visible(` of ${jobs.user[row]}: ${acts ? "leaves" : "would leave"} ${count(jobs.gpus[row], "GPU")}`));
  const preemptor = jobs.preempted_for[row];
  if (preemptor) line.append(" to ", jobLink(preemptor, `job ${preemptor}`));
  return line;
}

function linked(ids) {
  return ids.slice(0, 6).flatMap((id, i) => (i ? [", ", jobLink(id)] : ["job ", jobLink(id)]))
    .concat(ids.length > 6 ? [` and ${ids.length - 6} more`] : []);
}

const keyOf = (event) => [event.at_s, event.kind, event.job_id, event.other, event.text].join("\n");
const named = (kindName) => kindName.replaceAll("-", " ");
const kind = (name) => element("span", { class: `kind k-${name.replace(/[^a-z]/g, "")}` }, named(name));

/** One event as a line; ``written`` says how its time is written. */
export function told(event, written = timeOfDay) {
  const when = element("time", { datetime: stamp(event.at_s), title: moment(event.at_s) }, written(event.at_s));
  const line = element("li", {}, when, " ", kind(event.kind), " ");
  if (event.job_id) line.append(jobLink(event.job_id, `job ${event.job_id}`));
  if (event.kind === "would have") {
    line.append(visible(`: ${event.text}`));
    if (event.other) line.append(" for ", jobLink(event.other, `job ${event.other}`));
    return line;
  }
  if (event.other) line.append(event.kind === "preempted" ? " by " : " for ", jobLink(event.other, `job ${event.other}`));
  if (event.text) line.append(visible(`${event.job_id ? ": " : ""}${event.text}`));
  return line;
}

function stamp(seconds) {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}

/** Many events in one sentence: what a screen reader says. */
function inBrief(events) {
  const sums = new Map();
  for (const { kind: name } of events) sums.set(name, (sums.get(name) ?? 0) + 1);
  const [{ job_id: id, kind: only, text }] = events;
  if (events.length === 1) return `${id ? `Job ${id}` : "The controller was"} ${named(only)} ${text}`;
  return [...sums].map(([name, number]) => `${amount(number)} ${named(name)}`).join(", ");
}
