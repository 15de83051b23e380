"""Both sides of the schemes whose ciphertexts are numbers, and leaves that stay encrypted.

Modules:
    leaf_answers  leaf values that only become visible as sums
    leaf_values   leaf values that a host keeps encrypted
    packed        both sides of schemes that encrypt numbers
"""
