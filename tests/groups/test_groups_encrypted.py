"""Saved groups at rest, encrypted: nothing in the clear, nothing changed gets in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet, MultiFernet
from support.groups_fakes import QUESTION, WordEmbedding, contents, note, retrieved

from langchain_dpicl import erase, rotate_salt
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import Cipher, RetrievedGroups, storage


@pytest.fixture
def cipher() -> Fernet:
    return Fernet(Fernet.generate_key())


def saved(path: Path, cipher: Any) -> RetrievedGroups:
    groups = retrieved([note(i, f"rash number {i}") for i in range(9)])
    groups.save(path, cipher=cipher)
    return groups


def load(path: Path, cipher: Any = None, **terms: Any) -> RetrievedGroups:
    return RetrievedGroups.load(path, WordEmbedding(), cipher=cipher, **terms)


def test_nothing_private_is_in_the_clear(tmp_path: Path, cipher: Fernet) -> None:
    path = tmp_path / "saved"
    groups = saved(path, cipher)
    salt = storage.load(path, cipher)[1].salt
    data = b"".join(file.read_bytes() for file in path.iterdir())
    for private in (b"rash", b'unit":', salt, salt.hex().encode(), b"NUMPY"):
        assert private not in data
    # Twin: without a cipher they are there.
    saved(tmp_path / "clear", None)
    data = b"".join(file.read_bytes() for file in (tmp_path / "clear").iterdir())
    assert b"rash" in data
    assert salt.hex().encode() in data
    assert contents(load(path, cipher).draw(QUESTION)) == contents(
        groups.draw(QUESTION)
    )
    # Others may read what says nothing.
    path.chmod(0o755)
    for file in path.iterdir():
        file.chmod(0o644)
    load(path, cipher)


def test_everything_works_with_a_cipher(tmp_path: Path, cipher: Fernet) -> None:
    path = tmp_path / "saved"
    saved(path, cipher)
    follower = load(path, cipher, follow=True)
    certificate = erase(3, index=path, cipher=cipher)
    assert certificate.is_of(3, path, cipher=cipher)
    assert rotate_salt(index=path, cipher=cipher).revision == 3
    follower.draw(QUESTION)
    assert follower.n_units == 8
    # A fresh key: loaded with the old one, saved with the new one.
    fresh = Fernet(Fernet.generate_key())
    load(path, cipher).save(path, cipher=fresh)
    assert load(path, fresh).n_units == 8
    assert certificate.is_of(3, path, cipher=fresh)
    with pytest.raises(InvalidParameterError, match="this cipher can't decrypt"):
        follower.draw(QUESTION)
    assert load(path, MultiFernet([cipher, fresh])).n_units == 8


def test_a_wrong_cipher_is_refused(tmp_path: Path, cipher: Fernet) -> None:
    path, clear = tmp_path / "saved", tmp_path / "clear"
    saved(path, cipher)
    saved(clear, None)
    other = Fernet(Fernet.generate_key())
    for use, message in (
        (lambda: load(path), "is encrypted: give the cipher="),
        (lambda: load(path, other), "can't decrypt"),
        (lambda: saved(path, other), "can't decrypt"),
        (lambda: load(clear, cipher), "is not encrypted"),
        (lambda: erase(3, index=path, cipher=other), "can't decrypt"),
        (lambda: saved(tmp_path / "new", Broken()), "can't encrypt"),
    ):
        with pytest.raises(InvalidParameterError, match=message) as caught:
            use()
        assert caught.value.__cause__ is None
        assert "rash" not in str(caught.value)
    assert not (tmp_path / "new").exists()
    assert load(path, cipher).n_units == 9


def test_a_changed_file_is_refused(tmp_path: Path, cipher: Fernet) -> None:
    path = tmp_path / "saved"
    saved(path, cipher)
    first = {file.name.split("-")[0]: file.read_bytes() for file in path.iterdir()}
    saved(path, cipher)
    (file,) = path.glob("documents-*")
    file.write_bytes(first["documents"])
    with pytest.raises(InvalidParameterError, match="documents-"):
        load(path, cipher)


class Broken:
    def encrypt(self, data: bytes) -> bytes:
        raise ValueError(data)

    def decrypt(self, token: bytes) -> bytes:
        raise ValueError(token)


def test_what_a_cipher_is() -> None:
    assert isinstance(Broken(), Cipher)
    assert isinstance(Fernet(Fernet.generate_key()), Cipher)
