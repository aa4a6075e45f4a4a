/** The few ways in which this page makes elements. Text goes in as text, never as markup. */

import { visible } from "./format.js";

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; strings among them become text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  set(made, attributes);
  for (const child of children) made.append(typeof child === "object" ? child : visible(child));
  return made;
}

/** The same, of SVG. */
export function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  set(made, attributes);
  for (const child of children) made.append(typeof child === "object" ? child : visible(child));
  return made;
}

function set(target, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) target.setAttribute(name, value === true ? "" : value);
  }
}

/** Write text only where it differs: a screen reader and the layout then see no change. */
export function write(target, text) {
  const shown = visible(text);
  if (target.textContent !== shown) target.textContent = shown;
}

/** Put other children in the place of the present ones, if they differ. A link that has
 * the focus passes it on to the new link to the same place. */
export function replace(target, ...children) {
  const draft = document.createElement("div");
  draft.append(...children);
  if (draft.textContent === target.textContent) return;
  const active = document.activeElement;
  const href = target.contains(active) ? active.getAttribute("href") : null;
  target.replaceChildren(...draft.childNodes);
  if (!href) return;
  const again = [...target.querySelectorAll("a")].find((link) => link.getAttribute("href") === href);
  again?.focus({ preventScroll: true });
}

export function jobLink(jobId, text = jobId) {
  return element("a", { href: `#/jobs/${encodeURIComponent(jobId)}` }, text);
}

/** Run at the next frame, once, however often it is asked for. */
export function oncePerFrame(work) {
  let asked = 0;
  return () => {
    asked ||= requestAnimationFrame((now) => {
      asked = 0;
      work(now);
    });
  };
}

/** A canvas as large as its CSS size, sharp on this screen; its context in CSS pixels. */
export function prepared(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const tip = byId("tip");

/** Say something beside the pointer; nothing to take that away. */
export function point(event, text) {
  tip.hidden = !text;
  if (!text) return;
  write(tip, text);
  const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 18 + tip.offsetHeight < window.innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below ? event.clientY + 16 : event.clientY - tip.offsetHeight - 10}px`;
}
