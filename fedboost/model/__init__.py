"""Model shards on disk, kinds of models, prediction and export."""
