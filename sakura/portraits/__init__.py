"""A procedural world of vector portraits: every factor is a parameter, so every edit has an exact truth."""
