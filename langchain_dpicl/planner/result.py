"""What a plan says: what was chosen, what to expect of it, and what else there was."""

from __future__ import annotations

from dataclasses import dataclass, field

from langchain_dpicl.budget import Cost


@dataclass(frozen=True)
class Option:
    """One way to ask, and what to expect of a question. Public.

    Attributes:
        parser: The parser's name in `langchain_dpicl.planner.PARSERS`.
        sampling_rate: The rate q of the secret sample of people.
        groups: The number of groups.
        stages: In how many parts they are asked, at most.
        right: How often the right answer comes out, and nothing wrong beside it.
        wrong: How often something wrong comes out.
        calls: Model calls of a question, on average.
    """

    parser: str
    sampling_rate: float
    groups: int
    stages: int
    right: float
    wrong: float
    calls: float

    @property
    def nothing(self) -> float:
        """How often nothing is released: you get the public answer, or a refusal."""
        return max(0.0, 1.0 - self.right - self.wrong)


@dataclass(frozen=True)
class AnswerPlan(Option):
    """How to ask for what is wanted, from a public guess of how the groups answer.

    `print(plan)` shows it as a table.

    Attributes:
        code: The parser, as it is written.
        wanted: The wanted rate of right answers.
        is_enough: Whether it is reached.
        advice: What that means, and what would be enough where it is not reached.
        people_per_question: The guess: how many people have something to say.
        share: The guess: which part of the groups names the right answer.
        runner_up: The guess: which part names the best wrong one.
        choices: The guess: how many answers there are.
        epsilon: Total privacy loss bound of all questions.
        delta: Their total failure probability.
        queries: How many questions the account pays for.
        cost: What the model calls take; None without the records' sizes.
        options: The best way of every parser and number of groups.
    """

    code: str
    wanted: float
    is_enough: bool
    advice: str
    people_per_question: int
    share: float
    runner_up: float
    choices: int
    epsilon: float
    delta: float
    queries: int
    cost: Cost | None = None
    options: tuple[Option, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        chain = f"DPChain(..., parser={self.code}"
        chain += f", stages={self.stages})" if self.stages > 1 else ")"
        sampled = (
            f", sampling_rate={self.sampling_rate:g}" if self.sampling_rate < 1 else ""
        )
        asked = (
            f"{self.queries} questions at epsilon {self.epsilon:g}, delta "
            f"{self.delta:g}; on each about {self.people_per_question:,} people have "
            "something to say."
        )
        guess = (
            f"Of their groups {self.share:.0%} name the right answer, "
            f"{self.runner_up:.0%} the best wrong one (of {self.choices} answers)."
        )
        expected = (
            f"Right {self.right:.0%}, wrong {self.wrong:.0%}, nothing "
            f"{self.nothing:.0%}, for {self.calls:.0f} model calls a question."
        )
        heading = (
            f"{'parser':<10}{'groups':>8}{'stages':>8}{'rate':>8}{'right':>8}"
            f"{'wrong':>8}{'nothing':>9}{'calls':>8}"
        )
        groups = f"n_groups={self.groups}{sampled}"
        lines = [
            asked,
            guess,
            "",
            f"  RetrievedGroups(..., score_threshold=..., {groups})",
            f"  {chain}",
            "",
            expected,
            *self._costs(),
            self.advice,
            "",
            heading,
        ]
        for one in self.options:
            is_chosen = all(
                getattr(one, name) == getattr(self, name)
                for name in ("parser", "groups", "stages", "sampling_rate")
            )
            lines.append(
                f"{one.parser:<10}{one.groups:>8}{one.stages:>8}"
                f"{one.sampling_rate:>8.4g}{one.right:>8.0%}{one.wrong:>8.0%}"
                f"{one.nothing:>9.0%}{one.calls:>8.0f}"
                + ("  <- chosen" if is_chosen else "")
            )
        return lines

    def _costs(self) -> list[str]:
        cost = self.cost
        if cost is None:
            return []
        line = (
            f"All {self.queries} questions send {cost.total_input_tokens:,} tokens, "
            f"and {cost.total_output_tokens:,} come back"
        )
        if cost.price is None or cost.total_price is None:
            return [line + "."]
        return [
            f"{line}: {cost.total_price:,.2f} in all, {cost.price:,.4f} a question."
        ]
