/* What is beside the diagram: choosing, finding, filtering, the verdicts and the keys. */
const $ = (id) => document.getElementById(id);
const page = JSON.parse($("data").textContent);
const VERDICTS_SHOWN = 500, SCOPES_SHOWN = 20;

/* A check: its picture, and the states in which the runs of its scopes are after an event. */
class Automaton {
  constructor(data, execution) {
    Object.assign(this, data);
    this.execution = execution;
    this.position = new Int32Array(execution.count).fill(-1);
    this.order.forEach((e, position) => { this.position[e] = position; });
    this.ofScope = this.scopes.map(() => []);
    for (const move of this.moves) this.ofScope[move[1]].push(move);
    this.box = document.createElement("details");
    this.box.open = true;
    this.box.className = "automaton";
    const head = document.createElement("summary");
    head.textContent = this.name;
    this.drawing = document.createElement("div");
    this.drawing.innerHTML = this.picture;
    this.list = document.createElement("ul");
    this.list.setAttribute("aria-live", "polite");
    this.box.append(head, this.drawing, this.list);
  }

  /* Show where each run is once an event was offered; those first that it moved. */
  play(e) {
    const position = this.position[e], live = new Set();
    const rows = [];
    this.ofScope.forEach((moves, scope) => {
      let low = 0, high = moves.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (moves[middle][0] <= position) low = middle + 1; else high = middle;
      }
      const last = low ? moves[low - 1] : null, states = last ? last[4] : [0];
      states.forEach((state) => live.add(state));
      rows.push([scope, states, last && last[0] === position ? last : null]);
    });
    if (!rows.length) live.add(0);
    for (const drawn of this.drawing.querySelectorAll("[data-state]")) {
      drawn.classList.toggle("live", live.has(Number(drawn.dataset.state)));
    }
    rows.sort((a, b) => (b[2] ? 1 : 0) - (a[2] ? 1 : 0) || a[0] - b[0]);
    const items = rows.slice(0, SCOPES_SHOWN).map(([scope, states, moved]) => {
      const item = document.createElement("li"), of = this.scopes[scope];
      const named = (ones) => ones.map((state) => this.states[state]).join(", ") || "ended";
      const by = moved ? `: ${named(moved[3])} → ${named(states)} by ${this.execution.dot(moved[2])}` : `: ${named(states)}`;
      item.textContent = `${of || this.name}${by}`;
      if (moved) item.className = "moved";
      return item;
    });
    const left = rows.length - items.length;
    if (left > 0 || this.more) {
      const item = document.createElement("li");
      item.textContent = [left > 0 ? `… and ${left.toLocaleString("en")} more runs` : "",
        this.more ? `the last ${this.more.toLocaleString("en")} moves are not kept (limit viewed_moves_max)` : ""].filter(Boolean).join("; ");
      items.push(item);
    }
    this.list.replaceChildren(...items);
  }
}

