"""Sentences and rows from Jinja2 templates."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.schema import (
    CategoricalColumn,
    NumericColumn,
    TableSchema,
    wording,
)

LABEL = CategoricalColumn(name="sick", values=["no", "yes"])
NASTY = ["{{ 7 * 7 }}", "{value}", "{% raw %}", "<b>&", "a\nb", "{{", "}}"]


def schema(*features: Any, **fields: Any) -> TableSchema:
    return TableSchema(label="sick", columns=[*features, LABEL], **fields)


@pytest.mark.parametrize("value", NASTY)
def test_values_are_data_and_no_templates(value: str) -> None:
    made = schema(CategoricalColumn(name="note", values=NASTY))
    shown = value.replace("\n", " ")  # A line break would begin another line.
    assert made.text({"note": value}) == f"The note is {shown}."
    by_name = schema(
        CategoricalColumn(name="note", values=NASTY), template="[{{ note }}]"
    )
    assert by_name.text({"note": value}) == f"[{shown}]"


def test_names_texts_and_units_are_data_too() -> None:
    column = NumericColumn(name="{{ a }}", lower=0, upper=9, unit="{{ kg }}")
    assert column.sentence(3) == "The {{ a }} is 3 {{ kg }}."
    shown = LABEL.model_copy(update={"shown": "{x}", "texts": {"no": "{{ no }}"}})
    assert shown.sentence("no") == "The {x} is {{ no }}."


def test_wording() -> None:
    column = NumericColumn(
        name="dose",
        lower=0,
        upper=9,
        unit="mg",
        wording=(
            "{% if value != '0' %}"
            "Takes {{ value }} {{ unit }} ({{ column }})."
            "{% endif %}"
        ),
    )
    made = schema(column, CategoricalColumn(name="sex", values=["f", "m"]))
    assert made.text({"dose": 5, "sex": "f"}) == "Takes 5 mg (dose). The sex is f."
    # A sentence that says nothing leaves no gap.
    assert made.text({"dose": 0, "sex": "f"}) == "The sex is f."


def test_row_template() -> None:
    age = NumericColumn(name="age", kind="integer", lower=0, upper=99, unit="years")
    odd = CategoricalColumn(name="blood type", values=["A", "B"])
    made = schema(
        age,
        odd,
        template="{% for s in sentences %}- {{ s }}\n{% endfor %}Aged {{ age }}.",
    )
    assert made.text({"age": 37, "blood type": "A"}) == (
        "- The age is 37 years.\n- The blood type is A.\nAged 37 years."
    )


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ value", "no Jinja2 template"),
        ("{% for %}", "no Jinja2 template"),
        ("{{ value | nosuch }}", "no Jinja2 template .No filter named 'nosuch'"),
        ("{{ name }}", "uses 'name', .* it may use"),
        ("{{ value.__class__.__mro__ }}", "can't be rendered .SecurityError"),
        ("{{ value }}{% include 'x' %}", "can't be rendered"),
        ("Takes {value}.", "uses no variable, .* double braces: {{"),
        ("{{ value + 1 }}", "can't be rendered"),
        ("x" * 100_001, "longer than"),
    ],
)
def test_templates_that_are_refused(template: str, reason: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"'sick': wording: .*{reason}"):
        LABEL.model_copy(update={"wording": template})
    row_template = template.replace("value", "sentences")
    with pytest.raises(InvalidParameterError, match=f"template: .*{reason}"):
        schema(CategoricalColumn(name="a", values=[0, 1]), template=row_template)


@pytest.mark.parametrize("name", ["sick", "blood type", "if", "none"])
def test_names_that_no_template_can_use(name: str) -> None:
    other = CategoricalColumn(name="none" if name == "sick" else name, values=[0, 1])
    template = "{{ " + name + " }}" if name == "sick" else "{{ sentences | first }}"
    if name == "sick":
        with pytest.raises(InvalidParameterError, match="uses 'sick'"):
            schema(other, template=template)
    else:
        assert schema(other, template=template).text({name: 1}) == f"The {name} is 1."


def test_a_template_that_fails_later_does_not_tell_the_value() -> None:
    column = CategoricalColumn(
        name="code", values=["1", "x4711"], wording="{{ 1 // (2 - value | length) }}"
    )
    failing = CategoricalColumn(
        name="code", values=["1", "47"], wording="{{ 1 // (2 - value | length) }}"
    )
    assert column.sentence("x4711") == "-1"
    with pytest.raises(InvalidParameterError, match="column 'code' fails") as caught:
        failing.sentence("47")
    assert "47" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_langchain_writes_the_same() -> None:
    age = NumericColumn(name="age", kind="integer", lower=0, upper=99, unit="years")
    own = CategoricalColumn(name="sex", values=["f", "m"], wording="Is {{ value }}.")
    made = schema(age, own, template="{{ age }}: {{ sentences | join('; ') }}")
    prompt = made.prompt("age")
    assert prompt.template_format == "jinja2"
    assert sorted(prompt.input_variables) == ["column", "unit", "value"]
    sentences = [
        prompt.format(column="age", value="37", unit="years"),
        made.prompt("sex").format(value="f"),
    ]
    assert sentences == [age.sentence(37), own.sentence("f")]
    assert made.prompt().invoke(
        {"sentences": sentences, "age": "37 years"}
    ).to_string() == made.text({"age": 37, "sex": "f"})
    assert wording.compiled("{{ value }}") is wording.compiled("{{ value }}")
