"""Model shards on disk, kinds of models, prediction and export.

Modules:
    answered       what answers about splits tell of the rows that are predicted
    arrays         reads plain arrays from an archive
    batches        scores rows in batches
    branches       one tree as far as a party knows it
    columns        names and categories of a party's columns
    conditions     combines splits of a path, says them in words; shared rules
    contributions  SHAP values of columns
    export         one shard as a JSON file, and releases read back
    hybrid         trees with a guest's and hosts' parts
    kinds          kinds of models, each behind one interface
    labels         what boosting needs of a label column
    networks       models of networks
    rounds         which trees each round has
    scoring        scores a table of any number of rows
    shards         reads and writes a party's share of a model
    telling        noisy buckets that a host tells
    vertical       trees whose splits belong to several parties
    whole          models that every party holds whole
    words          metrics and importance that a guest tells
    xgboost_json   writes XGBoost's JSON model file
"""
