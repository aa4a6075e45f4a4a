/**
 * How GPUs and jobs are marked. Colour is never the only sign: where there is room a mark bears the
 * number of its tier, and where there is none, a notch that is the tier's own.
 */

const OTHER = "other", IDLE = "idle", DOWN = "down";
export const MOST_TIERS = 8;
const DIGIT_FROM_PX = 13;

let palette = null;
const watchers = [];
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const contrast = window.matchMedia("(prefers-contrast: more)");

/** The colours of the style sheet, as the present scheme has them. */
export function colours() {
  palette ??= read();
  return palette;
}

/** Call when the scheme changes: what is drawn on a canvas does not follow by itself. */
export function whenColoursChange(work) {
  watchers.push(work);
}

for (const query of [dark, contrast]) {
  query.addEventListener("change", () => {
    palette = null;
    for (const work of watchers) work();
  });
}

function read() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const tiers = Array.from({ length: MOST_TIERS }, (_, tier) => of(`tier-${tier}`));
  const names = ["surface", "ink", "quiet", "line", "other", "idle", "down", "accent"];
  const signs = tiers.map((colour) => (luminance(colour) > 0.19 ? "#0d1117" : "#ffffff"));
  return { tiers, signs, ...Object.fromEntries(names.map((name) => [name, of(name)])) };
}

/** How bright ``#rrggbb`` is, from 0 to 1, as WCAG counts it. */
function luminance(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const share = parseInt(colour.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** What a mark stands for: a tier, jobs that are not managed, idle GPUs, a node out of service. */
export const kindOf = (tier) => (tier === null ? OTHER : tier);
export const kinds = { OTHER, IDLE, DOWN };

/** One mark, from its upper left corner. */
export function mark(context, kind, x, y, width, height, faded = false) {
  const colour = colours();
  context.globalAlpha = faded ? 0.18 : 1;
  if (kind === IDLE || kind === DOWN) {
    outline(context, kind === DOWN ? colour.down : colour.idle, x, y, width, height);
    if (kind === DOWN) cross(context, colour.down, x, y, width, height);
  } else if (kind === OTHER) {
    outline(context, colour.other, x, y, width, height);
    hatch(context, colour.other, x, y, width, height);
  } else {
    context.fillStyle = colour.tiers[kind % MOST_TIERS];
    context.fillRect(x, y, width, height);
    sign(context, kind, x, y, width, height, colour.signs[kind % MOST_TIERS]);
  }
  context.globalAlpha = 1;
}

function outline(context, colour, x, y, width, height) {
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
}

function cross(context, colour, x, y, width, height) {
  context.beginPath();
  context.moveTo(x + 1, y + 1);
  context.lineTo(x + width - 1, y + height - 1);
  context.moveTo(x + width - 1, y + 1);
  context.lineTo(x + 1, y + height - 1);
  context.strokeStyle = colour;
  context.stroke();
}

function hatch(context, colour, x, y, width, height) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.beginPath();
  for (let left = x - height; left < x + width; left += 4) {
    context.moveTo(left, y + height);
    context.lineTo(left + height, y);
  }
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.stroke();
  context.restore();
}

function sign(context, tier, x, y, width, height, colour) {
  context.fillStyle = context.strokeStyle = colour;
  if (Math.min(width, height) >= DIGIT_FROM_PX) {
    context.font = `600 ${Math.min(13, height - 3)}px ui-monospace, monospace`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(String(tier), x + width / 2, y + height / 2 + 0.5);
  } else if (Math.min(width, height) >= 5) {
    notch(context, tier, x + width / 2, y + height / 2, Math.min(width, height));
  }
}

/** Eight notches in the middle of a mark: none, dot, bars, diagonals, plus, ring. */
function notch(context, tier, x, y, size) {
  const reach = Math.max(1.5, size / 2 - 2);
  const line = (x0, y0, x1, y1) => {
    context.moveTo(x + x0 * reach, y + y0 * reach);
    context.lineTo(x + x1 * reach, y + y1 * reach);
  };
  context.lineWidth = 1.2;
  context.beginPath();
  if (tier === 1) context.fillRect(x - 1, y - 1, 2, 2);
  if (tier === 2 || tier === 6) line(-1, 0, 1, 0);
  if (tier === 3 || tier === 6) line(0, -1, 0, 1);
  if (tier === 4) line(-1, 1, 1, -1);
  if (tier === 5) line(-1, -1, 1, 1);
  if (tier === 7) context.rect(x - reach, y - reach, 2 * reach, 2 * reach);
  context.stroke();
}

/** Text on a canvas, as much of it as fits in ``most`` pixels. */
export function caption(context, text, x, y, { font = "11px", colour, align = "left", most } = {}) {
  context.font = `${font} system-ui, sans-serif`;
  context.textAlign = align;
  context.textBaseline = "alphabetic";
  context.fillStyle = colour ?? colours().quiet;
  context.fillText(most ? fitted(context, text, most) : text, x, y);
}

/** The name, or as much of it as fits; numbers at the end tell nodes apart. */
function fitted(context, name, width) {
  if (context.measureText(name).width <= width) return name;
  for (let from = 1; from < name.length; from++) {
    const end = `…${name.slice(from)}`;
    if (context.measureText(end).width <= width) return end;
  }
  return "";
}

/** A small canvas with one mark, for a legend; it follows the colour scheme. */
export function swatch(kind, prepare) {
  const canvas = document.createElement("canvas");
  canvas.setAttribute("aria-hidden", "true");
  canvas.className = "swatch";
  const draw = () => mark(prepare(canvas, 16, 16), kind, 0, 0, 16, 16);
  draw();
  whenColoursChange(() => canvas.isConnected && draw());
  return canvas;
}
