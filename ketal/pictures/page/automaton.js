const SCOPES_SHOWN = 20;

/* A check: its picture, and the states of the runs of its scopes after an event. */
class Automaton {
  constructor(data, execution) {
    const { name } = data, { picture, states, idle } = page.checks[name];
    Object.assign(this, { data, execution, name, states, idle });
    this.follow(data);
    this.drawing = makeElement("div", { innerHTML: picture });
    this.list = makeElement("ul");
    this.list.setAttribute("aria-live", "polite");
    this.box = makeElement("details", { open: true, className: "automaton" }, makeElement("summary", {}, name), this.drawing, this.list);
  }

  /* Use these moves: those in the order of the log, or in the order that gives a verdict. */
  follow({ order, scopes, moves, more }) {
    this.position = new Int32Array(this.execution.count).fill(-1);
    order.forEach((e, position) => { this.position[e] = position; });
    Object.assign(this, { scopes, more });
    this.ofScope = scopes.map(() => []);
    for (const move of moves) this.ofScope[move[1]].push(move);
  }

  /* Show the state of each run after an event was offered, the runs that it moved first. */
  play(e) {
    const position = this.position[e], live = new Set(), left = new Set();
    const rows = [];
    this.ofScope.forEach((moves, scope) => {
      let low = 0, high = moves.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (moves[middle][0] <= position) low = middle + 1; else high = middle;
      }
      const last = low ? moves[low - 1] : null, states = last ? last[4] : [0];
      const moved = last && last[0] === position ? last : null;
      states.forEach((state) => live.add(state));
      if (moved) moved[3].forEach((state) => left.add(state));
      rows.push([scope, states, moved]);
    });
    for (const drawn of this.drawing.querySelectorAll("[data-state]")) {
      const state = Number(drawn.dataset.state);
      drawn.classList.toggle("live", live.has(state));
      drawn.classList.toggle("left", left.has(state) && !live.has(state));
    }
    rows.sort((a, b) => (b[2] ? 1 : 0) - (a[2] ? 1 : 0) || a[0] - b[0]);
    const items = rows.slice(0, SCOPES_SHOWN).map(([scope, states, moved]) => {
      const named = (ones) => ones.map((state) => this.states[state]).join(", ") || "ended";
      const by = moved ? `${named(moved[3])} → ${named(states)} by ${this.execution.dot(moved[2])}` : named(states);
      return makeElement("li", { className: moved ? "moved" : "" }, `${this.scopes[scope] || this.name}: ${by}`);
    });
    if (!rows.length) items.push(makeElement("li", {}, this.idle));
    const others = rows.length - items.length;
    if (others > 0 || this.more) {
      items.push(makeElement("li", {}, [others > 0 ? `… and ${counted(others, "more run")}` : "",
        this.more ? `the last ${numberText(this.more)} moves are not shown (limit viewed_moves_max)` : ""].filter(Boolean).join("; ")));
    }
    this.list.replaceChildren(...items);
  }
}
