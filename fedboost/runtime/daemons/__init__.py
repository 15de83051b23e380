"""Nodes served as processes, with their metrics and their checks."""
