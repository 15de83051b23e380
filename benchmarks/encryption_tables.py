"""Figures and tables of the encryption benchmark, from nothing but the rows of its JSON."""

from collections.abc import Sequence
from statistics import mean

from benchmarks import encryption_choice
from benchmarks.encryption_choice import LINKS
from benchmarks.encryption_operations import (
    ADD,
    CANDIDATE_BYTES,
    NAMES,
    OPERATIONS,
    ROW_BYTES,
)
from benchmarks.encryption_plan import LATTICE, PAILLIER, PLAIN
from benchmarks.harness import Shown
from benchmarks.plus_tables import (
    Row,
    disturbance,
    grouped,
    machine_cells,
    number,
    of,
    size,
)
from benchmarks.tables import HOST

KINDS = (OPERATIONS, "trees", "samples", "memory", "auc")


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures; those that the rows do not give are absent."""
    found: dict[str, float] = {}
    ns = {row["scheme"]: row["ns"] for row in of(rows, OPERATIONS)}
    if {LATTICE, PAILLIER} <= set(ns):
        found["add_ratio"] = ns[PAILLIER][ADD] / ns[LATTICE][ADD]
    for group in grouped(of(rows, "trees"), "data"):
        wall = {row["scheme"]: row["wall_s"] for row in group}
        if {LATTICE, PAILLIER} <= set(wall):
            found[f"tree_ratio.{group[0]['data']}"] = wall[PAILLIER] / wall[LATTICE]
    for row in of(rows, "memory"):
        if row["scheme"] == LATTICE:
            found[f"memory_gb.{row['data']}"] = row["peak"][HOST] / 1e9
    for group in grouped(of(rows, "auc"), "data"):
        found[f"auc_gap.{LATTICE}.{group[0]['data']}"] = abs(gap(group, "train"))
    return found


def gap(group: Sequence[Row], part: str) -> float:
    """By how much the mean AUC of the lattice's models is below that of the others'."""
    plain, lattice = ([row[part] for row in group if row["scheme"] == s] for s in (PLAIN, LATTICE))
    return float(mean(plain) - mean(lattice))


def shown(rows: Sequence[Row]) -> list[Shown]:
    """Every table."""
    tables = [_operations(of(rows, OPERATIONS))] if of(rows, OPERATIONS) else []
    for what in ("trees", "samples"):
        for group in grouped(of(rows, what), "data", "rows"):
            tables.append(_trees(group))
            if what == "trees":
                tables.append(_links(group))
    for what, table in (("memory", _memory), ("auc", _auc)):
        if of(rows, what):
            tables.append(table(of(rows, what)))
    return [*tables, *encryption_choice.choices(rows)]


def _operations(group: list[Row]) -> Shown:
    by_name = {row["scheme"]: row for row in group}
    reference = by_name.get(LATTICE)
    lines = []
    for name, each in NAMES.items():
        cells = [name, each]
        for row in group:
            spent = row["ns"][name]
            times = f" ({spent / reference['ns'][name]:,.3g} ×)" if reference else ""
            cells.append(_time(spent) + ("" if row is reference else times))
        lines.append(tuple(cells))
    for what, each in ((ROW_BYTES, "row"), (CANDIDATE_BYTES, "candidate")):
        lines.append((what, each, *(f"{row[what]:,.0f}" for row in group)))
    note = (
        "Processor time of one core, least of several times, in one process; in parentheses: "
        f"times that of {LATTICE}. A row is one gradient and one hessian. Candidates share "
        "packages with every scheme but the lattices; blinding is counted, though jobs make it "
        "while they wait."
    )
    return Shown("Operations", ("operation", "for each", *by_name), lines, note)


def _time(nanoseconds: float) -> str:
    for unit, each in (("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= each:
            return f"{nanoseconds / each:,.3g} {unit}"
    return f"{nanoseconds:,.3g} ns"


def _trees(group: list[Row]) -> Shown:
    reference = next((row for row in group if row["scheme"] == LATTICE), None)
    lines = []
    for row in group:
        cells = [row["scheme"], number(row["wall_s"], 2), number(row["cpu_s"], 2)]
        for what in ("wall_s", "cpu_s"):
            whole = reference[what] if reference is not None else None
            known = whole and row[what] is not None
            cells.append(f"{row[what] / whole:.2f}" if known else "")
        cells.append(f"{row['sent']:,.0f}")
        cells += [number(row["party_cpu_s"].get(party), 2) for party in ("guest", HOST)]
        lines.append((*cells, *machine_cells(row)))
    heads = ("scheme", "wall s", "CPU s", "wall ÷ lattice", "CPU ÷ lattice", "bytes",
             "guest's CPU s", "host's CPU s", "cores of others", "load average")  # fmt: skip
    notes = [disturbance(group)]
    for row in group:
        if row["scaled_from"]:
            few, many = (f"{rows:,}" for rows in row["scaled_from"])
            notes.append(
                f"{row['scheme']} was not run on so many rows: its figures are the straight line "
                f"through samples of {few} and {many} rows, which stand below."
            )
    sample = "a sample, " if group[0]["what"] == "samples" else ""
    title = f"{group[0]['data']}: one tree, {sample}{size(group[0])}"
    return Shown(title, heads, lines, " ".join(filter(None, notes)))


def _links(group: list[Row]) -> Shown:
    """What the measured trees would take if their bytes went over a link."""
    lines = []
    for row in group:
        over = [row["wall_s"] + 8 * row["sent"] / speed for speed in LINKS.values()]
        lines.append((row["scheme"], *(number(seconds, 1) for seconds in over)))
    note = "Wall seconds of a tree on this machine, and its bytes over the link on top."
    return Shown(f"{group[0]['data']}: one tree over a link, s", ("scheme", *LINKS), lines, note)


def _memory(group: list[Row]) -> Shown:
    lines = [
        (row["data"], size(row), row["scheme"],
         *(f"{row['peak'][party] / 1e9:.2f}" for party in ("guest", HOST)))
        for row in group
    ]  # fmt: skip
    note = (
        "The most that a party's daemon and its worker processes have held, each one's own peak "
        "added up: alignment of the ids and one tree."
    )
    heads = ("data", "size", "scheme", "guest, GB", "host, GB")
    return Shown("Memory", heads, lines, note)


def _auc(group: list[Row]) -> Shown:
    lines = []
    for own in grouped(group, "data"):
        lattice = [row for row in own if row["scheme"] == LATTICE]
        cells = [own[0]["data"], f"{own[0]['rows']:,}", str(len(lattice))]
        for part in ("train", "validation"):
            plain = mean(row[part] for row in own if row["scheme"] == PLAIN)
            found = [row[part] for row in lattice]
            widest = max(found) - min(found) if len(found) > 1 else None
            cells += [f"{plain:.5f}", f"{mean(found):.5f}", f"{gap(own, part):+.5f}"]
            cells.append(number(widest, 5))
        lines.append(tuple(cells))
    heads: tuple[str, ...] = ("data", "rows", "lattice models")
    for part in ("train", "validation"):
        heads += (f"{part}, Paillier", f"{part}, lattice", "gap", "lattice, widest")
    note = (
        f"{group[0]['rounds']} rounds, a validation part of 30 %. With Paillier, Okamoto-Uchiyama "
        "and no encryption at all trees are the same, bit for bit, so that Paillier's model "
        "was trained without encryption. The lattice rounds gradients at random: of several models "
        "the mean, and how far they are apart. A gap below zero: the lattice is the better one. "
        "Of several classes the mean of each one's AUC against all others."
    )
    return Shown("AUC", heads, lines, note)
