"""Both sides of the schemes whose ciphertexts are numbers, and leaves that stay encrypted."""
