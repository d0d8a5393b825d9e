"""Rounds, parameters and figures for other programs that compare runs: TensorBoard and MLflow."""
