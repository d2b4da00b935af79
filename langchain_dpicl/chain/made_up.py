"""Made-up public records, for `DPChain.check`: about gardens, and nobody's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

from langchain_core.documents import Document

from langchain_dpicl.errors import InvalidParameterError

QUESTION = "Which vegetable do most of the gardeners grow?"
"""What is asked where the user asks nothing: the made-up records answer it."""

CHARACTERS = 4
"""Characters of a token, about, in English."""

_VEGETABLES = ("beans", "beans", "leeks", "beans", "beans", "peas", "beans")
_REMARKS = (
    "The path was swept and the gate was painted green.",
    "Rain came at noon, and the barrels are full again.",
    "A neighbor lent a spade and a pair of gloves.",
    "The compost was turned over and covered with straw.",
    "Two beds were dug, and the stones went to the wall.",
)
_POOL = 70


def made_up_records() -> list[Document]:
    """Return the library's made-up records.

    Example:
        >>> made_up_records()[0].page_content[:40]
        'Plot 1: this gardener grows beans. The p'
    """
    texts = zip(range(1, _POOL + 1), cycle(_VEGETABLES), cycle(_REMARKS), strict=False)
    return [
        Document(f"Plot {plot}: this gardener grows {vegetable}. {remark}")
        for plot, vegetable, remark in texts
    ]


def made_up_groups(
    records: Sequence[Document | str] | None,
    *,
    groups: int,
    size: int,
    tokens: int | None,
    keys: Sequence[str],
) -> list[list[Document]]:
    """Return groups of public records.

    Args:
        records: Public texts; None: the library's own.
        groups: How many groups.
        size: Records of a group.
        tokens: Tokens of a record, about: shorter ones are repeated, longer ones cut.
        keys: What the document prompt wants of the metadata.

    Raises:
        InvalidParameterError: If there is no record, or one without text.
    """
    pool = made_up_records() if records is None else list(map(_document, records))
    if not all(document.page_content.strip() for document in pool) or not pool:
        raise InvalidParameterError(
            "records must be public texts, or documents, none of them empty; leave "
            "them out for the library's own."
        )
    fitted = cycle(
        Document(
            _fitted(document.page_content, tokens),
            metadata={**dict.fromkeys(keys, "made-up"), **document.metadata},
        )
        for document in pool
    )
    return [list(islice(fitted, size)) for _ in range(groups)]


def _document(record: Document | str) -> Document:
    return Document(record) if isinstance(record, str) else record


def _fitted(text: str, tokens: int | None) -> str:
    if tokens is None:
        return text
    length = tokens * CHARACTERS
    return (f"{text} " * (length // (len(text) + 1) + 1))[:length]
