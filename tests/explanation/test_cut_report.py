"""`ketal.cuts`: its counts, its text and its pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from decimal import Decimal
from pathlib import Path

import pytest
from resvg_py import svg_to_bytes

import ketal
from ketal.errors import EventError, SettingError
from ketal.explanation.cuts import cut_report
from ketal.explanation.cuts.cut_lattice import CutLattice
from ketal.explanation.cuts.cut_report import abbreviated, digits
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.verdicts.execution_verdicts import Rejected
from tests.cases import e
from tests.sampling import sample

SVG = "{http://www.w3.org/2000/svg}"
PAIR = (e("a@1", "send"), e("b@1", "take", "a:1"), e("c@1", "start"))

_FACEBOOK = (
    r"(?<ip>(\d{1,3}\.){3}\d{1,3}) (?<date>(\d{1,2}/){2}\d{4} (\d{2}:){2}\d{2} (AM|PM)) "
    r"(?<action>(INFO|GET|POST)) (?<event>.*)\n(?<host>\w*) (?<clock>.*)"
)
_AKKA = (
    r"\[\w+\] \[(?<date>([^ ]+ [^ ]+))\] [^ ]+ \[akka://Broadcast/user/(?<host>\w+)\] "
    r"(?<clock>.*\}) (?<event>.*)"
)
_SIMPLEDB = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
_VOLDEMORT = (
    r"\[(?<date>\d{4}-\d{2}-\d{2} (\d{2}:){2}\d{2},\d{3}) (?<path>\S*)\] "
    r"(?<priority>(INFO|WARN)) (?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
)
_RPC = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
REAL = [
    ("facebook.log", _FACEBOOK, 123, "15,088,500"),
    ("simple-reliable-broadcast.log", _AKKA, 382, "17,412,178,893,336"),
    ("RpcClientServer.log", _RPC, 13, "3"),
    (
        "reliable-broadcast.log",
        _AKKA,
        21_222,
        "198,278,095,525,270,141,074,084,283,721,479,871,952,218,380,797,149,712",
    ),
    ("voldemort-simple-threadnames.log", _VOLDEMORT, 5_552_674_816, "9.908e+149 (150 digits)"),
    *sample([], [("simpledb.log", _SIMPLEDB, 1_541_953, "2.003e+284 (285 digits)")]),
]


@pytest.mark.parametrize(("name", "regex", "cuts", "extensions"), REAL)
def test_cuts_and_linear_extensions_of_real_logs(
    name: str, regex: str, cuts: int, extensions: str, shared_data: Path
) -> None:
    (one,) = ketal.cuts(ketal.read_log(shared_data / "shiviz" / name, regex=regex)).executions
    assert (one.cuts, abbreviated(one.linear_extensions), one.limit, one.missing) == (
        cuts,
        extensions,
        "",
        0,
    )


def test_cuts_of_a_real_log_of_thousands_of_events(shared_data: Path) -> None:
    fields = {"type": "event", "clock": "pkt.vc", "data": "pkt"}
    log = ketal.read_log(shared_data / "tlaplus" / "VectorClocksTests.ndjson", fields=fields)
    (one,) = ketal.cuts(log).executions
    assert (one.events, one.nodes, one.cuts, one.limit) == (2_324, 8, 612_702, "")
    assert str(one).endswith("\nlinear extensions  2.593e+882 (883 digits)")
    bound = ketal.cuts(log, limits=ketal.Limits(counted_cuts_max=1_000)).executions[0]
    assert bound.limit == "counted_cuts_max"
    assert 1_000 <= bound.cuts < one.cuts
    assert 1 < bound.linear_extensions < one.linear_extensions
    assert re.search(r"consistent cuts    more than [\d,]+ \(limit counted_cuts_max\)", str(bound))


def test_cuts_of_several_real_executions(shared_data: Path) -> None:
    cuts = ketal.cuts(
        ketal.read_log(
            shared_data / "shiviz" / "facebook-multiple.log",
            regex=_FACEBOOK,
            delimiter="^=== (?<trace>.*) ===$",
        )
    )
    assert [(one.execution, one.cuts, one.linear_extensions) for one in cuts.executions] == [
        ("Execution #1", 123, 15_088_500),
        ("Execution #2", 111, 7_528_500),
    ]


def test_duplicate_and_rejected_records_are_not_counted() -> None:
    log: list[Event | Control | Rejected] = [
        *PAIR[:2],
        PAIR[0],
        e("a@2", "x"),
        e("a@2", "y"),
        Rejected(place="f:9", reason="torn"),
    ]
    cuts = ketal.cuts(ketal.Log.of(log))
    (one,) = cuts.executions
    assert (one.events, one.cuts, cuts.duplicates, cuts.rejected) == (3, 5, 1, 2)
    assert cuts.first_rejected == (
        "a@2: a@2 was read before with other content; a dot is unique in an execution "
        "(do two programs use the name 'a'?)"
    )
    assert str(cuts).splitlines()[:2] == [
        "duplicates         1",
        f"rejected           2; first: {cuts.first_rejected}",
    ]
    ended = ketal.cuts(ketal.Log.of([PAIR[0], Control("end"), PAIR[1]]))
    assert (ended.events, ended.rejected) == (1, 1)
    assert ended.first_rejected == "b@1: the execution has ended (ketal.end)"


def test_missing_events_still_order_others_and_are_counted() -> None:
    # a@2 and b@1 are missing: a@1 is still before c@1 through them.
    gapped = [e("a@1", "x"), e("a@3", "x"), e("c@1", "x", "a:2 b:1")]
    (one,) = ketal.cuts(gapped).executions
    assert (one.missing, one.cuts, one.linear_extensions) == (2, 5, 2)
    assert "missing            2 events in the clocks but not in the log" in str(one).splitlines()
    assert one.to_dict()["missing"] == 2


def test_restarted_node_counts_as_two_nodes() -> None:
    # The second incarnation of a begins at its second event with counter 1.
    log = [e("a@1", "x"), e("a@2", "x"), e("a@1", "y", "b:1"), e("b@1", "x", "a:2")]
    (one,) = ketal.cuts(log).executions
    assert (one.nodes, one.events, one.cuts, one.linear_extensions) == (3, 4, 5, 1)


def test_error_beyond_events_max_names_the_limit() -> None:
    with pytest.raises(SettingError, match=r"more than 2 events \(limit events_max\)"):
        ketal.cuts(PAIR, limits=ketal.Limits(events_max=2))


def test_impossible_clocks_are_refused() -> None:
    backwards = [e("a@1", "x", "c:9"), e("b@1", "x", "a:1")]
    with pytest.raises(EventError, match=r"^inconsistent clocks: b@1 is after"):
        ketal.cuts(backwards)
    named = ketal.Log(lambda: (("one", event, "", 0) for event in backwards))
    with pytest.raises(EventError, match=r"^execution one: inconsistent clocks: "):
        ketal.cuts(named)


def test_digits_of_a_long_number_are_converted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion takes quadratic time."""
    for bits in (0, 1, 4_096, 4_097, 30_001):
        for number in (1 << bits, (1 << bits) - 1, -(1 << bits), 3**bits):
            assert digits(number) == format(Decimal(number), "f")
    converted = []

    def convert(number: int) -> Decimal:
        converted.append(number.bit_length())
        return Decimal(number)

    monkeypatch.setattr(cut_report, "Decimal", convert)
    text = digits(3**800_000)
    assert (len(text), text[-4:]) == (381_698, f"{pow(3, 800_000, 10**4):04}")
    assert max(converted) <= 4_096


