"""The product's own pipeline at the size of released models, in virtual time on declared devices.

Arithmetic and cache sizes are those of the models; how fast a device is, is declared with its source; rate and quality
are measured on nano-flux2 and scaled in size.
"""