class Panel {
  constructor() {
    this.diagram = new Diagram($("canvas"), $("heads"), (e) => this.chooseEvent(e));
    this.verdict = -1;
    this.hiddenTypes = new Set();
    this.setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    page.executions.forEach((execution, number) => {
      const name = execution.name || `execution ${number + 1}`;
      $("execution").append(new Option(name, number));
    });
    $("execution").parentElement.hidden = page.executions.length < 2;
    $("execution").addEventListener("change", () => this.open(Number($("execution").value)));
    $("find").addEventListener("input", () => this.find());
    $("find").addEventListener("keydown", (event) => { if (event.key === "Enter") this.nextFound(); });
    $("theme").addEventListener("click", () => this.toggleTheme());
    $("keys").addEventListener("click", () => $("help").showModal());
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => this.follow());
    this.open(0);
    this.follow();
  }

  open(number) {
    this.execution = new Execution(page.executions[number]);
    $("execution").value = number;
    this.verdict = -1;
    this.diagram.show(this.execution);
    const { count, nodes, verdicts, more } = this.execution;
    $("counts").textContent = `${count.toLocaleString("en")} events, ${nodes.length} nodes`;
    const all = verdicts.length + more;
    $("verdict-count").textContent = all ? `Verdicts (${all.toLocaleString("en")})` : page.judged ? "No verdicts" : "No pattern";
    this.listVerdicts();
    this.listTypes();
    this.automata = this.execution.automata.map((one) => new Automaton(one, this.execution));
    $("automata").replaceChildren(...this.automata.map((one) => one.box));
    this.find();
    this.tell(null);
  }

  /* --- choosing --- */

  chooseEvent(e, { keep = false } = {}) {
    if (!keep) { this.verdict = -1; this.diagram.own = new Set(); this.diagram.paths = []; this.markVerdict(); }
    this.diagram.chosen = e;
    this.diagram.relations = e < 0 ? null : this.execution.relations(e);
    if (e < 0) { this.tell(null); this.write(""); this.diagram.draw(); return; }
    this.tellEvent(e);
    for (const one of this.automata) one.play(e);
    this.diagram.goTo(e);
    if (!keep) this.write(`event=${encodeURIComponent(this.execution.dot(e))}`);
  }

  chooseVerdict(number) {
    const verdict = this.execution.verdicts[number];
    if (!verdict) return;
    this.verdict = number;
    this.diagram.own = new Set(verdict.events);
    this.diagram.paths = verdict.paths;
    this.diagram.chosen = -1;
    this.diagram.relations = null;
    if (verdict.events.length) this.diagram.goTo(verdict.events[verdict.events.length - 1]);
    this.diagram.draw();
    this.markVerdict();
    this.tellVerdict(verdict);
    if (verdict.events.length) for (const one of this.automata) one.play(verdict.events[verdict.events.length - 1]);
    this.write(`verdict=${verdict.id}`);
  }

  write(fragment) {
    const parts = [fragment, page.executions.length > 1 ? `execution=${$("execution").value}` : ""];
    history.replaceState(null, "", `#${parts.filter(Boolean).join("&")}`);
  }

  follow() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const number = Number(wanted.get("execution") || 0);
    if (page.executions[number] && String(number) !== $("execution").value) this.open(number);
    if (wanted.has("verdict")) this.chooseVerdict(this.execution.verdicts.findIndex((one) => one.id === wanted.get("verdict")));
    else if (wanted.has("event")) {
      const e = this.execution.names.get(wanted.get("event"));
      if (e !== undefined) this.chooseEvent(e);
    }
  }

  /* --- what is said --- */

  tell(content) {
    const box = $("chosen");
    if (content) { box.replaceChildren(...content); return; }
    box.textContent = "Choose an event or a verdict: by a click, by the arrow keys, or by the address of this page.";
  }

  tellEvent(e) {
    const { execution } = this, rows = document.createElement("dl");
    const add = (name, value) => {
      if (value === "" || value === null || value === undefined) return;
      const term = document.createElement("dt"), text = document.createElement("dd");
      term.textContent = name;
      if (value instanceof Node) text.append(value); else text.textContent = value;
      rows.append(term, text);
    };
    add("event", execution.dot(e));
    add("type", execution.types[execution.type[e]]);
    add("place", execution.place(e));
    add("time", execution.time[e]);
    add("id", execution.id[e]);
    const clock = [...execution.clock(e)].sort((a, b) => a[0] - b[0]);
    add("clock", clock.map(([node, count]) => `${execution.nodeName(node)}:${count}`).join(", "));
    for (const [name, value] of Object.entries(execution.data[e] || {})) add(name, JSON.stringify(value));
    const from = [], to = [];
    for (let m = 0; m < execution.messages.length; m += 2) {
      if (execution.messages[m + 1] === e) from.push(execution.messages[m]);
      if (execution.messages[m] === e) to.push(execution.messages[m + 1]);
    }
    add("received", this.dots(from));
    add("sent to", this.dots(to));
    const of = execution.verdicts.map((one, n) => [one, n]).filter(([one]) => one.events.includes(e)).slice(0, 5);
    add("in", of.length ? this.links(of.map(([one, n]) => [one.text, () => this.chooseVerdict(n)])) : "");
    const count = [0, 0, 0];
    this.diagram.relations.forEach((relation) => { if (relation < 3) count[relation]++; });
    const legend = document.createElement("p");
    legend.className = "legend";
    legend.innerHTML = `<span class="past">${count[1]} in its past</span>, <span class="future">${count[2]} in its future</span>, ${count[0]} concurrent`;
    this.tell([rows, legend]);
  }

  tellVerdict(verdict) {
    const lines = document.createElement("pre");
    for (const line of verdict.lines) lines.append(...this.linked(line), "\n");
    this.tell([lines]);
  }

  /* A line of an explanation, in which the names of events choose them. */
  linked(line) {
    const parts = [];
    let from = 0;
    for (const found of line.matchAll(/[^\s(),=]+@\d+/g)) {
      const e = this.execution.names.get(found[0]);
      if (e === undefined) continue;
      parts.push(line.slice(from, found.index), this.dotButton(e));
      from = found.index + found[0].length;
    }
    return [...parts, line.slice(from)];
  }

  dotButton(e) { return this.button(this.execution.dot(e), () => this.chooseEvent(e, { keep: true })); }

  button(text, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "dot";
    button.textContent = text;
    button.addEventListener("click", act);
    return button;
  }

  dots(events) { return events.length ? this.links(events.slice(0, 20).map((e) => [this.execution.dot(e), () => this.chooseEvent(e)])) : ""; }

  links(pairs) {
    const box = document.createElement("span");
    pairs.forEach(([text, act]) => box.append(this.button(text, act), " "));
    return box;
  }

  /* --- the lists --- */

  listVerdicts() {
    const items = this.execution.verdicts.slice(0, VERDICTS_SHOWN).map((verdict, number) => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.className = verdict.kind;
      button.textContent = verdict.text;
      button.addEventListener("click", () => this.chooseVerdict(number));
      item.append(button);
      return item;
    });
    const left = this.execution.verdicts.length + this.execution.more - items.length;
    if (left > 0) {
      const item = document.createElement("li");
      item.textContent = `… and ${left.toLocaleString("en")} more`;
      items.push(item);
    }
    $("verdicts").replaceChildren(...items);
  }

  markVerdict() {
    document.querySelectorAll("#verdicts button").forEach((button, number) => {
      if (number === this.verdict) { button.setAttribute("aria-current", "true"); button.scrollIntoView({ block: "nearest" }); }
      else button.removeAttribute("aria-current");
    });
  }

  listTypes() {
    const counts = new Map();
    this.execution.type.forEach((type) => counts.set(type, (counts.get(type) || 0) + 1));
    const types = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 200);
    this.hiddenTypes = new Set();
    $("types").replaceChildren(...types.map(([type, count]) => {
      const label = document.createElement("label"), box = document.createElement("input");
      box.type = "checkbox";
      box.checked = true;
      box.addEventListener("change", () => {
        if (box.checked) this.hiddenTypes.delete(type); else this.hiddenTypes.add(type);
        this.find();
      });
      label.append(box, ` ${this.execution.types[type]} (${count.toLocaleString("en")})`);
      return label;
    }));
  }

  /* --- finding --- */

  find() {
    const text = $("find").value.trim().toLowerCase(), { execution } = this;
    if (!text && !this.hiddenTypes.size) {
      this.diagram.dimmed = null;
      $("found").textContent = "";
    } else {
      const types = execution.types.map((type) => type.toLowerCase().includes(text));
      const found = new Uint8Array(execution.count);
      let count = 0;
      for (let e = 0; e < execution.count; e++) {
        if (this.hiddenTypes.has(execution.type[e])) continue;
        const data = execution.data[e];
        found[e] = types[execution.type[e]] || execution.dot(e).toLowerCase().includes(text) || (data && JSON.stringify(data).toLowerCase().includes(text)) ? 1 : 0;
        count += found[e];
      }
      this.diagram.dimmed = found;
      $("found").textContent = `${count.toLocaleString("en")} found`;
    }
    this.diagram.draw();
  }

  nextFound() {
    const found = this.diagram.dimmed, { count } = this.execution;
    for (let step = 1; found && step <= count; step++) {
      const e = (this.diagram.chosen + step + count) % count;
      if (found[e]) { this.chooseEvent(e); return; }
    }
  }

  /* --- keys --- */

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
    if (event.key === "Escape") { document.activeElement.blur(); this.chooseEvent(-1); return; }
    if (typing) return;
    const { chosen } = this.diagram, last = this.execution.count - 1, height = this.diagram.canvas.clientHeight;
    const step = (by) => this.chooseEvent(Math.max(0, Math.min(last, chosen < 0 ? 0 : chosen + by)));
    const along = (by) => {
      if (chosen < 0) { step(0); return; }
      const own = this.execution.ofNode[this.execution.node[chosen]];
      const next = own[own.indexOf(chosen) + by];
      if (next !== undefined) this.chooseEvent(next);
    };
    const verdict = (by) => this.chooseVerdict(Math.max(0, Math.min(this.execution.verdicts.length - 1, this.verdict + by)));
    const acts = {
      ArrowDown: () => step(1), j: () => step(1), ArrowUp: () => step(-1), k: () => step(-1),
      ArrowRight: () => along(1), l: () => along(1), ArrowLeft: () => along(-1), h: () => along(-1),
      n: () => verdict(1), p: () => verdict(-1),
      "+": () => this.diagram.zoom(1.25, height / 2), "-": () => this.diagram.zoom(0.8, height / 2), 0: () => this.diagram.reset(),
      PageDown: () => this.diagram.move(0, height * 0.9), PageUp: () => this.diagram.move(0, -height * 0.9),
      Home: () => this.diagram.move(0, -1e9), End: () => this.diagram.move(0, 1e9),
      "/": () => $("find").focus(), t: () => this.toggleTheme(), "?": () => $("help").showModal(),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    $("theme").textContent = theme === "dark" ? "Light" : "Dark";
    if (this.diagram.execution) this.diagram.draw();
  }

  toggleTheme() { this.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); }
}

window.ketal = new Panel();
