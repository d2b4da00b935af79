"""The next token, from clipped differences to what a model says without records.

Vinod, Pillutla, Thakurta, *InvisibleInk: High-Utility and Low-Cost Text Generation with
Differential Privacy*, NeurIPS 2025. Here each person may be a slot of its own, the
differences are shifted, and the draw is exact.

Input         Slot b says p_b, the probabilities of K *public* tokens, or nothing; p_0
              is what the model says without records, asked for in a call of its own.
              d_b(v) = log p_b(v) - log p_0(v), less the median of these over v, in
              steps of 2^-16: rounded, *then* clipped to -L .. L. It is a function of
              slot b alone and of public values, so the shift is free. (p_b and p_0 are
              known up to a factor each, which the shift takes out.) A slot that says
              nothing has d_b = 0. S(v) is the sum of the d_b(v), in integers.
Neighbors     One unit touches one slot. `add_remove`: a slot of its own appears or
              vanishes, and no other changes. `replace`: a slot that it shares with
              others changes from any to any, or to nothing.
Sensitivity   S(v) moves within -L .. L for every v at once (`add_remove`), or within
              -2L .. 2L (`replace`). Both are reached. A shared slot that falls silent
              moves by L only, but whether it does depends on the others in it.
Noise         v is drawn with probability proportional to w(v) e^(g S(v)), g = 2^-16 /
              (B t), *exactly*. w(v) is p_0(v)^(1/t) as an integer, in 2^40 parts. The
              number of slots B (`slots`) and the temperature t are public: B is never
              the number of those that answered. See below for the draw.
Event         Exponential(epsilon). The loss log P(v) / P'(v) is g (S(v) - S'(v)) plus
              a term without v, so it stays in an interval of length 2 g L, or 4 g L:
              the event's bounded range. L is the largest integer for which that is at
              most epsilon. With C = 2^-16 L the order-a Renyi divergence is at most
              a rho, rho = C^2 / (2 B^2 t^2), or 2 C^2 / (B^2 t^2).
              *T tokens* are T uses: a prompt may go on with the tokens so far. *Several
              texts* side by side, whose slots have no unit in common: one unit moves
              the factor of one text alone, so a token of each is one use together,
              whatever their number. Which text a unit is in is a function of that unit
              and of public values; no unit leaves one because others are in it.
What is free  p_0, w, B, t and the set of tokens, all public; to stop by the tokens that
              were released. Not free: to leave out tokens by S (top-k, nucleus), to
              divide by the number of answers, to stop where slots disagree.
Tested by     `tests/mechanisms/test_clipped_token.py`: the law, by exact enumeration,
              with half of B as the twin; S of all small neighbors; the worst pairs;
              twins of the input: a clip before the shift, a sum in single precision, a
              cap of slots, the number of answers for B, private candidates.

**How it is drawn.** With M the largest S(v), the weights are w(v) e^(-g (M - S(v))).
Floating point says them nearly. Integers *above* 2^20 times the weights are the tickets
of the tokens; one ticket is drawn, and its token is kept with probability weight /
tickets, by an exact trial; else all is drawn anew. What is kept has the exact law,
however far off the floats were, and nearly always it is the first. (Tickets of the
public weights alone have the same law, but where a text has many more people than
declared, hardly any would be kept.)
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.events import Charge, Exponential
from langchain_dpicl.common import parameters
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import inputs
from langchain_dpicl.mechanisms.exact import (
    Bound,
    Floats,
    Integers,
    bernoulli,
    exp_bound,
)
from langchain_dpicl.mechanisms.random import current

GRID = 1 << 16
"""Steps of a natural logarithm."""

TEMPERATURES = (0.01, 100.0)

_MOST_STEPS = 64 * GRID  # No difference of logarithms is worth more.
_LEAST = 1e-300  # What a probability below it counts as.
_PARTS = 1 << 40  # What public weights add up to.
_TICKETS = 1 << 20  # Tickets of a part.
_ABOVE = 1 + 2.0**-40  # By how much tickets exceed what floats say.
_UNDERFLOW = 800.0


def charge(
    *, epsilon: float | None = None, count: int = 1, name: str = "few-shot/clipped"
) -> Charge:
    """Return what `count` tokens of `clipped_token` cost.

    `epsilon` is the bounded range of one token.

    Example:
        >>> charge(count=100).parts[0].count
        100
    """
    return Charge(name=name, parts=(Exponential(epsilon=epsilon, count=count),))


def clip(
    paid: Exponential,
    relation: Relation | str,
    *,
    slots: int,
    temperature: float = 1.0,
) -> float:
    """Return C: how far a slot's logarithms of probabilities count, up and down.

    It is epsilon B t / 2, or epsilon B t / 4 under `replace`, and 64 at most. B slots
    that all agree move the odds of two tokens by e^(2 C / t).

    Example:
        >>> round(clip(Exponential(epsilon=0.158), "add_remove", slots=40), 2)
        3.16
    """
    return _limit(paid, relation, _divisor(slots, temperature)) / GRID


def clipped_token(
    distributions: npt.ArrayLike,
    public: npt.ArrayLike,
    paid: Exponential,
    relation: Relation | str,
    *,
    slots: int,
    temperature: float = 1.0,
) -> int:
    """Release the index of a token: one that slots find likelier than the public does.

    Args:
        distributions: One row per answering slot, its probabilities of the public
            tokens as `next_token.token_distributions` gives them, shape `(m, K)`; m may
            be 0, and slots that abstain are left out.
        public: The probabilities without records, shape `(K,)`, from a call that held
            no private prompt. A token that is impossible there is never drawn.
        paid: The event that was charged; how far differences count follows from it.
        relation: How the slots of neighbors differ: `add_remove` where each person has
            a slot alone, `replace` where several share one.
        slots: Public number of slots B that the sum is divided by, however many
            answered.
        temperature: Public; lower ones follow both public and slots more closely.

    Returns:
        An index in `range(K)`.

    Raises:
        InvalidParameterError: If an argument is out of its range.

    Example:
        >>> rows, public = [[0.01, 0.99, 0]] * 50, [0.5, 0.5, 0.0]
        >>> clipped_token(rows, public, Exponential(epsilon=2.0), "replace", slots=50)
        1
    """
    rows = inputs.probability_rows("distributions", distributions)
    base = inputs.probability_rows("public", [public])[0]
    if rows.shape[1] != base.size:
        raise InvalidParameterError("public must have one entry for each token.")
    divisor = _divisor(slots, temperature)
    limit = _limit(paid, relation, divisor)
    weights = _weights(base, temperature)
    places = np.flatnonzero(weights)
    total = np.zeros(places.size, np.int64)
    for block in inputs.blocks(rows):
        # `block[:, places]` would not lie in memory row by row.
        steps = differences(block.take(places, axis=1), base[places], limit)
        total += steps.sum(axis=0, dtype=np.int64)
    drawn = _draw(weights[places], total.max() - total, 1 / (GRID * divisor))
    return int(places[drawn])


def differences(rows: Floats, public: Floats, limit: int) -> Integers:
    """Return each row's differences to the public one, shifted and clipped, in steps.

    Each row is mapped alone: what is done to it is done to each entry by itself, and
    the median is one of them. (Of an even number it is the lower one.)

    Example:
        >>> rows, public = np.array([[0.5, 0.25, 0.25], [0.0] * 3]), np.ones(3) / 3
        >>> differences(rows, public, 9).tolist()
        [[9, 0, 0], [0, 0, 0]]
    """
    raw = np.log(np.maximum(rows, _LEAST)) - np.log(np.maximum(public, _LEAST))
    middle = (rows.shape[1] - 1) // 2
    raw -= np.partition(raw, middle, axis=1)[:, middle : middle + 1]
    # The line that the sensitivity rests on.
    steps: Integers = np.clip(np.rint(raw * GRID), -limit, limit).astype(np.int64)
    steps[~rows.any(axis=1)] = 0
    return steps


def _divisor(slots: int, temperature: float) -> Fraction:
    """Return B t, exactly."""
    heat = parameters.positive("temperature", temperature)
    if not TEMPERATURES[0] <= heat <= TEMPERATURES[1]:
        raise InvalidParameterError("temperature must be between 0.01 and 100.")
    return parameters.count(slots, "slots") * Fraction(heat)


def _limit(paid: Exponential, relation: Relation | str, divisor: Fraction) -> int:
    """Return L: the largest for which the loss has the range that was paid."""
    if isinstance(paid, Exponential) and paid.sampling_rate != 1:
        raise InvalidParameterError(
            "paid has a sampling rate, and the tokens of a text share one sample: "
            "charge it without."
        )
    epsilon = inputs.epsilon(paid, Exponential)
    moves = 4 if inputs.is_replace(relation) else 2
    return min(int(epsilon * divisor * GRID / moves), _MOST_STEPS)


def _weights(public: Floats, temperature: float) -> Integers:
    """Return public weights in `_PARTS` parts, 0 for what is all but impossible."""
    largest = public.max()
    if largest <= 0:
        raise InvalidParameterError("public must have a token that is possible.")
    shares = (public / largest) ** (1 / temperature)
    weights: Integers = np.rint(shares / shares.sum() * _PARTS).astype(np.int64)
    return weights


def _draw(weights: Integers, losses: Integers, slope: Fraction) -> int:
    """Return a place with probability proportional to weight e^(-slope loss)."""
    decay = np.exp(-np.minimum(losses * float(slope), _UNDERFLOW))
    sizes = weights * _TICKETS * decay
    tickets = (sizes * _ABOVE).astype(np.int64) + 1
    sums = tickets.cumsum()

    def kept(place: int) -> Bound:
        share, power = int(weights[place]) * _TICKETS, int(losses[place]) * slope
        whole = exp_bound(power)
        return lambda bits: share * whole(bits + 64) // int(tickets[place]) >> 64

    while True:
        ticket = current().randrange(int(sums[-1]))
        place = int(np.searchsorted(sums, ticket, side="right"))
        if bernoulli(sizes / tickets, kept)[place]:
            return place
