"""Erasing one person from a saved index and from other stores, with a certificate.

What is stored of a person, and what becomes of it:

| where | what | `erase` |
|---|---|---|
| saved index | documents, vectors | a new revision without them; old files deleted |
| workers that follow it | the same, in memory | the new revision at the next question |
| `stores`, such as `PostgresGroups` | records | deleted; backups keep them |
| ledger, per-unit accounts | a balance, keyed tag | stays: a budget is given once |
| ledger, stored steps | answers, tokens, tables | stay: noise is drawn once |
| sources, backups, private readings | records | for the operator to delete |

"Erased" is said of a store that was searched after the erasure and has no record of the
person. What can't be searched is "not supported", what nobody named is "unknown".

Privacy:
    Nothing is released and nothing is charged. Answers that were released, cached ones
    too, are bounded by the account's epsilon for everybody who was in the corpus, so
    that they would have been nearly as probable without the person. A draw that is
    paid for and not made yet is made from the new revision. The balance stays because
    its loss would give the person's records a second budget. When an erasure took
    place is public; whose it was is not, and neither index nor ledger is looked at by
    questions for it. The certificate names the person by a fingerprint, a hash under a
    secret key of the index: it can be rechecked with the index and the id, and nobody
    who has the certificate alone can try ids out. It says that somebody was in the
    corpus: it is for the operator and the person.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from langchain_dpicl.budget import forget
from langchain_dpicl.common import file_format
from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups import saved
from langchain_dpicl.groups.units import refuse_unknown_unit
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.operate.charges import opened
from langchain_dpicl.public import Public

_PERSON = b"dpicl.erased"
_NUMBERS = ("documents_erased", "revision_before", "revision_after")


class StoreErasure(Public):
    """What became of a person's records in one store."""

    store: str
    """Which store."""

    state: Literal["erased", "not supported", "unknown"]
    """`erased`: a search after the erasure found no record of the person."""

    note: str
    """What was done, or is left to do."""


UNKNOWN = tuple(
    StoreErasure(store=store, state="unknown", note=note)
    for store, note in (
        (
            "a vector store that the index was read out of",
            "Read again, it brings the person back: delete the records there.",
        ),
        (
            "sources, backups, files of private readings",
            "They are the operator's to delete.",
        ),
        ("the model's provider", "It may keep what it was sent."),
        (
            "processes that loaded the index without follow=True",
            "They hold the records until they load it again.",
        ),
    )
)
NOT_UNDONE = (
    "Answers and tables that were released: the accounts bound what they say.",
    "Questions on their way: the former revision may have answered them.",
)


class ErasureCertificate(Public):
    """What was erased, and what stays. It holds no id, and nobody's balance."""

    fingerprint: str
    """The person, as a hash under a secret key of the index."""

    erased_at: str
    """When the index without the person was saved, in UTC."""

    index: dict[str, Any]
    """The directory, its revisions before and after, and the number of documents that
    were erased."""

    stores: Annotated[tuple[StoreErasure, ...], Field(strict=False)]
    """Each store, with what became of the person's records in it."""

    accounts: Annotated[tuple[dict[str, Any], ...], Field(strict=False)]
    """Each account's name, scope, cap (epsilon, delta, queries), number of releases so
    far, and if it is closed."""

    corpus: dict[str, Any]
    """The cap on all accounts of the corpus, if one was named."""

    cached_answers_cleared: int
    """How many cached answers are not given again."""

    not_undone: Annotated[tuple[str, ...], Field(strict=False)] = NOT_UNDONE
    """What the erasure does not undo."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ErasureCertificate:
        """Read a certificate's file.

        Raises:
            InvalidParameterError: If there is none, or it is damaged or was edited.
        """
        return cls.model_validate_json(json.dumps(file_format.read(path, FILE)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a file, which holds nothing else.

        Raises:
            InvalidParameterError: If something else is there, or it can't be written.
        """
        file_format.write(path, self.model_dump(mode="json"), FILE, overwrite=False)

    def is_of(self, unit_id: str | int, index: str | os.PathLike[str]) -> bool:
        """Return whether the certificate is of a person, given the index: a recheck.

        Raises:
            InvalidParameterError: If the index can't be read.
        """
        unit = canonical_unit_id(unit_id)
        key = saved.read_revision(index).secrets.erasure_key
        return unit is not None and _fingerprint(key, unit) == self.fingerprint


