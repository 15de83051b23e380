"""Order of the steps: sums of rows and labels, cut points, tree after tree."""

from fedboost.aggregation import lookup, sums
from fedboost.aggregation.sums import add_up
from fedboost.flow import EVERYBODY, GUEST, HOST, CheckpointPolicy, Run, Step
from fedboost.messages.protocol.aggregation_pb2 import Masked, MaskKeys, Total
from fedboost.messages.protocol.federboost_horizontal_pb2 import Columns

COLUMN_STEPS = ("show_columns", "match_columns")
FLOW = (
    show_columns := Step("show_columns", GUEST, gives=Columns),
    match_columns := Step("match_columns", HOST, takes=Columns),
    # In front of the first sum of an attempt, and behind the last one.
    tell_standing := sums.tell_standing(*COLUMN_STEPS, "hear_keys", "hold_shares", "read_metrics"),
    sums.compare_standings,
    offer_keys := Step("offer_keys", EVERYBODY, gives=MaskKeys, after=("compare_standings",)),
    hear_keys := Step("hear_keys", EVERYBODY, takes=MaskKeys, after=("offer_keys",)),
    # Once a job.
    count_rows := Step("count_rows", EVERYBODY, gives=Masked, after=("hear_keys",), streams=True),
    read_counts := Step("read_counts", EVERYBODY, takes=Total, after=("count_rows",)),
    sum_labels := Step("sum_labels", EVERYBODY, gives=Masked, after=("read_counts",), streams=True),
    read_labels := Step("read_labels", EVERYBODY, takes=Total, after=("sum_labels",)),
    # Until every quantile is found.
    count_below := lookup.count_below_after("read_labels"),
    lookup.narrow,
    # With `dropout: continue`, in front of the first round and where a party was lost.
    offer_fresh_keys := sums.offer_fresh_keys(
        "compare_standings", "read_labels", "narrow", "read_metrics"
    ),
    sums.deal_shares,
    sums.hold_shares,
    # Every layer.
    sum_histograms := Step(
        "sum_histograms",
        EVERYBODY,
        gives=Masked,
        after=("hear_keys", "read_labels", "narrow", "read_metrics", "split_nodes", "hold_shares"),
        streams=True,
    ),
    split_nodes := Step(
        "split_nodes",
        EVERYBODY,
        takes=Total,
        after=("sum_histograms", "reveal_shares", "reveal_whole"),
    ),
    # Every round.
    # Also where an attempt takes up a tree that has grown all its layers.
    measure := Step(
        "measure",
        EVERYBODY,
        gives=Masked,
        after=("split_nodes", "hear_keys", "hold_shares"),
        streams=True,
    ),
    read_metrics := Step("read_metrics", EVERYBODY, takes=Total, after=("measure",)),
    close_model := Step("close_model", EVERYBODY, after=("compare_standings",)),
    # Steps that open a sum.
    reveal_whole := sums.reveal_whole("sum_histograms"),
    sign_survivors := sums.sign_survivors("sum_histograms"),
    sums.reveal_shares,
    *sums.ADDING,
)
ROOT_SUM = sums.FreshSum(sum_histograms, reveal_whole, sign_survivors, split_nodes)
LAYER_SUM = sums.WholeSum(sum_histograms, split_nodes)
TREE_METRICS_SUM = sums.WholeSum(measure, read_metrics)


async def walk(run: Run) -> None:
    """Run a job: each layer of a tree costs a message there and back, and so do its metrics.

    Metrics that travel with the next tree's root cost nothing more.
    """
    waits = run.params.dropout == "wait"
    await run(show_columns, match_columns)
    await sums.compare_records(run, tell_standing)
    if waits or not run.is_resumed:  # sums over other parties get other keys
        await run(offer_keys, hear_keys)
    if not run.is_resumed:
        await run(count_rows, add_up, read_counts)
        await run(sum_labels, add_up, read_labels)
        await lookup.find_cuts(run, count_below)
        run.keep()
    await (grow_trees(run) if waits else grow_trees_without_the_lost(run))
    await sums.compare_records(run, tell_standing, spares=not waits)
    await run(close_model)


async def grow_trees(run: Run) -> None:
    """Grow several trees at once if they are quick; the job waits for a lost party.

    Unless metrics may end the job, those of a tree are a part of the next one's first sum, except
    for the last tree of a call.
    """
    depth = run.params.max_depth

    async def slowly(run: Run) -> None:
        for _ in run.rounds("layer", depth, keeps=CheckpointPolicy.NOW_AND_THEN):
            await run(*LAYER_SUM.steps)
        await run(*TREE_METRICS_SUM.steps)

    trees, layers, metrics = (
        run.params.n_estimators,
        LAYER_SUM.steps * depth,
        TREE_METRICS_SUM.steps,
    )
    if run.params.early_stopping_rounds is None:
        await run.loop("tree", trees, *layers, slowly=slowly, around=((), metrics))
    else:
        await run.loop("tree", trees, *layers, *metrics, slowly=slowly)


async def grow_trees_without_the_lost(run: Run) -> None:
    """Grow trees that go on with fewer parties, or end, when one is lost."""
    depth = run.params.max_depth
    keyed = await sums.exchange_keys(run, offer_fresh_keys)

    async def slowly(run: Run) -> None:
        """Grow one tree step by step, from the step that was interrupted."""
        nonlocal keyed
        reads = sum(step in (split_nodes, read_metrics) for step in run.broken_off)
        done = depth + 1 - reads if run.broken_off else 0
        if not run.broken_off and run.present != keyed:
            keyed = await sums.exchange_keys(run, offer_fresh_keys)
        for layer in run.rounds("layer", depth, keeps=CheckpointPolicy.NOW_AND_THEN):
            behind = run.broken_off[0] if run.broken_off and layer == done else None
            if layer == 0 and layer >= done:
                await ROOT_SUM.walk(run, keyed, behind)
            elif layer >= done:
                await LAYER_SUM.walk(run, behind)
        await TREE_METRICS_SUM.walk(
            run, run.broken_off[0] if run.broken_off and done == depth else None
        )

    steps = (*ROOT_SUM.steps, *LAYER_SUM.steps * (depth - 1), *TREE_METRICS_SUM.steps)
    await run.loop(
        "tree",
        run.params.n_estimators,
        *steps,
        around=((sums.stand_by,), ()),
        slowly=slowly,
    )
