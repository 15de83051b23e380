"""What the FederBoost benchmark says of every timed job, whichever way its data is dealt."""

from collections.abc import Sequence
from statistics import median

from benchmarks.federboost_jobs import Params, Train
from benchmarks.harness import JobRun, StepTotal
from benchmarks.plus_tables import Row
from benchmarks.tables import Table


def facts(table: Table) -> Row:
    """What the data is, in the columns of every row."""
    return {"data": table.name, "rows": len(table.y), "columns": len(table.columns)}


def jobs(run: Train, given: Params, repeats: int) -> tuple[JobRun, list[JobRun]]:
    """A first job, which loads what the daemons have not yet used, and those that count.

    Without repeats it is the first one itself that counts.
    """
    first, *runs = [run(given) for _ in range(1 + repeats)]
    return first, runs or [first]


def spent(first: JobRun, runs: Sequence[JobRun]) -> Row:
    """What these jobs took, after a first one."""
    return {
        "seconds": [one.result["seconds"]["train"] for one in runs],
        "first": first.result["seconds"]["train"],
        "align": median_known([one.result["seconds"].get("align") for one in runs]),
        "cpu_s": median_known([one.training.get("ours") for one in runs]),
        "others": median_known([_others(one) for one in runs]),
        "sent": sum(sum(step.bytes.values()) for step in of_stage(runs[-1])),
        "load": runs[0].load_before,
    }


def of_stage(run: JobRun) -> list[StepTotal]:
    """The steps of the training itself."""
    return [step for step in run.steps if step.stage == run.result["protocol"]]


def median_known(values: Sequence[float | None]) -> float | None:
    """The median of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _others(run: JobRun) -> float | None:
    """Cores that others kept busy while a job trained."""
    took = run.training
    return took["others"] / took["seconds"] if took else None
