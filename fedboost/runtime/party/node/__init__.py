"""The node of a party: questions of coordinator, peers and owner, and the jobs they concern."""
