"""What each message reveals and how it is protected; generated from protos/."""

# name of the message: (reveals, protected)
REVEALS: dict[str, tuple[str, str]] = {
    "fedboost.aggregation.Standing": (
        "to the parties, at which places of the job it has kept its state, and hashes of the totals until there.",
        "signed with the party's certificate; the aggregator never gets the key.",
    ),
    "fedboost.aggregation.MaskKeys": (
        "to the parties, that it takes part.",
        "public by its nature; signed with the party's certificate.",
    ),
    "fedboost.aggregation.DealtShares": (
        "to the party, shares of secrets, too few of which tell anything.",
        "Shamir's secret sharing; the two shares of one party are never both given away.",
    ),
    "fedboost.aggregation.Masked": (
        "to the aggregator, how long the vector is, and of whose masks; the words themselves are uniform.",
        "pairwise masks modulo 2^64 (X25519, HKDF, AES-256-CTR), which only cancel in the sum of all.",
    ),
    "fedboost.aggregation.Gathered": (
        "to the parties, that everybody has given a vector.",
        "not at all; a false one opens no more than a true one.",
    ),
    "fedboost.aggregation.Total": (
        "to the parties and the aggregator, the sum over all parties, of nobody alone; beside a sum of nearly the same over others, about what is in only one of them.",
        "against changes on the way or by the aggregator, by the sum of the contributors' tags.",
    ),
    "fedboost.aggregation.Survivors": (
        "to the parties, that it is there, and whom it believes to be.",
        "signed with the party's certificate.",
    ),
    "fedboost.aggregation.RevealedShares": (
        "to the aggregator, the self-masks of this sum, and the mask keys of this sum of who is gone.",
        "Shamir's secret sharing: fewer shares than the threshold tell nothing.",
    ),
    "fedboost.align.BlindedSet": (
        "to the next party, the size of a set, as far as its owner's policy does not pad it.",
        "blinded by the secret exponents of the parties it has passed (Diffie-Hellman on Curve25519).",
    ),
    "fedboost.align.FullSet": (
        "to the guest, how many ids each set has, padding included, and how many any of them share, but not which.",
        "blinded by the secret exponents of all parties (Diffie-Hellman on Curve25519).",
    ),
    "fedboost.align.CommonSet": (
        "to the hosts, how many ids all parties share; to the guest, which of its own ids they are.",
        "blinded by the exponents of the parties it has yet to pass, and at the end by the guest's.",
    ),
    "fedboost.align.CommonDigests": (
        "to the hosts, which of their own ids all parties share.",
        "keyed digests, which a party without the id cannot reverse but by guessing it.",
    ),
    "fedboost.align.RowsDigest": (
        "to the guest, that both hold the same ids in the same order.",
        "a keyed digest over all of them.",
    ),
    "fedboost.align.PairKey": (
        "to the hosts, that it takes part.",
        "public by its nature; signed with the host's certificate.",
    ),
    "fedboost.align.Hint": (
        "to the guest, which of its own ids all hosts have, once it has the hints of all.",
        "masked by a function that the guest can compute of its own ids only, and by secrets of each pair of hosts; of fewer than all hosts it is random.",
    ),
    "fedboost.align_pairs.GuestSet": (
        "to the host, how many rows the guest has, as far as the guest's policy does not pad its set.",
        "blinded by a secret exponent of the guest (Diffie-Hellman on Curve25519).",
    ),
    "fedboost.align_pairs.HostSet": (
        "to the guest, how many rows the host has, as far as the host's policy does not pad its set.",
        "blinded by a secret exponent of the host (Diffie-Hellman on Curve25519).",
    ),
    "fedboost.align_pairs.ReturnedSet": (
        "to the guest, which of its own ids this host has, once it has multiplied the host's set as well.",
        "blinded by the secret exponents of both (Diffie-Hellman on Curve25519).",
    ),
    "fedboost.align_pairs.CommonDigests": (
        "to the host, which of its own ids the guest has.",
        "keyed digests, which a party without the id cannot reverse but by guessing it.",
    ),
    "fedboost.echo.Call": (
        "to the hosts, random numbers that mean nothing.",
        "not at all, they are no secret.",
    ),
    "fedboost.echo.Answer": (
        "to the guest, the sum of its own random numbers.",
        "not at all, it is no secret.",
    ),
    "fedboost.encrypted.Nonce": (
        "to the guest and, through it, to the hosts, that the host takes part.",
        "random, and public by its nature.",
    ),
    "fedboost.encrypted.EncryptionKey": (
        "to the hosts, the guest's public key and the number of bits of its fixed-point gradients; where the job continues a model, how many trees of it are kept.",
        "public by its nature.",
    ),
    "fedboost.encrypted.EncryptedGradients": (
        "to the hosts, which training rows take part in each tree; with goss, that these have large gradients or were drawn.",
        "encrypted under the guest's key. A tree's keys reveal nothing: they are ring-LWE samples and a random nonce.",
    ),
    "fedboost.encrypted.SignedSums": (
        "to the guest, sums of its own gradients.",
        "blinded ciphertexts under the guest's key.",
    ),
    "fedboost.encrypted.SumsCommitment": (
        "to the hosts, nothing before it is opened.",
        "a salted hash.",
    ),
    "fedboost.encrypted.SignSeed": (
        "to the guest, random signs.",
        "not at all.",
    ),
    "fedboost.encrypted.OpenedSums": (
        "to the hosts, one noisy sum of each number with random signs, of each set.",
        "noise as wide as such sums are.",
    ),
    "fedboost.encrypted.CandidateSums": (
        "to the guest, this host's candidate sums without column, bin or row count, with noise of the host's where the job has `host_noise`, and how many there are; of a categorical column, which sums belong together, how many categories it has, and whether rows of the node lack a value in it.",
        "blinded ciphertexts under the guest's key.",
    ),
    "fedboost.encrypted.WonSplits": (
        "to the host, which of its candidates won, and nothing of the others' nodes; of a categorical column, which categories have the lower gradients.",
        "not at all.",
    ),
    "fedboost.encrypted.RowDivisions": (
        "to the guest, on which side of the won splits each row lies.",
        "not at all.",
    ),
    "fedboost.encrypted.AnswerKey": (
        "to the hosts, that it takes part.",
        "public by its nature; signed with the host's certificate.",
    ),
    "fedboost.encrypted.SharedRows": (
        "to the host, which of its rows each of the other hosts has.",
        "not at all.",
    ),
    "fedboost.encrypted.LeafAnswers": (
        "to the guest, of each row the sum over its hosts; of a row that one host has, that host's value, equal where rows share a leaf.",
        "blinded ciphertexts under the guest's key, with pairwise masks among each row's hosts (X25519, HKDF, AES-256-CTR).",
    ),
    "fedboost.federboost_horizontal.Columns": (
        "to the hosts, the names of the guest's columns, and which of them hold categories.",
        "not at all.",
    ),
    "fedboost.federboost_vertical.BucketIds": (
        "to the guest, the noisy bucket of every aligned row in every column, unnamed; of each column how many buckets it has, whether they are categories, and whether values are missing.",
        "randomised response, epsilon per value given the cut points; not at all without an epsilon.",
    ),
    "fedboost.federboost_vertical.OwnSplits": (
        "to the host, which of its buckets divide which nodes; never a label, a gradient or a row.",
        "not at all.",
    ),
    "fedboost.gbun.Inputs": (
        "to the hosts, the names of the guest's columns where rows are dense or columns are cut; of sparse rows that are read as they are only that they are sparse.",
        "not at all.",
    ),
    "fedboost.hybridtree.BottomRows": (
        "to the host, which of its rows share a bottom node (with scored splits: one that may divide further), and which training rows take part; with goss, that these have large gradients or were drawn.",
        "gradients are encrypted under the guest's key; bottom nodes have numbers in a secret order, another one for every host and tree.",
    ),
    "fedboost.hybridtree.ChosenSplits": (
        "to the host, which of its candidates won; of a categorical column, which categories have the lower gradients; which of the nodes below may divide further.",
        "not at all.",
    ),
    "fedboost.oblivious.Greeting": (
        "to the guest, how many rows the host has, as far as the host's policy does not pad its set; its policy's `intersection_min`.",
        "not at all.",
    ),
    "fedboost.oblivious.Start": (
        "to the host, how many rows the guest has, as far as the guest's policy does not pad its set; of hosts with more than the guest and than 524,288 rows, the next power of two of the largest's.",
        "a fresh point of Curve25519's prime-order group.",
    ),
    "fedboost.oblivious.Choice": (
        "to the guest, that it takes part.",
        "points of Curve25519's prime-order group, uniform whatever the host chooses (Masny and Rindal 2019).",
    ),
    "fedboost.oblivious.SampleCount": (
        "to the hosts, how many ids of the sample are in common.",
        "not at all.",
    ),
    "fedboost.oblivious.Part": (
        "to the host, that the guest asks for ids; not for which.",
        "masked by oblivious transfers; a part that asks for more than a set of the stated size is refused.",
    ),
    "fedboost.oblivious.Tags": (
        "to the guest, which of its own ids this host has.",
        "96 bits of a keyed hash, random to a guest that has not asked for the id.",
    ),
    "fedboost.oblivious.Named": (
        "to the host, which of its own ids the guest has, or with several hosts all parties have.",
        "a mark or 16 bytes of the function's value for each, which only who holds the id can name.",
    ),
    "fedboost.predict.Questions": (
        "to the host, which rows are scored and which of them stand at its own nodes.",
        "not at all.",
    ),
    "fedboost.predict.Directions": (
        "to the guest, one bit for each row and host node on its way.",
        "by the noise of the buckets with which the model was trained, if any; otherwise not at all.",
    ),
    "fedboost.predict_hybrid.BottomPlaces": (
        "to the host, which of its rows are scored, and below which bottom node of each tree they stand, where the host has divided it.",
        "not at all; bottom nodes have the numbers of the training.",
    ),
    "fedboost.predict_hybrid.LeafPlaces": (
        "to the guest, the leaf of each row in each of this host's subtrees.",
        "not at all.",
    ),
    "fedboost.secureboost.Frontier": (
        "to the host, which rows share a node, as long as a candidate split of its divides them.",
        "not at all.",
    ),
}