def test_number_of_thousands_of_digits_is_shown_in_scientific_notation() -> None:
    log = [e(f"n{node}@{count}", "x") for node in range(3) for count in range(1, 4_001)]
    (one,) = ketal.cuts(log).executions
    assert one.cuts == 4_001**3
    assert re.search(r"linear extensions  \d\.\d{3}e\+5\d{3} \(5,\d{3} digits\)$", str(one))
    assert re.search(r" cuts=64,[\d,]*, linear_extensions=\d\.\d{3}e\+5\d{3} ", repr(one))


# --- pictures -----------------------------------------------------------------


def test_each_cut_of_the_lattice_covers_the_cuts_with_one_event_less() -> None:
    diagram = CutLattice.of(CausalGraph(PAIR), "PAIR")
    labels = [label for label, _ in diagram.cuts]
    assert labels == ["0 0 0", "1 0 0", "0 0 1", "1 1 0", "1 0 1", "1 1 1"]
    assert diagram.caption == "labels: last counters of a, b, c"
    covers = {(labels[upper], labels[lower], tip) for upper, lower, tip in diagram.covers}
    assert covers == {
        ("1 0 0", "0 0 0", "a@1 send"),
        ("0 0 1", "0 0 0", "c@1 start"),
        ("1 1 0", "1 0 0", "b@1 take"),
        ("1 0 1", "1 0 0", "c@1 start"),
        ("1 0 1", "0 0 1", "a@1 send"),
        ("1 1 1", "1 1 0", "c@1 start"),
        ("1 1 1", "1 0 1", "b@1 take"),
    }


