"""Benchmarks: what training costs on this machine, beside what it has to cost."""
