"""A growing tree as guest and hosts both keep it: rows, and the trees that grow at once."""
