"""A whole cluster in one process, on a clock that only moves when nothing else can.

Read `cluster` first: daemons are the product's own, started by its own `serve_party` and
`serve_coordinator`. `processes` says what it means that one is killed, `clock` what time is,
`network` how a call travels and `fates` what can befall it, `disk` when a process may die, `chance`
where randomness comes from, and `masks` what secrets have hidden. `tests.support.toys` holds small
jobs of every protocol, `tests.support.invariants` what must be true of whatever they leave.
"""
