const HEAD_BORDERS = 10; // border and padding of a node's button
const HEADS_HEIGHT = 34;
const LABEL_GAP = 14; // from the middle of an event, which may have a square around it, to its label
const CANVAS_MAX = 16000; // the height in pixels that canvases of all browsers may have

/* The picture of an execution: columns are nodes, rows the lengths of the longest chains. The marks
   are drawn on a canvas; the types beside them are text of the page, which can be selected. */
class Diagram {
  constructor(section, onChoose) {
    this.section = section;
    this.heads = section.querySelector(".heads");
    this.canvas = section.querySelector("canvas");
    this.labels = new Labels(section.querySelector(".labels"));
    this.context = this.canvas.getContext("2d");
    this.onChoose = onChoose;
    this.pending = false;
    this.execution = null;
    this.onScreen = null; // while it is printed, what the screen shows: top, left, height of a row
    const picture = section.querySelector(".picture");
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    // For print, whose page has another width and is never dark, the observer is not called.
    matchMedia("print").addEventListener("change", () => this.resize());
    // The pages are counted before that.
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
    picture.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    picture.addEventListener("pointerdown", (event) => this.grab(event));
    picture.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"]) picture.addEventListener(name, (event) => this.drop(event));
  }

  show(execution) {
    this.execution = execution;
    this.folded = new Set();
    this.dimmed = null;
    this.relations = null;
    this.own = new Set();
    this.paths = [];
    this.chosen = -1;
    this.peer = -1; // the counterpart of the event chosen in the other execution
    this.peers = null; // the counterpart of each event there, -1 for none
    this.labels.clear();
    this.reset();
  }

  reset() {
    this.top = -24;
    this.left = 0;
    this.rowHeight = 22;
    this.refit();
  }

  /* Set the columns' width by the number of nodes shown. */
  fit() {
    const columns = Math.max(1, this.shown().length);
    const least = this.onScreen ? 0 : 60;
    this.columnWidth = Math.max(least, Math.min(240, (this.canvas.clientWidth || 600) / columns));
    this.left = Math.max(0, Math.min(this.left, columns * this.columnWidth - this.canvas.clientWidth));
    this.drawHeads();
  }

  refit() {
    this.fit();
    this.draw();
  }

  shown() { return this.execution.nodes.map((_, n) => n).filter((n) => !this.folded.has(n)); }

  resize() {
    if (!this.execution || !this.canvas.clientWidth) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = this.canvas.clientWidth * ratio;
    this.canvas.height = this.canvas.clientHeight * ratio;
    this.fit();
    this.paint(); // in this frame: a canvas of another size is empty
  }

  /* On paper, show all rows and columns, narrower if there are many; later what was shown before. */
  print(begins) {
    if (!this.execution || !(begins || this.onScreen)) return;
    const before = this.onScreen, rows = this.execution.rows + 2;
    this.onScreen = begins ? [this.top, this.left, this.rowHeight] : null;
    const most = CANVAS_MAX / (window.devicePixelRatio || 1) / rows;
    [this.top, this.left, this.rowHeight] = begins ? [-24, 0, Math.min(this.rowHeight, most)] : before;
    this.section.style.height = begins ? `${HEADS_HEIGHT + rows * this.rowHeight}px` : "";
    this.resize();
  }

  x(column) { return column * this.columnWidth + Math.min(22, this.columnWidth / 2) - this.left; }
  y(row) { return row * this.rowHeight - this.top; }

  move(dx, dy) {
    const before = this.left;
    const width = this.shown().length * this.columnWidth, height = this.execution.rows * this.rowHeight;
    this.left = Math.max(0, Math.min(this.left + dx, Math.max(0, width - this.canvas.clientWidth)));
    this.top = Math.max(-24, Math.min(this.top + dy, Math.max(-24, height - this.canvas.clientHeight + 24)));
    if (this.left !== before) this.drawHeads();
    this.draw();
  }

  zoom(factor, y) {
    const at = (y + this.top) / this.rowHeight;
    this.rowHeight = Math.max(1, Math.min(60, this.rowHeight * factor));
    this.top = at * this.rowHeight - y;
    this.move(0, 0);
  }

  goTo(e) {
    const y = this.y(this.execution.row[e]), height = this.canvas.clientHeight;
    const column = this.shown().indexOf(this.execution.node[e]);
    const x = this.x(column), width = this.canvas.clientWidth;
    const dx = column >= 0 && (x < 20 || x > width - 20) ? x - width / 2 : 0;
    this.move(dx, y < 30 || y > height - 30 ? y - height / 2 : 0);
  }