def test_lattice_is_drawn_from_the_empty_cut_upwards() -> None:
    svg = ketal.cuts(PAIR).to_svg()
    root = ElementTree.fromstring(svg)
    assert root.findtext(f"{SVG}title") == "6 consistent cuts"
    height = {
        text.text: float(text.attrib["y"])
        for text in root.iter(f"{SVG}text")
        if text.get("class") == "name"
    }
    assert len(height) == 6
    assert height["0 0 0"] == max(height.values())
    assert height["1 1 1"] == min(height.values())
    assert len([g for g in root.iter(f"{SVG}g") if g.get("class") == "edge"]) == 7
    caption = next(t for t in root.iter(f"{SVG}text") if t.get("class") is None)
    assert caption.text == "labels: last counters of a, b, c"
    # The caption is within the picture, above the lattice.
    left, top, width, _ = map(float, root.attrib["viewBox"].split())
    y = float(caption.attrib["y"])
    assert top < y < min(height.values()) - 12
    assert left < float(caption.attrib["x"])
    assert width > 28 * 12 * 0.6
    assert bytes(svg_to_bytes(svg_string=svg)).startswith(b"\x89PNG")


def test_dot_has_every_cut_and_every_edge() -> None:
    dot = ketal.cuts(PAIR).to_dot()
    assert dot.count(" -> ") == 7
    assert '  c0 [label="0 0 0", tooltip="the empty cut"];' in dot.splitlines()
    assert '  label="labels: last counters of a, b, c";' in dot.splitlines()


def test_node_names_are_escaped_in_pictures() -> None:
    log = [ketal.Event(node='a"<&', type="x</title>\x07", clock={'a"<&': 1})]
    cuts = ketal.cuts(log)
    root = ElementTree.fromstring(cuts.to_svg())
    assert any(t.text == 'labels: last counters of a"<&' for t in root.iter(f"{SVG}text"))
    assert '\\"<&amp;' in cuts.to_dot()


def test_lattice_beyond_drawn_cuts_max_is_an_error_that_names_the_limit() -> None:
    cuts = ketal.cuts(PAIR, limits=ketal.Limits(drawn_cuts_max=5))
    with pytest.raises(SettingError, match=r"6 consistent cuts, but at most 5 .*drawn_cuts_max"):
        cuts.to_svg()
    assert cuts._repr_svg_() is None
    assert (ketal.cuts(PAIR)._repr_svg_() or "").startswith("<svg ")


def test_high_lattice_within_the_limit_is_drawn() -> None:
    log = [e(f"a@{count}", "x") for count in range(1, 1_501)]
    svg = ketal.cuts(log, limits=ketal.Limits(drawn_cuts_max=2_000)).to_svg()
    assert svg.count('class="name"') == 1_501


def test_one_of_several_executions_is_selected_by_its_name() -> None:
    log = ketal.Log(lambda: iter([("one", PAIR[0], "", 0), ("two", PAIR[2], "", 0)]))
    cuts = ketal.cuts(log)
    with pytest.raises(SettingError, match="several executions: one, two"):
        cuts.to_svg()
    assert "two: 2 consistent cuts" in cuts.only("two").to_svg()
    with pytest.raises(SettingError, match="unknown execution 'three'; the log has one, two"):
        cuts.only("three")
    with pytest.raises(
        SettingError, match="unknown execution 'three'; the log has one without a name"
    ):
        ketal.cuts(PAIR).only("three")


def test_empty_log_is_an_execution_without_events() -> None:
    cuts = ketal.cuts([])
    assert [(one.events, one.cuts, one.linear_extensions) for one in cuts.executions] == [(0, 1, 1)]
    assert str(cuts).startswith("events             0, nodes 0\n")
    assert ">∅</text>" in cuts.to_svg()
