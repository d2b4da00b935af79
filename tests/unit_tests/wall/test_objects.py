"""What holds records shows public terms only, and refuses to be pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pprint import pformat
from typing import Any

import pytest
from faces import (
    DPChain,
    DPRetriever,
    HashingEmbeddings,
    KSAPTROutputParser,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
    create_dp_tool,
    few_shot,
    tabular,
)
from langchain_core.documents import Document
from langchain_core.language_models import GenericFakeChatModel
from unit_tests.wall.leaky import KEY, documents
from unit_tests.wall.marks import mark, marks_in
from unit_tests.wall.observers import DUMPS, attempted
from unit_tests.wall.test_without_a_chain import RECORDS, ROWS, SCHEMA, LeakyWords
from unit_tests.wall.ways import LABELS, QUESTION, corpus_account

TEXT = mark("record", 1)
Made = Callable[[list[Document]], Any]


class TalkativeModel(GenericFakeChatModel):
    """A model of somebody else's, which shows what it was last asked."""

    last: str = ""


def foreign() -> Any:
    return TalkativeModel(messages=iter([]), last=TEXT).bind(stop=[TEXT])


def groups(held: list[Document]) -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        held, HashingEmbeddings(), unit_key=KEY, n_groups=4
    )


def asked(held: list[Document]) -> tuple[DPChain, Any]:
    """Return a chain that was asked, and who paid."""
    made = DPChain(
        groups=groups(held),
        model=GenericFakeChatModel(messages=iter(["cough"] * 9)),
        parser=VoteOutputParser(labels=LABELS),
    )
    budget = corpus_account(":memory:")
    made.invoke(QUESTION, {"callbacks": [budget]})
    return made, budget


def chain(held: list[Document]) -> DPChain:
    return asked(held)[0]


def rows_of(held: list[Document]) -> list[dict[str, Any]]:
    return ROWS[: len(held)]


HOLDERS: dict[str, Made] = {
    "groups": groups,
    "sample": lambda held: SampledGroups.from_documents(
        held, unit_key=KEY, n_groups=4, sampling_rate=0.5
    ),
    "chain": chain,
    "foreign chain": lambda held: DPChain(
        groups=groups(held),
        model=foreign(),
        parser=KSAPTROutputParser(k=2, tokenizer=TEXT.split),
    ),
    "retriever": lambda held: DPRetriever(chain=chain(held)),
    "tool": lambda held: create_dp_tool(chain(held), name="ask", description="Notes."),
    "rows": lambda held: tabular.TextRows(held, SCHEMA, foreign(), unit_key=KEY),
    "gdp": lambda held: tabular.GDPTable(
        rows_of(held), SCHEMA, budget=corpus_account(":memory:"), unit_key=KEY
    ),
    "ldp": lambda held: tabular.LDPTable(
        rows_of(held),
        SCHEMA,
        budget=corpus_account(":memory:"),
        unit_key=KEY,
        invited=9,
    ),
}
"""What holds records, or is made of what does."""

OTHERS: dict[str, Made] = {
    "account": lambda held: asked(held)[1],
    "parser": lambda held: asked(held)[0].parser,
    "prompt": lambda _held: few_shot.TokenPrompt(TEXT),
    "generator": lambda _held: generator(),
}


def generator() -> Any:
    made = few_shot.DPFewShotGenerator(
        LeakyWords(None),
        "Given a kind, write a list.",
        ["color"],
        n_groups=4,
        records_per_group=2,
        max_tokens=1,
        top_k_public=4,
        unit_key=KEY,
        budget=corpus_account(":memory:"),
    )
    made.generate(RECORDS)
    return made


def shown(made: Any) -> list[Any]:
    """Return the forms in which an object shows itself, without opening it."""
    dumps = [attempted(lambda dump=dump: dump(made)) for dump in DUMPS]
    return [
        *(repr(made), str(made), f"{made}", pformat(made), repr({"a": (made,)})),
        *(repr(each) for each in dumps),
    ]


@pytest.mark.promise("objects-show-public-terms")
@pytest.mark.parametrize("name", [*HOLDERS, *OTHERS])
def test_an_object_shows_no_record(name: str) -> None:
    made = (HOLDERS | OTHERS)[name](documents())
    assert marks_in(shown(made)) == []
    for copied in (copy.copy, copy.deepcopy):
        assert marks_in(shown(attempted(lambda copied=copied: copied(made)))) == []


@pytest.mark.promise("objects-show-public-terms")
@pytest.mark.parametrize("name", HOLDERS)
def test_what_an_object_shows_depends_on_no_record(name: str) -> None:
    """Not even on how many there are."""
    worlds = [documents(), documents()[1:], documents()[:4]]
    assert len({repr(HOLDERS[name](held)) for held in worlds}) == 1


@pytest.mark.promise("holders-are-not-pickled")
@pytest.mark.parametrize("name", HOLDERS)
def test_what_holds_records_is_not_pickled(name: str) -> None:
    with pytest.raises((TypeError, pickle.PicklingError)) as caught:
        pickle.dumps(HOLDERS[name](documents()))
    assert marks_in(repr(caught.value)) == []


@pytest.mark.promise("objects-show-public-terms", twin=True)
def test_a_plain_object_shows_it() -> None:
    for plain in (documents(), foreign(), [*ROWS], RuntimeError(TEXT)):
        with pytest.raises(AssertionError):
            assert marks_in(shown(plain)) == []
        assert pickle.dumps(documents())
