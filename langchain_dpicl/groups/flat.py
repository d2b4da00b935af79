"""Exact search of vectors where they are: in memory, or in a mapped file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import faiss
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from langchain_dpicl.groups.ingest import Vectors


class FlatIndex:
    """FAISS's flat search by inner product, over rows that are not copied.

    It calls the functions that `faiss.IndexFlatIP` calls, so it finds the same, bit for
    bit. That class copies its vectors, and FAISS's own mapping (`IO_FLAG_MMAP_IFC`)
    maps one file for each index: here all shards share one. The rows must not change.

    Example:
        >>> index = FlatIndex(np.eye(3, dtype=np.float32))
        >>> index.search(np.asarray([[0, 1, 0]], np.float32), 1)[1].tolist()
        [[1]]

    Privacy:
        Each row's product is computed from that row and the question alone.
    """

    def __init__(self, rows: Vectors) -> None:
        # A plain array: a `np.memmap` costs a Python call each time it is touched.
        self.rows: Vectors = np.ascontiguousarray(rows, np.float32).view(np.ndarray)

    @property
    def ntotal(self) -> int:
        """Number of vectors."""
        return len(self.rows)

    @property
    def d(self) -> int:
        """Length of a vector."""
        return int(self.rows.shape[1])

    def search(
        self, vector: Vectors, k: int, among: NDArray[np.int64] | None = None
    ) -> tuple[Vectors, NDArray[np.int64]]:
        """Return scores and rows of the k best, shape (1, k), best first.

        Of the rows `among`, if they are given.
        """
        self._check(vector)
        scores, rows = np.empty((1, k), np.float32), np.empty((1, k), np.int64)
        faiss.knn_inner_product(
            *(faiss.swig_ptr(vector), faiss.swig_ptr(self.rows), self.d, 1),
            *(self.ntotal, k, faiss.swig_ptr(scores), faiss.swig_ptr(rows)),
            None if among is None else faiss.IDSelectorArray(among),
        )
        return scores, rows

    def range_search(
        self, vector: Vectors, above: float
    ) -> tuple[Vectors, NDArray[np.int64]]:
        """Return scores and rows of all with a score above `above`, by row."""
        self._check(vector)
        found = faiss.RangeSearchResult(1)
        faiss.range_search_inner_product(
            *(faiss.swig_ptr(vector), faiss.swig_ptr(self.rows), self.d, 1),
            *(self.ntotal, above, found),
        )
        n = int(faiss.rev_swig_ptr(found.lims, 2)[1])
        if n == 0:
            return np.empty(0, np.float32), np.empty(0, np.int64)
        return (
            faiss.rev_swig_ptr(found.distances, n).copy(),
            faiss.rev_swig_ptr(found.labels, n).copy(),
        )

    def _check(self, vector: Vectors) -> None:
        # FAISS reads as many numbers from the pointer as it expects.
        if (
            vector.shape != (1, self.d)
            or vector.dtype != np.float32
            or not vector.flags.c_contiguous
        ):
            raise ValueError("A question is one row of float32 of the index's length.")
