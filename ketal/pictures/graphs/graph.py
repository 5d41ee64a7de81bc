r"""The description of an automaton from which all its pictures are made, and the pictures.

An edge of the picture stands for all letters that lead from one state to another. It lists *ways*:
a way is a set of steps that hold at once, with the `not` guards before them.

Some characters of a label are special in dot and Mermaid: in a quoted string of dot `\"`, `\\`,
`\l` and HTML's entities, in a quoted label of Mermaid `#35;` and HTML's tags. In both formats,
states are called `s0`, `s1`, …, so names and guards occur only in labels, where they are escaped.

The one rule: a description is plain text and numbers in canonical order, so every picture of a
pattern is the same in every process.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ketal.compiler.automaton import Automaton
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.errors import SettingError, columns
from ketal.grammar.printer import render_guard
from ketal.model import syntax
from ketal.model.syntax_walks import not_guards
from ketal.model.wording import counted
from ketal.pictures import svg_document as elements
from ketal.pictures.graphs import svg
from ketal.pictures.graphs.layout import Box, Layout, Link, Scene
from ketal.pictures.labels import short_label, wrapped, xml_text
from ketal.pictures.svg_document import escaped, px

ROUND_COLUMNS_MAX = 4
"""The length of the longest name drawn in a circle; longer names are in rounded boxes."""
HORIZONTAL_STATES_MAX = 4
"""The most states that are laid out from left to right; more are laid out downwards."""
SVG_STATES_MAX = 200
"""The most states that are drawn; a picture of more is unreadable."""
SVG_EDGES_MAX = 600
"""The most edges that are drawn."""
LINE_PX = 16
LABEL_PAD = 8
RADIUS = 22.0


@dataclass(frozen=True, slots=True)
class GraphState:
    """A state: its number, its name, and the steps that can come next."""

    number: int
    name: str
    initial: bool
    final: bool
    expected: tuple[str, ...] = ()

    @property
    def round(self) -> bool:
        """Whether the state is drawn as a circle."""
        return columns(self.name) <= ROUND_COLUMNS_MAX


@dataclass(frozen=True, slots=True)
class Way:
    """An alternative of an edge: the steps that hold at once, and their guards."""

    steps: tuple[str, ...]
    """The steps whose guards hold at once; mostly one. `A || B` stands for either of two."""
    nots: tuple[str, ...] = ()
    """The texts of the `not` guards before them."""
    guard: str = ""
    """The text of the guard; empty if it would only repeat the step's name."""

    @property
    def head(self) -> str:
        """The steps taken: `B`, `A && B`, `not N, B`."""
        barred = (f"not {text}" for text in self.nots)
        several = len(self.steps) > 1
        steps = (f"({s})" if several and " || " in s else s for s in self.steps)
        return ", ".join((*barred, " && ".join(steps)))

    @property
    def text(self) -> str:
        """The head and the guard: `B: Causal(Push, A)`."""
        return f"{self.head}: {self.guard}" if self.guard else self.head


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """All ways from one state to another, and the minterms that satisfy them."""

    source: int
    target: int
    ways: tuple[Way, ...]
    minterms: tuple[int, ...] = ()

    @property
    def label(self) -> tuple[str, ...]:
        """The text of each way."""
        return tuple(way.text for way in self.ways)


