"""Figures and tables of the evaluation: one module each, run by ``python -m sakura reproduce``."""
