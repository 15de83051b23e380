"""One process: clocks, logs, threads, worker processes and its end.

Modules:
    bridge        lets threads wait for the event loop
    clock         the clock of all waits
    compilation   counts kernels that are new on this machine
    deadline      ends a process in time
    logs          log lines as text or JSON
    memory        gives free memory back to the system
    memory_limit  memory available to the process
    pulse         detects that the process has stood still
    rare_warnings  a few warnings a minute
    stopping      signals to stop, and to read the settings again
    threads       threads for kernels
    workers       worker processes for bulk arithmetic, and the peak of memory
"""
