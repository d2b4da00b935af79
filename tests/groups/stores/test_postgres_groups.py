"""A draw inside PostgreSQL: its groups, its documents, and what it refuses."""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from support.known_corpus import known_corpus
from support.pgvector_parts import (
    ASKED,
    EMBEDDING,
    SALT,
    VectorServer,
    best,
    ids,
    person,
    quoted,
)

from langchain_dpicl import InvalidParameterError, RetrievedGroups, UnitError
from langchain_dpicl.common.units import Relation
from langchain_dpicl.groups.postgres import PostgresGroups
from langchain_dpicl.operate import erase

CORPUS = known_corpus()


def people(*units: Any, text: str = "Note.", **more: Any) -> list[Document]:
    return [
        Document(text, metadata={"unit": unit, **more}, id=str(uuid.uuid4()))
        for unit in units
    ]


def drawn(groups: PostgresGroups) -> list[Document]:
    return [one for slot in groups.draw(ASKED) for one in slot]


def units(groups: PostgresGroups) -> set[Any]:
    return {one.metadata["unit"] for one in drawn(groups)}


@pytest.fixture(scope="module")
def known(server: VectorServer) -> str:
    return server.table(CORPUS)


TERMS = [
    {"n_groups": n_groups, "docs_per_group": n, "score_threshold": least}
    for n_groups in (1, 7)
    for n in (1, 4, 1000)
    for least in (None, 0.3)
]


@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_the_groups_are_those_of_the_definition(
    server: VectorServer, known: str, terms: Any
) -> None:
    groups = server.groups(known, **terms)
    assert ids(groups.draw(ASKED)) == best(CORPUS, **terms)
    assert groups.relation is Relation.REPLACE
    assert groups.n_units == len({person(one) for one in CORPUS})


def test_the_groups_are_those_of_memory(server: VectorServer, known: str) -> None:
    terms: dict[str, Any] = {"unit_key": "unit", "n_groups": 1, "docs_per_group": 1000}
    memory = RetrievedGroups.from_documents(CORPUS, EMBEDDING, **terms)
    inside = server.groups(known, **terms)
    (ours,), (theirs,) = ids(inside.draw(ASKED)), ids(memory.draw(ASKED))
    assert sorted(map(str, ours)) == sorted(map(str, theirs))


@pytest.mark.parametrize("kind", ["json", "jsonb"])
def test_documents_are_those_of_the_stores_own_search(
    server: VectorServer, kind: str
) -> None:
    odd: dict[str, Any] = {"tags": ["a", {"b": None}], "note": '"%s" ${x} é 🧪'}
    store, name = server.store([*people("p-1", "p-2", visit=3, **odd), *people("p-3")])
    server.run(f"ALTER TABLE {{}} ALTER langchain_metadata TYPE {kind}", name)
    found = drawn(server.groups(name, schema=server.schema))
    own = store.similarity_search("Note.", k=10)
    assert {one.id: one for one in found} == {one.id: one for one in own}
    assert len(found) == 3


@pytest.mark.parametrize("kind", ["json", "bytea"])
def test_content_of_another_type_is_its_text(server: VectorServer, kind: str) -> None:
    name = server.table(people("1", "2", text="7"))
    change = f"ALTER TABLE {{}} ALTER content TYPE {kind} USING content::{kind}"
    server.run(change, name)
    assert all("7" in one.page_content for one in drawn(server.groups(name)))


def test_cells_of_other_types(server: VectorServer) -> None:
    kinds = {"day": "date", "made": "timestamptz", "price": "numeric", "more": "json"}
    name = server.table(people("7", "8"), **kinds)
    server.run(
        "UPDATE {} SET day = CASE unit WHEN '7' THEN 'infinity'::date ELSE "
        "'2024-02-29' END, made = '2024-02-29 12:00+02', price = 'NaN', "
        """more = '{"deep": ["\\u0000"]}'""",
        name,
    )
    found = {one.metadata["unit"]: one.metadata for one in drawn(server.groups(name))}
    assert found["8"]["day"] == "2024-02-29"
    assert found["7"]["day"] == "infinity"  # No date of Python's; no reason to fail.
    assert found["7"]["made"] == "2024-02-29T10:00:00+00:00"
    assert found["7"]["price"] == "NaN"
    assert found["7"]["more"] == {"deep": ["\0"]}


