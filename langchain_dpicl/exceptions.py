"""Errors, all below `DPError`.

```
DPError (LangChainException)
├── InvalidParameterError (also ParameterError, a ValueError) a wrong argument
├── UnitError                  records without a usable unit id, or too few units
├── NoBudgetError              no budget handler was found
├── BudgetExhaustedError       (also ToolException) the account cannot pay
│   └── AllowanceExhaustedError the caller has spent its allowance
├── LedgerError                the ledger cannot be read, written or trusted
├── PlanMismatchError          the account was opened with other terms
├── ImmutableError (also AttributeError) an attribute that was set by the constructor
├── UnsoundStoreError          a store's index ties units together
├── ReleaseError               released examples, or their file, can't be trusted
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

from langchain_core.exceptions import LangChainException
from langchain_core.tools import ToolException

from langchain_dpicl.common.parameters import ParameterError

__all__ = [
    "AllowanceExhaustedError",
    "BudgetExhaustedError",
    "DPError",
    "GroupCallError",
    "ImmutableError",
    "InvalidParameterError",
    "LedgerError",
    "NoBudgetError",
    "PlanMismatchError",
    "PublicCallError",
    "ReleaseError",
    "UnitError",
    "UnsealableModelError",
    "UnsoundStoreError",
]


class DPError(LangChainException):
    """Base of every error that `langchain_dpicl` raises on purpose."""


class InvalidParameterError(DPError, ParameterError):
    """A public argument is missing, of the wrong type, or out of its range."""


class ImmutableError(DPError, AttributeError):
    """An attribute of a chain, parser, account, generator or table was assigned.

    Make a new object, or change a copy: `chain.model_copy(update={"budget": other})`.
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


class BudgetExhaustedError(DPError, ToolException):
    """The account cannot pay for another release; nothing was released.

    As a `ToolException` it becomes an error message inside an agent instead of
    ending the run, where the tool handles tool errors.
    """


class AllowanceExhaustedError(BudgetExhaustedError):
    """A caller has spent its allowance; the account itself may still pay.

    Give the caller a larger `Allowance`, or wait for the account of the next period.
    """


class LedgerError(DPError):
    """The ledger cannot be reached, read, written or trusted; nothing was released."""


class PlanMismatchError(DPError):
    """An account is open with other terms than the ones asked for.

    Open another account, or ask with the terms that the message names.
    """


class UnsoundStoreError(DPError):
    """A store's index ties units together, so that no sensitivity bound holds."""


class ReleaseError(DPError):
    """Released examples would no longer be what their record says.

    Somebody tried to change them or to add to them, or a file of them is damaged, was
    edited, or claims less than its events cost. Load a good copy; `list(examples)` is a
    copy that may be changed and has no guarantee.
    """


class PublicCallError(DPError):
    """The model failed on the question alone, before anything was charged.

    The message names the kind of error only: what a model client puts into its own
    message is not ours to pass on.
    """


class GroupCallError(DPError):
    """The sealed region could not run; what was charged stays charged."""


class UnsealableModelError(GroupCallError):
    """The model is wrapped so that its calls cannot be sealed."""
