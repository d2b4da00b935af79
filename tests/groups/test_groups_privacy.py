"""Canaries: what the groups say about themselves, and their errors, hold no records."""

from __future__ import annotations

import contextlib
import logging
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.documents import Document
from support.groups_fakes import Returns, WordEmbedding

from langchain_dpicl.errors import DPError
from langchain_dpicl.groups import RetrievedGroups, SampledGroups

if TYPE_CHECKING:
    from collections.abc import Callable

CANARY = "c4n4ry"


def canaries(n: int = 4, **metadata: Any) -> list[Document]:
    return [
        Document(
            f"{CANARY}-text {i}",
            metadata={"unit": f"{CANARY}-unit-{i}", "tag": f"{CANARY}-tag", **metadata},
            id=f"{CANARY}-id-{i}",
        )
        for i in range(n)
    ]


def build(**changes: Any) -> RetrievedGroups:
    terms = {"unit_key": "unit", "n_groups": 2, **changes}
    return RetrievedGroups.from_documents(canaries(), WordEmbedding(), **terms)


def sampled() -> SampledGroups:
    return SampledGroups.from_documents(
        canaries(), unit_key="unit", n_groups=2, sampling_rate=0.5
    )


def test_reprs_hold_no_records() -> None:
    retrieved = build(score_threshold=0.1)
    poisson = sampled()
    said = ""
    for thing in (retrieved, poisson):
        said += f"{thing!r} {thing} {thing.description} "
        parts = [*vars(thing).items()]
        parts += [item for _, part in parts for item in getattr(part, "shards", ())]
        for part in parts:
            name, value = part if isinstance(part, tuple) else ("shard", part)
            # The one attribute that is a plain set, for the ids alone.
            if name != "_document_ids":
                said += f"{name} {value!r} "
    assert CANARY not in said
    assert "n_units" not in said


def odd(position: int, value: Any, key: str = "unit") -> list[Document]:
    documents = canaries()
    documents[position].metadata[key] = value
    return documents


class Uncopyable:
    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise ValueError(CANARY)

    def __repr__(self) -> str:
        return CANARY


def save_with(value: Any, tmp_path: Any) -> None:
    groups = build()
    extra = Document(CANARY, metadata={"unit": CANARY, "odd": value})
    groups.add_documents([extra])
    groups.save(tmp_path / "saved")


def load_edited(tmp_path: Any, name: str, content: str) -> None:
    build().save(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob(name)
    file.write_text(content)
    RetrievedGroups.load(tmp_path / "saved", WordEmbedding())


def from_documents(documents: Any, embedding: Any = None) -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        documents, embedding or WordEmbedding(), unit_key="unit", n_groups=2
    )


FAILURES: dict[str, Callable[[Any], Any]] = {
    "unit is a list": lambda _: from_documents(odd(2, [CANARY])),
    "unit is a mapping": lambda _: from_documents(odd(2, {CANARY: CANARY})),
    "no unit": lambda _: RetrievedGroups.from_documents(
        canaries(), WordEmbedding(), unit_key="patient", n_groups=2
    ),
    "too few units": lambda _: build(n_groups=9),
    "no document": lambda _: from_documents([*canaries(), CANARY]),
    "no corpus": lambda _: from_documents(Uncopyable()),
    "twice the same id": lambda _: from_documents([*canaries(), *canaries(1)]),
    "id taken": lambda _: build().add_documents(canaries(1)),
    "uncopyable": lambda _: from_documents(canaries(tag=Uncopyable())),
    "zero vector": lambda _: from_documents(canaries(), Returns([[0, 0]] * 4)),
    "ragged vectors": lambda _: from_documents(canaries(), Returns([[0], [0, 0]])),
    "vectors of text": lambda _: from_documents(canaries(), Returns([[CANARY]] * 4)),
    "question of text": lambda _: from_documents(
        canaries(), Returns([[1, 2]] * 4, [CANARY, CANARY])
    ).draw("q"),
    "unknown unit": lambda _: build().delete_unit(f"{CANARY}-unit-9"),
    "unknown sampled unit": lambda _: sampled().delete_unit(f"{CANARY}-unit-9"),
    "sampled id taken": lambda _: sampled().add_documents(canaries(1)),
    "not json": lambda tmp_path: save_with({CANARY}, tmp_path),
    "not json inside": lambda tmp_path: save_with([b"c4n4ry"], tmp_path),
    "damaged documents": lambda tmp_path: load_edited(
        tmp_path, "documents-*.jsonl", f'{{"page_content": "{CANARY}'
    ),
    "damaged manifest": lambda tmp_path: load_edited(
        tmp_path, "manifest.json", f'{{"format": "{CANARY}'
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_errors_hold_no_records(tmp_path: Any, failure: Any) -> None:
    with pytest.raises(DPError) as caught:
        FAILURES[failure](tmp_path)
    error: BaseException | None = caught.value
    while error is not None:
        said = f"{error} {error!r} {error.args} {getattr(error, '__notes__', '')}"
        assert CANARY not in said
        for frame in traceback.extract_tb(error.__traceback__):
            if "langchain_dpicl" in frame.filename:
                assert CANARY not in (frame.line or "")
        error = error.__cause__ or error.__context__


def test_nothing_is_logged_or_printed(caplog: Any, capfd: Any, tmp_path: Any) -> None:
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings():
        warnings.simplefilter("error")
        groups = build(progress=True)
        groups.draw("question")
        groups.add_documents(
            [Document(CANARY, metadata={"unit": CANARY})], progress=True
        )
        groups.save(tmp_path / "saved")
        RetrievedGroups.load(tmp_path / "saved", WordEmbedding()).draw("question")
        groups.delete_unit(CANARY)
        sampled().draw("question")
        for failure in FAILURES.values():
            with contextlib.suppress(DPError):
                failure(tmp_path)
    captured = capfd.readouterr()
    assert CANARY not in captured.out + captured.err + caplog.text


def test_the_salt_stays_inside() -> None:
    groups = build()
    salt = groups._index.salt
    assert len(salt) == 32
    assert salt.hex() not in f"{groups!r} {groups.description}"
    assert str(salt) not in f"{groups!r} {groups.description}"
    assert build()._index.salt != salt
