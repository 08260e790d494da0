"""What holds for all numbers at paper scale, in sentences for people."""

QUALITY_NOTE = (
    "Rate and quality are measured on nano-flux2; sizes are scaled to the model's cache. Shards that the device "
    "computes itself count as exact, and so does generation on the device alone, though its picture is another one too."
)
TIMING_ASSUMPTIONS = (
    "Shards of a step take equally long, and slow down with the device as it gets hot.",
    "Low-rank factors cost two operations a number and component, up to what the GPU can write; no full cache is "
    "written to memory beforehand.",
    "Entropy decoders run at the same symbols a second in all systems, beside execution: CacheGen has a symbol a "
    "number of the cache, SAKURA as many as its bit planes hold.",
    "A device begins with the estimate of a network that nothing is known of.",
)
