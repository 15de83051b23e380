"""Model shards on disk, kinds of models, prediction and export.

Modules:
    arrays         reads plain arrays from an archive
    bag            combines predictions of several models
    batches        scores rows in batches
    branches       one tree as far as a party knows it
    columns        names and categories of a party's columns
    conditions     combines the splits of a path, and says them in words
    contributions  SHAP values of columns
    export         one shard as a JSON file, and releases read back
    hybrid         trees with a guest's and hosts' parts
    kinds          kinds of models, each behind one interface
    labels         what boosting needs of a label column
    meta_rules     rules that several trees share
    networks       models of networks
    rounds         which trees each round has
    shards         reads and writes a party's share of a model
    telling        noisy buckets that a host tells
    vertical       trees whose splits belong to several parties
    whole          models that every party holds whole
    words          metrics and importance that a guest tells
    xgboost_json   writes XGBoost's JSON model file
"""
