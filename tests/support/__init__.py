"""What tests share: jobs in one process, tables, liars, observers and naive twins."""
