"""The roles of a demo as processes of their own: started, watched, restarted when they die, ended with the parent.

A role prints one line, ``ready PORT``, when it can be used, and ends when its standard input closes.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path

from sakura.errors import UserError

READY_TIMEOUT_S = 120.0
MAX_QUICK_DEATHS = 5
ROOT = Path(__file__).resolve().parent.parent


class Role:
    """A child process that is started again when it dies. ``port`` is what it announced."""

    def __init__(self, name: str, arguments: list[str], environment: dict[str, str] | None = None) -> None:
        self.name, self.arguments = name, arguments
        self.environment = {**os.environ, **(environment or {}), "PYTHONUNBUFFERED": "1"}
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self._closing = threading.Event()
        self._ready = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name=f"watch-{name}", daemon=True)

    def start(self) -> None:
        """Start without waiting; see :meth:`wait_ready`."""
        self._watcher.start()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> int:
        """The announced port. Raises UserError when the role does not come up."""
        if not self._ready.wait(timeout_s) or self._closing.is_set():
            raise UserError(f"The {self.name} did not start; its messages above say why.")
        return self.port

    def close(self) -> None:
        """End the process: by closing its standard input, then less kindly."""
        self._closing.set()
        process = self.process
        if process is None:
            return
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(3)

    def _watch(self) -> None:
        deaths = 0
        while not self._closing.is_set() and deaths < MAX_QUICK_DEATHS:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.arguments],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self.process.stdout is not None
            for line in self.process.stdout:
                if line.startswith("ready "):
                    self.port = int(line.split()[1])
                    self._ready.set()
            self.process.wait()
            deaths += 1
            # A role that died comes back where its users know it.
            if self.port and "--port" in self.arguments:
                self.arguments[self.arguments.index("--port") + 1] = str(self.port)
            self._closing.wait(0.5 * deaths)
        if not self._ready.is_set():
            self._closing.set()
            self._ready.set()


def run_role(work: Coroutine[object, object, None], *, with_parent: bool) -> None:
    """Run a role's coroutine to its end, or until standard input closes when it goes ``with_parent``."""

    async def main() -> None:
        tasks = [asyncio.ensure_future(work)]
        if with_parent:
            loop = asyncio.get_running_loop()
            closed = asyncio.Event()

            def wait_for_parent() -> None:
                sys.stdin.buffer.read()
                loop.call_soon_threadsafe(closed.set)

            threading.Thread(target=wait_for_parent, daemon=True).start()
            tasks.append(asyncio.ensure_future(_until(closed)))
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())


async def _until(event: asyncio.Event) -> None:
    await event.wait()


def announce(port: int) -> None:
    """Tell the parent that this role is ready."""
    sys.stdout.write(f"ready {port}\n")
    sys.stdout.flush()
