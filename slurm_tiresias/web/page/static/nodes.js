/** The map of the nodes: each a box, each of its GPUs a mark; and the same as a table. */

import { byId, element, jobLink, oncePerFrame, point, prepared, replace, write } from "./dom.js";
import { amount, count, visible } from "./format.js";
import { caption, colours, kindOf, kinds, mark, swatch, whenColoursChange } from "./marks.js";
import { Table } from "./table.js";

const GPU_SIZES_PX = [40, 32, 26, 22, 18, 15, 12, 10, 8, 7];
const NAMES_FROM_PX = 12;
const NAME_PX = 15;
const TALLEST_PX = 380;
const GAP_PX = 6;

const map = byId("nodes-map");
const canvas = byId("nodes-canvas");
const current = byId("nodes-current");
const shown = byId("node-shown");

export class Nodes {
  #state = null;
  #boxes = { columns: 1, size: 8, width: 0, height: 0, across: 1 };
  #at = -1;
  #pinned = false;
  #highlit = null;
  #hovered = "";
  #table;
  /** All nodes, as they are without the pointer: thousands of marks are not drawn at its every move. */
  #still = document.createElement("canvas");
  #stale = true;
  #touch = oncePerFrame(() => this.#draw());

  constructor() {
    this.draw = () => {
      this.#stale = true;
      this.#touch();
    };
    new ResizeObserver(this.draw).observe(map);
    whenColoursChange(this.draw);
    map.addEventListener("keydown", (event) => this.#key(event));
    map.addEventListener("focus", () => this.#goTo(Math.max(0, this.#at)));
    map.addEventListener("blur", this.#touch);
    canvas.addEventListener("pointermove", (event) => this.#hover(event));
    canvas.addEventListener("pointerleave", (event) => this.#leave(event));
    canvas.addEventListener("click", (event) => this.#click(event));
    this.#table = new Table(byId("nodes-table"), {
      label: "Nodes",
      columns: [
        { title: "Node", of: (row) => this.#state.nodes.name[row] },
        { title: "State", of: (row) => this.#state.nodes.state[row] },
        { title: "GPUs", number: true, of: (row) => this.#state.nodes.gpus[row] },
        { title: "Idle", number: true, of: (row) => this.#idle(row) },
        { title: "Held by", wide: true, of: (row) => this.#holders(row) },
      ],
    });
    byId("nodes-details").addEventListener("toggle", () => this.#fillTable());
  }

  show(state) {
    this.#state = state;
    const nodes = state.nodes.name.length;
    const { idle, down, total } = state.gpus;
    const rest = [idle && `${amount(idle)} idle`, down && `${amount(down)} out of service`];
    const sum = [count(nodes, "node"), count(total, "GPU"), ...rest].filter(Boolean).join(", ");
    write(byId("nodes-sum"), nodes ? sum : "No node with GPUs has been seen yet.");
    map.hidden = !nodes;
    this.#at = Math.min(this.#at, nodes - 1);
    this.#legend();
    if (this.#pinned) this.#pin(this.#at);
    if (document.activeElement === map) this.#tell();
    this.#fillTable();
    this.draw();
  }

  // What there is

  #held(row) {
    return this.#state.nodes.held[row];
  }

  #idle(row) {
    if (!this.#state.nodes.available[row]) return 0;
    const taken = this.#held(row).reduce((sum, [, gpus]) => sum + gpus, 0);
    return Math.max(0, this.#state.nodes.gpus[row] - taken);
  }

  #holders(row) {
    return this.#held(row).map(inWords).join("; ");
  }

  #sentence(row) {
    const { name, gpus, state } = this.#state.nodes;
    const parts = [`${name[row]}: ${count(gpus[row], "GPU")}`, ...this.#held(row).map(inWords)];
    const idle = this.#idle(row);
    if (idle) parts.push(`${amount(idle)} idle`);
    if (!this.#state.nodes.available[row]) parts.push(`out of service (${state[row]})`);
    return visible(parts.join("; "));
  }

  // The legend, which also highlights

  #legend() {
    const { tiers, gpus } = this.#state;
    const entries = tiers.map((tier) => [tier.tier, `Tier ${tier.tier}`, tier.running_gpus]);
    entries.push([kinds.OTHER, "Not managed", gpus.others], [kinds.IDLE, "Idle", gpus.idle]);
    entries.push([kinds.DOWN, "Out of service", gpus.down]);
    const legend = byId("legend");
    if (legend.children.length !== entries.length) {
      legend.replaceChildren(...entries.map(([kind]) => this.#legendButton(kind)));
    }
    entries.forEach(([kind, title, number], i) => {
      const button = legend.children[i];
      write(button.lastChild, `${title} ${amount(number)}`);
      button.setAttribute("aria-label", `${title}, ${count(number, "GPU")}`);
      button.setAttribute("aria-pressed", String(this.#highlit === kind));
    });
  }

  #legendButton(kind) {
    const button = element("button", { type: "button" }, swatch(kind, prepared), element("span"));
    button.addEventListener("click", () => {
      this.#highlit = this.#highlit === kind ? null : kind;
      this.#legend();
      this.draw();
    });
    return button;
  }

  // Drawing

  /** The largest GPUs with which all nodes fit; the smallest, and scrolling, where none do. */
  #layOut(width) {
    const most = Math.max(1, ...this.#state.nodes.gpus);
    const across = Math.min(most, most > 8 ? 8 : most > 4 ? 4 : most);
    const down = Math.ceil(most / across);
    for (const size of GPU_SIZES_PX) {
      const wide = across * size + GAP_PX;
      const high = down * size + GAP_PX + (size >= NAMES_FROM_PX ? NAME_PX : 0);
      const columns = Math.max(1, Math.floor((width + GAP_PX - 4) / wide));
      const rows = Math.ceil(this.#state.nodes.name.length / columns);
      this.#boxes = { columns, rows, size, width: wide, height: high, across };
      if (rows * high <= TALLEST_PX) break;
    }
  }

  #draw() {
    if (!this.#state || map.hidden || !map.clientWidth) return;
    const style = getComputedStyle(map);
    const width = map.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    this.#layOut(width);
    const { rows, height } = this.#boxes;
    if (width < 1 || rows * height < 1) return;
    if (this.#stale) this.#drawStill(width, rows * height);
    const context = prepared(canvas, width, rows * height);
    context.drawImage(this.#still, 0, 0, width, rows * height);
    if (this.#hovered) this.#drawHovered(context, width, rows * height);
    if (this.#pinned || document.activeElement === map) this.#drawFrame(context);
  }

  #drawStill(width, height) {
    const context = prepared(this.#still, width, height);
    for (let row = 0; row < this.#state.nodes.name.length; row++) this.#drawNode(context, row);
    this.#stale = false;
  }

  /** The job under the pointer, on all its nodes; the others behind a veil. */
  #drawHovered(context, width, height) {
    context.globalAlpha = 0.75;
    context.fillStyle = colours().surface;
    context.fillRect(0, 0, width, height);
    context.globalAlpha = 1;
    const has = (row) => this.#held(row).some(([id]) => id === this.#hovered);
    for (let row = 0; row < this.#state.nodes.name.length; row++) {
      if (has(row)) this.#drawNode(context, row, this.#hovered);
    }
  }

  #drawFrame(context) {
    const { columns, width, height } = this.#boxes;
    const [x, y] = [(this.#at % columns) * width, Math.floor(this.#at / columns) * height];
    context.strokeStyle = colours().accent;
    context.lineWidth = 2;
    context.strokeRect(x + 1, y + 1, width - GAP_PX + 2, height - GAP_PX + 2);
  }

  /** One node, or what ``only`` one job holds of it. */
  #drawNode(context, row, only = "") {
    const { columns, size, width, height } = this.#boxes;
    const x = (row % columns) * width;
    let y = Math.floor(row / columns) * height;
    if (size >= NAMES_FROM_PX) {
      caption(context, this.#state.nodes.name[row], x + 2, y + 12, { most: width - GAP_PX });
      y += NAME_PX;
    }
    this.#drawGpus(context, row, x + 2, y + 2, only);
  }

  #drawGpus(context, row, x, y, only) {
    const { size, across } = this.#boxes;
    const gpus = this.#state.nodes.gpus[row];
    const free = this.#state.nodes.available[row] ? kinds.IDLE : kinds.DOWN;
    const put = (gpu, kind, wide, id) => {
      if (only && id !== only) return;
      const left = x + (gpu % across) * size;
      const top = y + Math.floor(gpu / across) * size;
      mark(context, kind, left, top, wide * size - 1, size - 1, this.#isFaded(kind));
    };
    let gpu = 0;
    for (const [id, held, tier] of this.#held(row)) {
      // GPUs of one job that lie beside each other are one mark: so it is seen where jobs end.
      for (const end = Math.min(gpus, gpu + held); gpu < end; ) {
        const wide = Math.min(end - gpu, across - (gpu % across));
        put(gpu, kindOf(tier), wide, id);
        gpu += wide;
      }
    }
    for (; gpu < gpus; gpu++) put(gpu, free, 1, "");
  }

  #isFaded(kind) {
    return this.#highlit !== null && this.#highlit !== kind;
  }

  // Going from node to node

  #key(event) {
    const { columns } = this.#boxes;
    const last = this.#state.nodes.name.length - 1;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    if (event.key in steps) this.#goTo(this.#at + steps[event.key]);
    else if (event.key === "Home") this.#goTo(0);
    else if (event.key === "End") this.#goTo(last);
    else if (event.key === "Enter" || event.key === " ") this.#pin(this.#at);
    else if (event.key === "Escape") this.#unpin();
    else return;
    event.preventDefault();
  }

  #goTo(row) {
    if (!this.#state || row < 0 || row >= this.#state.nodes.name.length) return;
    this.#at = row;
    this.#tell();
    const { columns, height } = this.#boxes;
    const top = Math.floor(row / columns) * height;
    if (top < map.scrollTop) map.scrollTop = top;
    else if (top + height > map.scrollTop + map.clientHeight) {
      map.scrollTop = top + height - map.clientHeight + GAP_PX;
    }
    this.#touch();
  }

  #tell() {
    if (this.#at < 0) return;
    current.setAttribute("aria-setsize", this.#state.nodes.name.length);
    current.setAttribute("aria-posinset", this.#at + 1);
    write(current, this.#sentence(this.#at));
  }

  #pin(row) {
    if (row < 0) return this.#unpin();
    this.#at = row;
    this.#pinned = true;
    const { name, gpus, state, available } = this.#state.nodes;
    const heading = element("strong", {}, name[row]);
    const list = element("ul", { class: "inline" });
    for (const [id, held, tier] of this.#held(row)) {
      const who = id ? jobLink(id, `job ${id}`) : "jobs";
      list.append(element("li", {}, who, `${kindInWords(id, tier)}, ${count(held, "GPU")}`));
    }
    const idle = this.#idle(row);
    if (idle) list.append(element("li", {}, `${amount(idle)} idle`));
    const service = available[row] ? state[row] : `out of service: ${state[row]}`;
    replace(shown, heading, ` ${count(gpus[row], "GPU")}, ${visible(service)} `, list);
    this.#touch();
  }

  #unpin() {
    this.#pinned = false;
    shown.replaceChildren();
    this.#touch();
  }

  // The pointer

  #under(event) {
    const box = canvas.getBoundingClientRect();
    const { columns, width, height, size, across } = this.#boxes;
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const column = Math.floor(x / width);
    const row = Math.floor(y / height) * columns + column;
    if (column >= columns || row >= this.#state.nodes.name.length) return null;
    const name = size >= NAMES_FROM_PX ? NAME_PX : 0;
    const right = Math.floor((x - column * width - 2) / size);
    const below = Math.floor((y - Math.floor(y / height) * height - name - 2) / size);
    const inside = right >= 0 && right < across && below >= 0;
    return { row, hold: inside ? this.#holdAt(row, below * across + right) : null };
  }

  #holdAt(row, gpu) {
    let first = 0;
    for (const hold of this.#held(row)) {
      first += hold[1];
      if (gpu < first) return hold;
    }
    return null;
  }

  #hover(event) {
    const found = this.#state && this.#under(event);
    const hovered = found?.hold?.[0] ?? "";
    if (hovered !== this.#hovered) {
      this.#hovered = hovered;
      this.#touch();
    }
    canvas.style.cursor = found ? "pointer" : "";
    point(event, found ? this.#sentence(found.row) : "");
  }

  #leave(event) {
    point(event, "");
    if (!this.#hovered) return;
    this.#hovered = "";
    this.#touch();
  }

  #click(event) {
    const found = this.#state && this.#under(event);
    if (found) this.#pin(found.row);
    else this.#unpin();
  }

  #fillTable() {
    if (byId("nodes-details").open && this.#state) {
      this.#table.show([...this.#state.nodes.name.keys()]);
    }
  }
}

function inWords([id, gpus, tier]) {
  return `${id ? `job ${id}` : "jobs"}${kindInWords(id, tier)} ${amount(gpus)}`;
}

/** Where jobs are private, holds without an id are of jobs of any kind. */
function kindInWords(id, tier) {
  if (!id) return "";
  return tier === null ? " (not managed)" : ` (tier ${tier})`;
}
