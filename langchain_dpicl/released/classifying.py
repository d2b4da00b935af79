"""A classifier from released examples: few-shot prompt, model, label."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate
from langchain_core.runnables import Runnable
from pydantic import AfterValidator, PrivateAttr
from typing_extensions import override

from langchain_dpicl.common.frozen import FrozenModel
from langchain_dpicl.common.validation import construct
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers import VoteOutputParser
from langchain_dpicl.released.examples import ReleasedExamples
from langchain_dpicl.released.selector import TEXT_KEY, ReleasedExampleSelector

INSTRUCTION = "Classify the text. Answer with one of the labels and nothing else."


class LabelOutputParser(FrozenModel, BaseOutputParser[str | None]):
    """The label that an answer means, by the rules of `VoteOutputParser`.

    An answer means a label when, case-folded and without punctuation, it *is* the
    label, or when it contains exactly one of the labels.

    Raises:
        InvalidParameterError: If the labels can't be told apart.

    Example:
        >>> parser = LabelOutputParser(labels=("person", "place"))
        >>> parser.invoke("Label: Person."), parser.invoke("I don't know.")
        ('person', None)
    """

    labels: Annotated[Sequence[str], AfterValidator(tuple)]
    """The public label set."""

    unknown: str | None = None
    """What an answer gives that means no label, or more than one."""

    _votes: VoteOutputParser = PrivateAttr()

    def __init__(self, **fields: Any) -> None:
        construct(type(self).__name__, partial(super().__init__, **fields))
        self._votes = VoteOutputParser(labels=self.labels)

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
    examples: ReleasedExampleSelector | ReleasedExamples | str | os.PathLike[str],
    model: BaseLanguageModel[Any],
    labels: Sequence[str] | None = None,
    *,
    instruction: str = INSTRUCTION,
    unknown: str | None = None,
) -> Runnable[Any, str | None]:
    """Return a chain that classifies any number of texts by released examples.

    Few-shot prompt, model, label: what anybody would put together from
    `FewShotPromptTemplate`, with braces in texts taken care of.

    Args:
        examples: A selector, or released examples or a file of them (then all are
            shown). They need a key of a text and one of a label.
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
        InvalidParameterError: If the labels can't be told apart, an example's label is
            none of them, or `unknown` is one.

    Privacy:
        Nothing is charged: the examples were paid for when they were released. The
        texts to classify are not protected; they go to the model.

    Example:
        >>> from langchain_dpicl.offline import OfflineChatModel
        >>> from langchain_dpicl.released.examples import ReleasedExamples
        >>> def classify(examples: ReleasedExamples, text: str) -> str | None:
        ...     return classification_chain(examples, OfflineChatModel()).invoke(text)
    """
    if not isinstance(examples, ReleasedExampleSelector):
        # Which refuses what is neither released examples nor a file of them.
        examples = ReleasedExampleSelector(examples, escape_braces=True)
    label_key, text_key = examples.label_key, examples.text_key
    if label_key is None or text_key is None:
        raise InvalidParameterError(
            "The examples need a text and a label: make a selector with text_key= and "
            "label_key=."
        )
    shown = dict.fromkeys(example[label_key] for example in examples.examples)
    parser = LabelOutputParser(
        labels=tuple(shown if labels is None else labels), unknown=unknown
    )
    if any(parser.parse(label) not in parser.labels for label in shown):
        raise InvalidParameterError(
            "An example has a label that is none of labels=. Pass the labels that the "
            "examples were released for."
        )
    require_unknown(unknown, parser.labels)
    listed = "\n".join(f"- {label}" for label in parser.labels)
    prompt = FewShotPromptTemplate(
        example_selector=examples.replace(escape_braces=True, input_key=None),
        example_prompt=PromptTemplate.from_template(
            f"Text: {{{text_key}}}\nLabel: {{{label_key}}}"
        ),
        prefix=_literal(f"{instruction}\n\nLabels:\n{listed}"),
        suffix=f"Text: {{{TEXT_KEY}}}\nLabel:",
    )
    return prompt | model | parser


def require_unknown(unknown: str | None, labels: Sequence[str]) -> None:
    """Refuse a label for what an answer gives that means none.

    Raises:
        InvalidParameterError: If `unknown` is one of the labels.
    """
    if unknown is not None and unknown in labels:
        raise InvalidParameterError(
            f"unknown={unknown!r} is one of the labels: what the model did not say "
            "could not be told from what it said."
        )


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