FILE = file_format.Kind(
    "erasure_certificate",
    "erasure certificate that can be trusted",
    "ErasureCertificate.load",
    dict.fromkeys(ErasureCertificate.model_fields, object),
    1 << 24,
    "Load a good copy, or run the erasure again: it writes a new one.",
    format=f"{file_format.FORMAT}/erasure-certificate",
)


@hiding
def erase(  # noqa: PLR0913  # what is erased where
    unit_id: str | int,
    *,
    index: str | os.PathLike[str],
    stores: Sequence[Any] = (),
    ledger: Ledger | str | None = None,
    accounts: Sequence[str] = (),
    corpus: str | None = None,
    certificate: str | os.PathLike[str] | None = None,
    clear_cache: bool = False,
    progress: bool = False,
) -> ErasureCertificate:
    """Erase a person from a saved index; return a certificate.

    Run it again after a crash or an error: it finishes what was begun, and changes
    nothing that is done. Erasures of several processes take turns.

    Args:
        unit_id: The person's id, as in the records.
        index: The directory that `RetrievedGroups.save` wrote.
        stores: What else holds records of the person: groups that are searched inside
            PostgreSQL, or anything else with their `delete_unit`, which deletes the
            records of an id and raises `UnitError` where there are none. Another
            store is listed as not supported. Without an index, use `delete_unit`.
        ledger: The ledger of the accounts that were asked about these records.
        accounts: The accounts' names.
        corpus: All accounts of a corpus, too.
        certificate: Where to write the certificate.
        clear_cache: Whether no cached answer of these accounts is given again. They
            are differentially private, so that this is not needed; each costs a
            charge when it is asked again.
        progress: Whether to count the documents that are read and written on standard
            error.

    Raises:
        UnitError: If the index holds nobody by that id, and nobody by that id was
            erased from it. Nothing was changed.
        InvalidParameterError: If the index can't be read or written, or accounts are
            named without a ledger; or if the certificate's file holds something else,
            or can't be written. The erasure then stands, and running it again writes
            one.
        LedgerError: If the ledger can't be used or has no such account or corpus. The
            index was not changed.
        GroupCallError: If a store can't be reached. The index has changed: run it
            again.

    Example:
        >>> import tempfile
        >>> from langchain_core.documents import Document
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_dpicl import RetrievedGroups
        >>> path = tempfile.mkdtemp()
        >>> RetrievedGroups.from_documents(
        ...     [Document("a note", metadata={"patient": i % 5}) for i in range(15)],
        ...     DeterministicFakeEmbedding(size=16),
        ...     unit_key="patient",
        ...     n_groups=2,
        ... ).save(path)
        >>> erase(3, index=path).index["documents_erased"]
        3

    Privacy:
        See the module.
    """
    before = None
    if certificate is not None and os.path.lexists(certificate):
        before = ErasureCertificate.load(certificate)
    with nullcontext(None) if ledger is None else opened(ledger) as book:
        # Before anything is changed: a name may be mistyped.
        names, cap = _named(book, accounts, corpus)
        done = _erased(unit_id, index, before, progress=progress)
        note = "Loaded again from its files, and searched: no record has the id."
        of_index = StoreErasure(store=str(Path(index)), state="erased", note=note)
        others = [_erased_from(store, unit_id) for store in stores]
        cleared = 0
        if clear_cache and book is not None:
            cleared = sum(forget(book, name) for name in names)
        if before is not None and before.erased_at == done["erased_at"]:
            return before
        made = ErasureCertificate(
            fingerprint=done["fingerprint"],
            erased_at=done["erased_at"],
            index={"path": str(Path(index)), **{one: done[one] for one in _NUMBERS}},
            stores=(of_index, *others, *UNKNOWN),
            accounts=tuple(_account(book, one) for one in names if book is not None),
            corpus=cap,
            cached_answers_cleared=cleared,
        )
    if certificate is not None:
        made.save(certificate)
    return made


