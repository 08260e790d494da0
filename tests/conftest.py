"""Fixtures that several packages share. What is expensive is made once a session."""

# ruff: noqa: E402

import contextlib
import dataclasses
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from sakura.processes import limit_threads

limit_threads()  # before numpy and torch are loaded: threads that spin slow the tests down tenfold

# isort: split
import hypothesis
import pytest
import torch
from worlds import tiny_model, write_tiny_templates

from sakura.backbone.editor import Editor
from sakura.cache.store import CacheStore
from sakura.settings import MODEL_FOLDER, SHIPPED_TEMPLATES
from sakura.studio import LocalRoles, Studio
from sakura.systems import STREAMED
from sakura.templates import TemplateLibrary

CHROMIUM = Path("/usr/bin/chromium")
ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 120.0

torch.set_num_threads(1)
# How long an example takes says more of what else the machine does.
hypothesis.settings.register_profile("sakura", deadline=None)
hypothesis.settings.load_profile("sakura")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of the page need Chromium: without it they are skipped, but never on a build server."""
    if item.get_closest_marker("browser") and not CHROMIUM.exists():
        message = f"This test needs {CHROMIUM}; install Chromium."
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """SAKURA_HOME in a temporary folder for the whole session, so that no test touches the user's."""
    folder = tmp_path_factory.mktemp("home")
    before = os.environ.get("SAKURA_HOME")
    os.environ["SAKURA_HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["SAKURA_HOME"]
    else:
        os.environ["SAKURA_HOME"] = before


@pytest.fixture(scope="session")
def editor() -> Editor:
    """The shipped model."""
    return Editor.load(MODEL_FOLDER)


@pytest.fixture(scope="session")
def shipped() -> TemplateLibrary:
    return TemplateLibrary(SHIPPED_TEMPLATES)


@pytest.fixture(scope="session")
def store(home: Path, editor: Editor) -> CacheStore:
    """Caches of the shipped model, built as tests ask for them and kept for the session."""
    return CacheStore(home / "caches", editor)


@pytest.fixture(scope="session")
def tiny_editor() -> Editor:
    """A real model of 32 px pictures with random weights: fast, and its pictures mean nothing."""
    return Editor(tiny_model(), "tiny")


@pytest.fixture(scope="session")
def tiny_templates(tmp_path_factory: pytest.TempPathFactory) -> TemplateLibrary:
    return write_tiny_templates(tmp_path_factory.mktemp("templates"))


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory, tiny_editor: Editor) -> CacheStore:
    return CacheStore(tmp_path_factory.mktemp("tiny-caches"), tiny_editor)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices of this process wait long for a shard, so that a busy processor is not taken for a slow network."""
    waiting = {system: dataclasses.replace(streamed, patient=True) for system, streamed in STREAMED.items()}
    monkeypatch.setattr("sakura.runtime.device.STREAMED", waiting)


@pytest.fixture(scope="session")
def running_roles(home: Path) -> Iterator[LocalRoles]:
    """A cloud and a device as processes of their own, with the studio that they serve."""
    studio = Studio()
    try:
        with LocalRoles(studio) as roles:
            yield roles
    finally:
        studio.close()


@pytest.fixture(scope="session")
def running_studio(running_roles: LocalRoles) -> Studio:
    """A studio whose cloud and device are processes of their own."""
    return running_roles.studio


def _wait_until_listening(process: "subprocess.Popen[str]", port: int, deadline: float) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"nothing listens on port {port}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            pytest.fail("app.py ended before it listened")


@pytest.fixture(scope="session")
def demo_url(home: Path) -> Iterator[str]:
    """The address of the page, served by the real app.py in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "app.py", "--port", str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "GRADIO_ANALYTICS_ENABLED": "False"},
    )
    assert process.stdout is not None
    lines: queue.Queue[str | None] = queue.Queue()

    def pump() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=pump, daemon=True).start()
    seen: list[str] = []
    deadline = time.monotonic() + START_TIMEOUT_S
    try:
        while "SAKURA is ready" not in "".join(seen[-1:]):
            line = lines.get(timeout=max(0.1, deadline - time.monotonic()))
            if line is None:
                pytest.fail("app.py ended before it was ready:\n" + "".join(seen))
            seen.append(line)
        _wait_until_listening(process, port, deadline)
        yield f"http://127.0.0.1:{port}"
    except queue.Empty:
        pytest.fail(f"app.py was not ready after {START_TIMEOUT_S:.0f} s:\n" + "".join(seen))
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
