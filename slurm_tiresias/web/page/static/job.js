/** One job's page: where it stands, why, what ends that, what its user can do, and its life. */

import { byId, drawn, element, jobLink, replace, write } from "./dom.js";
import { amount, count, duration, exactGpuHours, gpuHours, moment, percent, range, visible } from "./format.js";
import { job as fetchJob } from "./data.js";
import { told } from "./decisions.js";

const PLACED = { consolidate: "on as few nodes as possible", spread: "in gaps between others" };

export class JobView {
  #words;
  #id = "";
  #asked = 0;

  constructor(words) {
    this.#words = words;
  }

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
    const parts = found ? this.#parts(found, state, now) : [nothing(id, trouble)];
    replace(byId("job-body"), ...parts);
    const name = found?.job?.name ?? found?.life?.name;
    write(title, name ? `Job ${id}: ${name}` : `Job ${id}`);
  }

  close() {
    this.#id = "";
    this.#asked++;
  }

  #parts(found, state, now) {
    const { job, life } = found;
    const tier = job && state?.tiers.find((one) => one.tier === job.tier);
    return [
      facts(job, life, tier, now),
      ...(job ? this.#why(found, now) : [element("p", {}, "The last cycle did not see this job: it has ended.")]),
      ...(life?.runs.length ? [runs(life, now)] : []),
      ...(life?.costs?.length ? [costs(life)] : []),
      ...(life ? [section("What happened to it", list(happened(life).map((event) => told(event, moment))))] : []),
    ];
  }

  #why(found, now) {
    const { job, others, more_blockers: more, mode, acts } = found;
    const known = this.#words.reasons[job.reason];
    const text = known ?? { means: `The controller says: ${job.reason}.`, would: job.would, do: "" };
    const waits = job.state === "pending";
    const parts = acts ? [element("p", {}, text.means)] : [element("p", {}, this.#words.modes?.[mode] ?? ""), would(job, text, others)];
    if (job.detail && job.detail !== job.slurm_reason) parts.push(element("p", {}, `In detail: ${job.detail}`));
    if (acts && waits && !["", "None", "Priority", "Resources"].includes(job.slurm_reason)) {
      parts.push(element("p", {}, `Slurm's own reason: ${found.slurm_reason}.`));
    }
    if (acts && waits) parts.push(...begins(job, now));
    if (job.start_on) parts.push(element("p", {}, `It ${acts ? "is to" : "would"} start on ${job.start_on}.`));
    const preempts = acts ? "Room is made by preempting " : "It would preempt ";
    if (job.victims.length) parts.push(sentence(preempts, job.victims.slice(0, 20), others));
    if (acts && job.preempted_for) parts.push(sentence("It makes room for ", [job.preempted_for], others));
    if (job.blockers.length) parts.push(this.#blockers(job.blockers, others, more, now));
    if (acts && job.left_to_slurm) {
      parts.push(element("p", {}, `Its nodes are left to Slurm: ${job.left_to_slurm}.`));
    } else if (acts && job.gpus > 1 && job.placement) {
      parts.push(element("p", {}, `Placed ${PLACED[job.placement] ?? job.placement}: ${job.placement_because}`));
    }
    const ahead = waits && job.managed ? before(found.before) : [];
    const doing = found.do ? [section("What its user can do", element("p", {}, found.do.replaceAll("JOBID", job.job_id)))] : [];
    if (!acts) {
      const slurm = section("What Slurm does", ...slurmDoes(found, now));
      const carriedOut = ["start", "preempt", "run-on"].includes(job.action);
      const sections = [slurm, section("What the controller would do", ...parts, ...ahead), ...(carriedOut ? [] : doing)];
      return [element("div", { class: "beside" }, ...sections)];
    }
    const next = [element("p", {}, found.ends.replaceAll("JOBID", job.job_id)), ...ahead];
    if (waits && job.managed) next.push(...estimate(found, now));
    if (job.managed) next.push(...output(found.output_appended));
    const sections = [section(waits ? "Why it waits" : "Why it is where it is", ...parts)];
    sections.push(section("What happens next", ...next), ...doing);
    return [element("div", { class: "beside" }, ...sections)];
  }

  #blockers(blockers, others, more, now) {
    const head = ["Job", "User", "Tier", "GPUs", "Why it may stay"];
    const rows = blockers.map(({ job_id: id, protection, until_s: until }) => {
      const other = others[id];
      const left = until > now ? `; ${duration(until - now)} to go` : "";
      const because = `${this.#words.protections[protection]?.because ?? protection}${left}`;
      return row(jobLink(id), other?.user ?? "", other?.tier ?? "", other?.gpus ?? "", because);
    });
    const caption = `What it needs is held by these${more ? `, and ${amount(more)} more` : ""}`;
    return table(caption, head, rows);
  }
}

