"""What a party's owner allows, judged: declared tables, budgets, sets of rows and parties.

Modules:
    account     what jobs have used of each budget
    alignments  counts alignments by peer and day
    decisions   approvals and denials
    declared    what a job wants, beside what is declared
    forecast    what all parties would say of a job, from what each would
    judgement   whether a party takes part in a job
    measured    which rows metrics were about
    quiet       keeps figures about tables from others
    reading     what others may read of a party
    remedies    settings that would make a job allowed
    spending    judges and charges what a job tells
    summed      refuses sums over nearly the same parties
    verdict     says what approving a job would mean
"""
