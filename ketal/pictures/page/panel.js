const $ = (id) => document.getElementById(id);
const page = JSON.parse($("data").textContent);
const VERDICTS_SHOWN = 500, DIFFERENCES_SHOWN = 20, MESSAGES_SHOWN = 20, VERDICTS_OF_EVENT_SHOWN = 5, TYPES_SHOWN = 200;

/* The panel beside the diagrams: the active diagram's execution, its verdicts and the selection. */
class Panel {
  constructor() {
    this.first = this.diagramOf($("first"));
    this.second = this.diagramOf($("second"));
    this.diagram = this.first;
    this.verdict = -1;
    this.hiddenTypes = new Set();
    this.setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    page.executions.forEach((execution, number) => {
      const name = execution.name || `execution ${number + 1}`;
      for (const list of ["execution", "beside"]) $(list).append(new Option(printable(name), number));
    });
    for (const list of ["execution", "beside"]) $(list).parentElement.hidden = page.executions.length < 2;
    $("execution").addEventListener("change", () => { this.open(this.first, Number($("execution").value)); this.write(""); });
    $("beside").addEventListener("change", () => { this.showBeside(Number($("beside").value)); this.write(""); });
    $("find").addEventListener("input", () => this.find());
    $("find").addEventListener("keydown", (event) => { if (event.key === "Enter") this.nextFound(); });
    $("theme").addEventListener("click", () => this.toggleTheme());
    $("keys").addEventListener("click", () => $("help").showModal());
    document.addEventListener("keydown", (event) => this.key(event));
    for (const [name, key] of [["back", "ArrowUp"], ["forward", "ArrowDown"]]) {
      $(name).addEventListener("click", () => this.key(new KeyboardEvent("keydown", { key })));
    }
    addEventListener("hashchange", () => this.follow());
    this.open(this.first, 0);
    this.follow();
  }

  get execution() { return this.diagram.execution; }

  get other() { return this.diagram === this.first ? this.second : this.first; }

  diagramOf(section) {
    const diagram = new Diagram(section, (e) => { this.activate(diagram); this.chooseEvent(e); });
    diagram.canvas.addEventListener("focus", () => this.activate(diagram));
    return diagram;
  }

  /* Show an execution in a diagram. */
  open(diagram, number) {
    diagram.show(new Execution(page.executions[number]));
    diagram.number = number;
    if (diagram === this.first) $("execution").value = number;
    this.diagram = null;
    this.activate(diagram);
    this.compare();
  }

  showBeside(number) {
    $("beside").value = number;
    $("second").hidden = number < 0;
    if (number >= 0) this.open(this.second, number);
    else this.second.execution = null;
    this.activate(this.first);
    this.compare();
    this.first.resize();
  }

  /* Make a diagram the active one, which the panel describes. */
  activate(diagram) {
    if (this.diagram === diagram) return;
    this.diagram = diagram;
    for (const one of [this.first, this.second]) one.section.classList.toggle("active", one === diagram);
    this.verdict = -1;
    this.played = null; // the order of a chosen verdict, with the moves of its check
    const { count, nodes, verdicts, more, rejected, note } = this.execution;
    const records = rejected ? `; ${counted(rejected, "record")} rejected` : "";
    $("counts").textContent = `${counted(count, "event")}, ${counted(nodes.length, "node")}${records}${printable(note && `; ${note}`)}`;
    const all = verdicts.length + more;
    $("verdict-count").textContent = all ? `Verdicts (${numberText(all)})` : page.judged ? "No verdicts" : "No pattern";
    this.listVerdicts();
    this.listTypes();
    this.automata = this.execution.automata.map((one) => new Automaton(one, this.execution));
    $("automata").replaceChildren(...this.automata.map((one) => one.box));
    this.find();
    this.showDetails(null);
  }

  /* --- two executions --- */

