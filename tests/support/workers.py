"""How many processes run the tests."""

MOST = 4
MEMORY_OF_ONE = 3 * 2**30  # bytes: its models, and the services that its tests start


def workers(cores: int, memory: int) -> int:
    """Return how many a machine of so many cores and bytes of memory takes: at least one."""
    return max(1, min(cores, memory // MEMORY_OF_ONE, MOST))
