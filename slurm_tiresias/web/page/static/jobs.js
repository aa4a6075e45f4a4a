/** The table of all jobs: found, sorted, and only as many drawn as are in sight. */

import { folded } from "./arrays.js";
import { byId, element, oncePerFrame, write } from "./dom.js";
import { amount, duration, gpuHours, percent, range, timeOfDay, withTimes } from "./format.js";
import { Table } from "./table.js";

const STATES = { running: "runs", pending: "waits", completing: "ending" };

export class Jobs {
  #state = null;
  #sorting = { by: "rank", descending: false };
  #table;
  #texts = [];
  #names = new Map();

  constructor() {
    const of = (name) => (row) => this.#state.jobs[name][row];
    const job = (row) => `#/jobs/${encodeURIComponent(this.#state.jobs.job_id[row])}`;
    this.#table = new Table(byId("jobs-table"), {
      label: "Jobs",
      sorts: (by) => this.#sortBy(by),
      columns: [
        { title: "Place", by: "rank", number: true, of: (row) => place(this.#state.jobs.rank[row]) },
        { title: "Job", by: "job_id", of: (row) => this.#names.get(row) ?? this.#state.jobs.job_id[row], link: job },
        { title: "User", by: "user", of: of("user") },
        { title: "Name", by: "name", of: of("name"), wide: true },
        { title: "Tier", by: "tier", number: true, of: of("tier") },
        { title: "State", by: "state", of: (row) => STATES[this.#state.jobs.state[row]] },
        { title: "GPUs", by: "gpus", number: true, of: of("gpus") },
        { title: "GPU time", by: "attained_gpu_s", number: true, of: (row) => gpuHours(this.#state.jobs.attained_gpu_s[row]) },
        { title: "Progress", by: "done", number: true, optional: true, of: (row) => percent(this.#state.jobs.done[row]) },
        { title: "Needs still", by: "left_most_s", number: true, optional: true, of: (row) => this.#left(row) },
        { title: "Waited", by: "waited_s", number: true, of: (row) => duration(this.#state.jobs.waited_s[row]) },
        { title: "Preempted", by: "preemptions", number: true, of: (row) => this.#state.jobs.preemptions[row] || "" },
        { title: "Nodes, or why it waits", by: "reason", wide: true, of: (row) => this.#where(row) },
      ],
    });
    this.#table.sortedBy("rank", false);
    const find = oncePerFrame(() => this.#find());
    byId("jobs-filter").addEventListener("input", () => {
      this.#table.toTop();
      find();
    });
    byId("jobs-filter").addEventListener("submit", (event) => event.preventDefault());
  }

  show(state) {
    this.#state = state;
    this.#texts = [];
    const select = byId("find-tier");
    if (select.options.length !== state.tiers.length + 1) {
      const tiers = state.tiers.map(({ tier }) => element("option", { value: tier }, String(tier)));
      select.replaceChildren(element("option", { value: "" }, "all"), ...tiers);
    }
    this.#table.showOptional(state.jobs.done.some((share) => share !== null));
    this.#find();
  }

  /** How long a running job needs still, by its own account. */
  #left(row) {
    const { left_least_s: least, left_most_s: most, state } = this.#state.jobs;
    return state[row] === "running" && least[row] !== null ? range(least[row], most[row]) : "";
  }

  #where(row) {
    return withTimes(this.#state.jobs.where[row], timeOfDay);
  }

  #find() {
    if (!this.#state) return;
    const { jobs } = this.#state;
    const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const [state, tier] = [byId("find-state").value, byId("find-tier").value];
    const rows = [];
    for (let row = 0; row < jobs.job_id.length; row++) {
      if (state && jobs.state[row] !== state) continue;
      if (tier && String(jobs.tier[row]) !== tier) continue;
      if (words.length && !words.every((word) => this.#text(row).includes(word))) continue;
      rows.push(row);
    }
    rows.sort(this.#order());
    // Who searches for a task is shown each that is found.
    const lines = words.length ? { rows, names: new Map() } : folded(jobs, rows);
    this.#names = lines.names;
    this.#table.show(lines.rows);
    const all = jobs.job_id.length;
    const found = rows.length === all ? `${amount(all)} in all` : `${amount(rows.length)} of ${amount(all)}`;
    write(byId("jobs-sum"), lines.rows.length < rows.length ? `${found}, on ${amount(lines.rows.length)} lines` : found);
  }

  /** All words of a job that may be searched for. */
  #text(row) {
    const { job_id, name, user, account, partition, nodes } = this.#state.jobs;
    this.#texts[row] ??= [job_id[row], name[row], user[row], account[row], partition[row], nodes[row], this.#where(row)]
      .join("\n").toLowerCase();
    return this.#texts[row];
  }

  #sortBy(by) {
    const descending = this.#sorting.by === by ? !this.#sorting.descending : false;
    this.#sorting = { by, descending };
    this.#table.sortedBy(by, descending);
    this.#table.toTop();
    this.#find();
  }

  #order() {
    const { by, descending } = this.#sorting;
    const values = this.#state.jobs[by];
    const sign = descending ? -1 : 1;
    const compare = by === "job_id" ? compareIds : plain;
    return (a, b) => {
      const [left, right] = [values[a], values[b]];
      // What has no value comes last, either way.
      if (left === null || right === null) return (left === null) - (right === null) || a - b;
      return sign * compare(left, right) || a - b;
    };
  }
}

const place = (rank) => (rank === null ? "" : amount(rank + 1));
const plain = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** 9 before 10, and 10_9 before 10_10. */
function compareIds(a, b) {
  const [left, right] = [a.split("_"), b.split("_")];
  return left[0] - right[0] || (left[1] ?? -1) - (right[1] ?? -1) || plain(a, b);
}
