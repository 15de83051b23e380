"""Answers to a party's owner: rehearsals, replays, releases, models in the store.

Modules:
    alone           a model of one party's own rows and columns
    model_store     lists models and hands out shards
    rehearsing      what default limits would say of a trial
    releases        a host's consent to a merged model
    replay_results  what a replay says, signed, and a host's look at it
    replaying       a guest's steps again, held to its ledger
    replays         replays a job by what the store has kept of it
"""
