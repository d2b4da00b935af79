"""What was released is used freely, and never becomes something else.

Examples and documents keep the record of their release. They can't be changed, a file
that was edited is refused, and so is one that claims less than its events cost, with
any digest. The ledger that was charged says whether a file is of that charge.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faces import (
    DPError,
    ReleasedCorpus,
    ReleasedExamples,
    accounting,
    planned,
    table_of,
    tabular,
)
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.example_selectors import BaseExampleSelector
from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from scripted import ScriptedEmbeddings

SCHEMA = tabular.TableSchema(
    label="effect",
    columns=[
        tabular.CategoricalColumn(name="drug", values=["aspirin", "codeine"]),
        tabular.CategoricalColumn(name="effect", values=["none", "nausea"]),
    ],
)
ROWS = [{"drug": "aspirin", "effect": "none"}, {"drug": "codeine", "effect": "nausea"}]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The ledger that was charged."""
    return f"sqlite:///{tmp_path_factory.mktemp('released') / 'ledger.db'}"


@pytest.fixture(scope="module")
def table(ledger: str) -> Any:
    """One release of a table of pairs."""
    budget = planned(ledger=ledger)
    terms = {"measure": [("drug", "effect")], "noise": "gaussian", "budget": budget}
    return table_of("GDPTable", ROWS * 100, SCHEMA, **terms).release()


@pytest.fixture(scope="module")
def examples(table: Any) -> ReleasedExamples:
    return table.examples(6)


@pytest.fixture(scope="module")
def corpus(table: Any) -> ReleasedCorpus:
    return table.documents(people="patients")


@pytest.fixture(params=["examples", "corpus"])
def thing(request: pytest.FixtureRequest) -> Any:
    """Each of both."""
    return request.getfixturevalue(request.param)


@pytest.mark.promise("released-record")
def test_each_keeps_the_record_of_its_release(thing: Any, table: Any) -> None:
    record = thing.record
    assert record["events"] == table.record()["events"]
    (event,) = record["events"]
    cost = accounting.epsilon(event["noise_multiplier"], record["delta"], uses=1)
    assert record["epsilon"] == pytest.approx(cost, rel=1e-6)
    assert json.loads(json.dumps(record)) == record
    record["epsilon"] = 0
    assert thing.record["epsilon"] > 0, "a copy"


CHANGES: list[Callable[[Any], Any]] = [
    lambda x: x.append({"text": "Ann", "label": "none"}),
    lambda x: x.extend(x),
    lambda x: x.insert(0, x[0]),
    lambda x: x.pop(),
    lambda x: x.__setitem__(0, x[1]),
    lambda x: x.__delitem__(0),
    lambda x: x.__iadd__(x),
    lambda x: setattr(x, "record", {}),
    lambda x: x.__init__([], x.record),
]


@pytest.mark.promise("released-immutable")
@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_it_can_not_be_changed(change: Callable[[Any], Any], thing: Any) -> None:
    before = list(thing)
    with pytest.raises((DPError, AttributeError, TypeError)):
        change(thing)
    assert list(thing) == before
    thing.verify()


@pytest.mark.promise("released-immutable")
def test_parts_and_copies_are_the_same_release(
    examples: ReleasedExamples, corpus: ReleasedCorpus
) -> None:
    with pytest.raises((DPError, TypeError)):
        examples[0]["text"] = "Ann has a rash."
    corpus[0].page_content = "Ann has a rash."
    assert "Ann" not in corpus[0].page_content
    for thing in (examples, corpus):
        for again in (
            copy.copy(thing),
            copy.deepcopy(thing),
            pickle.loads(pickle.dumps(thing)),
        ):
            assert list(again) == list(thing)
            assert again.record == thing.record