@dataclass(frozen=True, slots=True)
class Picture:
    """The description of an automaton, from which its pictures are made."""

    pattern: str
    strategy: str
    """`check`, `strict`, `next` or `any`."""
    fingerprint: str
    states: tuple[GraphState, ...]
    edges: tuple[GraphEdge, ...]
    """In the order of the states' numbers."""
    guards: tuple[tuple[str, str], ...] = ()
    """Each step with the text of its guard."""
    nots: tuple[str, ...] = ()
    """The texts of the `not` guards."""
    minterms: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """For each class of events, the heads of the ways that it satisfies, in groups of which at
    least one holds. It satisfies no other way."""

    @classmethod
    def of(cls, compiled: CompiledPattern) -> Picture:
        """Describe a pattern's automaton."""
        automaton = compiled.automaton
        texts = _GuardTexts(compiled)
        states = tuple(
            GraphState(n, name, n == 0, n in automaton.finals, automaton.expected((n,)))
            for n, name in enumerate(automaton.names)
        )
        edges = tuple(
            GraphEdge(source, target, tuple(map(texts.way, ways)), minterms)
            for source, target, ways, minterms in _collect_edges(automaton)
        )
        minterms = tuple(
            tuple(tuple(map(texts.head, of_class)) for of_class in term)
            for term in automaton.minterms
        )
        return cls(
            pattern=compiled.name,
            strategy=compiled.strategy,
            fingerprint=compiled.fingerprint,
            states=states,
            edges=edges,
            guards=tuple((name, render_guard(guard)) for name, guard in compiled.guards),
            nots=texts.nots,
            minterms=minterms,
        )

    @property
    def initial(self) -> int:
        """The number of the initial state."""
        return next(state.number for state in self.states if state.initial)

    @property
    def title(self) -> str:
        """The title of the picture."""
        return f"{self.pattern}: automaton with {counted(len(self.states), 'state')}"

    @property
    def horizontal(self) -> bool:
        """Whether pictures are laid out from left to right, not downwards."""
        return len(self.states) <= HORIZONTAL_STATES_MAX

    def to_dot(self) -> str:
        """Return the automaton in Graphviz's language."""
        lines = [
            f"digraph {dot_quoted(self.pattern)} {{",
            f"  rankdir={'LR' if self.horizontal else 'TB'};",
            '  node [fontname="monospace", fontsize=13];',
            '  edge [fontname="monospace", fontsize=11];',
            '  start [shape=point, label="", width=0.08];',
        ]
        for state in self.states:
            around = 2 if state.final else 1
            shape = "shape=circle" if state.round else 'shape=box, style="rounded"'
            label = dot_quoted(short_label(state.name))
            lines.append(f"  s{state.number} [{shape}, peripheries={around}, label={label}];")
        lines.append(f"  start -> s{self.initial};")
        for edge in self.edges:
            # `\l` ends a left-aligned line.
            label = "".join(f"{_dot_text(line)}\\l" for line in wrapped(edge.label))
            lines.append(f'  s{edge.source} -> s{edge.target} [label="{label}"];')
        return "\n".join([*lines, "}", ""])

    def to_mermaid(self) -> str:
        """Return the automaton as a Mermaid flowchart."""
        lines = [
            f"flowchart {'LR' if self.horizontal else 'TB'}",
            f"  accTitle: {_mermaid_text(xml_text(self.title))}",
            '  start((" "))',
            "  style start fill:#888,stroke:#888",
        ]
        for state in self.states:
            form = "((({})))" if state.final else "(({}))" if state.round else "([{}])"
            label = f'"{_mermaid_text(short_label(state.name))}"'
            lines.append(f"  s{state.number}{form.format(label)}")
        lines.append(f"  start --> s{self.initial}")
        for edge in self.edges:
            label = "<br/>".join(map(_mermaid_text, wrapped(edge.label)))
            lines.append(f'  s{edge.source} -->|"{label}"| s{edge.target}')
        return "\n".join([*lines, ""])

    def to_json(self) -> str:
        """Return the automaton as JSON, indented by two blanks."""
        fields = {
            "pattern": self.pattern,
            "strategy": self.strategy,
            "fingerprint": self.fingerprint,
            "states": [asdict(state) for state in self.states],
            "initial": self.initial,
            "finals": [state.number for state in self.states if state.final],
            "steps": [{"name": name, "guard": guard} for name, guard in self.guards],
            "nots": self.nots,
            "edges": [asdict(edge) for edge in self.edges],
            "minterms": [{"number": n, "holds": holds} for n, holds in enumerate(self.minterms)],
        }
        return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"

    def to_svg(self) -> str:
        """Return the automaton as SVG.

        It is laid out by Graphviz's `dot` if that is on the PATH, otherwise by ketal's own layers.

        Raises
        ------
        SettingError
            If the automaton has more than `SVG_STATES_MAX` states or `SVG_EDGES_MAX` edges.
        """
        for noun, count, limit in (
            ("states", len(self.states), SVG_STATES_MAX),
            ("edges", len(self.edges), SVG_EDGES_MAX),
        ):
            if count > limit:
                raise SettingError(
                    f"the automaton of {self.pattern} has {count} {noun}, but a picture shows at "
                    f"most {limit} (SVG_{noun.upper()}_MAX); write it as dot, mermaid or json"
                )
        scene = scene_of(self)
        layout = svg.lay_out(scene)
        states = map(_draw_state, self.states, scene.boxes, layout.centers)
        edges = _draw_edges(self, scene, layout)
        return svg.document(self.title, scene, layout, (*edges, *states))

    def _repr_svg_(self) -> str | None:
        """Draw the automaton for a notebook; None, so that text is shown, if it is too large."""
        try:
            return self.to_svg()
        except SettingError:
            return None


