"""Our own kernels compiled in processes of their own, all at once, while this one has other things to do.

A first step says which kernels it needs: under `Compilers.asked` a launch whose kernel is not there is left out, and
the kernel is compiled elsewhere, into the cache where Triton looks for it. What such a step computes is of no use. What
could not be compiled elsewhere, for whatever reason, is compiled where it is launched, as ever.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

COMPILERS = 4  # processes: as many as have done their share while PyTorch's compiler is loaded


class Compilers:
    """Processes that compile kernels of `stacked/kernels`."""

    def __init__(self, count: int) -> None:
        self._requests: dict[str, Future[str]] = {}
        self._threads = ThreadPoolExecutor(count, "kernels")
        self._idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        for _ in range(count):
            command = [sys.executable, "-m", __name__]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self._idle.put(subprocess.Popen(command, text=True, **pipes))

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Within it, kernels that are not there are asked for, and their launches left out."""
        import triton

        from pisa_capc.stacked import kernels

        target = triton.runtime.driver.active.get_current_target()

        def ask(fn: Any, compile: dict[str, Any], **others: Any) -> bool:
            if not fn.module.startswith(kernels.__name__):
                return False  # somebody else's, who may want to see what it gives
            self.ask({"kernel": fn.name, "how": compile["specialization_data"], "target": [*vars(target).values()]})
            return True

        before = triton.knobs.runtime.jit_cache_hook
        triton.knobs.runtime.jit_cache_hook = ask
        try:
            yield
        finally:
            triton.knobs.runtime.jit_cache_hook = before

    def ask(self, request: dict[str, Any]) -> None:
        """Have one kernel compiled, once."""
        line = json.dumps(request)
        if line not in self._requests:
            self._requests[line] = self._threads.submit(self._answer, line)

    def _answer(self, line: str) -> str:
        process = self._idle.get()
        answer = ""
        with suppress(OSError):  # it is gone, and its kernels are compiled where they are launched
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        self._idle.put(process)
        return answer

    def finish(self) -> list[str]:
        """Wait for all that was asked for, and let the processes go. Returns their answers."""
        wait(self._requests.values())
        self._threads.shutdown()
        while not self._idle.empty():
            with suppress(OSError):
                self._idle.get().communicate()
        return [one.result() for one in self._requests.values()]


@functools.cache
def _running() -> Compilers:
    return Compilers(min(COMPILERS, os.cpu_count() or 1))


def compilers() -> Compilers | None:
    """Those that are running, started if need be; none where Triton is missing or too old."""
    from pisa_capc.stacked import fused

    if not fused.AVAILABLE:
        return None
    import triton

    return _running() if hasattr(getattr(triton, "knobs", None), "runtime") else None


def let_go(found: Compilers) -> None:
    """Wait for these; others are started when somebody needs them."""
    _running.cache_clear()
    found.finish()


def compile_kernel(request: dict[str, Any]) -> None:
    """Compile one kernel into Triton's cache. No GPU is needed.

    The request is what Triton says of a launch: types, constants, and what it knows of each argument.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from pisa_capc.stacked import kernels

    how = json.loads(request["how"])
    constants, known = (
        dict(zip(map(tuple, how[f"{kind}_keys"]), how[f"{kind}_vals"], strict=True)) for kind in ("constant", "attrs")
    )
    # What was a tuple before it became JSON must be one again, or the kernel would be taken for another.
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in how["options"].items()}
    source = ASTSource(getattr(kernels, request["kernel"]), how["signature"], constants, known)
    kernel = triton.compile(source, target=GPUTarget(*request["target"]), options=options)
    with suppress(Exception):  # some versions also compile what launches it, a quarter of a second each
        from triton.backends.nvidia.driver import CudaLauncher

        CudaLauncher(kernel.src, kernel.metadata)


def main() -> None:
    """Answer requests, a line each, until there are no more."""
    import pisa_capc.stacked.kernels  # noqa: F401  (before there is something to do)

    for line in sys.stdin:
        try:
            compile_kernel(json.loads(line))
            print("compiled", flush=True)
        except Exception as error:  # whoever launches it will meet it again
            print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
