"""Gradient boosting on numpy and numba; it knows one table and no party.

Modules:
    binning          cut points of columns, and values as bin numbers
    bins             tables of bins, dense or sparse
    categories       splits of categorical columns
    column_readings  columns as networks read them: standardised, ranks, single cuts
    early_stopping   when a metric has stopped improving
    fixed_point      gradients as integers, so that sums are exact
    forest           how many trees a round grows, and on which rows
    gains            gains of splits, and the best splits of nodes
    gbun             boosting of untrained networks
    gradient_bits    how many bits of a gradient hosts add up
    groups           minimum groups: which sums are of enough rows to be released
    growing_trees    trees of one round that grow together
    growth           grows a tree from sums, whoever adds them up
    histogram        sums of gradients by node, column and bin
    hybrid           steps of HybridTree on a party's rows
    leaf_gradients   gradients as exact as sums can be, for leaf values
    local            training on one pooled table
    margins          margins after a round, finite or refused
    metrics          metrics and curves in float64
    monotone         bounds of the weights below a node, where predictions have an order
    networks         random one-layer networks from a seed
    objectives       objectives, a record each: derivatives, labels, predictions
    other_names      what other libraries call a parameter
    own_rows         keeps a contributor's small groups of rows out of sums
    params           settings that all boosting protocols share
    partition        which rows are in which node
    placement        how far rows have been placed by divisions, in bits
    purity           how much a node says about its rows' labels
    quantiles        quantiles of many parties' columns by counting
    row_parts        rows of growing trees where others add them up
    rules            rules by which trees of a job grow
    sampling         rows and columns that a tree uses, from the job's seed
    split            candidate splits, leaf values
    tallies          metrics from sums over parties
    threads          threads that share a kernel's work
    tree             one grown tree, and its predictions
    weight_checks    what weights may be
    xxhash           the hash xxHash32
"""
