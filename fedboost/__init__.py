"""fedboost: gradient boosting across organisations that may not pool their tables."""

__version__ = "0.1.0"
