/* The guards of the pattern language, for the search: true, false or unknown (null) for an event.
   Their meaning is that of docs/language.md. Numbers and regular expressions are JavaScript's;
   expressions that JavaScript would evaluate differently are refused. */

class GuardError extends Error {}

const GUARD_TOKEN = new RegExp([
  /(?<space>[ \t\r\n]+)/, /(?<string>"(?:[^"\\\n]|\\[^\n])*")/,
  /(?<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)/, /(?<name>[A-Za-z_][A-Za-z0-9_]*)/,
  /(?<sign>&&|\|\||[=!<>]=|[<>!()[\],.+\-*/%])/,
].map((one) => one.source).join("|"), "y");
const GUARD_REGEX = /\s*\/((?:[^\/\\\n*]|\\[^\n])(?:[^\/\\\n]|\\[^\n])*)\//y;
const CALL = /\s*\(\s*([^\s(),;{}"\/]+)\s+([^\s(),;{}"\/]+)\s*\(([^(){};"\/]*)\)\s*\)/y;
const NANOSECONDS = { ns: 1, us: 1e3, ms: 1e6, s: 1e9, min: 60e9, h: 3600e9, d: 86400e9 };
const FIELDS = new Set(["node", "type", "time", "id"]);
const COMPARE = new Set(["==", "!=", "<", "<=", ">", ">="]);

/* Parses a guard; each rule of the grammar is a method that returns a function of a moment. */
class GuardReader {
  /* `declared` maps the names of the pattern's events and steps to their guards, as text. */
  constructor(text, declared, depth = 0) {
    if (depth > 50) throw new GuardError("named guards are nested too deeply");
    Object.assign(this, { text, declared, depth, at: 0 });
    this.advance();
  }

  read() {
    const part = this.or();
    if (this.kind !== "end") this.fail("an operator");
    return this.guard(part);
  }

  advance() {
    for (;;) {
      this.start = this.at;
      GUARD_TOKEN.lastIndex = this.at;
      const found = this.at < this.text.length ? GUARD_TOKEN.exec(this.text) : null;
      if (!found && this.at < this.text.length) throw new GuardError(`unexpected character \`${this.text[this.at]}\``);
      this.at = GUARD_TOKEN.lastIndex;
      [this.kind, this.token] = found ? Object.entries(found.groups).find(([, one]) => one !== undefined) : ["end", ""];
      if (!found) this.at = this.text.length;
      if (this.kind !== "space") return;
    }
  }

  is(...tokens) { return (this.kind === "sign" || this.kind === "name") && tokens.includes(this.token); }

  take(token) {
    if (!this.is(token)) return false;
    this.advance();
    return true;
  }

  need(token) { if (!this.take(token)) this.fail(`\`${token}\``); }

  fail(expected) { throw new GuardError(`expected ${expected}, found ${this.kind === "end" ? "the end" : `\`${this.token}\``}`); }

  /* --- guards: functions that return true, false or null --- */

  or() { return this.operands("||", () => this.and(), anyTrue); }

  and() { return this.operands("&&", () => this.negation(), allTrue); }

  operands(sign, part, truth) {
    const parts = [part()];
    while (this.take(sign)) parts.push(part());
    if (parts.length === 1) return parts[0];
    const guards = parts.map((one) => this.guard(one));
    return { guard: (at) => truth(guards.map((one) => one(at))) };
  }

  negation() {
    if (!this.take("!")) return this.comparison();
    const inner = this.guard(this.negation());
    return { guard: (at) => notTrue(inner(at)) };
  }

  comparison() {
    const left = this.sum();
    if (this.kind === "sign" && COMPARE.has(this.token)) {
      const sign = this.token;
      this.advance();
      const [a, b] = [this.value(left), this.value(this.sum())];
      return { guard: (at) => compared(sign, a(at), b(at)) };
    }
    if (this.take("in")) {
      const value = this.value(left);
      this.need("[");
      const items = this.list("]", () => this.value(this.sum()));
      return { guard: (at) => anyTrue(items.map((item) => compared("==", value(at), item(at)))) };
    }
    if (this.is("matches")) {
      const value = this.value(left), regex = this.regex();
      return { guard: (at) => { const text = value(at); return typeof text === "string" ? regex.test(text) : null; } };
    }
    return left;
  }

  /* A part as a guard: a bare name refers to a guard that the pattern declares. */
  guard(part) {
    if (part.guard) return part.guard;
    if (typeof part.constant === "boolean") return () => part.constant;
    if (part.name && Object.hasOwn(this.declared, part.name)) return this.named(part.name);
    if (part.name) throw new GuardError(`\`${part.name}\` is a value, not a guard: no pattern declares it`);
    throw new GuardError("expected a guard, found a value");
  }

  /* Where the page cannot evaluate a declared guard, the error comes with the events: the search is a guard, not text. */
  named(name) {
    const text = this.declared[name];
    try {
      if (text === null) throw new GuardError(`the patterns declare \`${name}\` differently; select a verdict of one of them`);
      return new GuardReader(text, this.declared, this.depth + 1).read();
    } catch (error) {
      if (!(error instanceof GuardError)) throw error;
      return () => { throw error; };
    }
  }

  /* --- values: functions that return null for an absent value --- */

  value(part) {
    if (part.value) return part.value;
    if (part.constant !== undefined) return () => part.constant;
    if (part.name && Object.hasOwn(this.declared, part.name)) throw new GuardError(`\`${part.name}\` is a guard, not a value`);
    if (part.name) return (at) => at.attribute([part.name]);
    if (part.path) return this.path(part.path);
    throw new GuardError("expected a value, found a guard");
  }

  path([head, ...path]) {
    if (head === "data") return (at) => at.attribute(path);
    if (!Object.hasOwn(this.declared, head)) return (at) => at.attribute([head, ...path]);
    if (path[0] === "data" && path.length > 1) return (at) => at.bound(head, (of) => of.attribute(path.slice(1)));
    if (FIELDS.has(path[0]) && path.length === 1) return (at) => at.bound(head, (of) => of.field(path[0]));
    return (at) => at.bound(head, (of) => of.attribute(path));
  }

  sum() { return this.calculation(["+", "-"], () => this.calculation(["*", "/", "%"], () => this.signed())); }

  calculation(signs, part) {
    const parts = [part()], between = [];
    while (this.kind === "sign" && signs.includes(this.token)) {
      between.push(this.token);
      this.advance();
      parts.push(part());
    }
    if (!between.length) return parts[0];
    const isTime = signs.includes("+") && parts.some((one) => this.isTime(one));
    const [first, ...others] = parts.map((one) => this.value(one));
    const calculate = isTime ? timeCalculated : calculated;
    return { isTime, value: (at) => others.reduce((left, other, i) => calculate(between[i], left, other(at)), first(at)) };
  }

  isTime({ isTime, path }) {
    return isTime || path?.length === 2 && path[1] === "time" && Object.hasOwn(this.declared, path[0]);
  }

  signed() {
    if (!this.take("-")) return this.primary();
    const part = this.signed(), value = this.value(part);
    return { isTime: this.isTime(part), value: (at) => calculated("-", 0, value(at)) };
  }

  primary() {
    const { kind, token } = this;
    if (kind === "string") { this.advance(); return { constant: stringOf(token) }; }
    if (kind === "number") return this.number();
    if (this.take("(")) { const inner = this.or(); this.need(")"); return inner; }
    if (kind !== "name") this.fail("a value or a guard");
    if (token === "call") return this.call();
    this.advance();
    if (token === "true" || token === "false") return { constant: token === "true" };
    if (token === "localhost") throw new GuardError("`localhost` is the node of a copy of the pattern; a search has no copy");
    if (this.is("(")) return this.functionCall(token);
    if (FIELDS.has(token)) return { isTime: token === "time", value: (at) => at.field(token) };
    const path = [token];
    while (this.is(".", "[")) {
      const part = this.token;
      this.advance();
      if (part === ".") path.push(this.kind === "name" ? this.token : this.fail("a name"));
      else path.push(this.kind === "string" ? stringOf(this.token) : this.fail("a string"));
      this.advance();
      if (part === "[") this.need("]");
    }
    if (path.length > 1) return { path };
    if (token === "data") throw new GuardError("`data` is not a value: it contains all attributes of the event; write `data.name`");
    return { name: token };
  }

  number() {
    const number = Number(this.token);
    this.advance();
    if (this.kind !== "name" || !Object.hasOwn(NANOSECONDS, this.token)) return { constant: number };
    const seconds = number * NANOSECONDS[this.token] / 1e9;
    this.advance();
    return { constant: seconds };
  }

  list(end, part) {
    const parts = [part()];
    while (this.take(",")) parts.push(part());
    this.need(end);
    return parts;
  }

  functionCall(name) {
    this.need("(");
    if (name === "Causal" || name === "Conc") return this.causalRelation(name);
    if (name === "exists") {
      const part = this.primary();
      this.need(")");
      const value = this.value(part);
      return { guard: (at) => value(at) !== null };
    }
    if (name !== "host" && name !== "origin") throw new GuardError(`\`${name}(…)\` is a Python function, which the page cannot call`);
    if (this.kind !== "string") this.fail("a string");
    const glob = globOf(stringOf(this.token), { "*": ".*", "?": "." });
    this.advance();
    this.need(")");
    return { guard: (at) => {
      const origin = name === "origin" ? at.attribute(["origin"]) : null;
      return glob.test((typeof origin === "string" ? origin : at.field("node")).replace(/#[0-9]+$/, ""));
    } };
  }

  causalRelation(name) {
    const inner = this.guard(this.or());
    let anchor = "prior";
    if (this.take(",")) {
      anchor = this.token;
      if (this.kind !== "name") this.fail("the name of a step");
      this.advance();
    }
    this.need(")");
    let history, related; // each event's relation to the anchor, computed once for a history
    return { guard: (at) => {
      const truth = inner(at);
      if (history !== at.history) { related = at.related(name, anchor); history = at.history; }
      return allTrue([truth, related[at.e]]);
    } };
  }

  regex() {
    GUARD_REGEX.lastIndex = this.at;
    const found = GUARD_REGEX.exec(this.text);
    if (!found) throw new GuardError("expected a regular expression in slashes after `matches`");
    this.at = GUARD_REGEX.lastIndex;
    this.advance();
    return regexOf(found[1]);
  }

  call() {
    CALL.lastIndex = this.at;
    const found = CALL.exec(this.text);
    if (!found) throw new GuardError("write a call as `call(result Type.method(arguments))`");
    if (found[0].includes("...")) throw new GuardError("`...` is not a wildcard in `call`");
    this.at = CALL.lastIndex;
    this.advance();
    const [, result, target, list] = found, globs = list.trim() ? list.split(",").map((one) => one.trim()) : [];
    const resultGlob = globOf(result, { "*": ".*" }), targetGlob = targetOf(target);
    const tests = globs.map((glob) => (glob === ".." ? null : globOf(glob, { "*": ".*" })));
    return { guard: (at) => {
      const kind = at.attribute(["result_type"]), types = at.attribute(["arg_types"]);
      const known = Array.isArray(types) && types.every((one) => typeof one === "string");
      return allTrue([
        targetGlob.test(at.field("type")),
        result === "*" ? true : typeof kind === "string" ? resultGlob.test(kind) : null,
        globs.length === 1 && globs[0] === ".." ? true : known ? argumentsMatch(tests, types) : null,
      ]);
    } };
  }
}

/* --- Kleene's logic, comparisons, arithmetic --- */

function allTrue(truths) { return truths.includes(false) ? false : truths.includes(null) ? null : true; }
function anyTrue(truths) { return truths.includes(true) ? true : truths.includes(null) ? null : false; }
function notTrue(truth) { return truth === null ? null : !truth; }

function compared(sign, left, right) {
  const kind = typeof left;
  if (left === null || kind !== typeof right || !["boolean", "number", "string"].includes(kind)) return null;
  if (sign === "==") return left === right;
  if (sign === "!=") return left !== right;
  if (kind === "boolean") return null;
  const order = kind === "number" ? left - right : codePointOrder(left, right);
  return { "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0 }[sign];
}

function codePointOrder(left, right) {
  const a = [...left], b = [...right], shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; i++) if (a[i] !== b[i]) return a[i].codePointAt(0) - b[i].codePointAt(0);
  return a.length - b.length;
}

function calculated(sign, left, right) {
  if (typeof left !== "number" || typeof right !== "number") return null;
  if ((sign === "/" || sign === "%") && right === 0) return null;
  let out;
  if (sign === "+") out = left + right;
  else if (sign === "-") out = left - right;
  else if (sign === "*") out = left * right;
  else if (sign === "/") out = left / right;
  else {
    out = left % right;
    if (out && out < 0 !== right < 0) out += right;
  }
  return Number.isFinite(out) ? out : null;
}

/* A sum or difference with the time of an event: to the microsecond, as times are. From 2 ** 33
   seconds on, neighbouring numbers are more than a microsecond apart. */
function timeCalculated(sign, left, right) {
  const out = calculated(sign, left, right);
  if (out === null || Math.abs(out) >= 2 ** 33) return out;
  const below = Math.floor(out * 1e6), fraction = out * 1e6 - below;
  return (fraction > 0.5 || (fraction === 0.5 && below % 2) ? below + 1 : below) / 1e6;
}

/* --- texts --- */

function stringOf(token) {
  try { return JSON.parse(token.replace(/\t/g, "\\t")); } catch { throw new GuardError(`\`${token}\` has an unknown escape`); }
}

function escaped(text) { return text.replace(/[.*+?^${}()|[\]\\\/]/g, "\\$&"); }

function globOf(glob, wild) { return new RegExp(`^(?:${[...glob].map((one) => wild[one] || escaped(one)).join("")})$`, "su"); }

function targetOf(target) {
  const names = target.split("..").map((name) => name.split("*").map(escaped).join("[^.]*"));
  return new RegExp(`^(?:${names.join("\\.(?:.*\\.)?")})$`, "su");
}

function argumentsMatch(tests, types) {
  if (!tests.length) return !types.length;
  const [first, ...rest] = tests;
  if (first === null) return types.some((_, n) => argumentsMatch(rest, types.slice(n))) || argumentsMatch(rest, []);
  return types.length > 0 && first.test(types[0]) && argumentsMatch(rest, types.slice(1));
}

/* Translates RE2 syntax to JavaScript's; constructs that differ in meaning are expanded. */
function regexOf(text) {
  const space = "\\t\\n\\f\\r ";
  let out = "", inClass = false, flags = "u";
  if (text.startsWith("(?i)")) { flags += "i"; text = text.slice(4); }
  for (let i = 0; i < text.length; i++) {
    const two = text.slice(i, i + 2);
    if (text[i] === "\\") {
      i++;
      if (two === "\\/") out += "\\/";
      else if (two === "\\s") out += inClass ? space : `[${space}]`;
      else if (two === "\\S" && !inClass) out += `[^${space}]`;
      else if (two === "\\A" && !inClass) out += "^";
      else if (two === "\\z" && !inClass) out += "$";
      else if (/^\\[dDwWbBnrtfv]$/.test(two) || /^\\[^A-Za-z0-9]$/.test(two)) out += /^\\[\^$\\.*+?()[\]{}|\/A-Za-z-]$/.test(two) && (inClass || two !== "\\-") ? two : escaped(two[1]);
      else throw new GuardError(`the search does not support \`${two}\` in a regular expression`);
    } else if (inClass) {
      if (two === "[:") throw new GuardError("the search does not support `[: :]` in a regular expression");
      if (text[i] === "]") inClass = false;
      out += text[i] === "[" ? "\\[" : text[i];
    } else if (text[i] === "[") {
      inClass = true;
      out += "[";
      if (text[i + 1] === "^") { out += "^"; i++; }
      if (text[i + 1] === "]") { out += "\\]"; i++; }
    } else if (text[i] === ".") out += "[^\\n]";
    else if (two === "(?") {
      if (text.startsWith("(?:", i)) { out += "(?:"; i += 2; }
      else if (text.startsWith("(?P<", i)) { out += "(?<"; i += 3; }
      else throw new GuardError(`the search does not support \`${text.slice(i, i + 3)}\` in a regular expression`);
    } else out += text[i];
  }
  try { return new RegExp(out, flags); } catch (error) { throw new GuardError(error.message); }
}

/* --- evaluation --- */

/* The events to which a search is relative, as [step, event] pairs in order. `used` says whether an
   evaluation depended on them. */
class BoundEvents {
  constructor(pairs) {
    this.events = pairs.map(([, e]) => e);
    this.lastOfStep = new Map(pairs);
    this.used = false;
  }

  last(step) {
    this.used = true;
    const e = this.lastOfStep.get(step);
    if (e === undefined) throw new GuardError(`select a verdict with an event of the step \`${step}\``);
    return e;
  }

  /* The events of an anchor of `Causal` or `Conc`, which `name` is. */
  anchored(name, anchor) {
    this.used = true;
    if (!this.events.length) throw new GuardError(`select an event: \`${name}\` is relative to the selection`);
    if (anchor === "all") return this.events;
    return [anchor === "prior" ? this.events[this.events.length - 1] : this.last(anchor)];
  }
}

/* An event, and the events bound before it. */
class Moment {
  constructor(execution, e, history) { Object.assign(this, { execution, e, history }); }

  field(name) {
    const { execution, e } = this;
    if (name === "node") return execution.nodes[execution.node[e]];
    if (name === "type") return execution.types[execution.type[e]];
    const value = execution[name][e];
    return value === undefined ? null : value;
  }

  attribute(path) {
    let value = this.execution.data[this.e] || {};
    for (const name of path) {
      value = value !== null && typeof value === "object" && !Array.isArray(value) && Object.hasOwn(value, name) ? value[name] : null;
    }
    return value;
  }

  bound(step, read) { return read(new Moment(this.execution, this.history.last(step), null)); }

  /* For each event of the execution, whether it is related to all events of an anchor. */
  related(name, anchor) {
    const { node, undecided, count } = this.execution, truths = new Array(count).fill(true);
    for (const one of this.history.anchored(name, anchor)) {
      this.execution.relations(one).forEach((relation, e) => {
        const holds = relation === (name === "Causal" ? 2 : 0);
        // Clocks that do not decide are right about concurrency, and about order only on one node.
        const certain = !undecided || node[one] === node[e] || relation === 0 || (name === "Causal" && !holds);
        truths[e] = allTrue([truths[e], certain ? holds : null]);
      });
    }
    return truths;
  }
}
