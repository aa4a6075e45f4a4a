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

/** GPU-time in as few words as it can be said exactly: 1h, 1h30m, 25h, 3200 GPU-s. */
export function gpuTime(gpuSeconds) {
  if (gpuSeconds <= 0 || gpuSeconds % 60) return `${amount(gpuSeconds)} GPU-s`;
  const hours = Math.floor(gpuSeconds / 3600);
  const minutes = (gpuSeconds % 3600) / 60;
  return [hours && `${amount(hours)}h`, minutes && `${minutes}m`].filter(Boolean).join("");
}

export const amount = (value) => number.format(value);
export const count = (value, noun) => `${amount(value)} ${noun}${value === 1 ? "" : "s"}`;
export const timeOfDay = (seconds) => clock.format(seconds * 1000);
export const moment = (seconds) => day.format(seconds * 1000);

/** Characters that would hide, or turn around what stands beside them, made visible. */
export function visible(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu, "?");
}
