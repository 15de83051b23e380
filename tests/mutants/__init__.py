"""Faults put into the product one at a time, to see which tests notice."""
