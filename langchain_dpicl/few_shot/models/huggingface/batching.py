"""Which prompts share a forward pass of a transformers model, and which must not.

`TransformersNextToken` says under "Privacy" what each way is worth.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.models.huggingface.passes import (
    PAD,
    ForwardPasses,
    PublicPrefixes,
)
from langchain_dpicl.sealed import attempt

# What shares a forward pass; see `TransformersNextToken`.
Batching = Literal["single", "fixed", "mixed"]
# A prompt's token ids, those of what was generated after it among them.
Row = tuple[int, ...]
# Logits after one row, shape `(width,)`, or after several, `(rows, width)`.
Logits = NDArray[np.float64]
# Fewest shared tokens for which a private prompt is computed from a public prefix.
WORTH = 16
_SEED = 5


class BatchPlan(ABC):
    """A way of putting rows into forward passes.

    `length` is the most tokens of a row; None if only the model limits them.
    """

    length: int | None = None

    @abstractmethod
    def logits(self, rows: Sequence[Row | None]) -> Iterator[tuple[list[int], Logits]]:
        """Yield the logits after each row, and the row's places in the call.

        A row that is None or whose pass fails is left out; nothing is raised.
        """


class FreeBatches(BatchPlan):
    """Rows of like length together, as many as fit; equal ones are computed once.

    With `batch_size` 1 what is computed of a row is a function of that row and of the
    public prefixes, and of nothing else. `most_tokens` counts padding.
    """

    def __init__(
        self,
        passes: ForwardPasses,
        prefixes: PublicPrefixes,
        *,
        batch_size: int | None,
        most_tokens: int,
    ) -> None:
        self._passes = passes
        self._prefixes = prefixes
        self._batch_size = batch_size
        self._most_tokens = most_tokens

    def logits(self, rows: Sequence[Row | None]) -> Iterator[tuple[list[int], Logits]]:
        """Yield the logits after each row; a batch that fails is tried row by row."""
        places: dict[Row, list[int]] = {}
        for place, row in enumerate(rows):
            if row is not None:
                places.setdefault(row, []).append(place)
        for batch in self._batches(list(places)):
            found = attempt(partial(self._pass, batch))
            for i, row in enumerate(batch):
                alone = None if found is None else found[i]
                if alone is None and len(batch) > 1:
                    alone = attempt(partial(self._alone, row))
                if alone is not None:
                    yield places[row], alone

    def _pass(self, batch: Sequence[Row]) -> Logits:
        prefix, shared = self._prefixes.best(batch, least=WORTH)
        return as_array(self._passes.logits(batch, prefix=prefix, shared=shared))

    def _alone(self, row: Row) -> Logits:
        alone: Logits = self._pass([row])[0]
        return alone

    def _batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        if self._batch_size == 1:
            # In the order of the call: what rows say does not order the passes.
            yield from ([row] for row in rows)
            return
        batch: list[Row] = []
        for row in sorted(rows, key=lambda row: (-len(row), row)):
            # The first of a batch is its longest.
            tokens = len(batch[0]) * (len(batch) + 1) if batch else 0
            if batch and (len(batch) == self._batch_size or tokens > self._most_tokens):
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch


class FixedBatches(BatchPlan):
    """Rows in the order of the call, in passes of one public shape.

    Every pass has `rows` rows of `length` tokens; missing ones are filled up. A model
    that has less context, mixes rows by design, or is seen to mix them when tried is
    refused with `InvalidParameterError`.
    """

    def __init__(self, passes: ForwardPasses, *, rows: int, length: int) -> None:
        if passes.limit is not None and length > passes.limit:
            raise InvalidParameterError(
                f"prompt_tokens is {length}; the model takes {passes.limit}."
            )
        if passes.mixes_rows:
            raise InvalidParameterError(
                "A model with experts or quantization may mix the prompts of a pass: "
                'use batching="single".'
            )
        self.length: int = length
        self._passes = passes
        self._rows = rows
        self._try_rows_apart()

    def logits(self, rows: Sequence[Row | None]) -> Iterator[tuple[list[int], Logits]]:
        """Yield the logits after each row.

        A pass that fails is repeated for each of its rows alone, in the same shape and
        at the same place: for the rows that don't fail the figures are the same.
        """
        for start in range(0, len(rows), self._rows):
            batch = list(rows[start : start + self._rows])
            found = attempt(partial(self._pass, batch))
            for i, row in enumerate(batch):
                if row is None:
                    continue
                among = found
                if among is None:
                    only = [row if j == i else None for j in range(len(batch))]
                    among = attempt(partial(self._pass, only))
                if among is not None:
                    yield [start + i], among[i]

    def _pass(self, batch: Sequence[Row | None]) -> Logits:
        missing = [None] * (self._rows - len(batch))
        rows = [(PAD,) if row is None else row for row in (*batch, *missing)]
        return as_array(self._passes.logits(rows, length=self.length))

    def _try_rows_apart(self) -> None:
        """Refuse where other rows, or the place among them, change what a row says."""
        random = np.random.default_rng(_SEED)

        def some() -> list[Row | None]:
            sizes = random.integers(1, self.length + 1, self._rows)
            ids = [random.integers(0, self._passes.reads, size) for size in sizes]
            return [tuple(row.tolist()) for row in ids]

        one, two = some(), some()
        crossed = [(one, two)[i % 2][i] for i in range(self._rows)]
        said = []
        for batch in (one, two, crossed, one[:1] * self._rows):
            logits = attempt(partial(self._pass, batch))
            if logits is None:
                raise InvalidParameterError(
                    "A pass of batch_size prompts of prompt_tokens tokens fails here: "
                    "choose fewer of them."
                )
            said.append(logits)
        expected = [said[i % 2][i] for i in range(self._rows)]
        apart = all(map(_same, said[2], expected))
        if not apart or not all(_same(row, said[3][0]) for row in said[3]):
            raise InvalidParameterError(
                'batching="fixed" is not safe here: the prompts of a pass, or their '
                'places, change what is said of others. Use batching="single", or '
                "another batch_size."
            )


def _same(one: Logits, other: Logits) -> bool:
    return np.array_equal(one, other, equal_nan=True)


def as_array(logits: Any) -> Logits:
    """Return a tensor's values as an array."""
    return np.asarray(logits.numpy(), dtype=np.float64)
