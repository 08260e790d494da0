"""The roles of a demo as processes of their own: started, watched, started again when they die, ended with the parent.

They are forked from one server process that has loaded the large libraries once, where the system can fork.
"""

import contextlib
import multiprocessing
import os
import pkgutil
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from sakura.errors import UserError

READY_TIMEOUT_S = 120.0
MAX_QUICK_DEATHS = 20
HEALTHY_S = 60.0
PRELOADED = ["sakura.cloud.role", "device_bridge.role"]


def _context() -> multiprocessing.context.BaseContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def limit_threads() -> None:
    """Let no numeric library of the processes started from here use more than one thread by itself.

    One core computes while another receives and reconstructs; a library that spreads over both slows both.
    """
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")


class Role:
    """A child process that runs a function and comes back when it dies.

    ``main`` is "module:function", so that this process need not import it. It is called with ``options`` and
    ``announce``, which it calls with its port when it is ready. A role that is started again gets the same ``port``.
    """

    def __init__(self, name: str, main: str, options: Mapping[str, object]) -> None:
        self.name, self.main, self.options = name, main, dict(options)
        self.port = 0
        self.process: BaseProcess | None = None
        self._closing = threading.Event()
        self._starting = threading.Lock()  # no process is started once the role is closing
        self._ready = threading.Event()
        self._connection: Connection | None = None
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
        """End the process: by closing its connection, then less kindly."""
        with self._starting:
            self._closing.set()
        if self._connection:
            self._connection.close()
        if self.process is None:
            return
        self.process.join(3)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(3)

    def _watch(self) -> None:
        context = _context()
        quick_deaths = 0
        while quick_deaths < MAX_QUICK_DEATHS:
            began_s = time.monotonic()
            self._connection, theirs = context.Pipe()
            process: BaseProcess = context.Process(  # type: ignore[attr-defined]
                target=_run, args=(self.main, theirs, self.options), name=self.name, daemon=True
            )
            with self._starting:
                if self._closing.is_set():
                    return
                process.start()
                self.process = process
            theirs.close()
            with contextlib.suppress(EOFError, OSError):
                self.port = self._connection.recv()
                if self.port and "port" in self.options:
                    self.options["port"] = self.port
                self._ready.set()
            process.join()
            self._ready.clear()
            quick_deaths = 1 if time.monotonic() - began_s > HEALTHY_S else quick_deaths + 1
            if self._closing.wait(0.2 * quick_deaths):
                return
        self._closing.set()
        self._ready.set()


def _run(main: str, connection: Connection, options: Mapping[str, object]) -> None:
    """In the child: run the role, and end with the parent, whose end of the connection closes then."""

    def wait_for_parent() -> None:
        with contextlib.suppress(EOFError, OSError):
            connection.recv()
        os._exit(0)

    threading.Thread(target=wait_for_parent, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        pkgutil.resolve_name(main)(announce=connection.send, **options)
