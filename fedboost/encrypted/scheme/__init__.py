"""Encryption schemes as trees need them: settings, choice, exactness, noise, keys."""
