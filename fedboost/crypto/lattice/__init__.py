"""Ring learning with errors as a scheme that only adds: rows, cells and answers of one tree.

```
guest   secret.TreeSecret    one secret per output, fresh for every tree and its messages
          rows               b = a·s + e + Δ·m, a block of N rows at a time        ──► host
          public_keys        b' = a'·s + e'                                        ──► host
host    rows.Rows            what came, and the polynomials a, which both sides derive
          cells.Cells        sums of windows of [−a, a] and of b: no multiplication
          answers.TreeKey    release: + zero encryption, + flood, rounded, mod 2^W   ──► guest
guest   decryption.decrypt   sums of m, exact
```

`parameters` says which rings there are and refuses weaker ones, `budget` how many rows fit,
`polynomials` how both sides come by a and a', `samples` how secret octets become noise, `product`
how polynomials are multiplied. docs/explanation/lattice.md says why each step is there.
"""
