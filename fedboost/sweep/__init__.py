"""Many jobs of one alignment: folds and settings to try, what they came to, what they tell."""
