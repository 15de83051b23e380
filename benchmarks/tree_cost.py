"""What one tree of an encrypted job takes, from the coordinator's journal of the job."""

from dataclasses import dataclass
from statistics import mean, median
from typing import Self

from benchmarks import harness
from benchmarks.harness import JobRun

# Steps that are done once a job: the key or what takes its place, and keys for masks.
ONCE = frozenset({"offer_nonce", "share_key", "offer_answer_key", "share_rows"})


@dataclass(frozen=True)
class Cost:
    """What one tree takes."""

    wall_s: float  # median of cycles, their mean each; the first cycle warms up
    cpu_s: float | None  # of all our processes, mean of the same trees; None where unknown
    sent: float  # bytes on the data plane, mean of all trees
    others: float | None  # cores that other processes kept busy meanwhile; None where unknown
    load: list[float]  # average before

    @classmethod
    def of(cls, run: JobRun, cycle: int = 1) -> Self:
        """Of a job's trees, `cycle` of which give every party its turn.

        What is done once, the key's making and sharing above all, is left out.
        """
        counted = run.trees[cycle:] or run.trees
        seconds = [tree.seconds for tree in counted]
        cycles = [seconds[i : i + cycle] for i in range(0, len(seconds), cycle)]
        own = [step for step in run.steps if step.stage == run.result["protocol"]]
        sent = sum(sum(step.bytes.values()) for step in own if step.step not in ONCE)
        ours, others = harness.spent(counted)
        return cls(
            wall_s=median(mean(each) for each in cycles),
            cpu_s=None if ours is None else ours / len(counted),
            sent=sent / len(run.trees),
            others=None if others is None else others / sum(seconds),
            load=run.load_before,
        )
