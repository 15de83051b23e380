"""Sums over parties of which nobody sees a part: what horizontal protocols build on.

    parties ◄── MaskKeys ──► parties      once a stage
    parties ─── Masked ───► aggregator    every sum
    parties ◄── Total ───── aggregator

With `dropout: wait` that is all, and a lost party pauses the job. With `dropout: continue` each
sum has mask keys of its own, of which every party holds shares, and a self-mask that only a
majority can take away:

    parties ◄── MaskKeys, DealtShares ──► parties    before some sums
    parties ─── Masked ─────────► aggregator         every sum
    parties ◄── Survivors ──────► parties            signed by all before anything is opened
    parties ─── RevealedShares ─► aggregator
    parties ◄── Total ─────────── aggregator

Bonawitz et al. (2017) in the shape of FederBoost's Protocol 5. The aggregator sees uniform words
and sums; a sum over fewer parties than an earlier one of the same statistic is never opened. Masks
are bound to the job, the stage, the attempt, the sum's number and all that was broadcast before, so
whoever tells parties different things gets noise. They are not bound to what is summed or to where
a party has resumed, and a false total that everybody is told fits (defence D10).

Protocols add the steps that give a vector and take its total.

Modules:
    aggregator   the aggregator's steps: adds masked vectors, returns the sum
    contributor  a party's side: keys, masked vectors, checks of totals
    counts       sums that come before trees: rows, sizes, labels
    measures     metrics by round over all parties' rows, and early stopping
    party        steps that every party of a sum takes, for role modules to import
    recovery     sums that go on without a lost party
    standing     finds the place where all contributors' records of sums agree
    statistic    describes what a masked vector is about
    sums         the steps of a sum, and how a walk calls them
    tag          one-time tags that show a false total
"""
