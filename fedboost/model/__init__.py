"""Model shards on disk, prediction and export."""
