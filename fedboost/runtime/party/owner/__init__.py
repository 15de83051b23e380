"""Answers to a party's owner: rehearsals, replays, releases, models in the store."""
