"""Generated from protos/ by `make proto`; never edited.

Modules:
    protocol  the messages of each protocol
    reveals   what each message reveals and how it is protected
"""
