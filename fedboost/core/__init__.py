"""Gradient boosting on numpy and numba; it knows one table and no party.

Modules:
    binning          cut points of columns, and values as bin numbers
    bins             tables of bins, dense or sparse
    categories       splits of categorical columns
    column_readings  columns as networks read them: standardised, ranks, single cuts
    early_stopping   stops when a metric has stopped improving
    fixed_point      gradients as integers, so that sums are exact
    forest           number of trees of a round, and their share of the rows
    gains            gains of splits, and the best splits of nodes
    gbun             boosting of untrained networks
    gradient_bits    number of bits of a gradient that hosts add up
    groups           minimum groups: sums of too few rows are not released
    growing_trees    trees of one round that grow together
    growth           grows a tree from sums over one or many tables
    histogram        sums of gradients by node, column and bin
    hybrid           steps of HybridTree on a party's rows
    leaf_gradients   gradients as exact as sums can be, for leaf values
    local            training on one pooled table
    margins          checks that margins after a round are finite
    metrics          metrics in float64
    monotone         bounds of the weights below a node, for ordered predictions
    networks         random one-layer networks from a seed
    objectives       objectives, a record each: derivatives, labels, predictions
    other_names      names of parameters in other libraries
    own_rows         keeps a contributor's small groups of rows out of sums
    params           settings that all boosting protocols share
    partition        rows of each node
    placement        how far divisions have placed rows, in bits
    purity           how much a node says about its rows' labels
    quantiles        quantiles of many parties' columns by counting
    roc_curves       curves of a binary prediction
    row_parts        rows of growing trees that workers add up
    rules            rules that all trees of a job share
    sampling         rows and columns that a tree uses, from the job's seed
    split            candidate splits, leaf values
    tallies          metrics from sums over parties
    threads          threads that share a kernel's work
    tree             one grown tree, and its predictions
    weight_checks    checks of weights
    xxhash           the hash xxHash32
"""
