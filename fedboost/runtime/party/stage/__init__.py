"""A stage at a party: its session, its running steps, and messages in and out.

Modules:
    answers     runs each request once, and repeats its answer
    collecting  takes a step's messages out of the inbox
    inbox       messages that have arrived and are not used yet
    notes       times the writing of messages to the ledger
    outbox      sends messages and notes them in the ledger
    roles       a party's roles and steps in one stage
    session     one party's side of one stage
    step_work   runs a step, in a thread or in the event loop
"""
