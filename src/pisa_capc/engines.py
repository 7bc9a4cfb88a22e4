"""Engines: where independent jobs run. `local` is a process pool on this machine, `ray` a Ray cluster.

A job is a picklable function and its arguments; results come back in the order they finish.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

from pisa_capc.errors import ConfigError, MissingExtraError, unknown_name

T = TypeVar("T")
Job = tuple[Any, ...]


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(
    function: Callable[..., T], jobs: Sequence[Job], engine: str = "local", workers: int | None = None
) -> Iterator[T]:
    """`function(*job)` of every job. An error or Ctrl-C starts no further jobs and lets the running ones finish.

    workers: processes; by default one per core. With one, everything runs in this process.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers: expected at least 1, found {workers}.")
    count = max(1, min(workers or available_cores(), len(jobs)))
    if engine == "local":
        return _in_processes(function, jobs, count) if count > 1 else (function(*job) for job in jobs)
    if engine == "ray":
        return _on_ray(function, jobs, count)
    raise ConfigError(unknown_name("engine", engine, ("local", "ray")))


def _in_processes(function: Callable[..., T], jobs: Sequence[Job], workers: int) -> Iterator[T]:
    # Spawned, not forked: a child must not inherit the threads and locks of libraries the caller has loaded.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupt)
    try:
        for future in as_completed([pool.submit(function, *job) for job in jobs]):
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupt() -> None:
    """Ctrl-C reaches every process of the terminal; only the parent acts on it, so that no job is cut in half."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _on_ray(function: Callable[..., T], jobs: Sequence[Job], workers: int) -> Iterator[T]:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "--engine ray") from error
    started_here = not ray.is_initialized()
    if started_here:
        address = os.environ.get("RAY_ADDRESS")
        ray.init(
            address=address,
            num_cpus=None if address else workers,
            include_dashboard=None if address else False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    try:
        remote = ray.remote(num_cpus=1)(function)
        pending = [remote.remote(*job) for job in jobs]
        while pending:
            done, pending = ray.wait(pending)
            try:
                yield from ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
    finally:
        if started_here:
            ray.shutdown()
