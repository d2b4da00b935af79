"""Facts in a public model's words, each checked against what was released."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable

from langchain_dpicl.common.prompts import FACT_PROMPT
from langchain_dpicl.common.replies import answer_of
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.parsers.words import domain_places, lemmas
from langchain_dpicl.released.corpus import ReleasedCorpus

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def reworded(
    corpus: ReleasedCorpus,
    model: Runnable[Any, Any],
    *,
    prompt: BasePromptTemplate[Any] = FACT_PROMPT,
    max_concurrency: int | None = None,
) -> ReleasedCorpus:
    """Return facts in a model's words, where these say the same.

    Only documents that rank values are worded: what is too close or too small to tell
    stays as it is. A wording is kept if it has the same numbers, as often, and names
    the same values in the same order, and no other value of the column; otherwise the
    document stays as it is.

    Args:
        corpus: Released facts, as `GDPTable.documents` makes them.
        model: A chat or completion model: it sees released sentences.
        prompt: With `fact`.
        max_concurrency: Most calls at once; None leaves it to the model.

    Returns:
        A corpus with the same record; `metadata["worded"]` says which were worded.

    Raises:
        InvalidParameterError: If `model` is none.

    Privacy:
        Post-processing of the release. What a wording adds in other words is the
        model's: the check is about numbers, names and their order.

    Example:
        >>> from langchain_core.language_models import FakeListLLM
        >>> record = {
        ...     "status": "public", "mechanism": "none", "parameters": {},
        ...     "unit": None, "unit_key": None, "relation": None, "neighbors": None,
        ...     "events": [], "epsilon": 0.0, "delta": 0.0, "charge": None,
        ...     "account": None, "model": None,
        ...     "created": "2026-11-20T19:30:00+00:00", "library": "0.1.0",
        ... }
        >>> fact = Document(
        ...     "Most frequent drug of patients: iron (about 29 ± 4).",
        ...     metadata={"status": "ranked", "numbers": '{"iron": [29, 1]}'},
        ... )
        >>> model = FakeListLLM(responses=["About 29 ± 4 patients take iron."])
        >>> reworded(ReleasedCorpus([fact], record), model)[0].page_content
        'About 29 ± 4 patients take iron.'
    """  # fmt: skip
    if not isinstance(model, Runnable):
        raise InvalidParameterError(
            f"model must be a chat or completion model, not {type(model).__name__}."
        )
    documents = list(corpus)
    places = [n for n, one in enumerate(documents) if _is_ranked(one)]
    asked = [prompt.invoke({"fact": documents[n].page_content}) for n in places]
    config: Any = {"max_concurrency": max_concurrency}
    replies = model.batch(asked, config, return_exceptions=True)
    texts: dict[int, str] = {}
    for place, reply in zip(places, replies, strict=True):
        text = "" if isinstance(reply, Exception) else answer_of(reply).strip()
        if says_the_same(text, documents[place]):
            texts[place] = text
    return ReleasedCorpus(
        (
            Document(
                texts.get(place, one.page_content),
                metadata={**_own(one.metadata), "worded": place in texts},
            )
            for place, one in enumerate(documents)
        ),
        corpus.record,
    )


def says_the_same(text: str, fact: Document) -> bool:
    """Return whether a wording has a fact's numbers, names and order, and no others."""
    if not text or says_nothing(text):
        return False
    plain = fact.page_content
    if Counter(_NUMBER.findall(text)) != Counter(_NUMBER.findall(plain)):
        return False
    values = list(json.loads(fact.metadata["numbers"]))
    return _order(text, values) == _order(plain, values)


def _order(text: str, values: list[str]) -> list[str]:
    """Return the values that a text names, in the order in which it first does."""
    words = lemmas(text)
    (places,) = domain_places([text], values, tokenizer=lemmas)
    named = [(_first(words, lemmas(values[place])), values[place]) for place in places]
    return [value for _, value in sorted(named)]


def _first(words: list[str], wanted: list[str]) -> int:
    size = len(wanted)
    starts = (n for n in range(len(words)) if words[n : n + size] == wanted)
    return next(starts, len(words))


def _is_ranked(document: Document) -> bool:
    return document.metadata.get("status") == "ranked" and bool(
        document.metadata.get("numbers")
    )


def _own(metadata: dict[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in metadata.items() if n not in {"source", "privacy"}}