/** What the controller would do with it, as a sentence. */
function would(job, text, others) {
  if (job.preempted_for) return sentence("It would be preempted for ", [job.preempted_for], others);
  return element("p", {}, text.would);
}

/** What Slurm does with it, of itself. */
function slurmDoes({ job, slurm_reason: reason }, now) {
  if (job.state !== "pending") {
    const does = job.state === "running" ? "runs" : job.slurm_state.toLowerCase();
    return [element("p", {}, `It ${does}${job.nodes ? ` on ${job.nodes}` : ""}.`)];
  }
  const place = job.slurm_place === null ? "" :
    `By Slurm's own priority it has place ${amount(job.slurm_place + 1)} among the jobs that wait in partition ${job.partition}.`;
  return [element("p", {}, `It waits: ${reason}.`), ...begins(job, now), ...(place ? [element("p", {}, place)] : [])];
}

function begins({ begins_s: at }, now) {
  if (at === null || at <= now) return [];
  return [element("p", {}, `Slurm does not start it before ${moment(at)}, in ${duration(at - now)}.`)];
}

/** Who waits too, and comes first. */
function before({ jobs, gpus }) {
  if (!jobs) return [];
  const [come, ask] = jobs === 1 ? ["comes", "asks"] : ["come", "ask"];
  return [element("p", {}, `${count(jobs, "waiting job")} ${come} before it, and ${ask} for ${count(gpus, "GPU")}.`)];
}

/** Until when it waits, as far as that can be known. */
function estimate({ job, others, room_expected_at_s: at, room_made_by: makers, room_ending: ending }, now) {
  if (!job.blockers.length) return [];
  if (at === null) return [element("p", {}, "The time cannot be estimated: it depends on how long other jobs run.")];
  const when = at - now >= 1 ? `in about ${duration(at - now)} (${moment(at)})` : "from now on";
  const preempted = makers.filter((id) => !ending.includes(id));
  const first = element("p", {}, `An estimate: ${when} there may be room.`);
  if (ending.length) first.append(" By their own account these will have ended: ", ...links(ending.slice(0, 20), others), ".");
  if (preempted.length) first.append(" These can then be preempted for it: ", ...links(preempted.slice(0, 20), others), ".");
  first.append(" Sooner if jobs end; later if new jobs rank ahead of it, or if that room is on unsuitable nodes.");
  return [first];
}

