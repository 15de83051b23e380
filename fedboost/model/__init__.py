"""Model shards on disk, kinds of models, prediction and export.

Modules:
    answered       charges of a host's answers about rows that are predicted
    arrays         reads plain arrays from an archive
    batches        scores rows in batches
    branches       one tree as far as a party knows it
    columns        names and categories of a party's columns
    conditions     combines splits of a path, writes them as text; shared rules
    contributions  SHAP values of columns
    export         one shard as a JSON file, and releases read back
    hybrid         trees with a guest's and hosts' parts
    kinds          kinds of models, each behind one interface
    labels         checks of a label column for boosting
    networks       models of networks
    rounds         trees of each round
    scoring        scores a table of any number of rows
    shards         reads and writes a party's share of a model
    telling        noisy buckets of a host's columns
    unknown_categories  categories of a table to predict that no training row had
    vertical       trees whose splits belong to several parties
    whole          models that every party holds whole
    words          metrics and importance for the coordinator
    xgboost_json   writes XGBoost's JSON model file
"""
