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

`contributor` is a party's side, `recovery` its part of `dropout: continue`, `aggregator` the role
module, `sums` the steps and how a walk calls them. Protocols add the steps that give a vector and
take its total.
"""
