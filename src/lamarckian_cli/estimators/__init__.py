"""Estimators and losses: tensors in, tensors out; no configuration, no model."""
