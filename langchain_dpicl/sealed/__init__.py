"""The sealed region: where private text is handled, and nothing else can look in.

`SealedModel` calls a chat or completion model without any of LangChain's observers;
`sealed` runs a private flow so that neither tracing nor logging nor an exception
carries its data out (`run_sealed` and `arun_sealed`: a function, a coroutine). Nothing
else in the library calls a model's `_generate`.
"""

from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.sealed.calls import SealedModel
from langchain_dpicl.sealed.region import (
    aattempt,
    arun_sealed,
    attempt,
    attempted,
    open_for_tests,
    run_sealed,
    sealed,
)

__all__ = [
    "Hidden",
    "SealedModel",
    "aattempt",
    "arun_sealed",
    "attempt",
    "attempted",
    "open_for_tests",
    "run_sealed",
    "sealed",
]
