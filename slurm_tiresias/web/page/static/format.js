/** How values are written: the same ways as tiresias-slurm writes them on a terminal. */

const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
const number = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** A stretch of time in its two largest units, rounded down: 45s, 12m30s, 4d07h. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "?";
  const whole = Math.max(0, Math.floor(seconds));
  for (let i = 0; i < 3; i++) {
    const [unit, size] = UNITS[i];
    const [smaller, part] = UNITS[i + 1];
    if (whole >= size) {
      const rest = String(Math.floor((whole % size) / part)).padStart(2, "0");
      return `${Math.floor(whole / size)}${unit}${rest}${smaller}`;
    }
  }
  return `${whole}s`;
}

/** GPU time, rounded down: 0.25 GPU-h, 1.5 GPU-h, 25 GPU-h. */
export function gpuHours(gpuSeconds) {
  if (!Number.isFinite(gpuSeconds)) return "? GPU-h";
  if (!gpuSeconds) return "0 GPU-h";
  const size = Math.abs(gpuSeconds);
  const decimals = size >= 36000 ? 0 : size >= 3600 ? 1 : 2;
  const units = Math.floor((size * 10 ** decimals) / 3600 + 1e-6);
  const written = (units / 10 ** decimals).toLocaleString("en", { minimumFractionDigits: decimals });
  return `${gpuSeconds < 0 && units ? "-" : ""}${written} GPU-h`;
}

/** A limit to the second: 1.5 GPU-h, and 3200 GPU-s where the hours are not round. */
export function exactGpuHours(gpuSeconds) {
  const hours = gpuSeconds / 3600;
  const round = Math.round(hours * 100) / 100;
  return hours && round === hours ? `${amount(round)} GPU-h` : `${gpuSeconds} GPU-s`;
}

/** The shortest and the longest time that something may take: 2h05m to 2h20m. */
export function range(least, most) {
  const [from, to] = [duration(least), duration(most)];
  return from === to ? from : `${from} to ${to}`;
}

/** A share, rounded down: what is not done is never 100 %. */
export const percent = (share) => (share === null ? "" : `${Math.floor(100 * share + 1e-9)} %`);
export const amount = (value) => number.format(value);
export const count = (value, noun) => `${amount(value)} ${noun}${value === 1 ? "" : "s"}`;
export const timeOfDay = (seconds) => clock.format(seconds * 1000);
export const moment = (seconds) => day.format(seconds * 1000);

/** A text with the times that the controller marks in it written in this time zone. */
export const withTimes = (text, written) =>
  text.replace(/\ue000([^\ue001]*)\ue001/g, (_, seconds) => written(Number(seconds)));

/** Characters that would hide, or turn around what stands beside them, made visible. */
export function visible(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu, "?");
}
