"""Rows to reports and back: encoding, randomizing, and the words of a report.

This is the one place where a row of the table meets noise. Client and curator both go
through it, so that a report has one distribution wherever it was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SecureRandom, use
from langchain_dpicl.mechanisms.responses import randomize
from langchain_dpicl.sealed import Hidden
from langchain_dpicl.tabular.rows import Chunk
from langchain_dpicl.tabular.schema.table import TableSchema

Codes = dict[str, NDArray[np.int64]]


class Reporter:
    """Randomizes rows of a schema at given epsilons.

    Args:
        schema: The columns.
        epsilons: Each column's epsilon.
        random: Where the noise comes from; None: the context says.

    Privacy:
        Unit: one row. Neighbors: its values, all of them, replaced by any others. Each
        column f, the label too, goes through `mechanisms.responses` at
        epsilon_f, by draws of its own. Values and bins are the schema's, which is
        public. Nothing else of the row gets into a report: neither its order, nor
        whether a value was missing or out of bounds beyond the public category or bin
        that it counts as.
    """

    def __init__(
        self,
        schema: TableSchema,
        epsilons: Mapping[str, float],
        random: SecureRandom | None,
    ) -> None:
        self._schema = schema
        self._epsilons = epsilons
        self._random = random
        self._sizes = {column.name: column.domain_size for column in schema.columns}
        self._texts = {
            column.name: report_texts(column, self._sizes[column.name])
            for column in schema.columns
        }
        self._codes = {
            name: {text: code for code, text in enumerate(texts)}
            for name, texts in self._texts.items()
        }

    def encode(self, chunk: Chunk) -> Codes:
        """Return a chunk's rows as codes: private.

        Raises:
            InvalidParameterError: If a cell is refused. It names the column, and
                neither it nor the frames it comes from hold a cell.
        """
        return self._encoded(Hidden(chunk.columns))

    def encode_row(self, row: Hidden[Mapping[str, Any]]) -> Codes:
        """Return one row's codes; see `encode`."""
        return self._encoded(Hidden({n: [row.value[n]] for n in self._sizes}))

    def _encoded(self, cells: Hidden[Mapping[str, Any]]) -> Codes:
        message = ""
        try:
            return {
                column.name: column.codes(cells.value[column.name])
                for column in self._schema.columns
            }
        except InvalidParameterError as error:
            message = str(error)
        # Raised anew: the frames of the first one hold the cells.
        raise InvalidParameterError(message)

    def randomize(self, codes: Mapping[str, NDArray[np.int64]]) -> Codes:
        """Return reports, made of rows: each column by itself.

        Args:
            codes: The rows' codes, column by column.
        """
        with use(self._random):
            return {
                name: randomize(
                    codes[name], domain_size=size, epsilon=self._epsilons[name]
                )
                for name, size in self._sizes.items()
            }

    def written(self, codes: Mapping[str, NDArray[np.int64]]) -> list[dict[str, str]]:
        """Return reports as text, for sending."""
        columns = [
            [texts[code] for code in codes[name].tolist()]
            for name, texts in self._texts.items()
        ]
        names = list(self._texts)
        return [
            dict(zip(names, values, strict=True))
            for values in zip(*columns, strict=True)
        ]

    def read(self, report: Any) -> list[int]:
        """Return the codes of a report that somebody sent.

        Raises:
            InvalidParameterError: If it is not what a client writes; the message names
                the column and holds no value.
        """
        if not isinstance(report, Mapping):
            raise InvalidParameterError(
                "it is no mapping from column to reported value"
            )
        codes: list[int] = []
        for name, known in self._codes.items():
            if name not in report:
                raise InvalidParameterError(f"it has no column {name!r}")
            text = report[name]
            code = known.get(text) if isinstance(text, str) else None
            if code is None:
                raise InvalidParameterError(
                    f"its column {name!r} holds none of the schema's values or bins"
                )
            codes.append(code)
        if len(report) > len(codes):
            raise InvalidParameterError("it has columns that the schema does not")
        return codes


def report_texts(column: Any, size: int) -> Sequence[str]:
    """Return what a report says for each code: values, and the texts of bins.

    Raises:
        InvalidParameterError: If two codes have one text, so that they could not be
            told apart.
    """
    texts = [str(column.code_value(code)) for code in range(size)]
    if len(set(texts)) < size:
        raise InvalidParameterError(
            f"Column {column.name!r} has two bins of one text: give bin_texts= that "
            "differ."
        )
    return texts
