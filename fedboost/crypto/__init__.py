"""Mathematics without conversation: encryption, packing, blinding, set intersection; no trees."""
