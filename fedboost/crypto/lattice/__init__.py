"""Ring learning with errors as a scheme that only adds: rows, cells and answers of one tree.

```
guest   secret.TreeSecret    one secret per output, fresh for every tree and its messages
          rows               b = a·s + e + Δ·m, a block of N rows at a time        ──► host
          public_keys        b' = a'·s + e'                                        ──► host
          packing            s, encrypted, if answers are to be packed             ──► host
host    cells.EncryptedRows  received rows, and polynomials a, which both sides derive
          cells.LatticeSums  sums of windows of [−a, a] and of b: no multiplication
          answers.TreeKey    + zero encryption, + flood, modulo 2^W, by holders of cells
          released.release   rounded, with b; release_packed: many in a ciphertext  ──► guest
guest   decryption           sums of m, exact
```

docs/explanation/lattice.md says why each step is there.

Modules:
    answers       a host's answers: re-randomised, flooded with noise
    budget        bounds on the rows and the bits of sums
    cells         a host's rows and their sums
    decryption    decrypts answers and refuses impossible sums
    dense_sums    sums of many rows, by products
    packing       many answers' numbers in one ciphertext
    packing_keys  the guest's secrets, encrypted for it
    parameters    the rings to choose from, and their security
    polynomials   public polynomials from agreed seeds
    product       products of polynomials by Fourier transform
    released      messages of a host: answers joined, with their numbers b
    samples       secret bytes as ternary numbers, errors and flooding noise
    secret        the guest's secrets and public keys for one tree
    transforms    products of polynomials modulo primes, by number-theoretic transforms
    words         packs numbers modulo powers of two into bytes
"""
