"""Sums over parties of which nobody sees a part: what horizontal protocols build on.

    parties ◄── Standing ──► parties      once an attempt, and behind the last sum
    parties ◄── MaskKeys ──► parties      once an attempt
    parties ─── Masked ───► aggregator    every sum
    parties ◄── Total ───── aggregator

With `dropout: wait` that is all, and a lost party pauses the job. With `dropout: continue` the same
holds of statistics that go on from one before: without a party their sum stays closed. Each fresh
one has mask keys of its own, of which every party holds shares, and a self-mask that only a
majority can take away:

    parties ◄── MaskKeys, DealtShares ──► parties    before many sums
    parties ─── Masked ─────────► aggregator         every sum
    parties ◄── Gathered ──────── aggregator         where all vectors have come; otherwise
    parties ◄── Survivors ──────► parties            who is left, signed before anything is opened
    parties ─── RevealedShares ─► aggregator
    parties ◄── Total ─────────── aggregator

Bonawitz et al. (2017) in the shape of FederBoost's Protocol 5. The aggregator sees uniform words
and sums; a sum over fewer parties than an earlier one of the same statistic is never opened. Masks
are bound to a history that each contributor keeps itself: the job, its contributors, what each sum
is of, and all totals so far. Whoever stands elsewhere is named before the first sum, and whoever is
told something else gets noise. A tag inside each vector names an aggregator that tells a false
total (docs/explanation/sums-under-masks.md).

Protocols add the steps that give a vector and take its total.

Modules:
    aggregator   the aggregator's steps: adds masked vectors, returns the sum
    contributor  a party's side: keys, masked vectors, checks of totals
    lookup       search for the cut points of everybody's columns, by counting under masks
    measures     sums before trees; metrics by round over all parties' rows
    opened       a party's record of what may have been opened
    party        steps that every party of a sum takes, for role modules to import
    recovery     sums that go on without a lost party
    standing     where all contributors' records of sums agree; one-time tags
    statistic    describes what a masked vector is about
    sums         the steps of a sum, and how a walk calls them
"""
