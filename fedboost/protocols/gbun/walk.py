"""Order of the steps: sums of rows, cut points, columns and reach; then two sums and the metrics
each round."""

from fedboost.aggregation import lookup, sums
from fedboost.aggregation.sums import add_up
from fedboost.flow import EVERYBODY, GUEST, HOST, CheckpointPolicy, Run, Step
from fedboost.messages.protocol.aggregation_pb2 import Masked, MaskKeys, Total
from fedboost.messages.protocol.gbun_pb2 import Inputs

INPUT_STEPS = ("show_inputs", "match_inputs")
FLOW = (
    show_inputs := Step("show_inputs", GUEST, gives=Inputs),
    match_inputs := Step("match_inputs", HOST, takes=Inputs),
    # In front of the first sum of an attempt, and behind the last one.
    tell_standing := sums.tell_standing(*INPUT_STEPS, "hear_keys", "read_metrics"),
    sums.compare_standings,
    offer_keys := Step("offer_keys", EVERYBODY, gives=MaskKeys, after=("compare_standings",)),
    hear_keys := Step("hear_keys", EVERYBODY, takes=MaskKeys, after=("offer_keys",)),
    # Once a job.
    count_rows := Step("count_rows", EVERYBODY, gives=Masked, after=("hear_keys",), streams=True),
    read_counts := Step("read_counts", EVERYBODY, takes=Total, after=("count_rows",)),
    # Until every quantile is found, if networks read columns by their cut points.
    count_below := lookup.count_below_after("read_counts"),
    lookup.narrow,
    sum_columns := Step(
        "sum_columns", EVERYBODY, gives=Masked, after=("read_counts", "narrow"), streams=True
    ),
    read_columns := Step("read_columns", EVERYBODY, takes=Total, after=("sum_columns",)),
    show_reach := Step(
        "show_reach", EVERYBODY, gives=Masked, after=("read_columns",), streams=True
    ),
    read_reach := Step("read_reach", EVERYBODY, takes=Total, after=("show_reach",)),
    # Every round, with `dropout: continue`.
    offer_fresh_keys := sums.offer_fresh_keys("compare_standings", "read_reach", "read_metrics"),
    sums.deal_shares,
    sums.hold_shares,
    # Every round.
    sum_outputs := Step(
        "sum_outputs",
        EVERYBODY,
        gives=Masked,
        after=("hear_keys", "read_reach", "read_metrics", "hold_shares"),
        streams=True,
    ),
    normalise := Step(
        "normalise", EVERYBODY, takes=Total, after=("sum_outputs", "reveal_shares", "reveal_whole")
    ),
    sum_system := Step("sum_system", EVERYBODY, gives=Masked, after=("normalise",), streams=True),
    solve := Step("solve", EVERYBODY, takes=Total, after=("sum_system",)),
    measure := Step("measure", EVERYBODY, gives=Masked, after=("solve",), streams=True),
    read_metrics := Step(
        "read_metrics", EVERYBODY, takes=Total, after=("measure", "reveal_shares", "reveal_whole")
    ),
    close_model := Step("close_model", EVERYBODY, after=("compare_standings",)),
    # Steps that open a sum.
    reveal_whole := sums.reveal_whole("sum_outputs", "measure"),
    sign_survivors := sums.sign_survivors("sum_outputs", "measure"),
    sums.reveal_shares,
    *sums.ADDING,
)
OUTPUTS_SUM = sums.FreshSum(sum_outputs, reveal_whole, sign_survivors, normalise)
SYSTEM_SUM = sums.WholeSum(sum_system, solve)
NETWORK_METRICS_SUM = sums.FreshSum(measure, reveal_whole, sign_survivors, read_metrics)


async def walk(run: Run) -> None:
    """Run a job; a round is requested at once, and costs three messages there and back."""
    waits = run.params.dropout == "wait"
    await run(show_inputs, match_inputs)
    await sums.compare_records(run, tell_standing)
    if waits or not run.is_resumed:  # sums over other parties get other keys
        await run(offer_keys, hear_keys)
    if not run.is_resumed:
        await run(count_rows, add_up, read_counts)
        await lookup.find_cuts(run, count_below)
        await run(sum_columns, add_up, read_columns)
        await run(show_reach, add_up, read_reach)
        # A party may be lost in the first round, which has no checkpoint before it.
        run.keep(CheckpointPolicy.NOW_AND_THEN if waits else CheckpointPolicy.EACH)
    if waits:
        for _ in run.rounds("round", run.params.n_estimators, keeps=CheckpointPolicy.NOW_AND_THEN):
            first, second = (sum_outputs, add_up, normalise), (sum_system, add_up, solve)
            await run(*first, *second, measure, add_up, read_metrics)
    else:
        # A round that loses a party begins again, with another network.
        most = run.params.n_estimators + len(run.table.hosts)
        for _ in run.rounds("round", most):
            keyed = await sums.exchange_keys(run, offer_fresh_keys)
            await OUTPUTS_SUM.walk(run, keyed)
            await SYSTEM_SUM.walk(run)
            await NETWORK_METRICS_SUM.walk(run, keyed)
    await sums.compare_records(run, tell_standing, spares=not waits)
    await run(close_model)
