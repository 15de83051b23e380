"""Many jobs on one alignment: folds and settings to try, their results and disclosure.

Modules:
    leaks   joint disclosure of a sweep's jobs
    plan    the jobs of a sweep
    record  how the jobs of a sweep ended
"""
