"""Figures and tables of trees over a line, from nothing but the rows of the benchmark's JSON."""

from collections.abc import Sequence
from statistics import median

from benchmarks.encryption_link import LATTICE, OKAMOTO_UCHIYAMA, PAILLIER
from benchmarks.encryption_plan import PLAIN
from benchmarks.harness import Shown
from benchmarks.plus_tables import Row, disturbance, grouped, number, of, size
from benchmarks.tables import GUEST, HOST

RIVALS = {"paillier": PAILLIER, "okamoto_uchiyama": OKAMOTO_UCHIYAMA}
MEGA, GIGA = 1e6, 1e9


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Seconds and bytes of a tree by split and case, ratios to the lattices', round trips."""
    found: dict[str, float] = {}
    for group in grouped(of(rows, "link"), "split"):
        split = _key(group[0]["split"])
        whole = {row["case"]: row for row in merged(group)}
        for case, row in whole.items():
            found[f"link_s.{split}.{_key(case)}"] = row["wall_s"]
            found[f"link_mb.{split}.{_key(case)}"] = row["sent"] / MEGA
            for rival, name in RIVALS.items():
                if case.startswith(LATTICE) and name in whole:
                    ratio = whole[name]["wall_s"] / row["wall_s"]
                    found[f"link_ratio.{split}.{rival}.{_key(case)}"] = ratio
    for row in of(rows, "trips"):
        found[f"round_trips.{_key(row['coordinator'])}"] = row["a_layer"]
    return found


def merged(group: Sequence[Row]) -> list[Row]:
    """One row for each case: the median of its jobs' times, and the peak of all."""
    found = []
    for own in grouped(group, "case"):
        one = dict(own[-1])
        one["wall_s"] = median(row["wall_s"] for row in own)
        one["cpu_s"] = {p: median(row["cpu_s"][p] for row in own) for p in one["cpu_s"]}
        found.append(one)
    return found


def shown(rows: Sequence[Row]) -> list[Shown]:
    """A table for each split, and one of round trips."""
    left_out = of(rows, "left out")
    drawn = [
        _trees(group, [row for row in left_out if row["split"] == group[0]["split"]])
        for group in grouped(of(rows, "link"), "split")
    ]
    return [*drawn, *([_trips(of(rows, "trips"))] if of(rows, "trips") else [])]


def _trees(group: list[Row], left_out: Sequence[Row]) -> Shown:
    whole = merged(group)
    wall = {row["case"]: row["wall_s"] for row in whole}
    lines = []
    for row in whole:
        cells = [row["case"], number(row["wall_s"], 2)]
        cells += [number(wall[case] / row["wall_s"], 2) if case in wall else ""
                  for case in (PAILLIER, OKAMOTO_UCHIYAMA, PLAIN)]  # fmt: skip
        cells.append(number(row["sent"] / MEGA, 2))
        cells += [number(row["cpu_s"][party], 2) for party in (GUEST, HOST)]
        cells += [number(row["peak"][party] / GIGA, 2) for party in (GUEST, HOST)]
        lines.append(tuple(cells))
    heads = ("case", "s", "Paillier ÷", "Okamoto-Uchiyama ÷", "plain ÷", "MB", "guest's CPU s",
             "host's CPU s", "guest's peak, GB", "host's peak, GB")  # fmt: skip
    notes = [disturbance(group)]
    notes += [f"Left out: {row['case']} ({row['why']})." for row in left_out]
    title = f"{group[0]['split']}: one tree over the link, {size(group[0])}"
    return Shown(title, heads, lines, " ".join(filter(None, notes)))


def _trips(group: list[Row]) -> Shown:
    lines = [
        (row["coordinator"], number(row["a_layer"], 2), number(row["a_tree_more"], 1))
        for row in group
    ]
    note = (
        "Slopes of seconds over latency, of trees that differ in their layers alone. A tree's own "
        "are gradients, leaves, metrics and a checkpoint."
    )
    heads = ("machine of the coordinator", "a layer", "a tree, besides")
    return Shown("Round trips, one behind the other", heads, lines, note)


def _key(text: str) -> str:
    """A name as a figure's is written."""
    return text.replace(",", "").replace(" ", "_").replace("'", "")
