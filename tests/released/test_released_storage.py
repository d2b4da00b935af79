"""Saving released examples, and what loading believes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.released_parts import (
    QUESTIONS,
    record,
    released,
    signed,
    stored,
)

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.released import ReleasedExamples

ANY_TEXT = st.text(st.characters(codec=None), max_size=40)
EXAMPLES = st.lists(ANY_TEXT.filter(bool), min_size=1, max_size=3, unique=True).flatmap(
    lambda keys: st.lists(
        st.fixed_dictionaries(dict.fromkeys(keys, ANY_TEXT)), max_size=5
    )
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "examples.json"


@pytest.fixture
def saved(path: Path) -> dict[str, Any]:
    released().save(path)
    return stored(path)


def test_a_file_says_all_there_is_to_know_and_people_can_read_it(path: Path) -> None:
    examples = released([{"text": "Wer schrieb «Faust»? 🎭", "label": "person"}])
    examples.save(path)
    content = stored(path)
    assert content == {
        "format": "langchain-dpicl",
        "version": 1,
        "kind": "examples",
        "record": record(),
        "examples": [dict(example) for example in examples],
        "sha256": examples.digest,
    }
    assert signed(content)["sha256"] == examples.digest
    text = path.read_text(encoding="utf-8")
    assert "Wer schrieb «Faust»? 🎭" in text
    assert '\n    "unit_key": "patient_id",\n' in text
    again = ReleasedExamples.load(path)
    assert again == examples
    assert again.record == examples.record
    assert again.digest == examples.digest
    assert ReleasedExamples.load(path).selector().select_examples({}) == examples


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(examples=EXAMPLES, model=ANY_TEXT.filter(str.strip))
def test_any_text_comes_back_as_it_was_released(
    path: Path, examples: list[dict[str, str]], model: str
) -> None:
    try:
        before = ReleasedExamples(examples, record(model=model))
    except InvalidParameterError:
        # Keys of two lone surrogates become one.
        assert any("\ud800" <= c <= "\udfff" for e in examples for k in e for c in k)
        return
    before.save(path, overwrite=True)
    after = ReleasedExamples.load(str(path))
    assert after == before
    assert after.record == before.record
    assert [list(example) for example in after] == [list(example) for example in before]


def test_nothing_else_is_overwritten(path: Path) -> None:
    examples, others = released(), released(QUESTIONS[:1])
    examples.save(path)
    before = path.stat()
    examples.save(path)
    assert path.stat().st_ino == before.st_ino
    with pytest.raises(InvalidParameterError, match="overwrite=True"):
        others.save(path)
    assert ReleasedExamples.load(path) == examples
    others.save(path, overwrite=True)
    assert ReleasedExamples.load(path) == others
    path.write_text("my thesis")
    with pytest.raises(InvalidParameterError, match="overwrite=True"):
        examples.save(path)
    assert path.read_text() == "my thesis"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_appears_complete_or_not_at_all(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for step in ("fsync", "link"):
        with monkeypatch.context() as broken:
            broken.setattr(os, step, fails)
            if step == "link":
                broken.setattr(Path, "replace", fails)
            with pytest.raises(
                InvalidParameterError, match=r"No space left.*still in memory"
            ):
                released().save(path)
        assert not list(path.parent.iterdir())


def test_a_file_system_without_links_will_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", no_links)
    released().save(path)
    assert ReleasedExamples.load(path) == released()


def test_a_file_that_takes_the_name_meanwhile_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def slow(*names: Any) -> None:
        path.write_text("my thesis")
        link(*names)

    monkeypatch.setattr(os, "link", slow)
    with pytest.raises(InvalidParameterError, match="overwrite=True"):
        released().save(path)
    assert path.read_text() == "my thesis"
    assert list(path.parent.iterdir()) == [path]


def test_folders_are_made_and_others_may_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "examples.json"
    released().save(path)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file" / "x.json", tmp_path / "new", "a\0b"):
        with pytest.raises(InvalidParameterError):
            released().save(bad)
