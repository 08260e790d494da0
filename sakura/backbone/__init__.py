"""Diffusion transformers with reusable keys and values."""
