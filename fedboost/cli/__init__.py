"""The command line; every command is a thin layer over the runtime."""
