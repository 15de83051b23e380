"""Gradient boosting on numpy and numba; it knows one table and no party."""
