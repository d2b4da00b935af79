"""A parser whose randomness is scripted, and that reads each answer once a question."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_dpicl.mechanisms import SecureRandom
from langchain_dpicl.parsers import DPOutputParser, ESAOutputParser
from langchain_dpicl.parsers.keywords import KeywordOutputParser


class Scripted(SecureRandom):
    """The same word again and again, and trials that succeed: to look at a release.

    Attributes:
        word: The word.
        place: Which candidate is visited first.
        exponents: Those of the trials so far.
        candidates: How many there are.
    """

    secure = False

    def __init__(self) -> None:
        super().__init__()
        self.word = 0
        self.place = 0
        self.exponents: list[Fraction] = []
        self.candidates = 0

    def _take(self, size: int) -> bytes:
        whole = self.word.to_bytes(8, "little") * (size // 8 + 1)
        return whole[:size]

    def below(self, bound: int) -> int:
        """Return the place."""
        self.candidates = bound
        return self.place % bound

    def bernoulli_exp(self, gamma: Fraction) -> bool:
        """Note the exponent, and succeed."""
        self.exponents.append(gamma)
        return True


class _Remembering(Embeddings):
    """An embedding that is asked once for each list of texts, until it is dropped."""

    def __init__(self, embedding: Embeddings) -> None:
        self._embedding = embedding
        self._known: dict[tuple[str, ...], Any] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of some texts."""
        key = tuple(texts)
        if key not in self._known:
            self._known[key] = self._embedding.embed_documents(texts)
        found: list[list[float]] = self._known[key]
        return found

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question."""
        return self._embedding.embed_query(text)


def driven(
    parser: DPOutputParser, random: SecureRandom, memo: dict[Any, Any]
) -> DPOutputParser:
    """Return the parser with another source, reading each answer once a question."""
    kind: Any = type(parser)
    update: dict[str, Any] = {"random": random}
    if isinstance(parser, ESAOutputParser):
        update["embedding"] = _Remembering(parser.embedding)
    if not isinstance(parser, KeywordOutputParser):
        return parser.model_copy(update=update)

    class Audited(kind):  # type: ignore[misc]  # the parser's own class
        def _counts(self, slots: Any, *given: Any) -> Counter[str]:
            if memo.get("slots") is not slots:
                total: Counter[str] = Counter()
                for slot in slots:
                    if (slot.text,) not in memo:
                        memo[(slot.text,)] = super()._counts([slot], *given)
                    total.update(memo[(slot.text,)])
                memo.update(slots=slots, counts=total)
            counts: Counter[str] = memo["counts"]
            return counts

    given = {name: getattr(parser, name) for name in parser.model_fields_set}
    made: DPOutputParser = Audited(**{**given, **update})
    return made
