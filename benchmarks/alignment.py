"""Time, memory and bytes of finding the ids in common, on real daemons over mutual TLS.

python -m benchmarks.alignment [--quick] [--json F] [--record F] [--data CASE] [--method M]
[--link 20mbit,50ms] [--ids N]
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks import alignment_jobs, harness
from benchmarks.alignment_jobs import (
    CASES,
    ECDH,
    ECDH_IDS_MAX,
    LINK,
    METHODS,
    OPRF,
    QUICK_IDS_MAX,
    Row,
)
from benchmarks.harness import Report, Shown, say
from benchmarks.links import Link

NAME = "alignment"
GB = 1e9


def main(given: Sequence[str] | None = None) -> None:
    """Measures, prints, writes; see the harness for the options."""
    asked = options(given)
    most = min(asked.ids or 1 << 62, QUICK_IDS_MAX if asked.quick else 1 << 62)
    told = {"methods": asked.method, "quick": asked.quick, "ids_max": asked.ids or "all"}
    report = Report(NAME, {**told, "ids_max_ecdh": ECDH_IDS_MAX, "cores": harness.cores()})
    price = alignment_jobs.multiplication_s()
    for case in CASES:
        if case.name not in asked.data:
            continue
        linked = case if case.link is None else replace(case, link=asked.link)
        for method in asked.method:
            cut = linked.cut(min(most, ECDH_IDS_MAX) if method == ECDH else most)
            say.print(f"[bold]{case.name}[/], {method}: {cut.sizes}")
            row = alignment_jobs.measure(cut, method)
            row["floors"] = floors(row, alignment_jobs.in_clear(cut), price)
            report.rows.append(row)
    report.figures = figures(report.rows)
    report.write(asked, [*_shown(report.rows), _messages(report.rows)])


def floors(row: Row, clear: Row, price: float) -> dict[str, float]:
    """Seconds that no program of the same method can go below, by reason, on all cores."""
    found = {"clear": clear["seconds"] / harness.cores()}
    if row["method"] != OPRF:
        found["curve"] = alignment_jobs.multiplications(row["sizes"]) * price / harness.cores()
    if row["link"]:
        found["link"] = alignment_jobs.line_seconds(row["sent"], Link.parse(row["link"]))
    return found


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """``WHAT.CASE.METHOD``; and by how much a method that took fewer ids is slower for each."""
    found: dict[str, float] = {}
    for row in rows:
        at = f"{row['case']}.{row['method']}"
        guest, *hosts = row["sizes"]
        found |= {
            f"seconds.{at}": row["seconds"],
            f"cpu_guest.{at}": row["cpu"][guest],
            f"cpu_host.{at}": max(row["cpu"][host] for host in hosts),
            f"gb_guest.{at}": row["peak"][guest] / GB,
            f"gb_host.{at}": max(row["peak"][host] for host in hosts) / GB,
            f"bytes_per_id.{at}": bytes_per_id(row),
            **{f"floor_{why}.{at}": seconds for why, seconds in row["floors"].items()},
        }
        if row["link"]:
            found[f"target_link.{at}"] = 1.2 * row["floors"]["link"] + 10.0
    for row in rows:
        other = next((r for r in rows if r["case"] == row["case"] and r["method"] == ECDH), None)
        if row["method"] != ECDH and other is not None:
            found[f"times_faster_an_id.{row['case']}"] = _an_id(other) / _an_id(row)
    return found


def bytes_per_id(row: Row) -> float:
    """Bytes of all messages, both ways, for each id of the larger set of guest and hosts."""
    return float(sum(row["kinds"].values()) / max(row["sizes"].values()))


def _an_id(row: Row) -> float:
    return float(row["seconds"] / max(row["sizes"].values()))


def options(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line: that of every benchmark, and more."""
    names = [case.name for case in CASES]
    parser = harness.parser(NAME, __doc__ or "", names)
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one")
    parser.add_argument("--link", type=Link.parse, default=LINK, help="of cases that have one")
    parser.add_argument("--ids", type=int, metavar="N", help="of a set at most")
    found = harness.parse(parser, names, given)
    found.method = found.method or [OPRF, ECDH]
    return found


def _shown(rows: Sequence[Row]) -> Iterator[Shown]:
    heads = (
        *("case", "method", "ids", "seconds", "job s", "floors", "guest CPU s", "host CPU s"),
        *("guest GB", "host GB", "bytes an id", "load"),
    )
    lines = []
    for row in rows:
        guest, *hosts = row["sizes"]
        why = ", ".join(f"{name} {seconds:.2f}" for name, seconds in row["floors"].items())
        pairs = [(row["cpu"], 1.0, ".2f"), (row["peak"], GB, ".2f")]
        spent = [
            f"{max(of[p] for p in own) / unit:{form}}"
            for of, unit, form in pairs
            for own in ([guest], hosts)
        ]
        sizes = " × ".join(f"{size:,}" for size in row["sizes"].values())
        took = f"{row['seconds']:.2f}", f"{row['job_seconds']:.2f}"
        lines.append(
            (row["case"], row["method"], sizes, *took, why, *spent, f"{bytes_per_id(row):.1f}",
             ", ".join(f"{one:g}" for one in row["load"]))
        )  # fmt: skip
    note = (
        "Seconds are of the stage, wall time. Floors: keyed digests compared in the clear; two "
        "multiplications an id and pair; the busiest line full. Of several hosts the most."
    )
    yield Shown("Alignments", heads, lines, note)


def _messages(rows: Sequence[Row]) -> Shown:
    lines = []
    for row in rows:
        most = max(row["sizes"].values())
        for kind, count in row["kinds"].items():
            each = f"{count / most:.2f}"
            lines.append((row["case"], row["method"], kind, f"{count:,}", each))
    heads = ("case", "method", "message", "bytes", "bytes an id")
    return Shown("Messages, by the parties' ledgers", heads, lines)


if __name__ == "__main__":
    main()
