"use strict";

/* A new element of the page, with properties and children. */
function makeElement(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.map((child) => (typeof child === "string" ? inOrder(child) : child)));
  return element;
}

/* A text with an escape for each format character: some of them change the direction of writing. */
function printable(text) {
  return text.replace(/\p{Cf}/gu, (one) => {
    const code = one.codePointAt(0), digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    return `\\${{ 2: "x", 4: "u", 8: "U" }[digits]}${code.toString(16).padStart(digits, "0")}`;
  });
}

/* A printable text with a left-to-right mark after words that are written from right to left:
   without it, the numbers and signs after such a name would be shown before it. */
function inOrder(text) { return printable(text).replace(RIGHT_TO_LEFT, "$&\u200e"); }

const LETTER = "[\\u0590-\\u08ff\\ufb1d-\\ufdff\\ufe70-\\ufefc\\u{10800}-\\u{10fff}\\u{1e800}-\\u{1efff}]";
const RIGHT_TO_LEFT = new RegExp(`${LETTER}+(?:[ …]+${LETTER}+)*(?!$|[ …]*${LETTER})`, "gu");

function numberText(number) { return number.toLocaleString("en"); }

function moreText(number) { return `… and ${numberText(number)} more`; }

function counted(number, word) { return `${numberText(number)} ${word}${number === 1 ? "" : "s"}`; }

/* One execution, read from the data of the page: an event is its index in canonical order. */
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
    for (const [e, mark] of Object.entries(data.marks)) this.marks[e] = { match: 1, violation: 2, other: 3 }[mark];
    this.names = new Map();
    for (let e = 0; e < this.count; e++) this.names.set(this.dot(e), e);
    // Finds names of events; longer names of nodes first, as one may begin like another.
    const names = [...this.nodes].sort((a, b) => b.length - a.length).map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    this.dotPattern = new RegExp(`(?<=^|[\\s(,=+]|\\.\\.)(?:${names.join("|")})@\\d+`, "g");
  }

  /* Indexes messages by the blocks of rows that they cross; `long` has those that cross very many. */
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

  /* The clock of an event, by index of node: the changes on its node up to the event. */
  clock(e) {
    const out = new Map();
    for (const own of this.ofNode[this.node[e]]) {
      const changed = this.changes[own];
      for (let i = 0; i < changed.length; i += 2) out.set(changed[i], changed[i + 1]);
      if (own === e) break;
    }
    return out;
  }

  /* The name of a node, which may be one without events in the log. */
  nodeName(node) { return node < this.nodes.length ? this.nodes[node] : this.others[node - this.nodes.length]; }

  place(e) {
    if (this.file[e] < 0) return "";
    const file = this.files[this.file[e]];
    return `${file ? `${file}:` : "row "}${this.line[e]}`;
  }

  /* The relation of each event to a chosen one: 1 in its past, 2 in its future, 3 itself, 0 concurrent. */
  relations(chosen) {
    const out = new Uint8Array(this.count), clock = this.clock(chosen);
    const at = this.node[chosen], counter = this.counter[chosen];
    const known = new Float64Array(this.nodes.length); // each node's entry for the chosen event's node
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

/* --- differences of two executions --- */

const EDITS_MAX = 2000;

/* Pairs the events of two executions: for nodes with the same name, along the longest common
   subsequence of types. Returns the counterparts of the events of each execution, -1 for none, and
   the nodes with more than EDITS_MAX differences, where only the common beginning and end are
   paired. */
function counterparts(one, other) {
  const ofOne = new Int32Array(one.count).fill(-1), ofOther = new Int32Array(other.count).fill(-1);
  const unaligned = [];
  one.nodes.forEach((name, node) => {
    const there = other.nodes.indexOf(name);
    if (there < 0) return;
    const left = one.ofNode[node], right = other.ofNode[there];
    const same = (i, j) => one.types[one.type[left[i]]] === other.types[other.type[right[j]]];
    const [pairs, whole] = commonSubsequence(left.length, right.length, same);
    if (!whole) unaligned.push(name);
    for (const [i, j] of pairs) { ofOne[left[i]] = right[j]; ofOther[right[j]] = left[i]; }
  });
  return [ofOne, ofOther, unaligned];
}

/* The pairs of a longest common subsequence (Myers 1986, the greedy algorithm), and whether it is
   complete: beyond EDITS_MAX differences, only the common beginning and end are paired. */
function commonSubsequence(n, m, same) {
  let head = 0, tail = 0;
  while (head < n && head < m && same(head, head)) head++;
  while (tail < n - head && tail < m - head && same(n - 1 - tail, m - 1 - tail)) tail++;
  const pairs = [];
  for (let i = 0; i < head; i++) pairs.push([i, i]);
  for (let i = 1; i <= tail; i++) pairs.push([n - i, m - i]);
  const [middle, whole] = shortestEdit(n - head - tail, m - head - tail, (i, j) => same(head + i, head + j));
  return [[...pairs, ...middle.map(([i, j]) => [head + i, head + j])], whole];
}

function shortestEdit(n, m, same) {
  const most = Math.min(n + m, EDITS_MAX), trace = [];
  const furthest = new Int32Array(2 * most + 3), middle = most + 1; // by diagonals
  for (let edits = 0; edits <= most; edits++) {
    const reached = new Int32Array(edits + 1); // of the diagonals -edits, -edits + 2, …
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && furthest[middle + k - 1] < furthest[middle + k + 1]);
      let i = down ? furthest[middle + k + 1] : furthest[middle + k - 1] + 1;
      while (i < n && i - k < m && same(i, i - k)) i++;
      reached[(k + edits) >> 1] = i;
      furthest[middle + k] = i;
      if (i >= n && i - k >= m) return [matchedPairs(n, m, trace), true];
    }
    trace.push(reached);
  }
  return [[], false];
}

/* The matching pairs along the shortest edit path, traced back through what each number of edits reached. */
function matchedPairs(n, m, trace) {
  const pairs = [];
  let i = n, j = m;
  for (let edits = trace.length; edits > 0; edits--) {
    const before = trace[edits - 1], at = (k) => (Math.abs(k) < edits ? before[(k + edits - 1) >> 1] : -1);
    const k = i - j, down = k === -edits || (k !== edits && at(k - 1) < at(k + 1));
    const from = down ? k + 1 : k - 1, start = at(from) + (down ? 0 : 1);
    while (i > start) pairs.push([--i, --j]);
    i = at(from);
    j = i - from;
  }
  while (i > 0) pairs.push([--i, --j]);
  return pairs;
}
