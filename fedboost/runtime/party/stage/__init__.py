"""A stage at a party: its session, steps at work, and messages on their way in and out."""