# --- text --------------------------------------------------------------------


def dot_quoted(text: str) -> str:
    """Return a text as a quoted string of dot, on one line."""
    return f'"{_dot_text(xml_text(text))}"'


def _dot_text(text: str) -> str:
    return _keep_indent(text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"'))


def _keep_indent(text: str) -> str:
    """Replace leading blanks by no-break spaces, which renderers keep."""
    return re.sub("^ +", lambda blanks: "\u00a0" * len(blanks[0]), text)


def _mermaid_text(text: str) -> str:
    """Replace every character that is special in HTML, Markdown or Mermaid by an entity."""
    return "".join(
        c if c.isalnum() or c in " \u00a0:.,=()" else f"#{ord(c)};" for c in _keep_indent(text)
    )


# --- from automaton to description --------------------------------------------


class _GuardTexts:
    """The texts of steps and `not` guards."""

    def __init__(self, compiled: CompiledPattern) -> None:
        self.automaton = compiled.automaton
        self.guards = dict(compiled.guards)
        self.nots = tuple(map(self._not_text, not_guards(compiled.pattern.body)))

    def _not_text(self, guard: syntax.Guard) -> str:
        text = render_guard(guard)
        return text if isinstance(guard, syntax.Name) else f"({text})"

    def head(self, variant: int) -> str:
        return self.way(((variant,),)).head

    def way(self, classes: tuple[_Class, ...]) -> Way:
        """Return the way on which at least one variant of each class holds."""
        held = [[self.automaton.variants[v] for v in of_class] for of_class in classes]
        names = sorted({tuple(sorted({v.step for v in of_class})) for of_class in held})
        steps = tuple(" || ".join(self.automaton.steps[s] for s in of_class) for of_class in names)
        nots = tuple(self.nots[n] for n in sorted({n for vs in held for v in vs for n in v.nots}))
        return Way(steps, nots, self._guard(names))

    def _guard(self, classes: list[tuple[int, ...]]) -> str:
        steps = [self.automaton.steps[s] for of_class in classes for s in of_class]
        if all(self.guards[step] == syntax.Name(step) for step in steps):
            return ""  # events used as steps: the guard would repeat their names
        operands: list[syntax.Guard] = []
        for of_class in classes:
            guards = [self.guards[self.automaton.steps[s]] for s in of_class]
            if len(guards) > 1:
                operands.append(syntax.Or(tuple(guards)))
            else:
                operands.extend(guards[0].operands if isinstance(guards[0], syntax.And) else guards)
        whole = operands[0] if len(operands) == 1 else syntax.And(tuple(operands))
        return render_guard(whole)


_Class = tuple[int, ...]
_Ways = tuple[tuple[_Class, ...], ...]


def _collect_edges(automaton: Automaton) -> Iterator[tuple[int, int, _Ways, tuple[int, ...]]]:
    """Yield (source, target, ways as classes of variants, minterms), in order."""
    ways: dict[tuple[int, int], set[frozenset[_Class]]] = {}
    terms: dict[tuple[int, int], set[int]] = {}
    for source, row in enumerate(automaton.table):
        enabled = set(automaton.enabled[source])
        for letter, target in row:
            minterm, _ = automaton.letters[letter]
            here = frozenset(c for c in automaton.minterms[minterm] if not enabled.isdisjoint(c))
            ways.setdefault((source, target), set()).add(here)
            terms.setdefault((source, target), set()).add(minterm)
    for (source, target), sets in sorted(ways.items()):
        least = [s for s in sets if not any(o < s for o in sets)]
        # Each step of a single class is a way of its own.
        alone = {((v,),) for s in least if len(s) == 1 for of_class in s for v in of_class}
        several = {tuple(sorted(s)) for s in least if len(s) > 1}
        yield source, target, tuple(sorted(alone | several)), tuple(sorted(terms[source, target]))


# --- drawing ------------------------------------------------------------------


def scene_of(graph: Picture) -> Scene:
    """Return the scene: the boxes of the states, the dot of the initial arrow, the links."""
    start = len(graph.states)
    links = [Link(start, graph.initial)]
    for edge in graph.edges:
        lines = wrapped(edge.label)
        width = max(map(elements.text_width, lines)) + LABEL_PAD
        size = (math.ceil(width), len(lines) * LINE_PX + LABEL_PAD)
        links.append(Link(edge.source, edge.target, *size))
    boxes = (*map(_box, graph.states), Box(4.0, 4.0))
    return Scene(boxes, tuple(links), graph.horizontal)


def _box(state: GraphState) -> Box:
    if state.round:
        return Box(RADIUS, RADIUS)
    return Box(elements.text_width(short_label(state.name), svg.NAME_PX) / 2 + 16, RADIUS)


def _draw_edges(graph: Picture, scene: Scene, layout: Layout) -> Iterator[str]:
    """Draw the arrow to the initial state, then each edge."""
    yield elements.with_tooltip("initial", svg.arrow(layout.routes[0].curve), 'class="edge"')
    yield elements.circle("tip", layout.centers[-1], 4)
    names = [state.name for state in graph.states]
    for edge, link, route in zip(graph.edges, scene.links[1:], layout.routes[1:], strict=True):
        tip = f"{names[edge.source]} → {names[edge.target]}: {'; '.join(edge.label)}"
        drawn = svg.arrow(route.curve) + _draw_label(edge, link, route.label)
        yield elements.with_tooltip(tip, drawn, 'class="edge"')


def _draw_label(edge: GraphEdge, link: Link, middle: elements.Point) -> str:
    lines = wrapped(edge.label)
    left = middle[0] - (link.label_width - LABEL_PAD) / 2
    first = middle[1] - len(lines) * LINE_PX / 2 + LINE_PX * 0.75
    heads = {xml_text(way.head) for way in edge.ways}
    spans = "".join(
        f'<tspan x="{px(left)}" y="{px(first + n * LINE_PX)}">{_label_line(line, heads)}</tspan>'
        for n, line in enumerate(lines)
    )
    return f'<text font-size="{elements.LABEL_PX}" xml:space="preserve">{spans}</text>'


def _draw_state(state: GraphState, box: Box, center: elements.Point) -> str:
    shapes = "".join(svg.outline(center, box, inset) for inset in ((0, 4) if state.final else (0,)))
    name = svg.name_at(center, short_label(state.name))
    return elements.with_tooltip(state.name, shapes + name, f'data-state="{state.number}"')


def _label_line(line: str, heads: set[str]) -> str:
    """Return a line of a label, with the head of a way emphasised."""
    head = line.partition(": ")[0].removesuffix(":")
    if head in heads:
        return f'<tspan class="head">{escaped(head)}</tspan>{escaped(line[len(head) :])}'
    return escaped(line)