  /* The position of the pointer on the canvas. */
  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  wheel(event) {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 300), this.point(event)[1]);
    else this.move(event.deltaX, event.deltaY);
  }

  grab(event) {
    const [x, y] = this.point(event), label = this.labels.eventOf(event.target);
    this.held = { x, y, moved: false, label };
    // A drag over a label selects its text.
    if (label < 0) this.canvas.setPointerCapture(event.pointerId);
  }

  /* Name the event that is pointed at: where columns or rows are narrow, there are no labels. */
  pointAt(event) {
    const e = this.at(...this.point(event));
    this.canvas.title = e < 0 ? "" : printable(`${this.execution.dot(e)} ${this.execution.types[this.execution.type[e]]}`);
  }

  drag(event) {
    if (!this.held) { this.pointAt(event); return; }
    if (this.held.label >= 0) return;
    const [x, y] = this.point(event), dx = this.held.x - x, dy = this.held.y - y;
    if (!this.held.moved && Math.hypot(dx, dy) < 4) return;
    this.held = { x, y, moved: true, label: -1 };
    this.move(dx, dy);
  }

  drop(event) {
    const held = this.held, [x, y] = this.point(event);
    this.held = null;
    if (!held || held.moved || event.type !== "pointerup") return;
    if (held.label < 0) this.onChoose(this.at(x, y));
    else if (Math.hypot(held.x - x, held.y - y) < 4) this.onChoose(held.label);
  }

  /* The event at a point, -1 for none. */
  at(x, y) {
    const shown = this.shown();
    let best = -1, least = 14;
    for (const e of this.visible()) {
      const column = shown.indexOf(this.execution.node[e]);
      if (column < 0) continue;
      const far = Math.hypot(this.x(column) - x, this.y(this.execution.row[e]) - y);
      if (far < least) { least = far; best = e; }
    }
    return best;
  }

  window() {
    const first = Math.max(0, Math.floor((this.top - 20) / this.rowHeight));
    const last = Math.min(this.execution.rows - 1, Math.ceil((this.top + this.canvas.clientHeight + 20) / this.rowHeight));
    return [first, last];
  }

  visible() {
    const [first, last] = this.window();
    if (first > last) return [];
    return this.execution.byRow.slice(this.execution.rowStart[first], this.execution.rowStart[last + 1]);
  }

  /* Draw the heads of the visible columns: others could have the focus without being seen. */
  drawHeads() {
    const head = (text, style, act) => {
      const button = makeElement("button", { type: "button", onclick: () => { act(); this.refit(); } }, text);
      Object.assign(button.style, style);
      return button;
    };
    const from = Math.max(0, Math.ceil(-this.x(0) / this.columnWidth));
    const to = Math.ceil(((this.canvas.clientWidth || 600) + 14 - this.x(0)) / this.columnWidth);
    const buttons = this.shown().slice(from, to).map((node, number) => {
      const name = printable(this.execution.nodes[node]), column = from + number;
      const width = Math.min(180, this.columnWidth - 4);
      const style = { left: `${this.x(column) - 14}px`, maxWidth: `${width}px` };
      const button = head(this.fittedName(name, width - HEAD_BORDERS), style, () => this.folded.add(node));
      button.title = `${name}: fold this node`;
      button.setAttribute("aria-label", name);
      button.setAttribute("aria-pressed", "true");
      return button;
    });
    if (this.folded.size) {
      buttons.push(head(`show ${this.folded.size} folded`, { left: "auto", right: "4px", transform: "none" }, () => this.folded.clear()));
    }
    this.heads.replaceChildren(...buttons);
  }

  /* A name that fits its column; of a longer one, the end that all names share is cut first. */
  fittedName(name, width) { return this.fitted(name, width, this.heads, printable(this.execution.commonEnd)); }

  /* A text that fits a width in the font of an element. Of a longer one an end is cut, and then the
     middle, as similar names differ at the end. */
  fitted(text, width, element, end = "") {
    this.context.font = getComputedStyle(element).font;
    const wide = (part) => this.context.measureText(part).width;
    if (wide(text) <= width) return text;
    const letters = [...text.slice(0, text.length - end.length)], per = wide(letters.join("")) / letters.length;
    let cut = `${letters.join("")}${end && "…"}`;
    for (let fit = Math.ceil(width / per); fit >= 2 && wide(cut) > width; fit--) {
      const head = (fit - 1) >> 1;
      cut = `${letters.slice(0, head).join("")}…${letters.slice(head - fit).join("")}`;
    }
    return cut;
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (this.execution) this.paint(); // a comparison may have ended since
    });
  }

  colours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["ground", "text", "faint", "line", "event", "past", "future", "chosen", "match", "violation", "other", "message"];
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  paint() {
    const { context, execution } = this, ratio = window.devicePixelRatio || 1;
    const colour = this.colours(), shown = this.shown();
    const column = new Int32Array(execution.nodes.length).fill(-1);
    shown.forEach((node, at) => { column[node] = at; });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    this.paintLines(context, colour, shown);
    this.paintMessages(context, colour, column);
    this.paintPaths(context, colour, column);
    const events = this.visible();
    const radius = Math.max(1.5, Math.min(5, this.rowHeight / 2.5));
    const labels = this.rowHeight >= 15 && this.columnWidth >= 80;
    const labelled = [];
    for (const e of events) {
      const at = column[execution.node[e]];
      if (at < 0) continue;
      const x = this.x(at), y = this.y(execution.row[e]), pale = this.isPale(e);
      this.paintEvent(context, colour, e, x, y, radius, pale);
      if (labels) labelled.push([e, x, y, pale]);
    }
    const width = this.columnWidth - 26 - LABEL_GAP;
    this.labels.show(execution, labelled, width, (type) => this.fitted(type, width, this.labels.box));
  }

  paintLines(context, colour, shown) {
    const height = this.canvas.clientHeight;
    context.strokeStyle = colour.line;
    context.lineWidth = 1;
    context.beginPath();
    shown.forEach((node, at) => {
      const own = this.execution.ofNode[node];
      if (!own.length) return;
      const first = this.y(this.execution.row[own[0]]), last = this.y(this.execution.row[own[own.length - 1]]);
      if (last < 0 || first > height) return;
      context.moveTo(this.x(at), Math.max(0, first));
      context.lineTo(this.x(at), Math.min(height, last));
    });
    context.stroke();
  }

  paintMessages(context, colour, column) {
    const [first, last] = this.window();
    const seen = new Set();
    const before = [], after = [], faint = [];
    const look = (m) => {
      if (seen.has(m)) return;
      seen.add(m);
      const from = this.execution.messages[m], to = this.execution.messages[m + 1];
      if (column[this.execution.node[from]] < 0 || column[this.execution.node[to]] < 0) return;
      if (this.execution.row[to] < first || this.execution.row[from] > last) return;
      const relation = this.relations && this.relations[from] ? this.relations[to] : 0;
      (relation === 2 ? after : relation ? before : faint).push(m);
    };
    for (let block = first >> 6; block <= last >> 6; block++) (this.execution.blocks.get(block) || []).forEach(look);
    this.execution.long.forEach(look);
    // Where rows are narrow there are many messages: pale, they do not hide the events.
    const paleness = Math.min(this.relations ? 0.45 : 1, Math.max(0.3, this.rowHeight / 10));
    for (const [messages, style, width, alpha] of [[faint, colour.message, 0.8, paleness], [before, colour.past, 1.4, 1], [after, colour.future, 1.4, 1]]) {
      context.strokeStyle = style;
      context.globalAlpha = alpha;
      context.lineWidth = width;
      context.beginPath();
      for (const m of messages) this.arrow(context, column, this.execution.messages[m], this.execution.messages[m + 1]);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  /* The chains of messages and program order that an explanation names. */
  paintPaths(context, colour, column) {
    context.strokeStyle = colour.past;
    context.lineWidth = 3;
    context.beginPath();
    for (const path of this.paths) {
      path.filter((e) => column[this.execution.node[e]] >= 0).forEach((e, at) => {
        const x = this.x(column[this.execution.node[e]]), y = this.y(this.execution.row[e]);
        if (at) context.lineTo(x, y); else context.moveTo(x, y);
      });
    }
    context.stroke();
  }

  arrow(context, column, from, to) {
    const x0 = this.x(column[this.execution.node[from]]), y0 = this.y(this.execution.row[from]);
    const x1 = this.x(column[this.execution.node[to]]), y1 = this.y(this.execution.row[to]);
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    if (this.rowHeight < 8) return;
    const angle = Math.atan2(y1 - y0, x1 - x0), tip = 6;
    const x = x1 - 5 * Math.cos(angle), y = y1 - 5 * Math.sin(angle);
    for (const turn of [-0.45, 0.45]) {
      context.moveTo(x, y);
      context.lineTo(x - tip * Math.cos(angle + turn), y - tip * Math.sin(angle + turn));
    }
  }

  isPale(e) {
    if (this.own.has(e)) return false;
    return Boolean((this.dimmed && !this.dimmed[e]) || (this.relations && this.relations[e] === 0));
  }

  paintEvent(context, colour, e, x, y, radius, pale) {
    const relation = this.relations ? this.relations[e] : -1;
    const mark = this.execution.marks[e], own = this.own.has(e);
    context.globalAlpha = pale ? 0.3 : 1;
    const related = mark && own ? undefined : { 1: colour.past, 2: colour.future }[relation];
    context.fillStyle = related || [colour.event, colour.match, colour.violation, colour.other][mark];
    context.beginPath();
    const size = own ? radius + 2 : radius;
    if (mark === 1) diamond(context, x, y, size + 1);
    else if (mark === 2) triangle(context, x, y, size + 1.5);
    else if (mark === 3) context.rect(x - size, y - size, 2 * size, 2 * size);
    else context.arc(x, y, size, 0, 2 * Math.PI);
    context.fill();
    if (this.peers && this.peers[e] < 0) {
      // An event without a counterpart has a square around it.
      context.strokeStyle = colour.other;
      context.lineWidth = 1.5;
      context.strokeRect(x - radius - 4, y - radius - 4, 2 * radius + 8, 2 * radius + 8);
    }
    if (own || e === this.chosen || e === this.peer) {
      context.strokeStyle = colour.chosen;
      context.lineWidth = e === this.chosen ? 2.5 : 1.5;
      context.setLineDash(e === this.peer ? [3, 2] : []);
      context.beginPath();
      context.arc(x, y, size + 4, 0, 2 * Math.PI);
      context.stroke();
      context.setLineDash([]);
    }
    context.globalAlpha = 1;
  }
}

/* The types beside the visible events: an element each, reused as the picture moves. */
class Labels {
  constructor(box) {
    this.box = box;
    this.shown = new Map(); // event -> element
    this.spare = [];
    this.texts = new Map(); // type -> as much of it as fits the width
  }

  clear() { this.show(null, [], 0); }

  show(execution, labelled, width, fit) {
    const wanted = new Set(this.width === width ? labelled.map(([e]) => e) : []);
    if (this.width !== width) {
      this.box.style.setProperty("--label-width", `${this.width = width}px`);
      this.texts.clear();
    }
    for (const [e, element] of this.shown) {
      if (wanted.has(e)) continue;
      this.shown.delete(e);
      element.hidden = true;
      this.spare.push(element);
    }
    for (const [e, x, y, pale] of labelled) {
      let element = this.shown.get(e);
      if (element === undefined) {
        element = this.spare.pop() || this.addElement();
        element.hidden = false;
        const type = printable(execution.types[execution.type[e]]);
        if (!this.texts.has(type)) this.texts.set(type, fit(type));
        element.textContent = inOrder(this.texts.get(type));
        element.title = this.texts.get(type) === type ? "" : type;
        element.dataset.event = e;
        this.shown.set(e, element);
      }
      const at = `translate(${Math.round(x + LABEL_GAP)}px, ${Math.round(y - 8)}px)`;
      if (element.at !== at) element.style.transform = element.at = at;
      if (element.pale !== pale) element.classList.toggle("pale", element.pale = pale);
    }
  }

  addElement() {
    const element = makeElement("span", { pale: false });
    this.box.append(element);
    return element;
  }

  /* The event whose label an element is, -1 for none. */
  eventOf(element) { return element.dataset && element.dataset.event !== undefined ? Number(element.dataset.event) : -1; }
}

function diamond(context, x, y, size) {
  context.moveTo(x, y - size - 1);
  context.lineTo(x + size + 1, y);
  context.lineTo(x, y + size + 1);
  context.lineTo(x - size - 1, y);
  context.closePath();
}

function triangle(context, x, y, size) {
  context.moveTo(x, y - size);
  context.lineTo(x + size, y + size * 0.8);
  context.lineTo(x - size, y + size * 0.8);
  context.closePath();
}
