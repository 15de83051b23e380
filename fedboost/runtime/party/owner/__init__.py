"""Answers to a party's owner: rehearsals, replays, releases, models in the store.

Modules:
    alone           a model of one party's own rows and columns
    model_store     lists models and hands out shards
    rehearsing      the verdict of default limits on a trial
    releases        a host's consent to a merged model
    replay_results  the signed result of a replay, and its comparison with a host's records
    replaying       repeats a guest's steps and compares them with its ledger
    replays         replays a job from the record in the store
"""
