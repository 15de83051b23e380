"""A stage at a party: its session, steps at work, and messages on their way in and out.

Modules:
    answers     steps at work; does what is asked once, and repeats the answer
    collecting  what a step takes, out of the inbox
    inbox       messages that have arrived and are not used yet
    notes       when messages reach the ledger
    outbox      sends messages and notes them in the ledger
    roles       a party's roles and steps in one stage
    session     one party's side of one stage
    step_work   a step at work, in a thread or in the event loop
"""