@pytest.mark.parametrize("kind", ["text", "varchar", "bigint", "smallint", "uuid"])
def test_unit_ids_and_their_spellings(server: VectorServer, kind: str) -> None:
    given: list[Any] = ["7", " 7\u2003", "-1", "e\u0301", "\u00e9", "x" * 4000]
    if kind.endswith("int"):
        given = [7, 0, -1]
    elif kind == "uuid":
        given = [str(uuid.UUID(int=number)) for number in (7, 8)]
    name = server.table(people(*given), unit=kind)
    groups = server.groups(name, docs_per_group=99)
    persons = {str(person(one)) for one in people(*given)}
    assert groups.n_units == len(persons)
    assert [one.metadata["unit"] for one in drawn(groups)] != []
    for nobodys in ("8 ", "\0", "\ud800", True, 7.0, None, "", 10**400):
        with pytest.raises(UnitError, match="nothing was deleted") as caught:
            groups.delete_unit(nobodys)  # type: ignore[arg-type]
        assert "8 " not in str(caught.value)
    deleted = groups.delete_unit(uuid.UUID(int=7) if kind == "uuid" else 7)  # type: ignore[arg-type]
    assert deleted == sum(person(one) in ("7", given[0]) for one in people(*given))
    assert groups.n_units == len(persons) - 1
    assert len(drawn(groups)) == len(given) - deleted


def test_records_of_nobody(server: VectorServer) -> None:
    name = server.table(people("p-1", "p-2"))
    groups = server.groups(name)
    server.fill(name, people(None, "", " \t"))
    # Whatever its JSON says, a record is of the unit that its column names.
    server.run("""UPDATE {} SET langchain_metadata = '{"unit": "p-1"}'""", name)
    assert units(groups) == {"p-1", "p-2"}
    with pytest.raises(UnitError, match="no usable unit id in the column 'unit'"):
        server.groups(name)


def test_too_few_units(server: VectorServer) -> None:
    with pytest.raises(UnitError, match="n_groups"):
        server.drawn(people("p-1", " p-1"), n_groups=2)
    with pytest.raises(UnitError, match="no documents"):
        server.drawn([])


def test_json_that_python_cannot_read(server: VectorServer) -> None:
    name = server.table(people("p-1", "p-2", "p-3", "p-4"))
    for unit, note in {
        "p-2": f'{{"n": {"9" * 5000}}}',
        "p-3": "[" * 16_000 + "]" * 16_000,
        "p-4": '{"title": "\\u0000 \\ud83d"}',
    }.items():
        server.run(
            f"UPDATE {{}} SET langchain_metadata = '{note}' WHERE unit = '{unit}'", name
        )
    # Also with the least stack that a server can be given.
    hurried = f"{server.url}%20-cmax_stack_depth%3D100%20-cstatement_timeout%3D60s"
    found = {
        one.metadata["unit"]: one.metadata
        for one in drawn(server.groups(name, url=hurried))
    }
    assert len(found) == 4
    assert set(found["p-2"]) == set(found["p-3"]) == {"unit", "visit", "ward"}
    assert found["p-4"]["title"] == "\0 \ud83d"


FLAT = {
    "zero": "'[0,0,0,0,0,0,0,0]'",
    "none": "NULL",
    "huge": "'[1e30,0,0,0,0,0,0,0]'",
    "tiny": "'[1e-30,0,0,0,0,0,0,0]'",
}


def test_vectors_without_a_direction_take_no_place(server: VectorServer) -> None:
    name = server.table(people("p-1", *FLAT))
    for unit, value in FLAT.items():
        server.run(f"UPDATE {{}} SET embedding = {value} WHERE unit = '{unit}'", name)
    groups = server.groups(name)
    assert units(groups) == {"p-1"}
    # They are erased all the same.
    assert [groups.delete_unit(unit) for unit in FLAT] == [1] * 4
    assert groups.n_units == 1


def test_what_others_write_counts_at_the_next_draw(server: VectorServer) -> None:
    name = server.table(people("p-1", "p-2"))
    groups, elsewhere = server.groups(name), server.groups(name)
    server.fill(name, people("p-1", "p-3", text="Written later."))
    assert len(drawn(groups)) == 4
    assert elsewhere.delete_unit("p-1") == 2
    assert units(groups) == {"p-2", "p-3"}


