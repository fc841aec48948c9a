"""Executors of the command line: processes of this machine, or the cluster of a Dask scheduler."""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

__all__ = ["open_executor"]

PATIENCE = 30  # seconds for a scheduler to answer, and for its first worker to join


@contextmanager
def open_executor(*, workers: int | None = None, dask: str | None = None) -> Iterator[Executor | None]:
    """Give what evaluates: so many processes, a Dask cluster, or None for this thread; close it in the end.

    Raises
    ------
    ValueError
        If both are asked for.
    OSError
        If no scheduler answers at the address, or no worker has joined it.
    """
    if workers and dask:
        raise ValueError("workers and a Dask cluster are two ways to the same end; give one")
    if dask:
        with _client(dask) as client:
            yield client.get_executor(pure=False)
    elif workers:
        with ProcessPoolExecutor(workers) as executor:
            yield executor
    else:
        yield None


def _client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("a Dask cluster needs Dask: pip install 'dask[distributed]'") from None
    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, TimeoutError) as error:
        raise OSError(f"no Dask scheduler answers at {address}: {error}") from None
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        client.close()
        raise OSError(f"no worker has joined the Dask scheduler at {address} in {PATIENCE} s") from None
    return client
