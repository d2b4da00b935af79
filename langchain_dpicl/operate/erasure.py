"""Erasing one person from a saved index and from tables, with a certificate.

What is stored of a person, and what becomes of it:

| where | what | `erase` |
|---|---|---|
| saved index | documents, vectors | a new revision without them; old files deleted |
| workers that follow it | the same, in memory | the new revision at the next question |
| tables of `PostgresGroups` | the same, in rows | deleted; backups keep them |
| ledger, per-unit accounts | a balance, keyed tag | stays: a budget is given once |
| ledger, stored steps | answers, tokens, tables | stay: noise is drawn once |
| sources, stores, backups, private readings | records | for the operator to delete |

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
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_dpicl.budget import forget
from langchain_dpicl.common import file_format
from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups import saved
from langchain_dpicl.groups.units import refuse_unknown_unit
from langchain_dpicl.ledger import Ledger, open_ledger

if TYPE_CHECKING:
    from langchain_dpicl.groups.postgres import PostgresGroups

_PERSON = b"dpicl.erased"
_NUMBERS = ("documents_erased", "revision_before", "revision_after")
NOT_UNDONE = """\
Answers, examples and tables that were released before: epsilon and delta of \
the accounts bound what they say of anybody.
Questions that were on their way when the index was saved: its former revision may \
have answered them.
Processes that loaded the index without follow=True, until they load it again.
A vector store that the index was read out of: read again, it brings the person back.
The operator's own sources, backups and files of private readings.
What a model's provider keeps of the calls that it was sent.
"""


@dataclass(frozen=True, repr=False)
class ErasureCertificate:
    """What was erased, and what stays. It holds no id, and nobody's balance.

    Attributes:
        fingerprint: The person, as a hash under a secret key of the index.
        erased_at: When the index without the person was saved, in UTC.
        index: The directory, its revisions before and after, and the number of
            documents that were erased; and how many tables hold the person no more.
        accounts: Each account's name, scope, cap (epsilon, delta, queries), number of
            releases so far, and if it is closed.
        corpus: The cap on all accounts of the corpus, if one was named.
        cached_answers_cleared: How many cached answers are not given again.
        not_undone: What the erasure does not undo.
    """

    fingerprint: str
    erased_at: str
    index: dict[str, Any]
    accounts: list[dict[str, Any]]
    corpus: dict[str, Any]
    cached_answers_cleared: int
    not_undone: list[str]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ErasureCertificate:
        """Read a certificate's file.

        Raises:
            InvalidParameterError: If there is none, or it is damaged or was edited.
        """
        return cls(**file_format.read(path, file_format.ERASURE))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a file, which holds nothing else.

        Raises:
            InvalidParameterError: If something else is there, or it can't be written.
        """
        file_format.write(path, asdict(self), file_format.ERASURE, overwrite=False)

    def is_of(self, unit_id: str | int, index: str | os.PathLike[str]) -> bool:
        """Return whether the certificate is of a person, given the index: a recheck.

        Raises:
            InvalidParameterError: If the index can't be read.
        """
        unit = canonical_unit_id(unit_id)
        key = saved.read_revision(index).secrets.erasure_key
        return unit is not None and _fingerprint(key, unit) == self.fingerprint


@hiding
def erase(  # noqa: PLR0913  # what is erased where
    unit_id: str | int,
    *,
    index: str | os.PathLike[str],
    tables: Sequence[PostgresGroups] = (),
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
        tables: Groups that are searched inside PostgreSQL: the person's records are
            deleted in their tables, too. Where there is no index, use their
            `delete_unit`.
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
        GroupCallError: If a table can't be reached. The index has changed: run it
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
    with operators_ledger(ledger) as book:
        # Before anything is changed: a name may be mistyped.
        names, cap = _named(book, accounts, corpus)
        done = _erased(unit_id, index, before, progress=progress)
        for table in tables:
            with suppress(UnitError):  # Nobody by that id is there, or no more.
                table.delete_unit(unit_id)
        cleared = 0
        if clear_cache and book is not None:
            cleared = sum(forget(book, name) for name in names)
        if before is not None and before.erased_at == done["erased_at"]:
            return before
        made = ErasureCertificate(
            fingerprint=done["fingerprint"],
            erased_at=done["erased_at"],
            index={
                "path": str(Path(index)),
                **{one: done[one] for one in _NUMBERS},
                "tables": len(tables),
            },
            accounts=[] if book is None else [_account(book, one) for one in names],
            corpus=cap,
            cached_answers_cleared=cleared,
            not_undone=NOT_UNDONE.splitlines(),
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
        else:
            # What a crash has left of a former revision.
            saved.sweep(directory)
    known = [one for one in secrets.erasures if one.get("fingerprint") == fingerprint]
    if not known:
        refuse_unknown_unit(terms.unit_key)
    return known[-1]


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


@contextmanager
def operators_ledger(ledger: Ledger | str | None) -> Iterator[Ledger | None]:
    """Open a ledger that is there, if it is not open; close it then."""
    book = None if ledger is None else open_ledger(ledger, create=False)
    try:
        yield book
    finally:
        if book is not None and book is not ledger:
            book.dispose()
