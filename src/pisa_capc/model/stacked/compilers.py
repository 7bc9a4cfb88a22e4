"""Our own kernels compiled in processes of their own, all at once, while this one has other things to do.

A first step says which kernels it needs: under `Compilers.asked` a launch whose kernel is in no cache is left out, and
the kernel is compiled elsewhere, into the cache where Triton looks for it. What such a step computes is whatever was in
memory, so that only code that can stand that may take it. What could not be compiled elsewhere is compiled where it is
launched, as ever. One training at a time of a process may do this.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from typing import Any

COMPILERS = 4  # processes: as many as have done their share while PyTorch's compiler is loaded

_running: Compilers | None = None


class Compilers:
    """Processes that compile kernels of `stacked/kernels`."""

    def __init__(self) -> None:
        self._requests: dict[str, Future[str]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._processes: list[subprocess.Popen[str]] = []
        self._idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()

    def start(self, count: int = COMPILERS) -> None:
        """Start the processes, unless they run; it takes them seconds until they can do something."""
        if self._threads is not None:
            return
        # Not from the folder that this happens to be called in, which may have files of any name.
        command = [sys.executable, "-P", "-m", __name__]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        for _ in range(min(count, os.cpu_count() or 1)):
            with suppress(OSError):  # there are too many already
                self._processes.append(subprocess.Popen(command, text=True, **pipes))
        self._threads = ThreadPoolExecutor(max(1, len(self._processes)), "kernels")
        for process in self._processes:
            self._idle.put(process)

    def expect(self) -> None:
        """Start the processes now if there will be much to compile; where there was some before, as it is asked for.

        Where nothing is left to do, trainings side by side would only take the cores from one another with this.
        """
        if nothing_compiled():
            self.start()

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Within it, kernels that are not there are asked for, and their launches left out."""
        import triton

        from pisa_capc.model.stacked import kernels

        target = [*vars(triton.runtime.driver.active.get_current_target()).values()]

        def ask(fn: Any, compile: dict[str, Any], **others: Any) -> bool:
            how = compile.get("specialization_data")  # not every version of Triton says it
            if how is None or not fn.module.startswith(kernels.__name__):
                return False  # or it is somebody else's, who may want to see what it gives
            request = {"kernel": fn.name, "how": how, "target": target}
            return not is_compiled(request) and self.ask(request)

        before = triton.knobs.runtime.jit_cache_hook
        triton.knobs.runtime.jit_cache_hook = ask
        try:
            yield
        finally:
            triton.knobs.runtime.jit_cache_hook = before

    def ask(self, request: dict[str, Any]) -> bool:
        """Have one kernel compiled, once. Whether there is anybody who does it."""
        self.start()
        if not self._processes or self._threads is None:
            return False
        line = json.dumps(request)
        if line not in self._requests:
            self._requests[line] = self._threads.submit(self._answer, line)
        return True

    def _answer(self, line: str) -> str:
        process = self._idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        with suppress(OSError):  # it is gone, and its kernels are compiled where they are launched
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        self._idle.put(process)
        return answer

    def wait(self) -> list[str]:
        """Until all that was asked for is done. Returns the answers."""
        wait(self._requests.values())
        return [one.result() for one in self._requests.values()]

    def close(self) -> None:
        """End the processes, whatever they are at; others are started when they are needed."""
        for process in self._processes:
            process.kill()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            with suppress(OSError):
                process.communicate()
        self._requests, self._threads, self._processes, self._idle = {}, None, [], SimpleQueue()


def nothing_compiled() -> bool:
    """Whether Triton's cache is empty, or cannot be asked."""
    try:
        import triton

        folder = Path(triton.knobs.cache.dir)
        return next(folder.iterdir(), None) is None
    except (ImportError, AttributeError, TypeError, OSError):
        return True


@contextmanager
def compilers() -> Iterator[Compilers | None]:
    """Those that are there, or new ones as long as this lasts; none where Triton is missing or too old."""
    global _running
    from pisa_capc.model.stacked import fused

    if _running is not None or not fused.AVAILABLE:
        yield _running
        return
    import triton

    if not hasattr(getattr(triton, "knobs", None), "runtime"):
        yield None
        return
    _running = Compilers()
    try:
        yield _running
    finally:
        found, _running = _running, None
        found.close()


def restored(options: dict[str, Any]) -> dict[str, Any]:
    """Options that were JSON: what was a tuple must be one again, or the kernel would be taken for another."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def _described(request: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Source, target and options of a kernel, from what Triton says of a launch: types, constants, and what it knows of
    each argument."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from pisa_capc.model.stacked import kernels

    how = json.loads(request["how"])
    constants, known = (
        dict(zip(map(tuple, how[f"{kind}_keys"]), how[f"{kind}_vals"], strict=True)) for kind in ("constant", "attrs")
    )
    source = ASTSource(getattr(kernels, request["kernel"]), how["signature"], constants, known)
    return source, GPUTarget(*request["target"]), restored(how["options"])


def is_compiled(request: dict[str, Any]) -> bool:
    """Whether Triton will find this kernel in its cache; not every version lets that be told."""
    with suppress(Exception):
        from triton._C.libtriton import get_cache_invalidating_env_vars
        from triton.compiler import make_backend
        from triton.runtime.cache import get_cache_key, get_cache_manager

        source, target, options = _described(request)
        backend = make_backend(target)
        key = get_cache_key(source, backend, backend.parse_options(options), get_cache_invalidating_env_vars())
        name = f"{source.name}.json"
        return name in (get_cache_manager(sha256(key.encode()).hexdigest()).get_group(name) or {})
    return False


def compile_kernel(request: dict[str, Any]) -> None:
    """Compile one kernel into Triton's cache. No GPU is needed."""
    import triton

    source, target, options = _described(request)
    kernel = triton.compile(source, target=target, options=options)
    with suppress(Exception):  # some versions also compile what launches it, a quarter of a second each
        from triton.backends.nvidia.driver import CudaLauncher

        CudaLauncher(kernel.src, kernel.metadata)


def main() -> None:
    """Answer requests, a line each, until there are no more."""
    import pisa_capc.model.stacked.kernels  # noqa: F401  (before there is something to do)

    for line in sys.stdin:
        try:
            compile_kernel(json.loads(line))
            print("compiled", flush=True)
        except Exception as error:  # whoever launches it will meet it again
            print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
