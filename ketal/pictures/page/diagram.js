"use strict";

/* One execution, read from the data of the page: events in canonical order, by their numbers. */
class Execution {
  constructor(data) {
    Object.assign(this, data);
    this.count = data.node.length;
    this.ofNode = this.nodes.map(() => []);
    this.node.forEach((node, e) => this.ofNode[node].push(e));
    this.rows = 1 + this.row.reduce((a, b) => Math.max(a, b), 0);
    this.byRow = Array.from(this.row.keys()).sort((a, b) => this.row[a] - this.row[b] || a - b);
    this.rowStart = new Int32Array(this.rows + 1);
    for (const row of this.row) this.rowStart[row + 1]++;
    for (let r = 0; r < this.rows; r++) this.rowStart[r + 1] += this.rowStart[r];
    this.indexMessages();
    this.marks = new Uint8Array(this.count); // 1 match, 2 violation, 3 other
    for (const verdict of this.verdicts) {
      for (const [e, mark] of Object.entries(verdict.marks)) this.marks[e] = { match: 1, violation: 2 }[mark] || 3;
    }
    this.names = new Map();
    for (let e = 0; e < this.count; e++) this.names.set(this.dot(e), e);
  }

  /* Messages by the blocks of rows that they cross; what crosses very many is looked at always. */
  indexMessages() {
    this.blocks = new Map();
    this.long = [];
    for (let m = 0; m < this.messages.length; m += 2) {
      const from = this.row[this.messages[m]] >> 6, to = this.row[this.messages[m + 1]] >> 6;
      if (to - from > 32) { this.long.push(m); continue; }
      for (let block = from; block <= to; block++) {
        if (!this.blocks.has(block)) this.blocks.set(block, []);
        this.blocks.get(block).push(m);
      }
    }
  }

  dot(e) { return `${this.nodes[this.node[e]]}@${this.counter[e]}`; }

  /* The clock of an event, by the numbers of nodes: what changed on its node up to it. */
  clock(e) {
    const out = new Map();
    for (const own of this.ofNode[this.node[e]]) {
      const changed = this.changes[own];
      for (let i = 0; i < changed.length; i += 2) out.set(changed[i], changed[i + 1]);
      if (own === e) break;
    }
    return out;
  }

  /* The name of a node, of which the log may have no event. */
  nodeName(node) { return node < this.nodes.length ? this.nodes[node] : this.others[node - this.nodes.length]; }

  place(e) { return this.file[e] < 0 ? "" : `${this.files[this.file[e]]}:${this.line[e]}`; }

  /* What each event is to a chosen one: 1 in its past, 2 in its future, 3 itself, 0 concurrent. */
  relations(chosen) {
    const out = new Uint8Array(this.count), clock = this.clock(chosen);
    const at = this.node[chosen], counter = this.counter[chosen];
    const known = new Float64Array(this.nodes.length); // what each node knows of the chosen one's
    for (let e = 0; e < this.count; e++) {
      const changed = this.changes[e], node = this.node[e];
      for (let i = 0; i < changed.length; i += 2) if (changed[i] === at) known[node] = changed[i + 1];
      if (this.counter[e] <= (clock.get(node) || 0)) out[e] = 1;
      else if (known[node] >= counter) out[e] = 2;
    }
    out[chosen] = 3;
    return out;
  }
}

/* The picture of an execution: columns are nodes, rows the lengths of the longest chains. */
class Diagram {
  constructor(canvas, heads, onChoose) {
    this.canvas = canvas;
    this.heads = heads;
    this.context = canvas.getContext("2d");
    this.onChoose = onChoose;
    this.pending = false;
    this.frames = [];
    new ResizeObserver(() => this.resize()).observe(canvas);
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.grab(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.drop(event));
  }

  show(execution) {
    this.execution = execution;
    this.folded = new Set();
    this.dimmed = null;
    this.relations = null;
    this.own = new Set();
    this.paths = [];
    this.chosen = -1;
    this.reset();
  }

  reset() {
    this.top = -24;
    this.left = 0;
    this.rowHeight = 22;
    this.fitColumns();
    this.drawHeads();
    this.draw();
  }

  fitColumns() {
    const columns = Math.max(1, this.shown().length);
    this.columnWidth = Math.max(36, Math.min(240, (this.canvas.clientWidth || 600) / columns));
  }

  shown() { return this.execution.nodes.map((_, n) => n).filter((n) => !this.folded.has(n)); }

  resize() {
    if (!this.execution) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = this.canvas.clientWidth * ratio;
    this.canvas.height = this.canvas.clientHeight * ratio;
    this.fitColumns();
    this.drawHeads();
    this.draw();
  }

  x(column) { return column * this.columnWidth + Math.min(40, this.columnWidth / 2) - this.left; }
  y(row) { return row * this.rowHeight - this.top; }

  move(dx, dy) {
    const width = this.shown().length * this.columnWidth, height = this.execution.rows * this.rowHeight;
    this.left = Math.max(0, Math.min(this.left + dx, Math.max(0, width - this.canvas.clientWidth)));
    this.top = Math.max(-24, Math.min(this.top + dy, Math.max(-24, height - this.canvas.clientHeight + 24)));
    if (dx) this.drawHeads();
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
    if (y < 30 || y > height - 30) this.top += y - height / 2;
    const column = this.shown().indexOf(this.execution.node[e]);
    const x = this.x(column), width = this.canvas.clientWidth;
    if (column >= 0 && (x < 20 || x > width - 20)) { this.left += x - width / 2; this.drawHeads(); }
    this.move(0, 0);
  }

