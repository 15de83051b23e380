"""What a party's owner allows, judged: declared tables, budgets, sets of rows and parties.

Modules:
    account      what jobs have used of each budget
    approval     what owners decide, and what helps them
    declared     what a job wants, beside what is declared
    differences  refuses answers about sets that differ by few
    forecast     what all parties would say of a job, and settings that would do
    judgement    whether a party takes part in a job
    noisy_values  values told with noise, of which a further one costs again
    placing      how many rows a job could place at most
    reading      what others may read of a party
    row_sets     atoms of the rows that sums and metrics of all jobs are about
    same_tables  which of the declared tables are one
    scheme_offers  which encryption schemes a party would use in a job
    spending     judges and charges what a job tells
"""
