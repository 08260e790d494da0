from hypothesis import given
from hypothesis import strategies as st

from sakura.codec.interface import CacheGeometry


@st.composite
def geometries(draw: st.DrawFn) -> CacheGeometry:
    per_shard, per_step = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    return CacheGeometry(draw(st.integers(1, 8)), per_shard * per_step, per_shard, draw(st.integers(1, 600)), 192)


@given(geometries())
def test_shards_cover_every_block_of_every_step_in_order(geometry: CacheGeometry) -> None:
    visited = [
        (geometry.step_of(shard), block) for shard in range(geometry.shards) for block in geometry.blocks_of(shard)
    ]
    assert visited == [(step, block) for step in range(geometry.steps) for block in range(geometry.blocks)]


@given(geometries())
def test_sizes_agree(geometry: CacheGeometry) -> None:
    numbers = geometry.shards * geometry.matrices * geometry.rows * geometry.columns
    assert geometry.full_cache_bytes == 2 * numbers


def test_nano_at_128_px() -> None:
    geometry = CacheGeometry(steps=4, blocks=8, blocks_per_shard=2, rows=474, columns=192)
    assert (geometry.shards_per_step, geometry.shards, geometry.matrices) == (4, 16, 4)
    assert geometry.full_cache_bytes == 11_649_024