  wheel(event) {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 300), event.offsetY);
    else this.move(event.deltaX, event.deltaY);
  }

  grab(event) {
    this.held = { x: event.offsetX, y: event.offsetY, moved: false };
    this.canvas.setPointerCapture(event.pointerId);
  }

  drag(event) {
    if (!this.held) return;
    const dx = this.held.x - event.offsetX, dy = this.held.y - event.offsetY;
    if (!this.held.moved && Math.hypot(dx, dy) < 4) return;
    this.held = { x: event.offsetX, y: event.offsetY, moved: true };
    this.move(dx, dy);
  }

  drop(event) {
    const held = this.held;
    this.held = null;
    if (held && !held.moved && event.type === "pointerup") this.onChoose(this.at(event.offsetX, event.offsetY));
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

  drawHeads() {
    const buttons = [];
    const shown = this.shown();
    this.execution.nodes.forEach((name, node) => {
      const column = shown.indexOf(node);
      if (column < 0) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.title = `${name}: fold this node`;
      button.setAttribute("aria-pressed", "true");
      button.style.left = `${Math.max(2, this.x(column) - 14)}px`;
      button.style.maxWidth = `${Math.max(30, this.columnWidth - 4)}px`;
      button.addEventListener("click", () => { this.folded.add(node); this.fitColumns(); this.drawHeads(); this.draw(); });
      buttons.push(button);
    });
    if (this.folded.size) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `show ${this.folded.size} folded`;
      button.style.left = "auto";
      button.style.right = "4px";
      button.style.transform = "none";
      button.addEventListener("click", () => { this.folded.clear(); this.fitColumns(); this.drawHeads(); this.draw(); });
      buttons.push(button);
    }
    this.heads.replaceChildren(...buttons);
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }

  colours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["ground", "text", "faint", "line", "event", "past", "future", "chosen", "match", "violation", "other", "message"];
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  paint() {
    const began = performance.now();
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
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const e of events) {
      const at = column[execution.node[e]];
      if (at < 0) continue;
      this.paintEvent(context, colour, e, this.x(at), this.y(execution.row[e]), radius, labels);
    }
    this.frames.push(performance.now() - began);
    if (this.frames.length > 600) this.frames.shift();
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
    const strong = [], faint = [];
    const look = (m) => {
      if (seen.has(m)) return;
      seen.add(m);
      const from = this.execution.messages[m], to = this.execution.messages[m + 1];
      if (column[this.execution.node[from]] < 0 || column[this.execution.node[to]] < 0) return;
      if (this.execution.row[to] < first || this.execution.row[from] > last) return;
      const related = this.relations && this.relations[from] && this.relations[to];
      (related ? strong : faint).push(m);
    };
    for (let block = first >> 6; block <= last >> 6; block++) (this.execution.blocks.get(block) || []).forEach(look);
    this.execution.long.forEach(look);
    for (const [messages, style, width] of [[faint, colour.message, 0.8], [strong, colour.past, 1.4]]) {
      context.strokeStyle = style;
      context.globalAlpha = messages === faint && this.relations ? 0.45 : 1;
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
      path.forEach((e, at) => {
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

  paintEvent(context, colour, e, x, y, radius, labels) {
    const relation = this.relations ? this.relations[e] : -1;
    const mark = this.execution.marks[e], own = this.own.has(e);
    const pale = (this.dimmed && !this.dimmed[e]) || relation === 0;
    context.globalAlpha = pale && !own ? 0.3 : 1;
    let fill = [colour.event, colour.match, colour.violation, colour.other][mark];
    if (relation === 1) fill = colour.past;
    if (relation === 2) fill = colour.future;
    if (mark && own) fill = [colour.event, colour.match, colour.violation, colour.other][mark];
    context.fillStyle = fill;
    context.beginPath();
    const size = own ? radius + 2 : radius;
    if (mark === 1) diamond(context, x, y, size + 1);
    else if (mark === 2) triangle(context, x, y, size + 1.5);
    else if (mark === 3) context.rect(x - size, y - size, 2 * size, 2 * size);
    else context.arc(x, y, size, 0, 2 * Math.PI);
    context.fill();
    if (own || e === this.chosen) {
      context.strokeStyle = colour.chosen;
      context.lineWidth = e === this.chosen ? 2.5 : 1.5;
      context.beginPath();
      context.arc(x, y, size + 4, 0, 2 * Math.PI);
      context.stroke();
    }
    if (labels) {
      context.fillStyle = pale && !own ? colour.faint : colour.text;
      context.strokeStyle = colour.ground;
      context.lineWidth = 3;
      const text = this.execution.types[this.execution.type[e]];
      const most = Math.max(4, Math.floor((this.columnWidth - 24) / 6));
      const label = text.length > most ? `${text.slice(0, most - 1)}…` : text;
      context.strokeText(label, x + 11, y);
      context.fillText(label, x + 11, y);
    }
    context.globalAlpha = 1;
  }
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
