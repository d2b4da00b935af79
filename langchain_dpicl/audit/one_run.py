"""One run with canaries, each by a coin: a sanity check of what a release shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from langchain_core.documents import Document

from langchain_dpicl.audit.bounds import one_run_epsilon, one_run_gaussian
from langchain_dpicl.audit.probes import likeness
from langchain_dpicl.audit.report import AuditReport
from langchain_dpicl.budget import PrivacyBudgetHandler, find_budget
from langchain_dpicl.chain import DPChain
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.errors import BudgetExhaustedError, InvalidParameterError
from langchain_dpicl.groups.units import unit_id_of
from langchain_dpicl.mechanisms import system_random
from langchain_dpicl.release.flow import Flow, aresult, in_thread, result
from langchain_dpicl.sealed import unobserved

Release: TypeAlias = Callable[[Sequence[Document]], Sequence[str]]
"""From records to the texts that a release makes of them."""

Score: TypeAlias = Callable[[str, Sequence[str]], float]
"""From a canary's text and the released texts to how likely it took part."""

_GAUSSIAN = "epsilon, if its curve is a Gaussian's"
_NOTES = (
    (
        "A sanity check, and no measure of the loss: one run shows little of it. A "
        "bound of 0 means that these guesses showed nothing."
    ),
    (
        "Each canary took part by a fair coin. Those with the highest scores are "
        "guessed to have, those with the lowest not to have; how many is fixed "
        "beforehand."
    ),
    (
        "The bound of epsilon is that of Steinke, Nasr and Jagielski (2023), for any "
        "release. The other one assumes a Gaussian's trade-off curve (Mahloujifar, "
        "Melis and Chaudhuri 2024), and takes no part in the verdict."
    ),
)


@hiding
def one_run(  # noqa: PLR0913  # what is run, guessed and claimed, one by one
    chain: DPChain | Release,
    canaries: Sequence[Document],
    questions: Sequence[str] = (),
    *,
    records: Sequence[Document] = (),
    claimed: tuple[float, float] | None = None,
    score: Score = likeness,
    guesses: int | None = None,
    budget: PrivacyBudgetHandler | None = None,
    confidence: float = 0.95,
    progress: bool = True,
) -> AuditReport:
    """Release once, over records and about half of the canaries; guess which half.

    Args:
        chain: A chain, of which a copy over these records answers the questions; or a
            function from records to released texts, with a claim.
        canaries: Records of one unit each, made up for this.
        questions: What a chain is asked, out of one account.
        records: The other records of the run.
        claimed: The epsilon and delta that a function's release claims.
        score: How much the released texts tell of a canary.
        guesses: How many coins are guessed, half of them as "in"; None: half of them.
        budget: The account whose terms a chain is asked with; None: the chain's own. It
            is neither charged nor read.
        confidence: That of the lower bound.
        progress: Whether to draw a progress bar on standard error.

    Returns:
        The report: a sanity check. It is not sound where the lower bound of epsilon is
        above what is claimed, or what was charged.

    Raises:
        NoBudgetError: If a chain has no terms.
        InvalidParameterError: If an argument can't be used.
        UnitError: If a record has no unit, or there are too few units for the groups.

    Privacy:
        Nothing is charged, so the report is private, for the operator of the records. A
        chain is asked in the sealed region: no callback, tracer, logger or cache sees
        what it answers. A function is called as it is.

    Example:
        >>> canaries = [Document(f"canary {i}", metadata={"id": i}) for i in range(40)]
        >>> def leaks(records):
        ...     return [one.page_content for one in records]
        >>> one_run(leaks, canaries, claimed=(1.0, 1e-6), progress=False)
        AuditReport(kind='one-run', is_sound=False)
    """
    return result(
        _running(
            chain,
            canaries,
            questions,
            records,
            claimed,
            score,
            guesses,
            budget,
            confidence=confidence,
            progress=progress,
        )
    )


@hiding
async def aone_run(  # noqa: PLR0913  # as above
    chain: DPChain | Release,
    canaries: Sequence[Document],
    questions: Sequence[str] = (),
    *,
    records: Sequence[Document] = (),
    claimed: tuple[float, float] | None = None,
    score: Score = likeness,
    guesses: int | None = None,
    budget: PrivacyBudgetHandler | None = None,
    confidence: float = 0.95,
    progress: bool = True,
) -> AuditReport:
    """Release once, and guess which canaries took part; see `one_run`."""
    return await aresult(
        _running(
            chain,
            canaries,
            questions,
            records,
            claimed,
            score,
            guesses,
            budget,
            confidence=confidence,
            progress=progress,
        )
    )