  compare() {
    const { first, second } = this, both = Boolean(second.execution);
    for (const one of [first, second]) {
      one.section.classList.toggle("compared", both);
      one.peers = null;
      one.peer = -1;
    }
    $("differences").hidden = !both;
    if (both) {
      const [ofFirst, ofSecond, unaligned] = counterparts(first.execution, second.execution);
      [first.peers, second.peers] = [ofFirst, ofSecond];
      this.listDifferences(unaligned);
      second.draw();
    }
    first.draw();
  }

  listDifferences(unaligned) {
    const lines = [this.first, this.second].map((one) => {
      const alone = [...one.peers.keys()].filter((e) => one.peers[e] < 0);
      const name = one.execution.name || `execution ${one.number + 1}`;
      const links = this.links(alone, DIFFERENCES_SHOWN, (e) => [
        `${one.execution.dot(e)} ${one.execution.types[one.execution.type[e]]}`,
        () => { this.activate(one); this.chooseEvent(e); },
      ]);
      const counts = `only in ${name}: ${numberText(alone.length)} of ${numberText(one.execution.count)} events`;
      return makeElement("p", {}, counts, links);
    });
    if (unaligned.length) {
      lines.push(makeElement("p", {}, `${unaligned.join(", ")}: more than ${numberText(EDITS_MAX)} differences; only the common beginning and end are paired`));
    }
    $("differences").replaceChildren(makeElement("h2", {}, "Differences"), ...lines);
  }

  /* Mark the counterpart of an event in the other diagram. */
  markPeer(e) {
    if (!this.diagram.peers) return;
    const { other } = this;
    other.peer = e < 0 ? -1 : this.diagram.peers[e];
    this.diagram.peer = -1;
    if (other.peer >= 0) other.goTo(other.peer);
    other.draw();
  }

  /* --- choosing --- */

  chooseEvent(e, { keep = false, again = true } = {}) {
    if (!keep) {
      this.verdict = -1;
      this.diagram.own = new Set();
      this.diagram.paths = [];
      this.markVerdict();
      this.playVerdict(null);
    }
    this.diagram.chosen = e;
    this.diagram.relations = e < 0 ? null : this.execution.relations(e);
    if (again && !keep) this.findAgain();
    this.markPeer(e);
    if (e < 0) { this.showDetails(null); this.write(""); this.diagram.draw(); return; }
    this.describeEvent(e);
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
    this.findAgain();
    this.markPeer(-1);
    if (verdict.events.length) this.diagram.goTo(verdict.events[verdict.events.length - 1]);
    this.diagram.draw();
    this.markVerdict();
    this.describeVerdict(verdict);
    const check = this.automata.find((one) => one.name === verdict.pattern);
    if (check) $("automata").prepend(check.box);
    $("chosen").scrollIntoView({ block: "nearest" });
    this.playVerdict(verdict.play);
    if (verdict.events.length) for (const one of this.automata) one.play(verdict.events[verdict.events.length - 1]);
    this.write(`verdict=${verdict.id}`);
  }

  /* Step through the order of events that gives a verdict; null for the canonical order. */
  playVerdict(play) {
    if (this.played === play) return;
    this.played = play;
    this.automata.forEach((one, number) => one.follow(play && play.automaton === number ? play : one.data));
  }

  write(fragment) {
    if (location.protocol === "about:") return; // the frame of a notebook has no address to write to
    const parts = [fragment];
    if (page.executions.length > 1) {
      parts.push(`execution=${this.first.number}`, `beside=${$("beside").value}`);
      if (this.diagram === this.second) parts.push("side=second");
    }
    history.replaceState(null, "", `#${parts.filter(Boolean).join("&")}`);
  }

