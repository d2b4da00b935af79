"""An example selector over released examples: selecting is free, adding is refused."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.example_selectors import BaseExampleSelector
from numpy.typing import NDArray
from typing_extensions import Self, override

from langchain_dpicl.common import parameters
from langchain_dpicl.common.frozen import Frozen
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.released.examples import ReleasedExamples

LABEL_KEY = "label"
TEXT_KEY = "text"

_MATRIX_DIMENSIONS = 2


class ReleasedExampleSelector(Frozen, BaseExampleSelector):
    r"""Select among released examples, for any LangChain few-shot prompt.

    Without `k` every example is selected. With `k` alone it is always the same k: the
    labels' first examples, then their second ones, and so on until there are k, in the
    release's order. With `k` and `embedding` it is the k examples nearest to the
    input by cosine similarity, nearest first, copies left out; whatever their labels
    are, as nearness is what says which labels are likely.

    Privacy:
        Nothing is charged, however often and for whatever input it is used: selecting
        among examples that were released is post-processing, and their records are not
        looked at again. The guarantee is that of `record`. The *input* is not under it:
        with `embedding` its text goes to the embedding model, as the prompt goes to the
        language model. An example added later would not be under the guarantee, so
        adding is refused.

    Args:
        examples: Released examples, or the path of a file that `save` wrote.
        k: How many to select, at most; None is all.
        embedding: An embedding model, to select the nearest. The examples are embedded
            once, when they are first needed.
        label_key: The examples' key of the label; by default what the record's
            parameters name so, or `label`. Where there is none, k examples are simply
            the first ones.
        text_key: The examples' key of the text that is embedded; by default what the
            record's parameters name so, or `text`.
        input_key: The prompt's variable that is compared with it; by default
            `text_key`, or the only variable there is.
        escape_braces: Whether to double braces. `FewShotPromptTemplate` and
            `FewShotPromptWithTemplates` read the finished examples as an f-string
            template once more, so that braces in a text would become variables: there,
            True (and no other `template_format`). In `FewShotChatMessagePromptTemplate`
            False. None is for examples without braces.

    Raises:
        InvalidParameterError: If there are no examples or they have no record, `k` is
            no count, a key is not theirs, `embedding` is given without `k`, an example
            holds braces and `escape_braces` is None, the examples were changed, or the
            file can't be trusted.

    Example:
        >>> from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate
        >>> def few_shot_prompt(examples: ReleasedExamples) -> FewShotPromptTemplate:
        ...     return FewShotPromptTemplate(
        ...         example_selector=ReleasedExampleSelector(examples, k=8),
        ...         example_prompt=PromptTemplate.from_template(
        ...             "Text: {text}\nLabel: {label}"
        ...         ),
        ...         suffix="Text: {text}\nLabel:",
        ...     )
    """

    def __init__(
        self,
        examples: ReleasedExamples | str | os.PathLike[str],
        *,
        k: int | None = None,
        embedding: Embeddings | None = None,
        label_key: str | None = None,
        text_key: str | None = None,
        input_key: str | None = None,
        escape_braces: bool | None = None,
    ) -> None:
        if isinstance(examples, str | os.PathLike):
            examples = ReleasedExamples.load(examples)
        elif not isinstance(examples, ReleasedExamples):
            raise InvalidParameterError(
                "examples must be ReleasedExamples or the path of a saved file, not "
                f"{type(examples).__name__}: only a release has a record. For examples "
                "without one take a selector of langchain_core."
            )
        examples.verify()
        if not examples:
            raise InvalidParameterError(
                "This release holds no example: it was interrupted before the first "
                "one. Let the generator go on with it."
            )
        self._arguments: dict[str, Any] = {
            "k": k,
            "embedding": embedding,
            "label_key": label_key,
            "text_key": text_key,
            "input_key": input_key,
            "escape_braces": escape_braces,
        }
        self._released = examples
        self._examples = tuple(dict(example) for example in examples)
        self._k = _checked_k(k, embedding)
        self._label_key = self._known(label_key, "label_key", LABEL_KEY)
        self._text_key = self._known(text_key, "text_key", TEXT_KEY)
        if embedding is not None and self._text_key is None:
            raise InvalidParameterError(
                "embedding= needs to know which text to embed: name the examples' key "
                "with text_key=."
            )
        self._input_key = input_key
        self._embedding = embedding
        self._shown = _shown(self._examples, escape_braces=escape_braces)
        self._fixed = self._balanced()
        self._vectors: NDArray[np.float64] | None = None
        self._lock = threading.Lock()
        self._loops = threading.Lock()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    @property
    def examples(self) -> ReleasedExamples:
        """All examples that are selected from."""
        return self._released

    @property
    def record(self) -> dict[str, Any]:
        """The public record, so that an application can show the guarantee."""
        return self._released.record

    @property
    def label_key(self) -> str | None:
        """The examples' key of the label, if they have one."""
        return self._label_key

    @property
    def text_key(self) -> str | None:
        """The examples' key of the text, if they have one."""
        return self._text_key

    @override
    def select_examples(self, input_variables: dict[str, str]) -> list[dict[str, Any]]:
        """Return the examples for a prompt; free of charge.

        Args:
            input_variables: The prompt's variables.

        Returns:
            Copies of the examples, for the caller to keep.

        Raises:
            InvalidParameterError: If the nearest are asked for, and the input's text
                is not there or can't be embedded.
        """
        if self._embedding is None:
            return self._copies(self._fixed)
        text = self._input_text(input_variables)
        with self._lock:
            if self._vectors is None:
                self._vectors = self._matrix(
                    self._embedding.embed_documents(self._texts())
                )
        return self._nearest(self._embedding.embed_query(text), self._vectors)

    @override
    async def aselect_examples(
        self, input_variables: dict[str, str]
    ) -> list[dict[str, Any]]:
        """Return the examples for a prompt; see `select_examples`."""
        if self._embedding is None:
            return self._copies(self._fixed)
        text = self._input_text(input_variables)
        # One a loop, and never the thread's: a loop that waited for a thread that
        # waits for the loop would wait for ever.
        with self._loops:
            lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with lock:
            if self._vectors is None:
                self._vectors = self._matrix(
                    await self._embedding.aembed_documents(self._texts())
                )
        return self._nearest(await self._embedding.aembed_query(text), self._vectors)

    @override
    def add_example(self, example: dict[str, str]) -> NoReturn:
        """Refuse: the release's guarantee would not cover it.

        Raises:
            InvalidParameterError: Always.
        """
        raise InvalidParameterError(
            "Adding is refused: the record's guarantee covers the examples that were "
            "released, and one added later would look as if it were one of them. For "
            "private records, release again with a generator; for public examples, "
            "make a selector of langchain_core from list(selector.examples) and yours."
        )

    @override
    async def aadd_example(self, example: dict[str, str]) -> NoReturn:
        """Refuse; see `add_example`."""
        self.add_example(example)

    def replace(self, **arguments: Any) -> Self:
        """Return a selector of the same examples with other arguments.

        Args:
            **arguments: Arguments of the class; what is not named stays as it is.

        Returns:
            A selector of its own.
        """
        return type(self)(self._released, **{**self._arguments, **arguments})

    def _known(self, key: str | None, name: str, default: str) -> str | None:
        keys = self._examples[0].keys()
        if key is None:
            named = self.record["parameters"].get(name, default)
            return named if isinstance(named, str) and named in keys else None
        if key not in keys:
            raise InvalidParameterError(
                f"{name}={key!r} is no key of these examples; they have "
                f"{', '.join(map(repr, keys))}."
            )
        return key

    def _balanced(self) -> list[int]:
        places = range(len(self._examples))
        if self._k is None:
            return list(places)
        seen: dict[str | None, int] = {}
        rounds = []
        for example in self._examples:
            label = None if self._label_key is None else example[self._label_key]
            seen[label] = seen.get(label, -1) + 1
            rounds.append(seen[label])
        # Sorting is stable: within a round the release's order stays.
        return sorted(sorted(places, key=rounds.__getitem__)[: self._k])

    def _copies(self, places: Sequence[int]) -> list[dict[str, Any]]:
        return [dict(self._shown[place]) for place in places]

    def _texts(self) -> list[str]:
        return [example[self._text_key or ""] for example in self._examples]

    def _input_text(self, variables: Mapping[str, Any]) -> str:
        key = self._input_key
        if key is None:
            single = next(iter(variables)) if len(variables) == 1 else None
            key = self._text_key if self._text_key in variables else single
        text = None if key is None else variables.get(key)
        if not isinstance(text, str):
            raise InvalidParameterError(
                "The nearest examples were asked for, and the prompt has no variable "
                f"with the text to compare: looked for {key or self._text_key!r}, "
                f"found {', '.join(sorted(map(repr, variables))) or 'none'}. Name it "
                "with input_key=."
            )
        return text

    def _matrix(self, vectors: Sequence[Sequence[float]]) -> NDArray[np.float64]:
        try:
            matrix = np.asarray(vectors, dtype=np.float64)
        except (TypeError, ValueError):
            matrix = np.empty(0)
        if (
            matrix.ndim != _MATRIX_DIMENSIONS
            or len(matrix) != len(self._examples)
            or not np.isfinite(matrix).all()
        ):
            raise InvalidParameterError(
                "embedding= must return one vector of finite numbers for each text, "
                "all of the same length."
            )
        return _normalized(matrix)

    def _nearest(
        self, query: Sequence[float], vectors: NDArray[np.float64]
    ) -> list[dict[str, Any]]:
        try:
            vector = np.asarray(query, dtype=np.float64)
        except (TypeError, ValueError):
            vector = np.empty(0)
        if vector.shape != vectors.shape[1:] or not np.isfinite(vector).all():
            raise InvalidParameterError(
                "embedding= must return a vector of finite numbers for the input, as "
                f"long as the examples' ({vectors.shape[1]})."
            )
        similarities = vectors @ _normalized(vector[np.newaxis])[0]
        # Rounded, so that equal texts tie on every processor; ties keep their order.
        nearest = np.argsort(-similarities.round(12), kind="stable").tolist()
        # Copies are all as near: one row would be shown k times.
        first = {tuple(self._examples[place].items()): place for place in nearest[::-1]}
        kept = set(first.values())
        return self._copies([place for place in nearest if place in kept][: self._k])

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self._released, self._arguments)

    def __repr__(self) -> str:
        how = "all" if self._k is None else f"k={self._k}"
        if self._embedding is not None:
            how += f", nearest by {type(self._embedding).__name__}"
        return f"{type(self).__name__}({self._released!r}, {how})"


