"""Where caches are kept, by what they are made of; what is missing is captured and encoded once."""

import contextlib
import hashlib
import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
from fsspec.core import url_to_fs

from sakura.backbone.editor import Editor, capture
from sakura.cache.container import VERSION, Container, ContainerError, pack_container, write_file
from sakura.codec import new_codec, options_of
from sakura.codec.interface import CacheArrays, CacheGeometry, Codec
from sakura.errors import UserError
from sakura.templates import TemplateAssets

BLOCKS_PER_SHARD = 2
# Raised whenever capturing or encoding changes what comes out for the same options: old files are not read then.
CAPTURE_VERSION = 4
Progress = Callable[[float], None]


class CacheStore:
    """Containers in a folder, or under a URL of any store that fsspec knows.

    Content-addressed: another model, template, codec or option is another file.
    """

    def __init__(self, folder: Path | str, editor: Editor) -> None:
        self.folder, self.editor = str(folder).rstrip("/"), editor
        self._building = threading.RLock()
        self._open: dict[str, Container] = {}

    def url(self, template: TemplateAssets, codec: Codec) -> str:
        made_of = (
            self.editor.fingerprint,
            self.editor.sensitivity.tobytes().hex(),
            template.fingerprint,
            msgspec.json.encode(options_of(codec)).decode(),
            str(VERSION),
            str(CAPTURE_VERSION),
            str(BLOCKS_PER_SHARD),
        )
        key = hashlib.sha256("|".join(made_of).encode()).hexdigest()[:24]
        return f"{self.folder}/{template.template_id}-{codec.name}-{key}.sakura"

    def get(self, template: TemplateAssets, codec: Codec, progress: Progress = lambda done: None) -> Container:
        """The template's container, which is built if it is missing. Blocks."""
        url = self.url(template, codec)
        with self._building, self._usable():
            if url not in self._open:
                container = self._read(url, template)
                if container is None:
                    self._build(template, codec, progress)
                    container = Container(url)
                    container.hold()
                self._open[url] = container
            return self._open[url]

    def opened(self, template: TemplateAssets, codec: Codec) -> Container | None:
        """The template's container if it is open already, without waiting for another one's build."""
        return self._open.get(self.url(template, codec))

    def forget(self, container: Container) -> None:
        """Do not serve this container any more: the next ``get`` verifies the file and builds it anew if it must."""
        self._open = {url: known for url, known in self._open.items() if known is not container}

    def importance(self, template: TemplateAssets) -> np.ndarray:
        """Importance of each captured request: float32 (requests, steps, blocks, reusable). Blocks like ``get``."""
        with self._building, self._usable():
            known = self._read_importance(template)
            if known is None:
                self._capture(template)
                known = self._read_importance(template)
                assert known is not None
            return known

    def arrays(self, template: TemplateAssets) -> tuple[CacheGeometry, CacheArrays]:
        """What codecs encode, from the full cache on disk (so numbers are those of fp16). Blocks like ``get``."""
        importance = self.importance(template)
        container = self.get(template, new_codec("uncompressed"))
        geometry, full = container.geometry, container.read_all()
        numbers = np.frombuffer(b"".join(full.segments), "<f2").astype(np.float32)
        kv = numbers.reshape(geometry.steps, geometry.blocks, 2, geometry.rows, geometry.columns)
        places = self.editor.places(template.for_editor())
        return geometry, CacheArrays(kv, importance.mean(0), self.editor.sensitivity, places)

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Turn what a full or unreadable store raises into a UserError."""
        try:
            yield
        except OSError as error:
            raise UserError(
                f"Caches cannot be kept in {self.folder} ({error.strerror or error}); "
                "make room there, or set SAKURA_HOME to another folder."
            ) from error

    def _importance_url(self, template: TemplateAssets) -> str:
        return self.url(template, new_codec("uncompressed")).removesuffix(".sakura") + ".importance.npy"

    def _read_importance(self, template: TemplateAssets) -> np.ndarray | None:
        filesystem, path = url_to_fs(self._importance_url(template))
        try:
            scores = np.load(io.BytesIO(filesystem.cat_file(path)), allow_pickle=False)
        except (OSError, ValueError, EOFError):  # missing, or damaged on disk
            return None
        tokens = len(self.editor.layout(template.for_editor()).reusable)
        expected = (len(template.typical_requests()), self.editor.steps, self.editor.blocks, tokens)
        whole = scores.shape == expected and scores.dtype == np.float32 and np.isfinite(scores).all()
        return scores if whole and scores.min() >= 0 else None

    def _read(self, url: str, template: TemplateAssets) -> Container | None:
        """The container there if it is whole and of this template and model; otherwise it is to be rebuilt."""
        try:
            container = Container(url)
            container.hold()
            container.read_all()
        except (FileNotFoundError, ContainerError):
            return None
        expected = (self.editor.fingerprint, template.fingerprint)
        return container if (container.index.model, container.index.template) == expected else None

    def _build(self, template: TemplateAssets, codec: Codec, progress: Progress) -> None:
        progress(0.0)
        if codec.name == "uncompressed":
            self._capture(template)
        else:
            geometry, arrays = self.arrays(template)
            progress(0.6)
            self._write(template, codec, geometry, arrays)
        progress(1.0)

    def _capture(self, template: TemplateAssets) -> None:
        """Capture the template; keep the full cache and the importance of its tokens."""
        cache = capture(self.editor, template.for_editor(), template.typical_requests())
        steps, blocks, _, rows, columns = cache.kv.shape
        geometry = CacheGeometry(steps, blocks, BLOCKS_PER_SHARD, rows, columns)
        scores = io.BytesIO()
        np.save(scores, cache.importance)
        write_file(self._importance_url(template), scores.getvalue())
        places = self.editor.places(template.for_editor())
        arrays = CacheArrays(cache.kv, cache.importance.mean(0), self.editor.sensitivity, places)
        self._write(template, new_codec("uncompressed"), geometry, arrays)

    def _write(self, template: TemplateAssets, codec: Codec, geometry: CacheGeometry, arrays: CacheArrays) -> None:
        data = pack_container(
            codec.encode(geometry, arrays),
            model=self.editor.fingerprint,
            template=template.fingerprint,
            codec=codec,
            geometry=geometry,
        )
        write_file(self.url(template, codec), data)
