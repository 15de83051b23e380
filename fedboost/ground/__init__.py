"""Arrays, errors, settings, messages as bytes, state, files, kernels and ids: the lowest layer."""
