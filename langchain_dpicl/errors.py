"""Errors, all below `DPError`.

```
DPError
├── InvalidParameterError      (also ValueError) a wrong argument or file; a change
├── UnitError                  records without a usable unit id, or too few units
├── NoBudgetError              no budget handler was found
├── BudgetExhaustedError       the account cannot pay
├── LedgerError                the ledger cannot be read, written or trusted
├── PlanMismatchError          the account was opened with other terms
├── UnsoundStoreError          a store, or a source, whose groups can't be bounded
├── PublicCallError            the model failed on a prompt without private text
└── GroupCallError             the sealed region could not run
    └── UnsealableModelError   the model cannot be called without leaking
```

Messages name the thing and the way out, and hold no private text: no record, no
model answer to a group prompt, no unit id. None of the errors that veto a release is
a `ValueError` or an `OutputParserException`, which applications catch by habit; a
wrong argument is a `ValueError`, as everywhere in Python.
"""

from __future__ import annotations

__all__ = [
    "BudgetExhaustedError",
    "DPError",
    "GroupCallError",
    "InvalidParameterError",
    "LedgerError",
    "NoBudgetError",
    "PlanMismatchError",
    "PublicCallError",
    "UnitError",
    "UnsealableModelError",
    "UnsoundStoreError",
]


class DPError(Exception):
    """Base of every error that `langchain_dpicl` raises on purpose."""


class InvalidParameterError(DPError, ValueError):
    """A public argument is missing, of the wrong type, or out of its range.

    So is a file that is no longer what its record says, and an attribute that somebody
    sets: make a new object, or change a copy, as with
    `chain.model_copy(update={"budget": other})`.
    """


class UnitError(DPError):
    """Records carry no usable unit id, or there are too few units.

    The way out is in the message: name the metadata key that holds the person's id
    (`unit_key=`), drop the records without one, or ask for fewer groups.
    """


class NoBudgetError(DPError):
    """A release was asked for and no budget handler was found.

    Pass `config={"callbacks": [PrivacyBudgetHandler(...)]}` or `budget=`.
    """


class BudgetExhaustedError(DPError):
    """The account cannot pay for another release; nothing was released."""


class LedgerError(DPError):
    """The ledger cannot be reached, read, written or trusted; nothing was released."""


class PlanMismatchError(DPError):
    """An account is open with other terms than the ones asked for.

    Open another account, or ask with the terms that the message names.
    """


class UnsoundStoreError(DPError):
    """What a store returns, or how a source charges, leaves no sensitivity bound."""


class PublicCallError(DPError):
    """The model failed on the question alone, before anything was charged.

    The message names the kind of error only: what a model client puts into its own
    message is not ours to pass on.
    """


class GroupCallError(DPError):
    """The sealed region could not run; what was charged stays charged."""


class UnsealableModelError(GroupCallError):
    """The model is wrapped so that its calls cannot be sealed."""
