/** How it has been: GPUs and waiting jobs since the controller started, JCT and queueing of jobs. */

import { byId, drawn, element, write } from "./dom.js";
import { amount, count, duration, moment, timeOfDay } from "./format.js";

const WIDTH = 340, HEIGHT = 180;
const INSET = { left: 46, right: 6, top: 10, bottom: 24 };
const BINS = 24;
const [FROM_X, TO_X] = [INSET.left, WIDTH - INSET.right];
const [FROM_Y, TO_Y] = [HEIGHT - INSET.bottom, INSET.top];

export class Charts {
  #ended = null;

  show(state) {
    const { course, ended } = state;
    const bins = binned(ended);
    const only = state.only_of ? "Jobs are private: how long they took is not shown here." : "";
    const since = course.at_s.length ? `Since ${moment(course.at_s[0])}; ` : "";
    const of = bins.length ? `the last ${count(ended.key.length, "job")} that ended.` : "";
    write(byId("course-note"), only || (of ? since + of : "No job has ended yet."));
    const figures = [gpusOverTime(state), waitingOverTime(course)];
    if (bins.length) {
      figures.push(spans("JCT, from submission to end", bins, "jct"));
      figures.push(spans("Time queued, all waits together", bins, "queued"));
    }
    byId("charts").replaceChildren(...figures);
    if (this.#ended !== JSON.stringify(bins)) fillTable(bins);
    this.#ended = JSON.stringify(bins);
  }
}

// GPUs and waiting jobs

function gpusOverTime({ course, tiers, gpus }) {
  const most = Math.max(1, gpus.total);
  const x = timeScale(course.at_s);
  const y = (value) => FROM_Y - (value / most) * (FROM_Y - TO_Y);
  let below = course.at_s.map(() => 0);
  const areas = tiers.map((tier) => {
    const above = below.map((sum, i) => sum + (course.running_gpus[i][tier.tier] ?? 0));
    const area = drawn("path", { d: between(course.at_s, x, y, below, above), class: `t${tier.tier}` });
    below = above;
    return area;
  });
  const others = below.map((sum, i) => sum + course.other_gpus[i]);
  areas.push(drawn("path", { d: between(course.at_s, x, y, below, others), class: "others" }));
  const now = tiers.reduce((sum, tier) => sum + tier.running_gpus, 0) + gpus.others;
  const title = `GPUs held, by tier: ${amount(now)} of ${amount(gpus.total)} now`;
  return figure(title, course.at_s, [[0, "0"], [most / 2, amount(most / 2)], [most, amount(most)]], y, areas);
}

function waitingOverTime(course) {
  const most = Math.max(1, ...course.waiting_jobs);
  const top = rounded(most);
  const x = timeScale(course.at_s);
  const y = (value) => FROM_Y - (value / top) * (FROM_Y - TO_Y);
  const floor = course.at_s.map(() => 0);
  const area = drawn("path", { d: between(course.at_s, x, y, floor, course.waiting_jobs), class: "waiting" });
  const now = course.waiting_jobs.at(-1) ?? 0;
  const ticks = [[0, "0"], [top / 2, amount(top / 2)], [top, amount(top)]];
  return figure(`Jobs waiting: ${amount(now)} now, at most ${amount(most)}`, course.at_s, ticks, y, [area]);
}

/** The next round number that can be halved. */
function rounded(most) {
  const unit = 10 ** Math.floor(Math.log10(most));
  return [2, 4, 6, 8, 10, 20].map((times) => times * unit).find((value) => value >= most);
}

/** An area between two lines. */
function between(times, x, y, low, high) {
  if (!times.length) return "";
  const places = times.length > 1 ? times.map((at) => x(at).toFixed(1)) : [FROM_X, TO_X];
  const along = (values) => places.map((at, i) => `${at},${y(values[i] ?? values[0]).toFixed(1)}`);
  return `M${along(high).join("L")}L${along(low).reverse().join("L")}Z`;
}

// What jobs took

/** The jobs that ended, in bins of as many jobs each as can be, oldest first. */
function binned(ended) {
  const jobs = ended.key.length;
  const bins = Math.min(BINS, Math.ceil(jobs / 4));
  return Array.from({ length: bins }, (_, bin) => {
    const from = Math.floor((bin * jobs) / bins);
    const to = Math.floor(((bin + 1) * jobs) / bins);
    const of = (name) => ended[name].slice(from, to).sort((a, b) => a - b);
    const at = (values, share) => values[Math.min(values.length - 1, Math.floor(values.length * share))];
    const [jct, queued] = [of("jct_s"), of("queued_s")];
    return {
      from_s: ended.ended_s[from], until_s: ended.ended_s[to - 1], jobs: to - from,
      jct: [at(jct, 0.5), at(jct, 0.9)], queued: [at(queued, 0.5), at(queued, 0.9)],
    };
  });
}

function spans(title, bins, name) {
  const times = bins.map((bin) => bin.until_s);
  const x = timeScale(times);
  const most = Math.max(10, ...bins.map((bin) => bin[name][1]));
  const ticks = [1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 49 * 86400];
  const high = ticks.find((tick) => tick >= most) ?? most;
  const y = (value) => FROM_Y - (Math.log1p(value) / Math.log1p(high)) * (FROM_Y - TO_Y);
  const line = (which, style) =>
    drawn("polyline", {
      class: style,
      points: bins.map((bin) => `${x(bin.until_s).toFixed(1)},${y(bin[name][which]).toFixed(1)}`).join(" "),
    });
  const dots = bins.map((bin) =>
    drawn("circle", { cx: x(bin.until_s).toFixed(1), cy: y(bin[name][0]).toFixed(1), r: 2.5, class: "median" }));
  const low = ticks.filter((tick) => tick <= high).map((tick) => [tick, duration(tick).replace(/00[smh]$/, "")]);
  const [median, ninety] = bins.at(-1)[name];
  const lately = `${title}: lately ${duration(median)}, 90 % within ${duration(ninety)}`;
  return figure(lately, times, low, y, [line(1, "ninety"), line(0, "median-line"), ...dots], [
    ["median-line", "median"], ["ninety", "90 % within"],
  ]);
}

function fillTable(bins) {
  const number = (text) => element("td", { class: "number" }, text);
  const rows = bins.map((bin) =>
    element(
      "tr", {}, element("th", { scope: "row" }, moment(bin.until_s)), number(amount(bin.jobs)),
      ...[...bin.jct, ...bin.queued].map((seconds) => number(duration(seconds))),
    ));
  byId("ended-table").tBodies[0].replaceChildren(...rows.reverse());
}

// The frame of a chart

function timeScale(times) {
  const [first, last] = [times[0] ?? 0, times.at(-1) ?? 1];
  const span = last - first;
  return (at) => (span ? FROM_X + ((at - first) / span) * (TO_X - FROM_X) : TO_X);
}

/** A chart with its title and axes; ``ticks`` are pairs of a value and its text. */
function figure(title, times, ticks, y, shapes, keys = []) {
  const [head, ...rest] = title.split(": ");
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
  for (const [value, text] of ticks) {
    const at = y(value).toFixed(1);
    svg.append(drawn("line", { x1: FROM_X, x2: TO_X, y1: at, y2: at, class: "grid" }));
    svg.append(drawn("text", { x: FROM_X - 6, y: Number(at) + 4, class: "right" }, text));
  }
  svg.append(...shapes);
  if (times.length) {
    const long = times.at(-1) - times[0] > 86400;
    const when = (at) => (long ? moment(at).replace(/, \d{4},?/, "") : timeOfDay(at));
    svg.append(drawn("text", { x: FROM_X, y: HEIGHT - 6 }, when(times[0])));
    if (times.length > 1) svg.append(drawn("text", { x: TO_X, y: HEIGHT - 6, class: "right" }, when(times.at(-1))));
  }
  const caption = element("figcaption", {}, element("strong", {}, head), element("span", {}, rest.join(": ")));
  const key = element("p", { class: "keys", "aria-hidden": "true" }, ...keys.map(([style, text]) => keyOf(style, text)));
  return element("figure", {}, caption, svg, ...(keys.length ? [key] : []));
}

function keyOf(style, text) {
  const line = drawn("line", { x1: 0, x2: 22, y1: 5, y2: 5, class: style });
  return element("span", {}, drawn("svg", { viewBox: "0 0 22 10", width: 22, height: 10 }, line), ` ${text}`);
}
