"""What plain trees take beside XGBoost's: trained on pooled rows, and predicted.

python -m benchmarks.plain [--quick] [--json F] [--data NAME]

Each ratio is the median of pairs that ran one after the other on the same cores: a busy machine
slows both down. Our trainer measures `auc` and `logloss` after every tree; XGBoost does not, and
in a second column does.
"""
