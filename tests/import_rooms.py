"""The import table of DESIGN 8 as a contract of import-linter.

import-linter's own contracts say what is forbidden; the table says what is allowed, and
forbids the rest. Written as lists of forbidden modules it would grow with the square of the
rooms and forget each new one. Here a row is a row, and a module without one is a fault.

The one rule: imports between rooms are judged one by one; a chain is as good as its links.
"""

from __future__ import annotations

from collections.abc import Iterator

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

ANY = "*"
LEAF = "leaf"
STREAMING = "streaming"


class Rows(fields.Field[dict[str, list[str]]]):
    """A table of names, each with a list of names."""

    def parse(self, raw_data: object) -> dict[str, list[str]]:
        """Return the rows as TOML gives them."""
        if not isinstance(raw_data, dict):
            raise fields.ValidationError("expected a table whose values are lists")
        return raw_data


class RoomsContract(Contract):
    """A room imports only the rooms that its row names.

    A room is a module or package right below the root package, or the root package's own
    `__init__`, which is called by the root's name. `*` in a row is every room but streaming,
    which only those import that name it; `leaf` is the rooms of the option `leaf`. A library
    that has a row in `external` is imported by the rooms named there alone.
    """

    rooms = Rows()
    external = Rows()
    leaf = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Judge every import of the graph."""
        (root,) = self.session_options["root_packages"]
        faults = list(self._modules_without_room(graph, root))
        for importer in sorted(graph.modules):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                if not self._allows(_room(importer, root), _room(imported, root), imported):
                    details = graph.get_import_details(importer=importer, imported=imported)
                    lines = ", ".join(str(detail["line_number"]) for detail in details)
                    faults.append(f"{importer} imports {imported} (line {lines})")
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line a fault."""
        for fault in check.metadata["faults"]:
            output.print_error(fault, bold=False)
        output.new_line()

    def _modules_without_room(self, graph: ImportGraph, root: str) -> Iterator[str]:
        rows: dict[str, list[str]] = self.rooms  # type: ignore[assignment]
        for module in sorted(graph.modules):
            room = _room(module, root)
            if room is not None and room not in rows:
                yield f"{module}: the room {room} has no row in the table"

    def _allows(self, here: str | None, there: str | None, imported: str) -> bool:
        rows: dict[str, list[str]] = self.rooms  # type: ignore[assignment]
        owners: dict[str, list[str]] = self.external  # type: ignore[assignment]
        leaf: list[str] = self.leaf  # type: ignore[assignment]
        if here is None:
            return True
        if there is None:
            return imported not in owners or here in owners[imported]
        row = rows.get(here, [])
        return (
            there in (here, *row)
            or (LEAF in row and there in leaf)
            or (ANY in row and there != STREAMING)
        )


def _room(module: str, root: str) -> str | None:
    """Return the room that a module belongs to; None for an external one."""
    if module == root:
        return root
    return module.split(".")[1] if module.startswith(f"{root}.") else None
