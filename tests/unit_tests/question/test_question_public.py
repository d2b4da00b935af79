"""Public objects: wrong arguments are named, nothing changes afterwards, nothing shows.

A bad value is an `InvalidParameterError` that names the argument, before any charge.
A chain, a parser or an account stays what its constructor has checked; a changed copy
goes through the constructor again. No repr, dump or pickle holds a record.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from faces import (
    DPError,
    DPRetriever,
    ESAOutputParser,
    InvalidParameterError,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
    chain,
    create_dp_tool,
)
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.load import dumps
from questions import ASKED, EMBEDDING, account, clinic, stored
from scripted import ScriptedEmbeddings, ScriptedModel
from worlds import UNIT

DOCUMENTS = clinic(40)
GROUPS, OTHERS = stored(DOCUMENTS), stored(clinic(40, told="rash"))
LABELS = ["cough", "rash"]


def reply(prompt: str) -> str:
    return next((word for word in LABELS if f"{word} of person" in prompt), "no idea")


NOT_NUMBERS: Any = st.sampled_from(["x", "", [], {}, object(), float("nan"), None])
KINDS: dict[str, Any] = {
    "count": st.one_of(
        st.integers(max_value=0), st.just(1.5), st.just("x"), st.just(float("nan"))
    ),
    "positive": st.one_of(
        st.floats(max_value=0), st.sampled_from(["x", [], float("nan"), float("inf")])
    ),
    "least": st.one_of(
        st.floats(max_value=0, exclude_max=True),
        st.sampled_from(["x", [], float("nan"), float("inf")]),
    ),
    "rate": st.one_of(
        st.floats(max_value=0), st.floats(min_value=1, exclude_min=True), NOT_NUMBERS
    ),
    "share": st.one_of(st.floats(max_value=0), st.floats(min_value=1), st.just("x")),
    "cosine": st.one_of(
        st.floats(max_value=-1, exclude_max=True),
        st.floats(min_value=1, exclude_min=True),
        st.sampled_from(["x", [], float("nan")]),
    ),
    "choice": st.one_of(st.text(max_size=5), st.integers(), st.just([])),
    "labels": st.sampled_from(
        [[], ["a"], ["a", "a"], ["a", "A "], ["a", ""], ["a", 3], "cough", 7, None]
    ),
    "k": st.one_of(
        st.integers(max_value=0), st.sampled_from([(3, 1), (0, 2), 1.5, "x", (1,), []])
    ),
    "key": st.sampled_from(["", 3, None, []]),
    "other": st.sampled_from([3, "x", [], object()]),
}
RETRIEVED = {
    "unit_key": "key",
    "n_groups": "count",
    "docs_per_group": "count",
    "score_threshold": "cosine",
    "sampling_rate": "rate",
}


def of_documents(**terms: Any) -> Any:
    terms = {"unit_key": UNIT, "n_groups": 4, **terms}
    return RetrievedGroups.from_documents(DOCUMENTS, EMBEDDING, **terms)


def of_sampled(**terms: Any) -> Any:
    terms = {"unit_key": UNIT, "n_groups": 4, "sampling_rate": 0.5, **terms}
    return SampledGroups.from_documents(DOCUMENTS, **terms)


def of_chain(**terms: Any) -> Any:
    parts = {"groups": GROUPS, "model": ScriptedModel(script=reply), "parser": vote()}
    return chain(**{**parts, **terms})


def of_retriever(**terms: Any) -> Any:
    return DPRetriever(**{"chain": of_chain(), **terms})


def vote(**terms: Any) -> VoteOutputParser:
    return VoteOutputParser(**{"labels": LABELS, **terms})


def esa(**terms: Any) -> ESAOutputParser:
    return ESAOutputParser(
        **{"embedding": ScriptedEmbeddings(), "candidates": LABELS, **terms}
    )


def joint(**terms: Any) -> KSAJointOutputParser:
    return KSAJointOutputParser(**{"k": 1, "domain": LABELS, **terms})


CONSTRUCTORS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "documents": (of_documents, RETRIEVED),
    "store": (stored, RETRIEVED),
    "sampled": (
        of_sampled,
        {"unit_key": "key", "n_groups": "count", "sampling_rate": "rate"},
    ),
    "account": (
        account,
        {
            "epsilon": "positive",
            "delta": "share",
            "queries": "count",
            "accounting": "choice",
            "scope": "choice",
        },
    ),
    "chain": (
        of_chain,
        {
            "groups": "other",
            "parser": "other",
            "budget": "other",
            "fallback": "choice",
            "max_concurrency": "count",
        },
    ),
    "vote": (
        vote,
        {"labels": "labels", "noise_multiplier": "positive", "min_lead": "least"},
    ),
    "esa": (esa, {"n_candidates": "count", "noise_multiplier": "positive"}),
    "ptr": (
        KSAPTROutputParser,
        {"k": "k", "noise_multiplier": "positive", "delta0": "share"},
    ),
    "threshold": (
        KSAThresholdOutputParser,
        {
            "items_per_answer": "count",
            "noise_multiplier": "positive",
            "delta0": "share",
        },
    ),
    "joint": (joint, {"k": "count", "epsilon": "positive"}),
    "retriever": (of_retriever, {"k": "count"}),
}
ARGUMENTS = [
    (name, argument, kind)
    for name, (_, arguments) in CONSTRUCTORS.items()
    for argument, kind in arguments.items()
]


@pytest.mark.promise("bad-values-are-named")
@pytest.mark.parametrize(("name", "argument", "kind"), ARGUMENTS)
@given(data=st.data())
def test_a_bad_value_is_refused_by_its_name(
    name: str, argument: str, kind: str, data: st.DataObject
) -> None:
    """An error of ours, which is a ValueError too, and names the argument."""
    value = data.draw(KINDS[kind])
    if kind == "choice" and value in ["refuse", "model", "unit", "corpus"]:
        return
    with pytest.raises(InvalidParameterError) as caught:
        CONSTRUCTORS[name][0](
            **{argument: value}
            if name != "store"
            else {"documents": DOCUMENTS, argument: value}
        )
    assert isinstance(caught.value, ValueError)
    # A limit is named by its noun: it has another first name in places.
    assert argument.removeprefix("max_").removesuffix("s") in str(caught.value).lower()


# ---- frozen --------------------------------------------------------------------------

MADE: dict[str, Callable[[], Any]] = {
    "chain": lambda: of_chain(budget=account()),
    "vote": vote,
    "esa": esa,
    "ptr": KSAPTROutputParser,
    "threshold": KSAThresholdOutputParser,
    "joint": joint,
    "retriever": of_retriever,
    "tool": lambda: create_dp_tool(of_chain(), name="ask", description="Notes."),
    "account": account,
    "groups": lambda: GROUPS,
    "sampled": of_sampled,
}
MODELS = ["chain", "vote", "esa", "ptr", "threshold", "joint", "retriever", "tool"]


@pytest.mark.promise("frozen")
@pytest.mark.parametrize("name", MADE)
def test_nothing_public_is_assigned_or_deleted(name: str) -> None:
    """Neither a field, nor a method, nor a new name; and nothing has changed."""
    made = MADE[name]()
    fields = list(getattr(type(made), "model_fields", {}))
    others = ("budget", "invoke", "epsilon", "n_groups", "spent", "draw", "name")
    for field in [*fields, *(name for name in others if hasattr(made, name))]:
        before = getattr(made, field, None)
        with pytest.raises((AttributeError, TypeError, ValueError)):
            setattr(made, field, before)
        with pytest.raises((AttributeError, TypeError, ValueError)):
            delattr(made, field)
        assert getattr(made, field, None) == before


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "model_copy": lambda made: made.model_copy(),
    "deep": lambda made: made.model_copy(deep=True),
    "bind": lambda made: made.bind(),
    "config": lambda made: made.with_config(tags=["copy"]),
}


@pytest.mark.promise("copies-are-checked")
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_asks_the_same_groups_and_charges_the_same_account(how: str) -> None:
    budget = account()
    made = of_chain(parser=vote(noise_multiplier=0.05), budget=budget, cache=False)
    for number, one in enumerate((COPIES[how](made), made), 1):
        assert one.invoke(ASKED).content == "cough"
        assert budget.spent().queries == number


@pytest.mark.promise("copies-are-checked")
def test_a_changed_copy_is_made_by_the_constructor() -> None:
    """Another account pays, other groups answer, and what is bad is refused."""
    old, new = account(), account()
    made = of_chain(parser=vote(noise_multiplier=0.05), budget=old, cache=False)
    other = made.model_copy(update={"budget": new, "groups": OTHERS})
    assert other.invoke(ASKED).content == "rash"
    assert made.invoke(ASKED).content == "cough"
    assert (old.spent().queries, new.spent().queries) == (1, 1)
    labels = vote(noise_multiplier=0.05).model_copy(
        update={"labels": ["cough", "fever"]}
    )
    third = made.model_copy(update={"parser": labels})
    assert third.invoke(ASKED).content == "cough"
    assert labels.get_format_instructions() != made.parser.get_format_instructions()
    for changes in (
        {"groups": 3},
        {"parser": "x"},
        {"nonsense": 1},
        {"budget": "sqlite://"},
        {"model": None},
    ):
        with pytest.raises(DPError):
            made.model_copy(update=changes)
    with pytest.raises(InvalidParameterError):
        vote().model_copy(update={"labels": ["one"]})
    with pytest.raises(InvalidParameterError):
        VoteOutputParser.model_construct(labels=["one"])


@pytest.mark.promise("frozen")
def test_what_was_given_may_change_afterwards() -> None:
    """Lists and mappings are taken over as they were."""
    labels, aliases, domain = [*LABELS], {"cough": ["tussis"]}, [*LABELS]
    parsers: list[Any] = [vote(labels=labels, aliases=aliases), joint(domain=domain)]
    before = [one.get_format_instructions() for one in parsers]
    slots = ["tussis"] * 40
    for given_list in (labels, domain, aliases["cough"]):
        given_list.clear()
    aliases.clear()
    assert [one.get_format_instructions() for one in parsers] == before
    copied = parsers[0].model_copy(
        update={"budget": account(), "noise_multiplier": 0.05}
    )
    assert copied.invoke(slots) == "cough"


@pytest.mark.promise("no-record-in-repr")
@pytest.mark.parametrize("name", MADE)
def test_no_text_of_an_object_holds_a_record(name: str) -> None:
    """Neither repr, str, a dump, LangChain's own, nor a pickle, if there is one."""
    made = MADE[name]()
    shown = [repr(made), str(made), f"{made}", dumps(made)]
    if hasattr(made, "model_dump"):
        shown += [repr(made.model_dump()), repr(dict(made))]
    try:
        shown.append(repr(pickle.dumps(made)))
    except (TypeError, AttributeError, pickle.PicklingError, DPError) as error:
        shown.append(str(error))
    for text in shown:
        check_no_record(text)
    with pytest.raises(AssertionError):
        check_no_record(repr(DOCUMENTS[3]))


def check_no_record(text: str) -> None:
    """No record's text, and no person's id, is in it."""
    assert "of person" not in text
    assert "p13" not in text
    assert "'p3'" not in text
