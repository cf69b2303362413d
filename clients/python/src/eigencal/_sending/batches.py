"""A batch in parts of at most 256 items: which of them have a line, and which are still to be sent."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Sized
from itertools import islice

from pydantic import ValidationError

from eigencal._calls.call import Call, nothing
from eigencal._calls.scoring import batch_item
from eigencal._errors import ConnectionLost, InvalidSetup, UnexpectedAnswer
from eigencal._models.batch import BatchItem
from eigencal._models.requests import ScoreOptions

MOST_ITEMS = 256  # the service takes no more in one request


class Part:
    """The items of one request, by their index over all items; those that have a line are dropped."""

    def __init__(self, items: dict[int, object]) -> None:
        self._waiting = items
        self._sent: list[int] = []

    @property
    def done(self) -> bool:
        """Whether every item has its line."""
        return not self._waiting

    def call(self) -> Call[None]:
        """Return the call for the items that have no line yet: none is sent again that has one."""
        self._sent = list(self._waiting)
        return Call("POST", "/score/batch", nothing, {"items": list(self._waiting.values())})

    def item(self, line: bytes) -> BatchItem:
        """Return what a line says, its index counted over all. Raises UnexpectedAnswer."""
        try:
            said = BatchItem.model_validate_json(line)
            # The service counts within its request; a second line for one item is none of this contract.
            index = self._sent[said.index]
            del self._waiting[index]
        except (ValidationError, LookupError):
            raise UnexpectedAnswer("A line of POST /score/batch is not as the contract has it.") from None
        return said.model_copy(update={"index": index})

    def check_done(self) -> None:
        """Raise ConnectionLost where the body ended before every item had its line."""
        if self._waiting:
            raise ConnectionLost(f"The batch ended with {len(self._waiting)} items to come.")


def parts(items: Iterable[object], options: ScoreOptions, size: int) -> Iterator[Part]:
    """Cut any number of items into parts; no more of them are taken than a part holds."""
    _check(items, size)
    if not isinstance(items, Iterable):
        raise InvalidSetup(
            f"`items` cannot be iterated: {type(items).__name__}. AsyncClient takes async ones."
        )
    numbered = ((index, batch_item(item, options)) for index, item in enumerate(items))
    while some := dict(islice(numbered, size)):
        yield Part(some)


async def parts_awaited(
    items: Iterable[object] | AsyncIterable[object], options: ScoreOptions, size: int
) -> AsyncGenerator[Part, None]:
    """Do as `parts` does, for items that may also come one by one with waits between them."""
    if not isinstance(items, AsyncIterable):
        for part in parts(items, options, size):
            yield part
        return
    _check(items, size)
    some: dict[int, object] = {}
    index = 0
    async for item in items:
        some[index] = batch_item(item, options)
        index += 1
        if len(some) == size:
            yield Part(some)
            some = {}
    if some:
        yield Part(some)


def _check(items: object, size: int) -> None:
    if isinstance(items, str | bytes):
        raise InvalidSetup("`items` must be several prompts or requests, not one text.")
    if not isinstance(size, int) or not 1 <= size <= MOST_ITEMS:
        raise InvalidSetup(f"`items_per_request` must be a whole number from 1 to {MOST_ITEMS}.")


def length_of(items: object) -> int | None:
    """Return how many items there are, where that is known beforehand."""
    return len(items) if isinstance(items, Sized) else None
