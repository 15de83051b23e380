"""Links between daemons: addresses, identities, mutual TLS, gRPC on both sides."""
