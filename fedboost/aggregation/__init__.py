"""Sums over parties that hide each party's part: the base of horizontal protocols.

    parties ◄── Standing ──► parties      once an attempt, and behind the last sum
    parties ◄── MaskKeys ──► parties      once an attempt
    parties ─── Masked ───► aggregator    every sum
    parties ◄── Total ───── aggregator

With `dropout: wait` there are no other messages, and a lost party pauses the job. With `dropout:
continue` the same holds for statistics that continue an earlier one: without a party their sum
stays closed. Each fresh statistic has its own mask keys, shared among all parties, and a self-mask
that only a majority can remove:

    parties ◄── MaskKeys, DealtShares ──► parties    before many sums
    parties ─── Masked ─────────► aggregator         every sum
    parties ◄── Gathered ──────── aggregator         if all vectors have come; otherwise
    parties ◄── Survivors ──────► parties            the remaining parties, signed before opening
    parties ─── RevealedShares ─► aggregator
    parties ◄── Total ─────────── aggregator

Bonawitz et al. (2017) in the shape of FederBoost's Protocol 5. The aggregator sees only uniform
words and sums; a sum over fewer parties than an earlier one of the same statistic is never opened.
Masks are bound to a history that each contributor keeps itself: the job, its contributors, the
subject of each sum, and all totals so far. A contributor with another history is named before the
first sum, and one that received other totals gets noise. A tag inside each vector detects an
aggregator that sends a false total (docs/explanation/sums-under-masks.md).

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
