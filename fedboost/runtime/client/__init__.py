"""What a user or an owner says to a daemon."""
