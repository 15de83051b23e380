"""Many jobs of one alignment: folds and settings to try, what they came to, what they tell.

Modules:
    leaks   what the jobs of a sweep tell together
    plan    the jobs that a sweep stands for
    record  how the jobs of a sweep ended
"""
