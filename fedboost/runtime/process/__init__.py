"""One process: clocks, logs, threads, worker processes and how it ends."""
