"""What a template says is what LangChain's own `format` makes of it."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document
from langchain_core.prompts import PromptTemplate

from langchain_dpicl.few_shot.prompting import FewShotPrompting

TEXTS = ["100 % sure", "%(label)s %s %%", "{text} {label}", "a\n b", "\ud800", "x" * 99]


@pytest.mark.parametrize(
    ("prompt", "example"),
    [
        ("Write 100% {label} texts.\n{examples}{label}:", "{label} 5%s: {text}\n"),
        ("%(label)s {{x}} {examples} %% {label}", "{text}"),
        ("Write an item about {label} (10 %): ", None),
        ("Write an item, {{10}} %s of it.", None),
    ],
)
def test_templates_are_filled_in_as_langchain_does(
    prompt: str, example: str | None
) -> None:
    prompting = FewShotPrompting.read(prompt, example, longest=50, one_line=True)
    assert isinstance(prompting.prompt, PromptTemplate)
    records = [Document(text, metadata={"label": "50% {off}"}) for text in TEXTS]
    shown = "".join(
        prompting.example.format(
            **{"text": " ".join(record.page_content.split())[:50], "label": "50% {off}"}
            if "label" in prompting.example.input_variables
            else {"text": " ".join(record.page_content.split())[:50]}
        )
        for record in records
    )
    said = prompting.group("100% {mine}", records)
    assert said == prompting.prompt.format(examples=shown, label="100% {mine}")
    public = prompting.prompt.format(examples="", label="100% {mine}")
    assert prompting.public("100% {mine}") == prompting.group("100% {mine}", [])
    assert prompting.public("100% {mine}") == public


def test_other_templates_are_filled_in_by_langchain() -> None:
    template = PromptTemplate.from_template(
        "{{ examples }}100%s {{ label }}", template_format="mustache"
    )
    prompting = FewShotPrompting.read(
        template, "{text!r:>9}", longest=9, one_line=False
    )
    assert prompting.group("a", [Document("b", metadata={"label": "a"})]) == (
        "      'b'100%s a"
    )