def _erased(
    unit_id: str | int,
    index: str | os.PathLike[str],
    before: ErasureCertificate | None,
    *,
    progress: bool,
) -> dict[str, Any]:
    """Take a person out of an index; return what it notes of that, now or before."""
    title = "Documents read and written"
    with (
        saved.one_writer(index) as directory,
        progress_bar(title, None, shown=progress) as advance,
    ):
        terms, records, base = saved.load(directory, advance=advance)
        unit = canonical_unit_id(unit_id)
        if unit is None:
            refuse_unknown_unit(terms.unit_key)
        secrets = base.secrets
        fingerprint = _fingerprint(secrets.erasure_key, unit)
        if before is not None and before.fingerprint != fingerprint:
            raise InvalidParameterError(
                "The certificate's file is of another erasure; choose another path. "
                "Nothing was erased."
            )
        if found := len(records.rows_of(unit).lines):
            done = {
                "fingerprint": fingerprint,
                "erased_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "documents_erased": found,
                "revision_before": base.number,
                "revision_after": base.number + 1,
            }
            erasures = (*secrets.erasures, done)
            secrets = secrets.model_copy(update={"erasures": erasures})
            base = replace(base, secrets=secrets)
            saved.write(
                directory,
                terms,
                records.without(unit),
                base,
                advance,
            )
            records = saved.load(directory)[1]
        else:
            # What a crash has left of a former revision.
            saved.sweep(directory)
        is_left = bool(records.rows_of(unit).lines)
    if is_left:
        raise InvalidParameterError(
            "The index still has records of the person: somebody else writes into its "
            "directory. Run the erasure again."
        )
    known = [one for one in secrets.erasures if one.get("fingerprint") == fingerprint]
    if not known:
        refuse_unknown_unit(terms.unit_key)
    return known[-1]


def _erased_from(store: Any, unit_id: str | int) -> StoreErasure:
    """Erase a person from a store that can, and search it again."""
    name = type(store).__name__
    if not callable(getattr(store, "delete_unit", None)):
        note = "It has no delete_unit: delete the person's records by its own means."
        return StoreErasure(store=name, state="not supported", note=note)
    with suppress(UnitError):  # Nobody by that id is there, or no more.
        store.delete_unit(unit_id)
    try:
        store.delete_unit(unit_id)
    except UnitError:
        note = "Searched after the deletion: no record has the id."
        return StoreErasure(store=name, state="erased", note=note)
    note = "Records came back while they were deleted: run the erasure again."
    return StoreErasure(store=name, state="unknown", note=note)


def _fingerprint(key: str, unit_id: str) -> str:
    data, secret = unit_id.encode("utf-8", "surrogatepass"), bytes.fromhex(key)
    return hashlib.blake2b(data, key=secret, digest_size=16, person=_PERSON).hexdigest()


def _named(
    ledger: Ledger | None, accounts: Sequence[str], corpus: str | None
) -> tuple[list[str], dict[str, Any]]:
    """Return the accounts that were named, which are there, and their corpus's cap."""
    if ledger is None:
        if accounts or corpus is not None:
            raise InvalidParameterError("Accounts are looked up in a ledger: name it.")
        return [], {}
    names, cap = [ledger.state(name).name for name in accounts], {}
    if corpus is not None:
        state = ledger.corpus(corpus)
        names += [book.name for book in state.accounts]
        cap = state.terms.model_dump(mode="json")
    return list(dict.fromkeys(names)), cap


def _account(ledger: Ledger, name: str) -> dict[str, Any]:
    book = ledger.state(name)
    terms = book.account
    return {
        "account": terms.name,
        "scope": terms.scope,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "queries": terms.queries,
        "releases": book.used,
        "closed": not book.is_open,
    }
