"""How many processes run the tests."""

PER_CORE = 2  # for half of their time they wait, for sockets and other processes
MOST = 8
MEMORY_OF_ONE = 3 * 2**30  # bytes: its models, and the services that its tests start


def workers(cores: int, memory: int) -> int:
    """Return how many a machine of so many cores and bytes of memory takes: at least one."""
    return max(1, min(PER_CORE * cores, memory // MEMORY_OF_ONE, MOST))
