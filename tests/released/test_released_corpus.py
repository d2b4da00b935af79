"""Released facts as documents: what they hold, and what stays as it was released."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from support.released_parts import public_record

from langchain_dpicl.errors import (
    InvalidParameterError,
)
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.released import ReleasedCorpus

FACTS = [
    Document(
        "Which drug do patients with asthma take most often? It is salbutamol.",
        metadata={"of": "drug", "size": 48.5},
    ),
    Document("Which drug do patients with migraine take most often? It is topiramate."),
    Document("Which side effect do patients on topiramate have? It is tingling."),
]


def corpus(**changes: Any) -> ReleasedCorpus:
    return ReleasedCorpus(FACTS, public_record(**changes))


def test_it_is_a_sequence_of_documents_that_say_what_they_are() -> None:
    found = corpus()
    assert [one.page_content for one in found] == [one.page_content for one in FACTS]
    assert len(found) == 3
    assert found[-1].page_content == FACTS[2].page_content
    assert [one.id for one in found[:2]] == [one.id for one in list(found)[:2]]
    metadata = found[0].metadata
    assert (metadata["source"], metadata["size"]) == ("released fact", 48.5)
    stated = json.loads(metadata["privacy"])
    assert stated["release"] == found.digest
    assert stated["epsilon"] == found.record["epsilon"]
    # Some vector stores keep nothing nested.
    assert all(isinstance(value, str | int | float) for value in metadata.values())


@pytest.mark.parametrize("embedding", [None, HashingEmbeddings()])
@pytest.mark.parametrize(
    ("question", "place"),
    [
        ("Which drug do patients with asthma take?", 0),
        ("What do patients with migraine take most?", 1),
        ("Which side effects has topiramate?", 2),
    ],
)
async def test_ordinary_retrieval_finds_the_fact(
    embedding: Any, question: str, place: int
) -> None:
    retriever = corpus().as_retriever(embedding, k=1)
    (found,) = retriever.invoke(question)
    (also,) = await retriever.ainvoke(question)
    assert found.page_content == also.page_content == FACTS[place].page_content


@pytest.mark.parametrize(
    "documents",
    [
        [3],
        [{"text": "a"}],
        [{"text": 3, "metadata": {}}],
        [{"text": "a", "metadata": []}],
        [{"text": "a", "metadata": {}, "more": 1}],
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, documents: Any) -> None:
    from langchain_dpicl.common import file_format

    path = tmp_path / "facts.json"
    content = {"record": corpus().record, "documents": documents}
    path.write_text(file_format.dumped(content, file_format.CORPUS))
    with pytest.raises(InvalidParameterError):
        ReleasedCorpus.load(path)


def test_a_document_is_small_and_a_list_of_them_is_linear() -> None:
    large = corpus(parameters={"x": list(range(10_000))})
    assert len(str(large[0].metadata)) < 400
    read = []
    for count in (100, 400):
        made = ReleasedCorpus(FACTS[:1] * count, large.record)
        started = time.process_time()
        for _ in range(3):
            list(made)
        read.append(time.process_time() - started)
    # Quadratic would be 16 times as long.
    assert read[1] < 10 * read[0] + 0.05


def test_what_can_not_be_kept_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="metadata must be what JSON"):
        ReleasedCorpus([Document("a", metadata={"x": object()})], public_record())
    with pytest.raises(InvalidParameterError, match="must be a LangChain Embeddings"):
        corpus().as_retriever("words")  # type: ignore[arg-type]
    for k in (0, -1, "4"):
        with pytest.raises(InvalidParameterError, match="k must be"):
            corpus().as_retriever(k=k)  # type: ignore[arg-type]
