"""Space-time diagrams in text."""

from __future__ import annotations

import random

from ketal.pictures.text_diagram import DiagramRow, text_diagram
from tests.sampling import drawn


def test_message_leads_from_its_sender_to_its_receiver() -> None:
    rows = [
        DiagramRow("a", "a@1 write  First", marked=True),
        DiagramRow("b", "b@1 read", ("a",)),
        DiagramRow("b", "b@2 write", marked=True, follows=True),
    ]
    assert text_diagram(rows) == [
        "a    b",
        "◆    ┊    a@1 write  First",
        "├───▶●    b@1 read",
        "┊    ◆    b@2 write",
    ]


def test_messages_cross_other_lines_and_come_from_both_sides() -> None:
    rows = [
        DiagramRow("a", "a@1"),
        DiagramRow("d", "d@1"),
        DiagramRow("b", "b@1"),
        DiagramRow("c", "c@1", ("a", "b", "d")),
        DiagramRow("a", "a@2", ("d",), follows=True),
        DiagramRow("b", "b@2", follows=True),
    ]
    assert text_diagram(rows) == [
        "a    b    c    d",
        "●    ┊    ┊    ┊    a@1",
        "│    ┊    ┊    ●    d@1",
        "│    ●    ┊    ┊    b@1",
        "├────┼───▶●◀───┤    c@1",
        "●◀───┼────┼────┤    a@2",
        "┊    ●    ┊    ┊    b@2",
    ]


def test_long_name_is_truncated() -> None:
    (head, _) = text_diagram([DiagramRow("a-node-with-a-long-name", "x")])
    assert head == "a-nod…ng-name"


def test_wide_character_takes_two_columns() -> None:
    rows = [DiagramRow("b", "b@1"), DiagramRow("時計台", "t@1", ("b",))]
    assert text_diagram(rows) == ["b    時計台", "●    ┊       b@1", "├───▶●       t@1"]
    (head, _) = text_diagram([DiagramRow("時計" * 5, "x")])
    assert head == "時計…計時計"


def test_every_row_has_its_event_in_the_column_of_its_node() -> None:
    @drawn(50)
    def holds(rng: random.Random) -> None:
        nodes = ["n" * rng.randint(1, 20) + str(number) for number in range(rng.randint(1, 5))]
        rows = []
        for number in range(rng.randint(1, 12)):
            node = rng.choice(nodes)
            senders = tuple(one for one in nodes if one != node and rng.random() < 0.3)
            rows.append(DiagramRow(node, f"event {number}", senders, rng.random() < 0.3))
        lines = text_diagram(rows)
        assert len(lines) == len(rows) + 1
        at: dict[str, int] = {}
        for line, row in zip(lines[1:], rows, strict=True):
            place = line.removesuffix(row.label).index("●◆"[row.marked])
            assert at.setdefault(row.node, place) == place
        assert sorted(at, key=at.__getitem__) == sorted(at)
        for line, row in zip(lines[1:], rows, strict=True):
            drawing = line.removesuffix(row.label)
            assert sum(drawing.count(glyph) for glyph in "●◆") == 1
            for sender in row.senders:
                if sender in at:
                    assert drawing[at[sender]] in "├┼┤"


def test_name_with_control_characters_keeps_the_columns() -> None:
    rows = [DiagramRow("a\tb", "x"), DiagramRow("c\x07", "y", ("a\tb",))]
    assert text_diagram(rows) == [
        "a b  c\\x07",
        "●    ┊      x",
        "├───▶●      y",
    ]
