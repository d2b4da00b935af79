"""What is checked before an account is charged, and what a charge then allows."""

from __future__ import annotations

from langchain_dpicl import parameters
from langchain_dpicl.budget.bundle import AnyDemand, Bundle, require_demand
from langchain_dpicl.budget.demand import Grant, Granted
from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.ledger import AccountTerms, Charge
from langchain_dpicl.units import Collect
from langchain_dpicl.validation import checked


def require_possible(
    terms: AccountTerms,
    demand: AnyDemand,
    unit_key: str | None,
    n_units: int | None,
    *,
    charges_units: bool,
) -> None:
    """Refuse what an account can't promise anything for, before it is charged.

    Raises:
        InvalidParameterError: If it is no demand, delta is 1 / n_units or more, or the
            account charges units and the caller can't name them.
    """
    require_demand(demand)
    if unit_key is not None and not isinstance(unit_key, str):
        raise InvalidParameterError("unit_key must be a metadata key's name, or None.")
    if n_units is not None:
        checked(parameters.count, n_units, "n_units", minimum=0)
    if n_units is not None and terms.delta * n_units >= 1:
        raise InvalidParameterError(
            f"delta {terms.delta:g} is too large for a corpus of {n_units} units: "
            "a mechanism that publishes one random person's records outright "
            f"would satisfy it. Open an account with delta below {1 / n_units:.2g}."
        )
    if terms.scope == "corpus":
        return
    if not charges_units:
        raise InvalidParameterError(
            f"Account {terms.name!r} charges units one by one, and this source of "
            "groups can't name the units that take part: use retrieval by a public "
            "score threshold (RetrievedGroups with score_threshold=), or an "
            "account with scope='corpus'. Best-of-the-corpus retrieval can't be "
            "charged by unit: who is in it depends on the others."
        )
    if isinstance(demand, Bundle):
        raise InvalidParameterError(
            f"Account {terms.name!r} charges units one by one, and {demand.mechanism} "
            "releases several things under one charge: use an account with "
            "scope='corpus'."
        )
    if demand.sampling_rate < 1:
        raise InvalidParameterError(
            f"Account {terms.name!r} charges units one by one, which has no proof "
            "for sampled groups: use an account with scope='corpus'."
        )


def granted(
    demand: AnyDemand,
    parts: tuple[Granted, ...],
    charge: Charge,
    collect: Collect | None,
) -> Grant:
    """Return the grant of a charge.

    A bundle's parameters are in its parts alone, so that nobody takes one for all.
    """
    own = Granted(None, None, 0.0) if isinstance(demand, Bundle) else parts[0]
    return Grant(
        noise_multiplier=own.noise_multiplier,
        epsilon=own.epsilon,
        delta0=own.delta0,
        events=charge.events,
        account=charge.account,
        sequence=charge.sequence,
        spent=charge.spent or charge.cost,
        collect=collect,
        parts=parts,
    )
