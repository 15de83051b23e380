"""Mathematics without conversation: encryption, packing, blinding, set intersection; no trees.

Modules:
    api               the interface of all encryption schemes
    blinding          random n-th powers that hide how a sum was made
    fixed_base        powers of fixed numbers from tables
    gaussian          exact samples of the discrete Gaussian
    id_digests        keyed digests of ids
    intersection      private set intersection on Curve25519
    iterative_affine  iterative affine encryption, which is broken
    joint_sums        adds rows that share several cells once
    lattice           additive encryption from ring learning with errors
    layout            packs the columns of a row into plaintexts
    leaf_values       packs encrypted leaf values into plaintexts
    limbs             arrays of big integers
    masking           pairwise masks of secure aggregation
    modular           shared code of Paillier and Okamoto-Uchiyama
    modular_kernels   arithmetic on ciphertexts in worker processes
    moduli            checks of moduli, and numbers derived by hashing
    montgomery        products modulo an odd number, many at once
    noise             randomised response
    okamoto_uchiyama  Okamoto and Uchiyama's encryption
    oprf              private set intersection by an oblivious function
    packing           packs pairs of gradient and hessian into plaintexts
    paillier          Paillier's encryption
    paillier_keys     makes, proves and checks Paillier keys
    plain             no encryption, for tests and timings
    residues          shared code of `plain` and `iterative_affine`
    schemes           the encryption schemes by name
    secrets           secrets of a party and job, derived by HKDF
    set_sizes         padding and limits of sets of ids
    shamir            Shamir's secret sharing
    shapes            checks that arrays fit one another
    sparse            histograms without a column's most frequent bin
"""
