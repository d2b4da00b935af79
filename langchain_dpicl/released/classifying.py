"""A classifier from released examples: few-shot prompt, model, label."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import Runnable
from pydantic import PrivateAttr
from typing_extensions import override

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers import VoteOutputParser
from langchain_dpicl.public import FrozenModel
from langchain_dpicl.released.examples import LABEL_KEY, TEXT_KEY, ReleasedExamples

INSTRUCTION = "Classify the text. Answer with one of the labels and nothing else."


class LabelOutputParser(FrozenModel, BaseOutputParser[str | None]):
    """The label that an answer means, by the rules of `VoteOutputParser`.

    Raises:
        InvalidParameterError: If the labels can't be told apart, or `unknown` is one.

    Example:
        >>> parser = LabelOutputParser(labels=("person", "place"))
        >>> parser.invoke("Label: Person."), parser.invoke("I don't know.")
        ('person', None)
    """

    labels: tuple[str, ...]
    """The public label set."""

    unknown: str | None = None
    """What an answer gives that means no label, or more than one."""

    _votes: VoteOutputParser = PrivateAttr()

    @override
    def _derive(self) -> None:
        self._votes = VoteOutputParser(labels=self.labels)
        if self.unknown in self.labels:
            raise InvalidParameterError(
                f"unknown={self.unknown!r} is one of the labels: what the model did "
                "not say could not be told from what it said."
            )

    @override
    def parse(self, text: str) -> str | None:
        """Return the label that a text means, or `unknown`."""
        choice = self._votes.choice(text)
        return self.unknown if choice is None else self.labels[choice]

    @property
    @override
    def _type(self) -> str:
        return "dpicl_label"


def classification_chain(
    examples: ReleasedExamples | str | os.PathLike[str],
    model: BaseLanguageModel[Any],
    labels: Sequence[str] | None = None,
    *,
    instruction: str = INSTRUCTION,
    unknown: str | None = None,
) -> Runnable[Any, str | None]:
    """Return a chain that classifies any number of texts by released examples.

    A prompt that shows all examples, model, label parser. Nothing is charged: the
    examples were paid for when they were released. The texts to classify are not
    protected; they go to the model.

    Args:
        examples: Released examples, or the path of a file of them.
        model: A chat model or a completion model.
        labels: The public label set; by default the examples' labels, in order of
            appearance.
        instruction: What stands above the labels and the examples.
        unknown: What to return where the answer means no label, or more than one. It
            is no label, so that it can't be taken for one.

    Returns:
        A Runnable from a text, or a mapping with `text`, to one of `labels` or to
        `unknown`.

    Raises:
        InvalidParameterError: If there are no examples or they have no text or label,
            the labels can't be told apart, an example's label is none of them, or
            `unknown` is one.

    Example:
        >>> from langchain_dpicl.offline import OfflineChatModel
        >>> def classify(examples: ReleasedExamples, text: str) -> str | None:
        ...     return classification_chain(examples, OfflineChatModel()).invoke(text)
    """
    if isinstance(examples, str | os.PathLike):
        examples = ReleasedExamples.load(examples)
    if not isinstance(examples, ReleasedExamples):
        raise InvalidParameterError(
            "examples must be ReleasedExamples or the path of a saved file, not "
            f"{type(examples).__name__}."
        )
    text_key = examples.key("text_key", TEXT_KEY)
    label_key = examples.key("label_key", LABEL_KEY)
    shown = dict.fromkeys(example[label_key] for example in examples)
    known = tuple(shown if labels is None else labels)
    parser = LabelOutputParser(labels=known, unknown=unknown)
    if any(parser.parse(label) not in known for label in shown):
        raise InvalidParameterError(
            "An example has a label that is none of labels=. Pass the labels that the "
            "examples were released for."
        )
    listed = "\n".join(f"- {label}" for label in known)
    shots = [f"Text: {each[text_key]}\nLabel: {each[label_key]}" for each in examples]
    start = "\n\n".join([f"{instruction}\n\nLabels:\n{listed}", *shots])
    # Braces in an example are text.
    literal = start.replace("{", "{{").replace("}", "}}")
    prompt = PromptTemplate.from_template(f"{literal}\n\nText: {{{TEXT_KEY}}}\nLabel:")
    return prompt | model | parser
