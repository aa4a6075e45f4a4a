/** Asks the controller for what it shows, and keeps the latest. */

const PATIENCE_MS = 20_000;

/** Follows ``/state``; where nothing has changed the controller says so in a few bytes. */
export class Feed {
  #etag = "";
  #skewMs = 0;
  state = null;
  /** Why there is nothing newer; empty while all is well. */
  trouble = "";

  /** Ask once; true if there is something new. */
  async ask() {
    try {
      const headers = this.#etag ? { "If-None-Match": this.#etag } : {};
      const answer = await get("state", { headers, cache: "no-store" });
      this.#skewMs = skewOf(answer) ?? this.#skewMs;
      this.trouble = "";
      if (answer.status === 304) return false;
      if (!answer.ok) throw new Error((await answer.text()).trim().slice(0, 200));
      this.state = unfolded(await answer.json());
      this.#etag = answer.headers.get("ETag") ?? "";
      return true;
    } catch (error) {
      this.trouble = error.name === "TimeoutError" ? "no answer in time" : error.message;
      return false;
    }
  }

  /** The time by the controller's clock, in seconds. */
  get now() {
    return (Date.now() + this.#skewMs) / 1000;
  }
}

/** One job at length; null where nothing is known of it. */
export async function job(jobId) {
  const answer = await get(`jobs/${encodeURIComponent(jobId)}`);
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`the controller answers ${answer.status}`);
  return answer.json();
}

/** What the codes of reasons mean. */
export async function words() {
  const answer = await get("words");
  return answer.ok ? answer.json() : { reasons: {} };
}

const get = (path, options = {}) =>
  fetch(path, { ...options, signal: AbortSignal.timeout(PATIENCE_MS) });

/** How far the controller's clock is ahead; a Date header has whole seconds only. */
function skewOf(answer) {
  const there = Date.parse(answer.headers.get("Date") ?? "");
  if (Number.isNaN(there)) return null;
  const ahead = there + 500 - Date.now();
  return Math.abs(ahead) < 1500 ? 0 : ahead;
}

function unfolded(state) {
  state.rows = new Map(state.jobs.job_id.map((id, row) => [id, row]));
  return state;
}
