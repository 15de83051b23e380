"""Private set intersection by an oblivious pseudorandom function, at the speed of symmetric keys.

```
guest   guest.OprfGuest   A                                          ──► host
        part b            rows of T0 ⊕ T1 ⊕ C(D), and the check      ──► host
host    host.OprfHost     choices of the base transfers              ──► guest
one     tags.TagHost      part b: tags of its ids                    ──► guest
        tags.TagGuest     marks on the tags, a digest of proofs      ──► host
several hints.HintHost    part b: a store of values plus shares      ──► guest
        hints.HintGuest   proofs of the ids that all hold            ──► host
```

docs/explanation/oprf.md says why each step is there.

Modules:
    base_transfers  the few oblivious transfers with curve points
    blake2s         keyed hashes of many messages
    code            the linear code of the extension
    extension       columns from keys, weights and sums of the check
    guest           asks for the function's values
    hints           several hosts: stores of values plus shares
    host            computes the function, and checks the guest's parts
    ids             digests of ids, by part
    rows            kernels on rows of 512 bits
    session         names and keys of one pair's run
    sizes           sizes of all messages
    store           oblivious key-value stores
    tags            one host: tags, marks and proofs
"""
