"""Engines: where independent jobs run. `local` is a process pool on this machine, `ray` a Ray cluster.

A job is a picklable function and its arguments; results come back in the order they finish.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from pisa_capc.core import plugins
from pisa_capc.core.errors import ConfigError, MissingExtraError, PisaError, unknown_name

T = TypeVar("T")
Arguments = tuple[Any, ...]  # of one job
ENGINES = ("local", "ray")
ANSWER_S = 5.0  # in which a machine of a cluster must take a connection
LOST = 2  # times in a row that work goes on with new processes after one was killed


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_engine(engine: str, workers: int | None = None, gpus: float = 0.0) -> None:
    """Refuse an engine that is unknown or not installed, and senseless numbers, before work begins."""
    if engine not in ENGINES:
        raise ConfigError(unknown_name("engine", engine, ENGINES))
    if engine == "ray" and find_spec("ray") is None:
        raise MissingExtraError("ray", "ray", "--run-on ray")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers: expected at least 1, found {workers}.")
    if gpus < 0:
        raise ConfigError(f"gpus: expected 0 or more, found {gpus:g}.")


def run_jobs(
    function: Callable[..., T],
    jobs: Sequence[Arguments],
    engine: str = "local",
    workers: int | None = None,
    gpus: float = 0.0,
) -> Iterator[T]:
    """`function(*job)` of every job. An error or Ctrl-C starts no further jobs and lets the running ones finish.

    workers: processes; by default one per core. With one, everything runs in this process.
    gpus: share of a GPU that a job takes of a Ray cluster. A job whose node is lost runs again on another.
    """
    check_engine(engine, workers, gpus)
    count = max(1, min(workers or available_cores(), len(jobs)))
    if engine == "local" and count == 1:
        return (function(*job) for job in jobs)
    if files := plugins.loaded_files():
        jobs, function = [(files, function, *job) for job in jobs], _after_loading
    return _on_ray(function, jobs, count, gpus) if engine == "ray" else _in_processes(function, jobs, count)


def _after_loading(files: Sequence[tuple[str, str]], function: Callable[..., T], *job: Any) -> T:
    """`function(*job)` in a process that has the plugins of the one that started it; installed ones it finds itself."""
    plugins.load_same(files)
    return function(*job)


def _in_processes(function: Callable[..., T], jobs: Sequence[Arguments], workers: int) -> Iterator[T]:
    # Spawned, not forked: a child must not inherit the threads and locks of libraries the caller has loaded.
    context = multiprocessing.get_context("spawn")
    left, lost = dict(enumerate(jobs)), 0
    while left:
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=begin_worker, initargs=(os.getpid(),))
        try:
            with _without_interrupt():
                futures = {pool.submit(function, *job): number for number, job in left.items()}
            for future in as_completed(futures):
                result = future.result()
                del left[futures[future]]
                lost = 0
                yield result
        except BrokenProcessPool as error:  # one worker that is killed takes the pool along: the others' jobs go on
            lost += 1
            if lost > LOST:
                raise PisaError(
                    f"{lost} times in a row a worker process ended before its work was done. In a script of your own, "
                    "do the work under `if __name__ == '__main__':`, because worker processes import it. Otherwise it "
                    "was most likely killed for lack of memory: what was finished is kept, run again with fewer "
                    "workers."
                ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def begin_worker(parent: int) -> None:
    """A worker's start. Ctrl-C reaches every process of the terminal; only the parent acts on it, so that no job is cut
    in half. A parent that is killed takes its workers along."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


@contextmanager
def _without_interrupt() -> Iterator[None]:
    """Hold back Ctrl-C while processes start: they inherit that, and do not die of it before they can ignore it.

    A worker that dies would break the pool, and the pool would then kill the others in the middle of their jobs.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its start would end the hold
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _on_ray(function: Callable[..., T], jobs: Sequence[Arguments], workers: int, gpus: float) -> Iterator[T]:
    """Ray reassigns the jobs of a lost worker or node; this restarts Ray itself when it is lost."""
    _before_ray()
    import ray

    left, lost = dict(enumerate(jobs)), 0
    while left:
        started_here = _join_ray(workers)
        try:
            if started_here and "RAY_ADDRESS" not in os.environ:  # a cluster may yet grow; this machine does not
                _check_share(gpus, ray.cluster_resources().get("GPU", 0.0))
            remote = ray.remote(num_cpus=1, num_gpus=gpus)(function)
            pending = {remote.remote(*job): number for number, job in left.items()}
            while pending:
                [done], _ = ray.wait(list(pending))
                result: T = ray.get(done)
                del left[pending.pop(done)]
                lost = 0
                yield result
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            lost += 1
            if lost > LOST or not started_here:
                reason = next(iter(str(error).splitlines()), type(error).__name__)
                raise PisaError(
                    f"Ray was lost ({reason}). What was finished is kept: run again once the cluster is there, or with "
                    "fewer workers where memory was short."
                ) from error
            warnings.warn(f"Ray was lost and is restarted for the {len(left)} remaining jobs.", stacklevel=2)
        finally:
            if started_here:
                ray.shutdown()


def _before_ray() -> None:
    """Settings that Ray reads from the environment when it is imported."""
    # Of a loss it prints pages to standard output, where results go; its log files have them all the same.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    # Whose raylet is lost it ends without a word, if the process it watches is gone too. By default that is the shell
    # that started the command, and people log out.
    os.environ.setdefault("RAY_RAYLET_PID", str(os.getpid()))


def _join_ray(workers: int) -> bool:
    """Be part of a Ray cluster: of RAY_ADDRESS, or one of this machine's own; whether that was begun here."""
    import ray

    if ray.is_initialized():
        return False
    address = os.environ.get("RAY_ADDRESS")
    try:
        _knock(address or "")
        ray.init(
            address=address,
            num_cpus=None if address else workers,
            include_dashboard=None if address else False,
            logging_level=logging.CRITICAL,
            log_to_driver=False,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        where = f"at {address}, which RAY_ADDRESS names" if address else "here"
        raise PisaError(f"Ray cannot be used {where} ({reason}). Start Ray, or use --run-on local.") from error
    return True


def _check_share(gpus: float, there: float) -> None:
    """Refuse GPUs that Ray does not have: it would wait for them forever, silently."""
    if gpus > there:
        raise PisaError(
            f"gpus: a job is to take {gpus:g} and Ray finds {there:g} on this machine. Use --gpus {there:g}, or "
            "--run-on local."
        )


def _knock(address: str) -> None:
    """OSError if HOST:PORT does not answer: Ray itself would wait for minutes, at some addresses for ever."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
