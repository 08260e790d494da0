"""How a template's cache is cut into shards: the only place that knows which block and step a shard belongs to."""

import msgspec

from sakura.codec.interface import ShardShape


class CacheGeometry(msgspec.Struct, frozen=True):
    """A per-step cache: at each of ``steps`` steps, ``blocks`` blocks hold K and V of (rows, columns).

    A shard is K and V of ``blocks_per_shard`` consecutive blocks at one step; shards are numbered in the order in
    which they are executed.
    """

    steps: int
    blocks: int
    blocks_per_shard: int
    rows: int
    columns: int

    @property
    def shards_per_step(self) -> int:
        return self.blocks // self.blocks_per_shard

    @property
    def shards(self) -> int:
        return self.steps * self.shards_per_step

    @property
    def shard_shape(self) -> ShardShape:
        return ShardShape(2 * self.blocks_per_shard, self.rows, self.columns)

    @property
    def full_cache_bytes(self) -> int:
        """Size of the uncompressed fp16 cache."""
        return self.steps * self.blocks * 2 * self.rows * self.columns * 2

    def step_of(self, shard: int) -> int:
        return shard // self.shards_per_step

    def blocks_of(self, shard: int) -> range:
        first = shard % self.shards_per_step * self.blocks_per_shard
        return range(first, first + self.blocks_per_shard)
