"""The compression lab: what a setting of the SAKURA codec costs and does, for one template at a time."""
