"""Encryption schemes as trees need them: settings, choice, exactness, noise, keys.

Modules:
    capacity    bits that the sums of a node can reveal
    choice      the scheme of a job that leaves it open
    ciphers     the interface of a scheme for guest and host
    host_noise  noise on every sum that a host releases
    keys        agreement of both sides before gradients travel
    loading     the scheme of a job as trees use it
    params      settings that encrypted protocols share
    rehearsed   contexts and ciphers that an estimate builds
    schemes     schemes that a job may name
"""
