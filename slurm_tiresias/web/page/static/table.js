/**
 * A table of any length; only the rows in sight exist. It is a real table with real
 * headings: a screen reader is told how many rows there are, and which of them these are.
 */

import { element, oncePerFrame, write } from "./dom.js";

const ROW_PX = 34;
const SPARE_ROWS = 6;

export class Table {
  #columns;
  #rows = [];
  #body = element("tbody");
  #above = element("tr", { "aria-hidden": "true", class: "gap" }, element("td"));
  #below = element("tr", { "aria-hidden": "true", class: "gap" }, element("td"));
  #view;
  #table;
  #headings;

  /**
   * ``columns``: ``title``, ``of(row)`` for the text, and where wanted ``number``, ``wide``,
   * ``link(row)``, ``fill(cell, row)``, ``optional`` (see ``showOptional``), and ``by``, the name
   * that ``sorts`` is called with.
   */
  constructor(place, { label, columns, sorts = null }) {
    this.#columns = columns;
    this.#headings = columns.map((column) => this.#heading(column, sorts));
    const head = element("tr", { "aria-rowindex": 1 }, ...this.#headings);
    this.#table = element("table", { class: "rows", "aria-label": label });
    this.#table.append(element("thead", {}, head), this.#body);
    this.#view = element("div", { class: "scroll long", tabindex: 0, role: "region" }, this.#table);
    this.#view.setAttribute("aria-label", `${label}, a table that scrolls`);
    this.#body.append(this.#above, this.#below);
    const render = oncePerFrame(() => this.#render());
    this.#view.addEventListener("scroll", render, { passive: true });
    this.#view.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(render).observe(this.#view);
    place.append(this.#view);
  }

  #heading(column, sorts) {
    const { title, by } = column;
    const heading = element("th", { scope: "col", class: classes(column) });
    if (!by || !sorts) {
      heading.append(title);
      return heading;
    }
    const button = element("button", { type: "button" }, title);
    button.addEventListener("click", () => sorts(by));
    heading.append(button);
    return heading;
  }

  /** Say by which column the rows are sorted. */
  sortedBy(by, descending) {
    this.#columns.forEach((column, i) => {
      if (column.by !== by) this.#headings[i].removeAttribute("aria-sort");
      else this.#headings[i].setAttribute("aria-sort", descending ? "descending" : "ascending");
    });
  }

  /** Whether the optional columns are there. */
  showOptional(wanted) {
    this.#table.classList.toggle("brief", !wanted);
  }

  /** The rows, in order: whatever ``of`` understands. */
  show(rows) {
    this.#rows = rows;
    this.#table.setAttribute("aria-rowcount", rows.length + 1);
    this.#view.classList.toggle("short", rows.length * ROW_PX < 400);
    this.#render();
  }

  toTop() {
    this.#view.scrollTop = 0;
  }

  #render() {
    if (!this.#view.clientHeight) return;
    const first = Math.max(0, Math.floor(this.#view.scrollTop / ROW_PX) - SPARE_ROWS);
    const room = Math.ceil(this.#view.clientHeight / ROW_PX) + 2 * SPARE_ROWS;
    const last = Math.min(this.#rows.length, first + room);
    const focused = this.#focusedLink();
    this.#setLines(last - first);
    this.#above.firstChild.style.height = `${first * ROW_PX}px`;
    this.#below.firstChild.style.height = `${Math.max(0, this.#rows.length - last) * ROW_PX}px`;
    for (let row = first; row < last; row++) this.#fill(this.#body.children[row - first + 1], row);
    if (focused) this.#focusAgain(focused);
  }

  #setLines(wanted) {
    while (this.#body.children.length - 2 < wanted) {
      const cells = this.#columns.map((column) => element("td", { class: classes(column) }));
      this.#below.before(element("tr", {}, ...cells));
    }
    while (this.#body.children.length - 2 > wanted) this.#below.previousSibling.remove();
  }

  #fill(line, position) {
    line.setAttribute("aria-rowindex", position + 2);
    const row = this.#rows[position];
    this.#columns.forEach((column, i) => {
      const cell = line.children[i];
      const text = String(column.of(row) ?? "");
      if (column.fill) column.fill(cell, row, text);
      else if (column.link) fillLink(cell, column.link(row), text);
      else write(cell, text);
      if (column.wide) cell.title = cell.textContent;
    });
  }

  // A row that is scrolled or sorted away takes the focus along as long as it is in sight.

  #focusedLink() {
    const active = document.activeElement;
    return this.#body.contains(active) ? active.getAttribute("href") : null;
  }

  #focusAgain(href) {
    for (const link of this.#body.querySelectorAll("a")) {
      if (link.getAttribute("href") === href) return link.focus({ preventScroll: true });
    }
    return this.#view.focus({ preventScroll: true });
  }

  #key(event) {
    const line = document.activeElement.closest("tr");
    if (!this.#body.contains(line) || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    const next = event.key === "ArrowDown" ? line.nextSibling : line.previousSibling;
    const link = next?.querySelector("a");
    if (!link) return;
    event.preventDefault();
    link.focus();
  }
}

function classes({ number, wide, optional }) {
  return [number && "number", wide && "wide", optional && "optional"].filter(Boolean).join(" ") || null;
}

function fillLink(cell, href, text) {
  let link = cell.firstChild;
  if (!link) {
    link = element("a");
    cell.append(link);
  }
  if (link.getAttribute("href") !== href) link.setAttribute("href", href);
  write(link, text);
}
