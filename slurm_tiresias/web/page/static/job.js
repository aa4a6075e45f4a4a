/** One job's page: where it stands, why, what ends that, what its user can do, and its life. */

import { byId, drawn, element, jobLink, replace, write } from "./dom.js";
import { amount, count, duration, gpuHours, moment, withTimes } from "./format.js";
import { job as fetchJob } from "./data.js";
import { told } from "./decisions.js";

export class JobView {
  #id = "";
  #asked = 0;

  /** Show a job; if the user has ``moved`` here, the focus goes to its heading. */
  async open(id, state, now, moved) {
    const another = id !== this.#id;
    this.#id = id;
    const title = byId("job-title");
    if (another) {
      write(title, `Job ${id}`);
      byId("job-body").replaceChildren(element("p", { class: "quiet" }, "Asking the controller."));
      if (moved) title.focus({ preventScroll: true });
    }
    const asked = ++this.#asked;
    let found = null;
    let trouble = state?.only_of ? "Jobs are private on this cluster; tiresias-slurm explain shows users their own." : "";
    try {
      found = trouble ? null : await fetchJob(id);
    } catch (error) {
      trouble = `It cannot be shown: ${error.message}`;
    }
    if (asked !== this.#asked) return;
    const parts = found ? this.#parts(found, now) : [nothing(id, trouble)];
    replace(byId("job-body"), ...parts);
    const name = found?.job?.name ?? found?.life?.name;
    write(title, name ? `Job ${id}: ${name}` : `Job ${id}`);
  }

  close() {
    this.#id = "";
    this.#asked++;
  }

  #parts({ job, life, sections, costs }, now) {
    const why = sections.map(explained);
    return [
      facts(job, life),
      ...(job ? [element("div", { class: "beside" }, ...why)] : [element("p", {}, "The last cycle did not see this job: it has ended.")]),
      ...(life?.runs.length ? [runs(life, now)] : []),
      ...costs.map(explained),
      ...(life ? [section("What happened to it", list(happened(life).map((event) => told(event, moment))))] : []),
    ];
  }
}

/** A section as the controller and its commands say it. */
function explained({ title, sentences, items }) {
  const parts = sentences.map((sentence) => element("p", {}, ...linked(sentence)));
  if (items.length) parts.push(element("ul", {}, ...items.map((item) => element("li", {}, ...linked(item)))));
  return section(title, ...parts);
}

/** A sentence with links to the jobs that it names, and its times in this time zone. */
function linked(sentence) {
  const parts = withTimes(sentence, moment).split(/(\bjob \d+(?:[_+]\d+)?)/i);
  return parts.map((part, i) => (i % 2 ? jobLink(part.slice(4), part) : part));
}

/** Its whole life, the latest first: what the controller noted, and when it began and ended to run. */
function happened(life) {
  const all = [{ at_s: life.submitted_s, kind: "submitted" }, ...life.events];
  for (const run of life.runs) {
    all.push({ at_s: run.start_s, kind: "started", text: `on ${count(run.gpus, "GPU")}` });
    if (run.end_s !== null) all.push({ at_s: run.end_s, kind: "stopped", text: `after ${duration(run.elapsed_s)}` });
  }
  if (life.ended_s !== null) all.push({ at_s: life.ended_s, kind: "ended" });
  return all.sort((a, b) => a.at_s - b.at_s).reverse();
}

function nothing(id, trouble) {
  const unknown = `The controller knows no job ${id}: it was submitted just now, or never requested GPUs in a managed partition. See Slurm's own records with: sacct -j ${id}`;
  return element("p", {}, trouble || unknown);
}

function facts(job, life) {
  const list = element("dl", { class: "facts" });
  const add = (term, value) => {
    if (value === "" || value === null || value === undefined) return;
    list.append(element("div", {}, element("dt", {}, term), element("dd", {}, typeof value === "object" ? value : String(value))));
  };
  const one = job ?? life;
  add("User", one.user);
  add("State", job ? job.slurm_state : life.ended_s === null ? "" : "ended");
  add("Partition", job?.partition);
  add("Account", job?.account);
  add("Tier", one.tier);
  add(job?.state === "pending" ? "GPUs asked" : "GPUs", job?.gpus);
  add("Nodes", job?.nodes);
  const attained = job?.attained_gpu_s ?? life.runs.reduce((sum, run) => sum + run.elapsed_s * run.gpus, 0);
  add("GPU time used", gpuHours(attained));
  if (job?.gpu_use) add("GPUs that do something", `${amount(job.gpu_use.busy)} of ${amount(job.gpu_use.gpus)}`);
  add("Submitted", moment(one.submitted_s));
  add("First started", one.first_started_s === null ? "" : moment(one.first_started_s));
  add("Ended", life?.ended_s ? moment(life.ended_s) : "");
  if (job?.state === "pending") add("Has waited", duration(job.waited_s));
  add("Preempted", one.preemptions ? count(one.preemptions, "time") : "never");
  if (job?.min_run_s) add("Not preempted", `for ${duration(job.min_run_s)} after each start`);
  return list;
}

function runs(life, now) {
  const rows = life.runs.map((run, i) =>
    row(String(i + 1), moment(run.start_s), run.end_s === null ? "runs" : moment(run.end_s), duration(run.elapsed_s), amount(run.gpus)));
  return section("Its runs", timeline(life, now), table("One line for each run", ["Run", "Started", "Ended", "Ran", "GPUs"], rows));
}

/** Its life as a bar: where it ran, and between that, where it waited. */
function timeline(life, now) {
  const until = life.ended_s ?? now;
  const span = Math.max(1, until - life.submitted_s);
  const x = (at) => (100 * Math.min(1, Math.max(0, (at - life.submitted_s) / span)));
  const svg = drawn("svg", { class: "life", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img" });
  const ran = life.runs.reduce((sum, run) => sum + run.elapsed_s, 0);
  svg.setAttribute("aria-label", `Of ${duration(span)} since its submission it ran ${duration(ran)}, in ${count(life.runs.length, "run")}`);
  svg.append(drawn("rect", { x: 0, y: 4, width: 100, height: 2, class: "wait" }));
  for (const run of life.runs) {
    const from = x(run.start_s);
    const to = x(run.end_s ?? until);
    svg.append(drawn("rect", { x: from, y: 1, width: Math.max(0.4, to - from), height: 8, class: "run" }));
  }
  const said = element("p", { class: "quiet" }, svg.getAttribute("aria-label"), ".");
  return element("div", {}, svg, said);
}

function section(title, ...parts) {
  return element("section", { class: "card" }, element("h3", {}, title), ...parts);
}

const list = (lines) => element("ol", { class: "plain" }, ...lines);
const row = (first, ...rest) =>
  element("tr", {}, element("th", { scope: "row" }, first), ...rest.map((value) => element("td", {}, String(value))));

function table(caption, head, rows) {
  const titles = head.map((title) => element("th", { scope: "col" }, title));
  const made = element("table", {}, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...titles)));
  made.append(element("tbody", {}, ...rows));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, made);
}