@pytest.mark.promise("released-file")
def test_a_file_holds_the_same_and_is_confirmed_by_the_ledger(
    thing: Any, ledger: str, tmp_path: Path
) -> None:
    path = tmp_path / "released.json"
    thing.save(path)
    thing.save(path)
    loaded = type(thing).load(path, ledger=ledger)
    assert (list(loaded), loaded.record) == (list(thing), thing.record)
    loaded.verify(ledger)
    other = planned(ledger=f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(DPError):
        type(thing).load(path, ledger=other.ledger)
    path.write_text("{}", "utf-8")
    with pytest.raises(DPError):
        thing.save(path)


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every part of a file."""
    if here:
        yield here
    parts = value.items() if isinstance(value, dict) else ()
    for key, part in enumerate(value) if isinstance(value, list) else parts:
        yield from places(part, (*here, key))


def edits(value: Any) -> list[Any]:
    """Return other values in place of one."""
    more: list[Any] = [None, 0, "x", [], {}]
    if isinstance(value, str):
        more += [value + " ", value[:-1]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        more += [value + 1, value / 2, -value, 1e300]
    elif isinstance(value, list):
        more += [value[1:], value * 2]
    return [new for new in more if new != value]


def edited(content: Any) -> Iterator[Any]:
    """Yield every file that differs in one place."""
    for *way, last in places(content):
        holder = content
        for key in way:
            holder = holder[key]
        for new in edits(holder[last]):
            other = copy.deepcopy(content)
            part = other
            for key in way:
                part = part[key]
            part[last] = new
            yield other


@pytest.mark.promise("released-file")
def test_no_edit_of_a_file_is_believed(thing: Any, tmp_path: Path) -> None:
    path = tmp_path / "released.json"
    thing.save(path)
    content = json.loads(path.read_text("utf-8"))
    believed = []
    for number, other in enumerate(edited(content)):
        if number % 7 and "record" not in json.dumps(other)[:12]:
            continue
        path.write_text(json.dumps(other), "utf-8")
        try:
            type(thing).load(path)
        except DPError:
            continue
        believed.append(other)
    assert believed == []


@pytest.mark.promise("released-understated")
@given(st.floats(0, 0.99), st.sampled_from(["epsilon", "delta", "count", "noise"]))
def test_a_record_that_claims_less_than_its_events_cost_is_refused(
    examples: ReleasedExamples, share: float, what: str
) -> None:
    record = examples.record
    if what in ("epsilon", "delta"):
        record[what] *= share
    elif what == "count":
        record["events"][0]["count"] = 2
    else:
        record["events"][0]["noise_multiplier"] *= share
    # An object that is made anew has a digest that fits: the claim itself is checked.
    for make in (
        lambda: ReleasedExamples([dict(one) for one in examples], record),
        lambda: ReleasedCorpus([Document("About 3 people.")], record),
    ):
        with pytest.raises(DPError):
            make()


@pytest.mark.promise("released-understated", twin=True)
def test_twin_of_a_record_that_claims_what_its_events_cost(
    examples: ReleasedExamples,
) -> None:
    # The check above would pass for nothing if every record were refused.
    with pytest.raises(pytest.fail.Exception), pytest.raises(DPError):
        ReleasedExamples([dict(one) for one in examples], examples.record)


@pytest.mark.promise("released-free")
def test_examples_are_selected_for_nothing(
    examples: ReleasedExamples, ledger: str
) -> None:
    selector = examples.selector()
    assert isinstance(selector, BaseExampleSelector)
    assert selector.select_examples({"text": "?"}) == list(examples)
    nearest = examples.selector(2, embedding=ScriptedEmbeddings())
    asked = dict(examples[3])
    prompt = FewShotPromptTemplate(
        example_selector=nearest,
        example_prompt=PromptTemplate.from_template("{text} -> {label}"),
        suffix="{text} ->",
        input_variables=["text"],
    )
    for _ in range(3):
        assert nearest.select_examples(asked)[0]["text"] == asked["text"]
        assert prompt.format(text=asked["text"]).count("->") == 3
    assert planned(ledger=ledger).spent().queries == 1


@pytest.mark.promise("released-free")
def test_documents_are_asked_for_nothing(corpus: ReleasedCorpus, ledger: str) -> None:
    retriever = corpus.as_retriever(ScriptedEmbeddings(size=64), k=2)
    for _ in range(3):
        found = retriever.invoke("Which effect do patients on codeine have?")
        assert len(found) == 2
    store = InMemoryVectorStore(ScriptedEmbeddings())
    assert corpus.add_to(store) == corpus.add_to(store), "no document is there twice"
    assert len(store.store) == len(corpus)
    text = " ".join(document.page_content for document in corpus)
    assert "codeine" in text
    assert "nausea" in text
    assert planned(ledger=ledger).spent().queries == 1
