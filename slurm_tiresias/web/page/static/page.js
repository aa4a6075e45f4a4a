/** The page as a whole: asks again and again, gives what is new to each part, follows the address. */

import { Charts } from "./charts.js";
import { Feed, words as fetchWords } from "./data.js";
import { Decisions } from "./decisions.js";
import { byId, element, write } from "./dom.js";
import { amount, count, duration, gpuHours, moment, visible } from "./format.js";
import { JobView } from "./job.js";
import { Jobs } from "./jobs.js";
import { Lanes } from "./lanes.js";
import { Nodes } from "./nodes.js";

const SOONEST_MS = 1000, LATEST_MS = 10_000, HIDDEN_MS = 30_000;
const STALE_INTERVALS = 3;
const JOB = "#/jobs/";

const feed = new Feed();
let parts = [];
let jobView = null;
let timer = 0;

async function start() {
  const words = await fetchWords().catch(() => ({ reasons: {} }));
  parts = [new Nodes(), new Lanes(), new Charts(), new Decisions(words), new Jobs()];
  jobView = new JobView();
  window.addEventListener("hashchange", () => follow(true));
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) look();
  });
  setInterval(showHealth, 1000);
  await look();
  follow(false);
}

/** Ask, show what is new, and ask again later. */
async function look() {
  clearTimeout(timer);
  const news = await feed.ask();
  if (news) await showAll();
  showHealth();
  clearTimeout(timer);
  timer = setTimeout(look, pause());
}

/** Twice a cycle while the page is visible. */
function pause() {
  if (document.hidden) return HIDDEN_MS;
  const half = 500 * (feed.state?.interval_s ?? 2);
  return Math.min(LATEST_MS, Math.max(SOONEST_MS, half));
}

/** Part after part, each in a task of its own, so that scrolling and typing are not held up. */
async function showAll() {
  showSums(feed.state);
  if (jobOf(location.hash)) {
    follow(false);
    return;
  }
  for (const part of parts) {
    part.show(feed.state);
    await yieldToUser();
  }
}

const yieldToUser = () => globalThis.scheduler?.yield?.() ?? new Promise((done) => setTimeout(done));

// Which page

const jobOf = (hash) => {
  if (!hash.startsWith(JOB)) return "";
  try {
    return decodeURIComponent(hash.slice(JOB.length));
  } catch {
    return "";
  }
};

function follow(moved) {
  const id = jobOf(location.hash);
  const was = !byId("job").hidden;
  byId("job").hidden = !id;
  byId("overview").hidden = Boolean(id);
  if (id) {
    jobView.open(id, feed.state, feed.now, moved);
    if (moved) window.scrollTo(0, 0);
  } else if (was) {
    jobView.close();
    if (feed.state) showAll();
    const target = byId(location.hash.slice(1)) ?? byId("main");
    target.scrollIntoView();
    byId("main").focus({ preventScroll: true });
  }
  title();
}

function title() {
  const cluster = feed.state?.cluster;
  const id = jobOf(location.hash);
  document.title = visible([id && `Job ${id}`, cluster, "Tiresias"].filter(Boolean).join(" · "));
}

// The head of the page

function showSums(state) {
  const { gpus, tiers } = state;
  const sum = (name) => tiers.reduce((total, tier) => total + tier[name], 0);
  write(byId("cluster-name"), state.cluster);
  const order = `${state.policy}, ${count(tiers.length, "tier")}`;
  const idle = `GPU jobs by Slurm alone (${state.mode}); with Tiresias: ${order}`;
  write(byId("about"), state.acts ? `GPU jobs by Tiresias: ${order}` : idle);
  write(byId("versions"), `tiresias-slurm ${state.version} on Slurm ${state.slurm_version}, controller on ${state.host || "this host"} since ${moment(state.started_s)}`);
  byId("private").hidden = !state.only_of;
  for (const part of document.querySelectorAll(".of-jobs")) part.hidden = Boolean(state.only_of);
  const held = gpus.total - gpus.idle - gpus.down;
  figures([
    ["GPUs held", amount(held), `of ${amount(gpus.total)}`],
    ["GPUs idle", amount(gpus.idle), gpus.down ? `${amount(gpus.down)} out of service` : ""],
    ["Jobs running", amount(sum("running_jobs")), `on ${count(sum("running_gpus"), "GPU")}`],
    ["Jobs waiting", amount(sum("pending_jobs")), `for ${count(sum("pending_gpus"), "GPU")}`],
    ["Lost to preemptions, 24 h", ...lost(state.lost)],
  ]);
  title();
}

/** What is known of it, and of how many preemptions nothing is. */
function lost(totals) {
  if (!totals) return ["?", "not known now"];
  const rest = totals.unknown + totals.not_yet;
  if (!totals.measured) return rest ? ["?", `${count(rest, "preemption")}, none measured`] : ["0 GPU-h", "none"];
  return [gpuHours(totals.lost_gpu_s), `${count(totals.measured, "preemption")}${rest ? `, ${amount(rest)} more unknown` : ""}`];
}

function figures(entries) {
  const list = byId("sums");
  if (!list.children.length) {
    list.append(...entries.map(([term]) =>
      element("div", {}, element("dt", {}, term), element("dd", {}, element("strong"), element("span", { class: "quiet" })))));
  }
  entries.forEach(([, value, beside], i) => {
    const said = list.children[i].lastChild;
    write(said.firstChild, value);
    write(said.lastChild, beside ? ` ${beside}` : "");
  });
}

function showHealth() {
  const { state } = feed;
  const trouble = troubles(state);
  const alarm = byId("alarm");
  alarm.hidden = !trouble.length;
  const lines = trouble.join("\n");
  if (alarm.dataset.shown !== lines) {
    alarm.dataset.shown = lines;
    alarm.replaceChildren(...trouble.map((text) => element("p", {}, text)));
  }
  if (!state) return;
  const badge = byId("mode");
  write(badge, state.mode);
  badge.dataset.mode = state.mode;
  const ago = Math.max(0, feed.now - state.at_s);
  write(byId("age"), `cycle ${amount(state.cycle)}, ${duration(ago)} ago`);
}

function troubles(state) {
  const found = [];
  if (feed.trouble) found.push(`The controller does not answer (${feed.trouble}). ${state ? "What stands here is what it said last." : ""}`);
  if (!state) return found;
  if (state.mode === "stopped") found.push("The controller was stopped. Slurm goes on by the priorities that stand there.");
  if (state.failures) found.push(`${count(state.failures, "cycle")} failed in a row: ${state.error}`);
  else if (!feed.trouble && state.mode !== "stopped" && feed.now - state.at_s > STALE_INTERVALS * state.interval_s + 5) {
    found.push(`The last cycle was ${duration(Math.floor((feed.now - state.at_s) / 10) * 10)} ago.`);
  }
  if (state.warning) found.push(state.warning);
  return found;
}

start();
