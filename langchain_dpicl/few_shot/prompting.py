"""A generator's prompts: the instruction alone, and with one group's examples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import PromptTemplate, StringPromptTemplate

from langchain_dpicl.common.prompts import FEW_SHOT_CUE, FEW_SHOT_EXAMPLE_PROMPT
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.records import LABEL

EXAMPLES = "examples"
_VARIABLES = {EXAMPLES, "label"}

Write = Callable[[Mapping[str, str]], str]  # Fills in a template.


@dataclass(frozen=True)
class FewShotPrompting:
    """From a label, and from a group's records, to the text of a prompt.

    Attributes:
        prompt: Of `examples` (the group's, one after the other; empty for the
            instruction alone) and `label`. The model goes on where it ends.
        example: Of `text` and `label`: how one record is written.
        longest: Most characters of a record's text.
        one_line: Whether white space in a record's text becomes single spaces: a text
            that ends at the first line break is learned from texts without any.
    """

    prompt: StringPromptTemplate
    example: StringPromptTemplate
    longest: int
    one_line: bool
    _write: Write = field(init=False, repr=False, compare=False)
    _show: Write = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Hundreds of prompts a token: what a template does is found out once.
        object.__setattr__(self, "_write", _writer(self.prompt))
        object.__setattr__(self, "_show", _writer(self.example))

    @classmethod
    def read(
        cls, prompt: Any, example: Any, *, longest: int, one_line: bool
    ) -> FewShotPrompting:
        """Read a user's prompts.

        `prompt` is a template with `{label}` and `{examples}`; or one with `{label}`
        alone, before which the examples are put; or a plain instruction. `example` is a
        template with `{text}` and `{label}`; None makes one that fits.
        """
        template, cue = _prompt(prompt)
        written: StringPromptTemplate = FEW_SHOT_EXAMPLE_PROMPT
        if example is None and cue is not None:
            written = _around(cue, after=" {text}\n\n")
        elif example is not None:
            written = _template(example, "example_prompt")
            if set(written.input_variables) - {"text", "label"}:
                raise InvalidParameterError(
                    "example_prompt has other variables than {text} and {label}."
                )
            if "text" not in written.input_variables:
                raise InvalidParameterError("example_prompt has no {text}.")
        read = cls(template, written, longest, one_line)
        if not _is_plain(read):
            raise InvalidParameterError(
                "prompt and example_prompt must be plain data, the same at every call: "
                "bind values with .partial(), not functions."
            )
        return read

    def public(self, label: str) -> str:
        """Return the instruction alone: no record takes part."""
        return self._write({EXAMPLES: "", "label": label})

    def group(self, label: str, records: Sequence[Document]) -> str:
        """Return the prompt of one group; the instruction alone for an empty one."""
        # Hundreds of records a token, of few labels: each label is cut once.
        labels: dict[str, str] = {}
        shown = ""
        for record in records:
            said = record.metadata[LABEL]
            if said not in labels:
                labels[said] = self._shortened(said)
            text = self._shortened(record.page_content)
            shown += self._show({"text": text, "label": labels[said]})
        return self._write({EXAMPLES: shown, "label": label})

    def templates(self) -> list[Any]:
        """Return the templates as JSON-able values: they are public."""
        # A class may have a format of its own.
        return [
            [type(template).__qualname__, template.model_dump(mode="json")]
            for template in (self.prompt, self.example)
        ]

    def _shortened(self, text: str) -> str:
        # A function of this record alone. Cut first: a text of megabytes is not split.
        cut = text[: 2 * self.longest]
        return (" ".join(cut.split()) if self.one_line else cut)[: self.longest]


def _writer(template: StringPromptTemplate) -> Write:
    """Return what does the same as the template's `format`, and is quick if it can be.

    A template in f-string form whose fields are plain names is taken apart once;
    LangChain's own `format` takes 30 microseconds.
    """
    if (
        type(template) is PromptTemplate  # A subclass may have a format of its own.
        and template.template_format == "f-string"
        and not template.partial_variables
    ):
        pieces = list(Formatter().parse(template.template))
        if not any(spec or conversion for _, _, spec, conversion in pieces):
            # Built by what is done in one call: `%` takes a mapping.
            form = "".join(
                text.replace("%", "%%") + ("" if name is None else f"%({name})s")
                for text, name, _, _ in pieces
            )
            return lambda values: form % values
    return lambda values: template.format(**values)


def _prompt(prompt: Any) -> tuple[StringPromptTemplate, PromptTemplate | None]:
    """Return the template, and its cue where it has no place for examples."""
    if isinstance(prompt, str) and not prompt.strip():
        raise InvalidParameterError("The prompt is empty.")
    fields = _fields(prompt) if isinstance(prompt, str) else ["a template"]
    if not fields:
        instruction = prompt.strip()
        if fields is None:
            # Not in f-string form: its braces are meant as they stand.
            instruction = instruction.replace("{", "{{").replace("}", "}}")
        text = f"{instruction}\n\n{{examples}}{FEW_SHOT_CUE}"
        return PromptTemplate.from_template(text), None
    template = _template(prompt, "prompt")
    variables = set(template.input_variables)
    if variables == _VARIABLES:
        return template, None
    if (
        variables == {"label"}
        and isinstance(template, PromptTemplate)
        and template.template_format == "f-string"
    ):
        return _around(template, before="{examples}"), template
    raise InvalidParameterError(
        "prompt must be an instruction, or a template with the variables {examples} "
        "(where a group's examples go) and {label}; bind any others with .partial(). "
        "A brace that is meant as one is written twice."
    )


def _is_plain(prompting: FewShotPrompting) -> bool:
    try:
        json.dumps(prompting.templates())
    except (TypeError, ValueError):
        return False
    return True


def _around(cue: PromptTemplate, before: str = "", after: str = "") -> PromptTemplate:
    """Return a template with more text; what was bound in it stays bound."""
    return PromptTemplate.from_template(
        f"{before}{cue.template}{after}", partial_variables=dict(cue.partial_variables)
    )


def _fields(text: str) -> list[str] | None:
    """Return the names in braces that a text has; None where it is no template."""
    try:
        return [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError:
        # One that was meant to be one is refused as such.
        return ["label"] if "{label" in text or "{examples" in text else None


def _template(value: Any, name: str) -> StringPromptTemplate:
    if isinstance(value, str):
        try:
            return PromptTemplate.from_template(value)
        except ValueError:
            pass
    elif isinstance(value, StringPromptTemplate):
        return value
    raise InvalidParameterError(
        f"{name} must be a string or a string prompt template such as PromptTemplate: "
        "the next token of a text is asked for, so that a chat prompt has no end to go "
        "on from."
    )
