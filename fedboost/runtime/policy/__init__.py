"""Judgement of jobs by a party owner's rules: declared tables, budgets, sets of rows and parties.

Modules:
    account        use of each budget by all jobs
    approval       decisions of owners, and forecasts for them
    declared       a job's requests beside the declarations of tables
    differences    refuses answers about sets that differ by few
    forecast       all parties' verdicts on a job, and accepted alternatives
    judgement      whether a party takes part in a job
    noisy_values   values released with noise; further ones are charged again
    placing        largest number of rows that a job could place
    planned        possible releases of a job that waits for its owner
    reading        content that others may read of a party
    row_sets       atoms of the rows in sums and metrics of all jobs
    same_tables    finds equal tables among the declared ones
    scheme_offers  encryption schemes that a party accepts in a job
    spending       judges and charges a job's releases
"""