def _remade(
    cls: type[ReleasedExampleSelector],
    examples: ReleasedExamples,
    arguments: dict[str, Any],
) -> ReleasedExampleSelector:
    return cls(examples, **arguments)


def _checked_k(k: int | None, embedding: Embeddings | None) -> int | None:
    if embedding is not None and not isinstance(embedding, Embeddings):
        raise InvalidParameterError(
            f"embedding must be a LangChain Embeddings, not {type(embedding).__name__}."
        )
    if k is None:
        if embedding is not None:
            raise InvalidParameterError(
                "embedding= needs k=: how many of the nearest examples to select."
            )
        return None
    return parameters.count(k, "k")


def _shown(
    examples: Sequence[dict[str, str]], *, escape_braces: bool | None
) -> tuple[dict[str, str], ...]:
    if not any("{" in t or "}" in t for e in examples for t in e.values()):
        return tuple(examples)
    if escape_braces is None:
        raise InvalidParameterError(
            "An example holds braces, which FewShotPromptTemplate and "
            "FewShotPromptWithTemplates would read as variables of a template. Say "
            "escape_braces=True for these, or escape_braces=False for "
            "FewShotChatMessagePromptTemplate, which doesn't."
        )
    if not escape_braces:
        return tuple(examples)
    return tuple(
        {key: text.replace("{", "{{").replace("}", "}}") for key, text in e.items()}
        for e in examples
    )


def _normalized(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    # Scaled first, so that squares neither overflow nor vanish.
    largest = np.abs(matrix).max(axis=1, initial=0.0, keepdims=True)
    scaled = matrix / np.where(largest > 0, largest, 1.0)
    norms = np.sqrt((scaled * scaled).sum(axis=1, keepdims=True))
    unit: NDArray[np.float64] = scaled / np.where(norms > 0, norms, 1.0)
    return unit
