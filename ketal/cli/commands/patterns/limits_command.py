"""`ketal limits`: every limit with its default, its unit and what it bounds."""

from __future__ import annotations

import argparse
from dataclasses import fields

from ketal.cli import FINE
from ketal.cli.output.output_lines import add_output, as_json, open_output
from ketal.model.limits import Limits

EXAMPLE = """\
examples:
  ketal limits
  ketal run --limit held_back_max=500000 stack.ketal run.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_output(parser, "human", "json")


def execute(args: argparse.Namespace) -> int:
    """Print the table; return the exit code."""
    rows = [(f.name, f.default, f.metadata["unit"], f.metadata["meaning"]) for f in fields(Limits)]
    with open_output(None) as sink:
        if args.output == "json":
            for name, default, unit, meaning in rows:
                row = {"limit": name, "default": default, "unit": unit, "meaning": meaning}
                sink.line(as_json(row))
            return FINE
        table = [("limit", "default", "unit", "what it bounds")]
        table += [(name, f"{default:,}", unit, meaning) for name, default, unit, meaning in rows]
        widths = [max(len(row[column]) for row in table) for column in range(3)]
        for name, default, unit, meaning in table:
            sink.line(
                f"{name:<{widths[0]}}  {default:>{widths[1]}}  {unit:<{widths[2]}}  {meaning}"
            )
    return FINE