def test_a_key_that_is_derived_is_the_same_everywhere(
    server: VectorServer, known: str
) -> None:
    def slots(**terms: Any) -> Any:
        return ids(server.groups(known, n_groups=7, **terms).draw(ASKED))

    assert slots(salt=None) == slots(salt=None) != slots(salt=SALT)
    for bad in (b"short", "text", 7):
        with pytest.raises(InvalidParameterError, match="salt"):
            slots(salt=bad)


def test_columns_of_other_names(server: VectorServer) -> None:
    """Names with quotes and percents, and those that the statement uses itself."""
    name = server.table(people("p-1", "p-2", visit=3))
    for old, new in {
        "content": 'a "text" %s',
        "unit": "shard",
        "visit": "score",
        "ward": "place",
        "langchain_id": "rank",
        "embedding": "%(vector)s {id}",
    }.items():
        server.run(f"ALTER TABLE {{}} RENAME COLUMN {old} TO {quoted(new)}", name)
    groups = server.groups(
        name,
        unit_key="shard",
        content_column='a "text" %s',
        id_column="rank",
        vector_column="%(vector)s {id}",
        json_column="none",
    )
    (first, second) = drawn(groups.where({"score": 3, "shard": ["p-1", "p-2"]}))
    assert {first.metadata["shard"], second.metadata["shard"]} == {"p-1", "p-2"}
    assert first.page_content == "Note."
    assert first.metadata["langchain_metadata"] == {}
    assert set(first.metadata) == {"shard", "score", "place", "langchain_metadata"}
    assert groups.delete_unit("p-1") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ALTER TABLE {} ALTER embedding TYPE real[] USING '{}'", "pgvector's type"),
        ("ALTER TABLE {} ALTER embedding TYPE vector", "a length"),
        ("ALTER TABLE {} DROP embedding", "no table .* with a column 'embedding'"),
        ("ALTER TABLE {} DROP unit", "inside the JSON is not used"),
        ("ALTER TABLE {} ALTER unit TYPE boolean USING NULL", "of the type bool"),
        ("ALTER TABLE {} ALTER unit TYPE float USING NULL", "of the type float8"),
        ("ALTER TABLE {} RENAME TO other; CREATE VIEW {} AS TABLE other", "A view is"),
        ("DROP TABLE {}", "There is no table"),
    ],
)
def test_what_cannot_be_searched(
    server: VectorServer, change: str, message: str
) -> None:
    name = server.table()
    for statement in change.split("; "):
        server.run(statement.replace("'{}'", "'{ }'"), name)
    with pytest.raises(InvalidParameterError, match=message):
        server.groups(name)


def test_what_is_said_of_the_groups(server: VectorServer, known: str) -> None:
    groups = server.groups(known, n_groups=5).where({"ward": "3"})
    assert groups.description["source"] == "PostgresGroups"
    assert groups.description["filter"] == {"ward": ["3"]}
    assert "n_groups=5" in repr(groups)
    assert groups.__deepcopy__({}) is groups
    with pytest.raises(TypeError, match="private records"):
        pickle.dumps(groups)
    with pytest.raises(InvalidParameterError, match="prepare"):
        groups.draw_prepared(server.groups(known).prepare(ASKED))


def test_an_erasure_reaches_the_table(server: VectorServer, tmp_path: Path) -> None:
    notes = people("p-1", " p-1", "p-2", "p-3")
    memory = RetrievedGroups.from_documents(
        notes, EMBEDDING, unit_key="unit", n_groups=1
    )
    memory.save(tmp_path / "index")
    groups = server.drawn(notes)
    tables = [groups, server.drawn(people("p-3"))]
    file = tmp_path / "certificate.json"
    with pytest.raises(UnitError, match="nothing was deleted"):
        erase("p-9", index=tmp_path / "index", stores=tables)
    made = erase("p-1", index=tmp_path / "index", stores=tables, certificate=file)
    assert made.index["documents_erased"] == 2
    assert [one.state for one in made.stores[:3]] == ["erased"] * 3
    assert units(groups) == {"p-2", "p-3"}
    again = erase("p-1", index=tmp_path / "index", stores=tables, certificate=file)
    assert again == made
