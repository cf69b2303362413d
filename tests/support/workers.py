"""Number of processes that run the tests."""

PER_CORE = 2  # half of the time they wait for sockets and other processes
MOST = 8
MEMORY_OF_ONE = 3 * 2**30  # bytes, for models, and for services started by tests


def workers(cores: int, memory: int) -> int:
    """Return the number of processes for this many cores and bytes of memory, at least one."""
    return max(1, min(PER_CORE * cores, memory // MEMORY_OF_ONE, MOST))
