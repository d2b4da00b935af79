from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.mechanisms import SeededRandom
from langchain_dpicl.mechanisms.lazy_uniform import LazyUniform


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 2**80),
    st.integers(-2, 2),
    st.integers(0, 2**32),
)
def test_a_comparison_agrees_with_the_bits_that_were_drawn(
    p: int, error: int, seed: int
) -> None:
    """Whatever the bound's error, the answer is that of the final prefix."""
    uniform = LazyUniform(SeededRandom(seed), prefix=0, bits=0)

    def bound(bits: int) -> int:
        # The error shrinks with the bits, as in a real computation.
        exact = p << bits >> 80
        return exact + error

    below = uniform.is_below(bound)
    exact = p << uniform.bits >> 80
    assert below == (uniform.prefix < exact)


def test_decisions_at_the_edges_need_no_more_bits_than_asked() -> None:
    uniform = LazyUniform(SeededRandom(1), prefix=5, bits=3)
    assert uniform.is_below(lambda bits: 8)
    assert not uniform.is_below(lambda bits: 3)
    assert uniform.bits == 3


def test_undecided_comparisons_draw_until_they_are_decided() -> None:
    uniform = LazyUniform(SeededRandom(1), prefix=5, bits=3)
    below = uniform.is_below(lambda bits: 11 << bits >> 4)
    assert uniform.bits == 67
    assert uniform.prefix >> 64 == 5
    assert below == (uniform.prefix < 11 << 63)


def test_the_conditional_probability_is_right(fits: Callable[..., bool]) -> None:
    """Given that U lies in [5/8, 6/8), U < 0.65 has probability 0.2."""
    source = SeededRandom(2)
    draws = (
        LazyUniform(source, prefix=5, bits=3).is_below(lambda bits: 65 * 2**bits // 100)
        for _ in range(10_000)
    )
    assert fits(draws, {True: 0.2, False: 0.8})