def _running(  # noqa: PLR0913  # as above
    chain: DPChain | Release,
    canaries: Sequence[Document],
    questions: Sequence[str],
    records: Sequence[Document],
    claimed: tuple[float, float] | None,
    score: Score,
    guesses: int | None,
    budget: PrivacyBudgetHandler | None,
    *,
    confidence: float,
    progress: bool,
) -> Flow[AuditReport]:
    level = parameters.delta(confidence, "confidence")
    number = _guesses(len(canaries), guesses)
    source = system_random()
    coins = [source.bits(1) == 1 for _ in canaries]
    run = [*records, *(one for one, coin in zip(canaries, coins, strict=True) if coin)]
    if isinstance(chain, DPChain):
        terms = find_budget(budget or chain.budget)
        _check_chain(chain, canaries, questions, records, claimed)
        asking = _asked(chain, terms, questions, run, shown=progress)
        texts, (epsilon, delta) = yield from asking
    else:
        if claimed is None or questions:
            raise InvalidParameterError(
                "A function is asked no questions, and needs claimed=(epsilon, delta)."
            )
        epsilon = parameters.epsilon(claimed[0])
        delta = parameters.delta(claimed[1])
        texts = yield in_thread(partial(chain, run))
    scores = [score(one.page_content, texts) for one in canaries]
    guessed = _guessed(scores, number)
    right = sum(coins[at] == guess for at, guess in guessed.items())
    given = (len(canaries), number, right, delta, level)
    bounds = one_run_epsilon(*given), one_run_gaussian(*given)
    return _report(coins, scores, guessed, (epsilon, delta), right, bounds, level)


def _asked(
    chain: DPChain,
    terms: PrivacyBudgetHandler,
    questions: Sequence[str],
    run: Sequence[Document],
    *,
    shown: bool,
) -> Flow[tuple[list[str], tuple[float, float]]]:
    """Return a chain's answers over the records of the run, and what they cost."""
    groups = yield in_thread(partial(chain.groups.over, run))
    account, texts = terms.in_memory(), []
    parts = {"groups": groups, "budget": account, "cache": False}
    copy = chain.model_copy(update=parts)
    with progress_bar("Asking", len(questions), shown=shown) as advance:
        for question in questions:
            try:
                message = yield unobserved(
                    partial(copy.invoke, question), partial(copy.ainvoke, question)
                )
            except BudgetExhaustedError:
                break
            texts.append(str(message.text))
            advance(1)
    return texts, (account.spent().epsilon, terms.delta)


def _guesses(canaries: int, guesses: int | None) -> int:
    if canaries < 2:  # noqa: PLR2004 - one coin tells nothing
        raise InvalidParameterError("Give two or more canaries, better hundreds.")
    number = canaries // 2 if guesses is None else guesses
    number = parameters.count(number, "guesses")
    if number > canaries:
        raise InvalidParameterError(
            f"guesses must be at most the number of canaries, {canaries}."
        )
    return number


def _check_chain(
    chain: DPChain,
    canaries: Sequence[Document],
    questions: Sequence[str],
    records: Sequence[Document],
    claimed: tuple[float, float] | None,
) -> None:
    if not questions or claimed is not None:
        raise InvalidParameterError(
            "A chain needs questions, and no claim: what it charges is the claim."
        )
    key = chain.groups.unit_key
    units = [unit_id_of(one, key, position=at) for at, one in enumerate(canaries)]
    known = {unit_id_of(one, key, position=at) for at, one in enumerate(records)}
    if len({*units}) < len(units) or known & {*units}:
        raise InvalidParameterError(
            f"Each canary needs a unit of its own: a {key!r} that no other canary and "
            "no record has."
        )


def _guessed(scores: Sequence[float], number: int) -> dict[int, bool]:
    """Return whose coins are guessed, and as what; of equals, the first are lower."""
    order = sorted(range(len(scores)), key=lambda at: scores[at])
    low = number // 2
    high = order[len(order) - (number - low) :]
    return {**dict.fromkeys(order[:low], False), **dict.fromkeys(high, True)}


def _report(
    coins: Sequence[bool],
    scores: Sequence[float],
    guessed: dict[int, bool],
    claim: tuple[float, float],
    right: int,
    bounds: tuple[float, float],
    level: float,
) -> AuditReport:
    epsilon, delta = claim
    is_sound = bounds[0] <= epsilon
    verdict = "within the claim" if is_sound else "more than is claimed"
    return AuditReport(
        kind="one-run",
        title="One run with canaries: a sanity check",
        summary=(
            f"{right} of {len(guessed)} coins were guessed. So epsilon is at least "
            f"{bounds[0]:.2f}: {verdict}."
        ),
        is_sound=is_sound,
        claimed={"epsilon": epsilon, "delta": delta},
        measured={"epsilon": bounds[0], _GAUSSIAN: bounds[1]},
        columns=("canary", "took part", "guessed", "score"),
        rows=tuple(
            (at, coin, guessed.get(at), scores[at]) for at, coin in enumerate(coins)
        ),
        notes=_NOTES,
        parameters={
            "canaries": len(coins),
            "guesses": len(guessed),
            "right": right,
            "confidence": level,
        },
    )
