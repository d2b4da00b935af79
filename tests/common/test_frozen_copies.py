"""Copies of chains and parsers are made anew, however they are made."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.load import dumpd
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from support.chain_parts import rich
from support.frozen_parts import (
    MODELS,
    RASHES,
    WAYS,
    chain_of,
)
from support.parser_parts import PARSERS as MECHANISMS
from support.parser_parts import release

from langchain_dpicl import (
    InvalidParameterError,
    VoteOutputParser,
)
from langchain_dpicl.common.slots import answered

Copier = Callable[[Any], Any]

# -- copies --------------------------------------------------------------------------

COPIES: dict[str, Copier] = {
    "model_copy": lambda made: made.model_copy(),
    "model_copy(deep)": lambda made: made.model_copy(deep=True),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "copy": lambda made: made.copy(),
    "model_construct": lambda made: type(made).model_construct(**made._given()),
    "model_validate": lambda made: type(made).model_validate(made._given()),
}
PICKLED: dict[str, Copier] = {"pickle": lambda made: pickle.loads(pickle.dumps(made))}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("name", MODELS)
def test_a_copy_has_the_same_fields(name: str, way: str) -> None:
    made = MODELS[name]()
    again = COPIES[way](made)
    assert again is not made
    assert type(again) is type(made)
    assert again.model_fields_set == made.model_fields_set
    assert repr(again) == repr(made)
    if name == "DPChain":
        assert (again.groups, again.budget) == (made.groups, made.budget)
        assert again._query is not made._query
    with pytest.raises(InvalidParameterError):
        again.name = "other"


@pytest.mark.parametrize("way", [*COPIES, *PICKLED])
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_copied_parser_releases_the_same(name: str, way: str) -> None:
    parser = MECHANISMS[name]()
    again = {**COPIES, **PICKLED}[way](parser)
    if way != "pickle":
        assert again == parser
    slots = [answered("A dry cough.")] * 80
    for each in (again, parser):
        found = release(each, slots)
        assert "cough" in (found.text or " ".join(found.keywords))


def test_a_chain_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="private records"):
        pickle.dumps(chain_of(budget=None))


@pytest.mark.parametrize("name", MODELS)
def test_a_copy_is_checked_as_a_new_one(name: str) -> None:
    made = MODELS[name]()
    wrong: dict[str, dict[str, Any]] = {
        "DPTool": {"args_schema": 3},
        "LabelOutputParser": {"labels": ["cough"]},
    }
    with pytest.raises((InvalidParameterError, TypeError)):
        made.model_copy(update=wrong.get(name, {"no_field": 3}))


def test_copies_of_a_chain_are_refused_as_new_chains_are() -> None:
    chain = chain_of()
    with pytest.raises(InvalidParameterError, match="groups must be a GroupSource"):
        chain.model_copy(update={"groups": [1]})
    with pytest.raises(InvalidParameterError, match="no variable context"):
        chain.model_copy(update={"prompt": PromptTemplate.from_template("{question}")})
    with pytest.raises(InvalidParameterError, match="at least two"):
        chain.parser.model_copy(update={"labels": ["cough"]})


# -- LangChain's own ways to another chain ---------------------------------------------


def other_account(chain: Any, budget: Any) -> dict[str, Any]:
    configured = chain.configurable_fields(budget=ConfigurableField(id="account"))
    alternative = chain.configurable_alternatives(
        ConfigurableField(id="which"),
        other=chain.model_copy(update={"budget": budget}),
    )
    failing = RunnableLambda(_fail)
    free = chain.model_copy(update={"budget": None})
    return {
        "configurable_fields": configured.with_config(configurable={"account": budget}),
        "configurable_alternatives": alternative.with_config(
            configurable={"which": "other"}
        ),
        "with_config": free.with_config(callbacks=[budget]),
        "bind": free.bind().with_config(callbacks=[budget]),
        "with_retry": free.with_retry().with_config(callbacks=[budget]),
        "with_fallbacks": failing.with_fallbacks(
            [chain.model_copy(update={"budget": budget})]
        ),
        "pipe": chain.model_copy(update={"budget": budget}) | StrOutputParser(),
    }


def _fail(_: Any) -> Any:
    raise RuntimeError("The first one is gone.")


@WAYS
@pytest.mark.parametrize("way", other_account(chain_of(), rich()))
def test_the_account_that_is_named_pays_however_it_is_named(
    ask: Callable[[Any], Any], way: str
) -> None:
    old, new = rich(), rich()
    ask(other_account(chain_of(budget=old), new)[way])
    assert (old.spent().queries, new.spent().queries) == (0, 1)


@WAYS
def test_configured_groups_are_those_that_answer(ask: Callable[[Any], Any]) -> None:
    chain = chain_of().configurable_fields(groups=ConfigurableField(id="corpus"))
    configured = chain.with_config(configurable={"corpus": RASHES})
    assert ask(configured).content == "rash"


@WAYS
def test_configured_labels_are_those_that_are_counted(
    ask: Callable[[Any], Any],
) -> None:
    parser = VoteOutputParser(labels=["fever", "itch"], budget=rich())
    field = ConfigurableField(id="labels")
    configured = parser.configurable_fields(labels=field).with_config(
        configurable={"labels": ["cough", "rash"]}
    )
    given = RunnableLambda(lambda _: ["cough"] * 80) | configured
    assert str(ask(given)) == "cough"


def test_a_copy_says_of_itself_what_the_chain_says() -> None:
    chain = chain_of()
    again = chain.model_copy(update={"cache": True})
    assert dumpd(chain)["id"] == dumpd(again)["id"]
    assert again.input_schema.model_json_schema() == (
        chain.input_schema.model_json_schema()
    )
    assert [node.name for node in again.get_graph().nodes.values()] == (
        [node.name for node in chain.get_graph().nodes.values()]
    )
    assert again.cache
    assert not chain.cache