  follow() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const number = Number(wanted.get("execution") || 0), beside = Number(wanted.get("beside") || page.beside);
    if (page.executions[number] && number !== this.first.number) this.open(this.first, number);
    if ((page.executions[beside] || beside < 0) && String(beside) !== $("beside").value) this.showBeside(beside);
    this.activate(wanted.get("side") === "second" && this.second.execution ? this.second : this.first);
    if (wanted.has("verdict")) {
      const id = wanted.get("verdict"), at = this.execution.verdicts.findIndex((one) => one.id === id);
      if (at >= 0) this.chooseVerdict(at); else this.miss(`No verdict with the id ${id} is shown.`);
    } else if (wanted.has("event")) {
      const name = wanted.get("event"), e = this.execution.names.get(name);
      if (e !== undefined) this.chooseEvent(e); else this.miss(`There is no event ${name}.`);
    }
  }

  /* Select nothing, and say why. */
  miss(why) {
    this.chooseEvent(-1);
    this.showDetails([inOrder(why)]);
  }

  /* --- the details --- */

  showDetails(content) {
    const box = $("chosen");
    if (content) { box.replaceChildren(...content); return; }
    box.textContent = "Select an event or a verdict: click on it, use the arrow keys, or add #event=n3@7 to the address of this page.";
  }

  describeEvent(e) {
    const { execution } = this, rows = makeElement("dl");
    const add = (name, value) => {
      if (value === "" || value === null || value === undefined) return;
      rows.append(makeElement("dt", {}, name), makeElement("dd", {}, value));
    };
    add("event", execution.dot(e));
    add("type", execution.types[execution.type[e]]);
    add("place", execution.place(e));
    add("time", timeText(execution.time[e]));
    add("id", execution.id[e]);
    const clock = [...execution.clock(e)].sort((a, b) => a[0] - b[0]);
    add("clock", clock.map(([node, count]) => `${execution.nodeName(node)}:${count}`).join(", "));
    for (const [name, value] of Object.entries(execution.data[e] || {})) add(name, JSON.stringify(value));
    const from = [], to = [];
    for (let m = 0; m < execution.messages.length; m += 2) {
      if (execution.messages[m + 1] === e) from.push(execution.messages[m]);
      if (execution.messages[m] === e) to.push(execution.messages[m + 1]);
    }
    if (this.played) {
      const position = this.played.order.indexOf(e);
      add("position", position < 0 ? "" : `${numberText(position + 1)} of ${numberText(this.played.order.length)} in this order`);
    }
    const may = execution.undecided ? "may be " : "";
    add(may ? "may have received from" : "received from", this.dots(from));
    add(may ? "may have sent to" : "sent to", this.dots(to));
    const of = execution.verdicts.map((one, n) => [one, n]).filter(([one]) => one.events.includes(e));
    add("part of", this.links(of, VERDICTS_OF_EVENT_SHOWN, ([one, n]) => [one.text, () => this.chooseVerdict(n)]));
    const count = [0, 0, 0];
    this.diagram.relations.forEach((relation) => { if (relation < 3) count[relation]++; });
    const past = makeElement("span", { className: "past" }, `${numberText(count[1])} ${may}in its past`);
    const future = makeElement("span", { className: "future" }, `${numberText(count[2])} ${may}in its future`);
    this.showDetails([rows, makeElement("p", { className: "legend" }, past, ", ", future, `, ${numberText(count[0])} concurrent`)]);
  }

  describeVerdict(verdict) {
    const lines = makeElement("pre", {}, ...verdict.lines.flatMap((line) => [...this.withEventButtons(line), "\n"]));
    if (!verdict.play) { this.showDetails([lines]); return; }
    const onclick = () => { this.chooseEvent(verdict.play.order[0], { keep: true }); this.diagram.canvas.focus(); };
    this.showDetails([lines, makeElement("button", { type: "button", onclick }, "Step through this order")]);
  }

  /* A line of an explanation, in which the names of events are buttons that choose them. */
  withEventButtons(line) {
    const parts = [];
    let from = 0;
    for (const found of line.matchAll(this.execution.dotPattern)) {
      const e = this.execution.names.get(found[0]);
      if (e === undefined) continue;
      parts.push(line.slice(from, found.index), this.dotButton(e));
      from = found.index + found[0].length;
    }
    return [...parts, line.slice(from)];
  }

  dotButton(e) { return this.button(this.execution.dot(e), () => this.chooseEvent(e, { keep: true })); }

  button(text, act) { return makeElement("button", { type: "button", className: "dot", onclick: act }, text); }

  dots(events) { return this.links(events, MESSAGES_SHOWN, (e) => [this.execution.dot(e), () => this.chooseEvent(e)]); }

  /* Links to the first `most` of some items, and the number of the others; "" if there is no item.
     `linkOf` returns the text of an item's link and what a click on it does. */
  links(items, most, linkOf) {
    if (!items.length) return "";
    const links = items.slice(0, most).flatMap((one) => [this.button(...linkOf(one)), " "]);
    return makeElement("span", {}, ...links, items.length > most ? moreText(items.length - most) : "");
  }

  /* --- the lists --- */

  listVerdicts() {
    const items = this.execution.verdicts.slice(0, VERDICTS_SHOWN).map((verdict, number) => {
      const properties = { type: "button", className: verdict.kind, onclick: () => this.chooseVerdict(number) };
      return makeElement("li", {}, makeElement("button", properties, verdict.text));
    });
    const left = this.execution.verdicts.length + this.execution.more - items.length;
    if (left > 0) items.push(makeElement("li", {}, moreText(left)));
    $("verdicts").replaceChildren(...items);
  }

  markVerdict() {
    document.querySelectorAll("#verdicts button").forEach((button, number) => {
      if (number !== this.verdict) { button.removeAttribute("aria-current"); return; }
      button.setAttribute("aria-current", "true");
      button.scrollIntoView({ block: "nearest" });
    });
  }

  listTypes() {
    const counts = new Map();
    this.execution.type.forEach((type) => counts.set(type, (counts.get(type) || 0) + 1));
    const types = [...counts].sort((a, b) => b[1] - a[1]);
    this.hiddenTypes = new Set();
    $("types").replaceChildren(...types.slice(0, TYPES_SHOWN).map(([type, count]) => {
      const box = makeElement("input", { type: "checkbox", checked: true });
      box.addEventListener("change", () => {
        if (box.checked) this.hiddenTypes.delete(type); else this.hiddenTypes.add(type);
        this.find();
      });
      return makeElement("label", {}, box, ` ${this.execution.types[type]} (${numberText(count)})`);
    }), types.length > TYPES_SHOWN ? moreText(types.length - TYPES_SHOWN) : "");
  }

  /* --- finding --- */

  find() {
    const text = $("find").value.trim(), { execution, verdict } = this, history = this.searchHistory();
    this.searched = { history, verdict };
    if (!text && !this.hiddenTypes.size) {
      this.diagram.dimmed = null;
      $("found").textContent = "";
      this.diagram.draw();
      return;
    }
    const [holds, how] = this.searchPredicate(text, history);
    const found = new Uint8Array(execution.count);
    let count = 0;
    try {
      for (let e = 0; e < execution.count; e++) {
        if (this.hiddenTypes.has(execution.type[e]) || !holds(e)) continue;
        found[e] = 1;
        count++;
      }
      $("found").textContent = printable(`${counted(count, "event")} found${how}`);
      this.diagram.dimmed = found;
    } catch (error) {
      if (!(error instanceof GuardError)) throw error;
      $("found").textContent = printable(error.message);
      this.diagram.dimmed = null;
    }
    this.diagram.draw();
  }

  /* Repeat a search whose result may depend on the selection, which changed. */
  findAgain() { if (this.searched.history.used || this.searched.verdict !== this.verdict) this.find(); }

  /* The predicate of a search text, and how it was read: as a guard, or otherwise as text. */
  searchPredicate(text, history) {
    const { execution } = this;
    if (!text) return [() => true, ""];
    try {
      const guard = new GuardReader(text, this.namedGuards()).read();
      return [(e) => guard(new Moment(execution, e, history)) === true, " (guard)"];
    } catch (error) {
      if (!(error instanceof GuardError)) throw error;
      const small = text.toLowerCase(), types = execution.types.map((type) => type.toLowerCase().includes(small));
      const holds = (e) => types[execution.type[e]] || execution.dot(e).toLowerCase().includes(small)
        || (execution.data[e] && JSON.stringify(execution.data[e]).toLowerCase().includes(small));
      return [holds, /[=<>&|()!]/.test(text) ? ` (text; not a guard: ${error.message})` : " (text)"];
    }
  }

  /* The guards that a search may name: those of the chosen verdict's pattern, or of all patterns. */
  namedGuards() {
    // Without a prototype: patterns may declare `constructor`, or any other name that it has.
    const out = Object.create(null), chosen = this.execution.verdicts[this.verdict];
    for (const own of Object.values(page.guards)) {
      for (const [name, text] of Object.entries(own)) out[name] = name in out && out[name] !== text ? null : text;
    }
    return chosen ? { ...out, ...page.guards[chosen.pattern] } : out;
  }

  /* The history of the guards of a search: the chosen verdict's steps, or the chosen event. */
  searchHistory() {
    const chosen = this.execution.verdicts[this.verdict], { chosen: e } = this.diagram;
    return new BoundEvents(chosen ? chosen.events.map((one, n) => [chosen.steps[n], one]) : e < 0 ? [] : [["", e]]);
  }

  /* Choose the next event found; the search stays relative to the selection before. */
  nextFound() { if (this.diagram.dimmed) this.chooseNext((e) => this.diagram.dimmed[e], { again: false }); }

  nextDifference() { if (this.diagram.peers) this.chooseNext((e) => this.diagram.peers[e] < 0); }

  /* Choose the first event after the chosen one, or from the beginning, for which `wanted` holds. */
  chooseNext(wanted, options) {
    const { chosen } = this.diagram, { count } = this.execution;
    for (let step = 1; step <= count; step++) {
      const e = (chosen + step + count) % count;
      if (wanted(e)) { this.chooseEvent(e, options); return; }
    }
  }

  /* --- keys --- */

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
    if (event.key === "Escape") { document.activeElement.blur(); this.chooseEvent(-1); return; }
    if (typing) return;
    const { chosen } = this.diagram, last = this.execution.count - 1, height = this.diagram.canvas.clientHeight;
    // Where no event is selected, one steps from the last event of the selected verdict.
    const own = chosen < 0 && this.verdict >= 0 ? this.execution.verdicts[this.verdict].events : [chosen];
    const from = own.length ? own[own.length - 1] : -1;
    const step = (by) => {
      const order = this.played && this.played.order, most = order ? order.length - 1 : last;
      const at = order ? order.indexOf(chosen) : from;
      const next = Math.min(most, Math.max(0, at < 0 ? 0 : at + by)); // -1 where there is no event
      this.chooseEvent(order ? order[next] : next, { keep: Boolean(order) });
    };
    const along = (by) => {
      if (from < 0) { step(0); return; }
      const ofNode = this.execution.ofNode[this.execution.node[from]];
      const next = ofNode[ofNode.indexOf(from) + by];
      if (next !== undefined) this.chooseEvent(next);
    };
    const verdict = (by) => this.chooseVerdict(Math.max(0, Math.min(this.execution.verdicts.length - 1, this.verdict + by)));
    const acts = {
      ArrowDown: () => step(1), j: () => step(1), ArrowUp: () => step(-1), k: () => step(-1),
      ArrowRight: () => along(1), l: () => along(1), ArrowLeft: () => along(-1), h: () => along(-1),
      n: () => verdict(1), p: () => verdict(-1), d: () => this.nextDifference(),
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
    for (const one of [this.first, this.second]) if (one.execution) one.draw();
  }

  toggleTheme() { this.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); }
}

/* Seconds since the epoch as RFC 3339 in UTC, to the microsecond. */
function timeText(seconds) {
  if (seconds === null) return "";
  const us = Math.round(seconds * 1e6), whole = Math.floor(us / 1e6), rest = us - whole * 1e6;
  const text = new Date(whole * 1000).toISOString().slice(0, 19);
  return `${text}${rest ? `.${String(rest).padStart(6, "0").replace(/0+$/, "")}` : ""}Z`;
}

window.ketal = new Panel();
