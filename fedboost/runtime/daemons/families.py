"""Every metric that a daemon shows, in one table: name, kind, labels, meaning, and who has it.

Labels are names that the daemon's own files hold, or words of ours: there are only so many of them,
whatever jobs and peers say, and none of them is a column, a row or a secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
At: TypeAlias = Literal["every daemon", "coordinator", "party"]

SECONDS = (0.005, 0.02, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)  # of histograms


@dataclass(frozen=True)
class Family:
    """One metric; counters and histograms grow with events, gauges are read when asked for."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    says: str
    at: At = "every daemon"


_ALL = (
    Family("fedboost_info", "gauge", ("role", "name", "version", "wire_version"),
           "1, with who the daemon is and which version it runs"),
    Family("fedboost_jobs", "gauge", ("state",), "jobs in the daemon's store, by state"),
    Family("fedboost_calls_refused_total", "counter", ("code",),
           "refused calls, by the error's code; policy: by the policy, or who may do what"),
    Family("fedboost_connection_failures_total", "counter", ("peer",),
           "calls to a daemon that did not reach it, or lost it; each try counts"),
    Family("fedboost_certificate_end_timestamp_seconds", "gauge", (),
           "when our certificate ends, in seconds since 1970"),
    Family("fedboost_store_free_bytes", "gauge", (), "free on the disk that holds the store"),
    Family("fedboost_event_loop_lag_seconds", "gauge", (),
           "how long the daemon's event loop took to answer just now; 2: longer than that"),
    Family("fedboost_job_ends_total", "counter", ("state",),
           "how often a job came to rest: finished, failed, cancelled, paused", "coordinator"),
    Family("fedboost_rounds_total", "counter", ("stage",),
           "finished rounds: trees of a training, batches of a prediction", "coordinator"),
    Family("fedboost_stage_seconds", "histogram", ("stage",), "seconds of a whole stage",
           "coordinator"),
    Family("fedboost_step_seconds", "histogram", ("stage", "step"),
           "seconds of a step until the slowest party had done it", "coordinator"),
    Family("fedboost_party_seconds_total", "counter", ("party", "stage"),
           "seconds in steps, waits for others included, as parties say", "coordinator"),
    Family("fedboost_party_cpu_seconds_total", "counter", ("party", "stage"),
           "processor seconds in steps, as parties say", "coordinator"),
    Family("fedboost_link_bytes_total", "counter", ("sender", "receiver"),
           "bytes of payloads from party to party, as parties say", "coordinator"),
    Family("fedboost_parties_lost_total", "counter", ("party",),
           "hosts that a job went on without for good", "coordinator"),
    Family("fedboost_warnings_total", "counter", ("party",),
           "warnings of a job, by the party that they are about", "coordinator"),
    Family("fedboost_waiting_seconds", "gauge", ("party", "reason"),
           "the longest that a job has waited for a party just now: for a step, an approval, "
           "or its return where it is paused", "coordinator"),
    Family("fedboost_own_step_seconds", "histogram", ("stage", "step"),
           "seconds of a step here, waits for peers included", "party"),
    Family("fedboost_own_step_cpu_seconds_total", "counter", ("stage",),
           "processor seconds in steps here, worker processes included", "party"),
    Family("fedboost_payload_bytes_total", "counter", ("direction", "peer"),
           "bytes of payloads that left (out) or came (in), by peer", "party"),
    Family("fedboost_payloads_total", "counter", ("direction", "peer"),
           "payloads that left (out) or came (in), by peer", "party"),
    Family("fedboost_checkpoints_total", "counter", ("stage",), "checkpoints kept here", "party"),
    Family("fedboost_ledger_rows", "gauge", (), "rows of the disclosure ledger", "party"),
    Family("fedboost_disclosed_sums", "gauge", ("dataset", "guest"),
           "released sums per bin and row that a guest has got of a data set, over all jobs",
           "party"),
    Family("fedboost_disclosed_sums_limit", "gauge", ("limit",),
           "the policy's disclosure_warn and disclosure_max, as warn and max", "party"),
    Family("fedboost_disclosed_epsilon_row", "gauge", ("dataset",),
           "epsilon of a row of a data set, over all jobs that told noisy values of it", "party"),
    Family("fedboost_worker_memory_peak_bytes", "gauge", (),
           "peak memory of the worker processes together", "party"),
)  # fmt: skip


def of(role: Literal["coordinator", "party"]) -> list[Family]:
    """Return what a daemon of that role shows, in the table's order."""
    return [family for family in _ALL if family.at in ("every daemon", role)]
