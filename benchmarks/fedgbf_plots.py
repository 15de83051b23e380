"""The plot of the FedGBF benchmark: measured seconds beside the bounds of the paper."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks import plus_plots
from benchmarks.fedgbf_jobs import DYNAMIC, SECUREBOOST, Schedule
from benchmarks.fedgbf_tables import Jobs
from benchmarks.plus_plots import Group
from benchmarks.plus_tables import Row, grouped, of, size
from fedboost.report.charts import Bar

FILE = "fedgbf-time.svg"
TITLE = "Seconds to train, beside the bounds of equations 9 and 10"
MEASURED, WHOLE, BOUND = 1, 6, 3  # colours of the style


def write(folder: Path, rows: Sequence[Row]) -> list[str]:
    """Writes the plot if it has rows; gives the Markdown that shows it."""
    drawn = groups(rows)
    if not drawn:
        return []
    (folder / FILE).write_text(plus_plots.picture(TITLE, drawn) + "\n", encoding="utf-8")
    return [f"![{TITLE}]({FILE})"]


def groups(rows: Sequence[Row]) -> list[Group]:
    """Processor seconds of both systems, of the slowest trees alone, and both bounds.

    Wall seconds where the machine does not tell processor seconds.
    """
    found = []
    for own in grouped(of(rows, "time"), "data"):
        jobs = Jobs.of(own)
        clock, name = ("wall_s", "wall") if jobs.unit("cpu_s") is None else ("cpu_s", "CPU")
        unit, moving = jobs.unit(clock), Schedule.of(jobs.rounds)
        assert unit is not None
        bars = {
            SECUREBOOST: (jobs.whole[SECUREBOOST][clock], WHOLE),
            "equation 10": (moving.most * unit, BOUND),
            DYNAMIC: (jobs.whole[DYNAMIC][clock], MEASURED),
            "slowest trees alone": (jobs.path(clock), MEASURED),
            "equation 9": (moving.least * unit, BOUND),
        }
        known = {label: bar for label, bar in bars.items() if bar[0] is not None}
        drawn = [Bar(value, colour, f"{value:,.1f} s") for value, colour in known.values()]
        title = f"{own[0]['data']}, {name} seconds of {jobs.rounds} rounds: {size(own[0])}"
        found.append(Group(title, list(known), drawn))
    return found
