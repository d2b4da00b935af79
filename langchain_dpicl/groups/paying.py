"""Asking units to pay, and believing only a whole answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_dpicl.exceptions import LedgerError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from langchain_dpicl.common.units import ChargeUnits
    from langchain_dpicl.groups.search import EligibleUnits


def payers(
    found: EligibleUnits, places: NDArray[np.int64], charge_units: ChargeUnits | None
) -> NDArray[np.int64]:
    """Charge some eligible units and return the places of those that paid.

    `charge_units` is called exactly once, also with nobody to charge, so that the
    ledger is asked on every path. The ids go out in their own order, which says nothing
    about scores or insertion.

    Args:
        found: The eligible units.
        places: Those of them to charge, each once.
        charge_units: Charges them; None where the charge was everybody's.

    Returns:
        The places of the units that paid (without a `charge_units`: all of them), in
        the order of `places`.

    Raises:
        LedgerError: If the answer is not one boolean for each id. Then nobody takes
            part: it is not known who paid.

    Privacy:
        Whether a unit pays is a function of its own balance. What is asked of a unit
        and what it answers says nothing about anybody else.
    """
    if charge_units is None:
        return places
    unit_ids = found.unit_ids(places)
    order = sorted(range(len(unit_ids)), key=unit_ids.__getitem__)
    paid = np.zeros(len(places), bool)
    paid[order] = _answers(charge_units, [unit_ids[position] for position in order])
    return places[paid]


def _answers(charge_units: ChargeUnits, unit_ids: list[str]) -> NDArray[np.bool_]:
    given: Any = charge_units(unit_ids)
    try:
        paid = list(given)
    except TypeError:
        paid = None
    if (
        paid is None
        or len(paid) != len(unit_ids)
        or not all(isinstance(one, bool | np.bool_) for one in paid)
    ):
        # Neither number is told: both are private.
        raise LedgerError(
            "The ledger did not answer for each unit that was to be charged whether "
            "it paid; nothing was released."
        )
    return np.array(paid, bool)
