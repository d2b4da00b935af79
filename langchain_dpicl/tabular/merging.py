"""`merge`: tallies of parts of a table, added up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.errors import InvalidParameterError

if TYPE_CHECKING:
    from langchain_dpicl.tabular.gdp.mergeable import Tally
    from langchain_dpicl.tabular.ldp.mergeable import ReportTally

    Part = TypeVar("Part", Tally, ReportTally)


@hiding
def merge(tallies: Iterable[Part]) -> Part:
    """Add up tallies of disjoint parts of one table, in any order and any grouping.

    Args:
        tallies: Of `tally`, or of `tally_reports`; at least one. Sums of some of them
            can be merged with others.

    Returns:
        A tally of all parts.

    Raises:
        InvalidParameterError: If there are none, they were made with different keys or
            terms, or one is there twice.
        UnitError: If a unit has rows in two of them.

    Privacy:
        Private in, private out; of reports public. That no unit is in two tallies is
        checked exactly: `tabular.gdp.mergeable` says how.
    """
    from langchain_dpicl.tabular.gdp.mergeable import Tally
    from langchain_dpicl.tabular.ldp.mergeable import ReportTally

    is_listed = isinstance(tallies, Iterable) and not isinstance(tallies, (str, bytes))
    found: list[Any] = list(tallies) if is_listed else []
    for kind in (Tally, ReportTally):
        if found and all(isinstance(one, kind) for one in found):
            merged: Any = kind.merged(found)
            return merged  # type: ignore[no-any-return]
    raise InvalidParameterError(
        "tallies must be those of tally(), or those of tally_reports(), at least one. "
        "Tally.from_bytes reads what to_bytes wrote."
    )