/** What becomes of its log when it starts again; how it was submitted Slurm does not tell. */
function output(appended) {
  if (appended === null) return [];
  const line = appended
    ? "When it restarts it appends to its output files, unless it was submitted with --open-mode=truncate."
    : "When it restarts its output files are truncated, unless it was submitted with --open-mode=append.";
  return [element("p", {}, line)];
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

function facts(job, life, tier, now) {
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
  add("Tier", tier ? tierOf(job, tier) : one.tier);
  if (job?.rank !== null && job?.rank !== undefined) add("Place in the controller's order", amount(job.rank + 1));
  add(job?.state === "pending" ? "GPUs asked" : "GPUs", job?.gpus);
  add("Nodes", job?.nodes);
  const attained = job?.attained_gpu_s ?? life.runs.reduce((sum, run) => sum + run.elapsed_s * run.gpus, 0);
  add("GPU time used", gpuHours(attained));
  if (job?.progress) addProgress(add, job, now);
  add("Submitted", moment(one.submitted_s));
  add("First started", one.first_started_s === null ? "" : moment(one.first_started_s));
  add("Ended", life?.ended_s ? moment(life.ended_s) : "");
  if (job?.state === "pending") add("Has waited", duration(job.waited_s));
  add("Preempted", one.preemptions ? count(one.preemptions, "time") : "never");
  if (job?.preempted_by) add("Last by", jobLink(job.preempted_by, `job ${job.preempted_by}`));
  if (job?.gpu_use) addGpuUse(add, job.gpu_use, now);
  if (job?.stuck_runs >= 2) add("Net progress", `none: nothing is left of its last ${job.stuck_runs} runs`);
  if (job?.min_run_s) add("Not preempted", `for ${duration(job.min_run_s)} after each start`);
  if (job?.signal) add("Before a preemption", `SIG${job.signal}, ${duration(job.grace_s)} to save its state`);
  return list;
}

function addGpuUse(add, use, now) {
  const { gpus, busy, idle_since_s: since, idle_long: long, ranks_last: last, leaves_at_s: leaves } = use;
  if (long) add("Uses none of its GPUs", `since ${moment(since)}, for ${duration(now - since)}${last ? ": it is preempted first" : ""}`);
  if (long && leaves) add("Is requeued for that", `from ${moment(leaves)} on, even if no other job waits`);
  else if (busy < gpus) add("GPUs that do something", `${amount(busy)} of ${amount(gpus)}`);
}

const SOURCES = { reports: "by its own reports", output: "by what it prints", comment: "by its comment" };

/** How far it is, by its own account. */
function addProgress(add, { progress, state }, now) {
  const runs = state === "running";
  const { step, total, remaining_least_s: least, remaining_most_s: most } = progress;
  const steps = total === null ? `step ${amount(step)}` : `${percent(step / total)}, step ${amount(step)} of ${amount(total)}`;
  add("Progress", `${steps}, ${SOURCES[progress.source] ?? progress.source}`);
  if (progress.quiet_since_s !== null) add("No progress since", moment(progress.quiet_since_s));
  else if (progress.lost) add("Its node", "has told nothing for minutes");
  else if (least !== null) add(runs ? "Needs still" : "Needs, once it runs again", range(least, most));
  if (runs && progress.eta_s !== null) add("Ends, if nothing makes it wait", `about ${moment(progress.eta_s)}`);
  const ago = progress.saved_s === null ? "" : `, ${duration(now - progress.saved_s)} ago`;
  if (progress.saved_step !== null) add("Saved last", `after step ${amount(progress.saved_step)}${ago}`);
}

const ESTIMATES = { reports: "by its own reports", history: "by earlier jobs of its user and name", limits: "by its time limit" };

function tierOf(job, tier) {
  const needs = job?.estimate?.remaining_gpu_s ?? null;
  if (needs !== null) return `${tier.tier}, as it still needs ${gpuHours(needs)} ${ESTIMATES[job.estimate.source] ?? job.estimate.source}`;
  if (tier.to_gpu_s === null) return `${tier.tier}, the last`;
  return `${tier.tier}, until ${exactGpuHours(tier.to_gpu_s)}`;
}

function runs(life, now) {
  const rows = life.runs.map((run, i) =>
    row(String(i + 1), moment(run.start_s), run.end_s === null ? "runs" : moment(run.end_s), duration(run.elapsed_s), amount(run.gpus)));
  return section("Its runs", timeline(life, now), table("One line for each run", ["Run", "Started", "Ended", "Ran", "GPUs"], rows));
}

const UNKNOWN = {
  awaited: "not known yet: it has made no new step since",
  silent: "not known: it does not report its steps",
  ended: "not known: it ended before it told where it went on",
};

/** What each of its preemptions cost, as far as the job tells. */
function costs(life) {
  const rows = life.costs.map((cost) => {
    const run = String(life.runs.findIndex((one) => one.start_s === cost.run_start_s) + 1);
    if (cost.source in UNKNOWN) return row(run, UNKNOWN[cost.source], "", "", "", "");
    const parts = [cost.save_s, cost.leave_s, cost.again_s, cost.restart_s];
    const lost = cost.gpus * parts.reduce((sum, part) => sum + (part ?? 0), 0);
    return row(run, saved(cost), brief(cost.leave_s), again(cost), brief(cost.restart_s), gpuHours(lost));
  });
  const head = ["Run", "Saved when asked", "Gone after that", "Done again", "To the first new step", "Lost"];
  return section("What its preemptions cost", table("As far as the job tells how far it is", head, rows));
}

function saved(cost) {
  if (cost.answered_s !== null) return `within ${brief(cost.answered_s)}`;
  return cost.source === "output" ? "not known" : "no";
}

function again(cost) {
  if (cost.lost_all) return `all of it, ${brief(cost.again_s)}`;
  if (cost.steps_again === null && cost.again_s) return brief(cost.again_s);
  return cost.steps_again ? `${count(cost.steps_again, "step")}, ${brief(cost.again_s)}` : "nothing";
}

/** A short time with a decimal, where that says more. */
function brief(seconds) {
  if (seconds === null) return "not known";
  return seconds < 10 ? `${seconds.toFixed(1)}s` : duration(seconds);
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

function sentence(start, ids, others) {
  return element("p", {}, start, ...links(ids, others), ".");
}

function links(ids, others) {
  return ids.flatMap((id, i) => {
    const of = others[id] ? visible(` of ${others[id].user}`) : "";
    return [i ? ", " : "", jobLink(id, `job ${id}`), of];
  });
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
