/** Tasks of an array that were never started and wait alike share a line, as in squeue. */

const LONGEST_LIST = 24;

/**
 * The rows that stand for all of these, each the first of its kind, and the names of those that
 * stand for several: ``12_[3-499]``.
 */
export function folded(jobs, rows) {
  const groups = new Map();
  for (const row of rows) {
    const key = sameLine(jobs, row);
    if (groups.has(key)) groups.get(key).push(row);
    else groups.set(key, [row]);
  }
  const names = new Map();
  for (const [first, ...others] of groups.values()) {
    if (others.length) names.set(first, numbered(jobs, [first, ...others]));
  }
  return { rows: [...groups.values()].map(([first]) => first), names };
}

function sameLine(jobs, row) {
  const [array, task] = jobs.job_id[row].split("_");
  const neverStarted = jobs.state[row] === "pending" && !jobs.restarts[row] && !jobs.attained_gpu_s[row];
  if (!neverStarted || !/^\d+$/.test(task ?? "")) return row;
  return [array, jobs.tier[row], jobs.gpus[row], jobs.action[row], jobs.reason[row]].join("\n");
}

function numbered(jobs, rows) {
  const [array] = jobs.job_id[rows[0]].split("_");
  const numbers = rows.map((row) => Number(jobs.job_id[row].split("_")[1])).sort((a, b) => a - b);
  const pieces = [];
  for (let i = 0; i < numbers.length; ) {
    let last = i;
    while (numbers[last + 1] === numbers[last] + 1) last++;
    pieces.push(last > i ? `${numbers[i]}-${numbers[last]}` : `${numbers[i]}`);
    i = last + 1;
  }
  let list = "";
  for (const piece of pieces) {
    if (list.length + piece.length > LONGEST_LIST) return `${array}_[${list},...]`;
    list += list ? `,${piece}` : piece;
  }
  return `${array}_[${list}]`;
}
