"""Where caches are kept, by what they are made of; what is missing is captured and encoded once."""

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from sakura.backbone.editor import CapturedCache, Editor, capture
from sakura.cache.container import VERSION, Container, ContainerError, replacing, write_container
from sakura.cache.geometry import CacheGeometry
from sakura.codec import CODECS, new_codec
from sakura.codec.interface import Codec, EncodedShard
from sakura.templates import TemplateAssets

BLOCKS_PER_SHARD = 2
# Raised whenever capturing or encoding changes what comes out for the same options: old files are not read then.
CAPTURE_VERSION = 1
Progress = Callable[[float], None]


def shard_of(geometry: CacheGeometry, cache: CapturedCache, shard: int) -> tuple[np.ndarray, np.ndarray]:
    """One shard's K and V, float32 (matrices, rows, columns), and its tokens' importance, float32 (rows,)."""
    step, blocks = geometry.step_of(shard), geometry.blocks_of(shard)
    chosen = slice(blocks.start, blocks.stop)
    kv = cache.kv[step, chosen].reshape(-1, geometry.rows, geometry.columns)
    return kv, cache.importance[:, step, chosen].mean((0, 1))


def geometry_of(cache: CapturedCache) -> CacheGeometry:
    steps, blocks, _, rows, columns = cache.kv.shape
    return CacheGeometry(steps, blocks, BLOCKS_PER_SHARD, rows, columns)


class CacheStore:
    """Containers in a folder. Content-addressed: another model, template, codec or option is another file."""

    def __init__(self, folder: Path, editor: Editor) -> None:
        self.folder, self.editor = folder, editor
        self._building = threading.Lock()
        self._open: dict[Path, Container] = {}

    def path(self, template: TemplateAssets, codec: Codec) -> Path:
        options = repr(dataclasses.asdict(codec))  # type: ignore[call-overload]
        made_of = (self.editor.fingerprint, template.fingerprint, options)
        parts = (*made_of, str(VERSION), str(CAPTURE_VERSION), str(BLOCKS_PER_SHARD))
        key = hashlib.sha256("|".join(parts).encode()).hexdigest()[:24]
        return self.folder / f"{template.template_id}-{codec.name}-{key}.sakura"

    def importance_path(self, template: TemplateAssets) -> Path:
        return self.path(template, new_codec("sakura")).with_suffix(".importance.npy")

    def get(self, template: TemplateAssets, codec_name: str, progress: Progress = lambda done: None) -> Container:
        """The template's container, building all of the template's files if one is missing. Blocks."""
        path = self.path(template, new_codec(codec_name))
        with self._building:
            if path in self._open:
                return self._open[path]
            container = self._read(path, template)
            if container is None:
                self._build(template, progress)
                container = Container(path)
            self._open[path] = container
            return container

    def opened(self, template: TemplateAssets, codec_name: str) -> Container | None:
        """The template's container if it is open already, without waiting for another one's build."""
        return self._open.get(self.path(template, new_codec(codec_name)))

    def forget(self, container: Container) -> None:
        """Do not serve this container any more: the next ``get`` verifies the file and builds it anew if it must."""
        self._open = {path: known for path, known in self._open.items() if known is not container}

    def importance(self, template: TemplateAssets) -> np.ndarray:
        """Importance of each captured request: float32 (requests, steps, blocks, reusable). Blocks like ``get``."""
        path = self.importance_path(template)
        with self._building:
            try:
                return np.load(path, allow_pickle=False)
            except (OSError, ValueError, EOFError):  # missing, or damaged on disk
                self._build(template, lambda done: None)
                return np.load(path, allow_pickle=False)

    def _read(self, path: Path, template: TemplateAssets) -> Container | None:
        """The container at ``path`` if it is whole and of this template and model; otherwise it is to be rebuilt."""
        if not path.exists():
            return None
        try:
            container = Container(path)
            container.verify()
        except ContainerError:
            return None
        expected = (self.editor.fingerprint, template.fingerprint)
        return container if (container.index.model, container.index.template) == expected else None

    def _build(self, template: TemplateAssets, progress: Progress) -> None:
        progress(0.0)
        cache = capture(self.editor, template.for_editor(), template.typical_requests())
        geometry = geometry_of(cache)
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.importance_path(template)) as file:
            np.save(file, cache.importance)
        total = geometry.shards * len(CODECS)
        for number, name in enumerate(CODECS):
            codec = new_codec(name)

            def encoded(codec: Codec = codec, first: int = number * geometry.shards) -> Iterator[EncodedShard]:
                for shard in range(geometry.shards):
                    yield codec.encode(*shard_of(geometry, cache, shard))
                    progress(0.3 + 0.7 * (first + shard + 1) / total)

            write_container(
                self.path(template, codec),
                model=self.editor.fingerprint,
                template=template.fingerprint,
                codec=name,
                geometry=geometry,
                shards=encoded(),
            )
