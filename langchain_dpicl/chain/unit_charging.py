"""Whether a group source has let its units pay, before anything is asked of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.units import ChargeUnits
from langchain_dpicl.errors import UnsoundStoreError
from langchain_dpicl.groups import GroupSource


@dataclass(repr=False)
class UnitCharging:
    """A charge's `charge_units` on its way to the source, which has to call it.

    A source that says that it charges units, and then draws without charging any, would
    release without limit. *That* it has asked is checked; that it has asked all who are
    eligible remains its promise.
    """

    charge_units: ChargeUnits | None
    calls: int = field(default=0)

    @classmethod
    def of(cls, paid: PaidCharge) -> UnitCharging:
        """Return the payment of one draw."""
        return cls(paid.charge_units)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the source is given: nothing where the charge was everybody's.

        A source that charges no units may not know the argument.
        """
        return {} if self.charge_units is None else {"charge_units": self._counted}

    def require_made(self, groups: GroupSource, most: int | None = None) -> None:
        """Refuse a draw for which nobody was asked to pay, or more than once.

        Args:
            groups: The source.
            most: How often it may ask in one draw; None: as often as it likes.

        Raises:
            UnsoundStoreError: If so. Nothing was asked of the model.
        """
        if self.charge_units is None:
            return
        if not self.calls or (most is not None and self.calls > most):
            raise UnsoundStoreError(
                f"{type(groups).__name__} says that it charges units, and did not call "
                "collect exactly once in its draw: nothing was released. A source that "
                "wraps another one has to pass `charge_units` on."
            )

    def _counted(self, unit_ids: Sequence[str]) -> Sequence[bool]:
        self.calls += 1
        return self.charge_units(unit_ids) if self.charge_units is not None else ()
