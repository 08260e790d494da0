"""Measurements that the README quotes; only numbers of one run compare."""
