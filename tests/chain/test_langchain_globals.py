"""What LangChain can switch on for a whole process, or wrap around a chain or a model.

Each either answers or refuses by an error of this library before the charge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_debug, set_llm_cache, set_verbose
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import ConfigurableField
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, every_way, record
from support.fakes import ScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    InvalidParameterError,
    KSAThresholdOutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)

GROUPS = RetrievedGroups.from_documents(
    notes(200), EMBEDDING, unit_key="patient", n_groups=10
)
EACH = {
    **PARSERS,
    "draft": lambda: VoteOutputParser(labels="draft"),
    "threshold": KSAThresholdOutputParser,
}
COUNTS = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


def reply(text: str) -> str:
    if "Possible answers" in text:
        return "cough\nrash"
    if "word suggestions" in text:
        return "They had a cough."
    return "cough" if "Lisinopril" in text else "I don't know."


class CountingModel(ScriptedModel):
    """Says of a call's tokens what it is given, or nothing, as servers may do."""

    temperature: float = 0.0
    usage: Any = None

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        found = super()._generate(messages, *args, **kwargs)
        message = AIMessage(found.generations[0].text)
        # As a client may set it: without pydantic's validation.
        message = message.model_copy(update={"usage_metadata": self.usage})
        return ChatResult(generations=[ChatGeneration(message=message)])


def made(name: str, model: Any = None) -> DPChain:
    return DPChain(
        groups=GROUPS, model=model or CountingModel(reply=reply), parser=EACH[name]()
    )


def budget() -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=200, delta=1e-6, queries=12, ledger=":memory:", account="globals"
    )


@pytest.fixture(autouse=True)
def unset() -> Iterator[None]:
    yield
    set_debug(False)
    set_verbose(False)
    set_llm_cache(None)


MODELS: dict[str, Callable[[Any], Any]] = {
    "rate limiter": lambda model: model.model_copy(
        update={"rate_limiter": InMemoryRateLimiter(requests_per_second=1e6)}
    ),
    "bind": lambda model: model.bind(stop=["\n\n"]),
    "with_config": lambda model: model.with_config(tags=["public"]),
}
CHAINS: dict[str, Callable[[Any], Any]] = {
    "with_retry": lambda chain: chain.with_retry(),
    "with_fallbacks": lambda chain: chain.with_fallbacks([chain]),
    "configurable_fields": lambda chain: chain.configurable_fields(
        fallback=ConfigurableField(id="fallback")
    ).with_config(configurable={"fallback": "refuse"}),
    "configurable_alternatives": lambda chain: chain.configurable_alternatives(
        ConfigurableField(id="chain"), other=chain
    ).with_config(configurable={"chain": "other"}),
    "bind": lambda chain: chain.bind(),
}


async def answered(chain: Any, times: int = 1) -> list[Any]:
    """Ask by each way; every answer is paid for, and given."""
    account = budget()
    answers = [one for _ in range(times) for one in await every_way(chain, account)]
    assert account.spent().queries == len(answers)
    for answer in answers:
        assert "cough" in str(answer.content)
        assert record(answer)["status"] == "released"
    return answers


@pytest.mark.parametrize("name", ["draft", "esa", "ptr"])
async def test_what_is_switched_on_for_all_changes_no_answer(name: str) -> None:
    set_debug(True)
    set_verbose(True)
    set_llm_cache(InMemoryCache())
    await answered(made(name), times=2)


@pytest.mark.parametrize("way", MODELS)
async def test_a_model_is_wrapped(way: str) -> None:
    await answered(made("ptr", MODELS[way](CountingModel(reply=reply))))


@pytest.mark.parametrize("way", CHAINS)
async def test_a_chain_is_wrapped(way: str) -> None:
    await answered(CHAINS[way](made("ptr")))


async def test_a_bound_argument_is_refused_before_the_charge() -> None:
    account = budget()
    chain: Any = made("vote").bind(filter={"patient": "unit-1"})
    for ask in (chain.invoke, lambda *asked: list(chain.stream(*asked))):
        with pytest.raises(InvalidParameterError, match="no argument 'filter'"):
            ask(QUESTION, {"callbacks": [account]})
    with pytest.raises(InvalidParameterError, match="no argument 'filter'"):
        await chain.ainvoke(QUESTION, {"callbacks": [account]})
    with pytest.raises(InvalidParameterError, match="no argument 'filter'"):
        _ = [one async for one in chain.astream(QUESTION, {"callbacks": [account]})]
    assert account.spent().queries == 0


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {"total_cost": 0},
        {**COUNTS, "total_cost": 0},
        {**COUNTS, "input_token_details": {"cache_read": None}},
        {**COUNTS, "input_tokens": None},
        {**COUNTS, "input_tokens": "3"},
        {**COUNTS, "output_tokens": -2},
        {"input_tokens": 3, "output_tokens": 2},
        "five",
    ],
    ids=str,
)
async def test_no_usage_that_a_model_tells_stops_a_paid_answer(usage: Any) -> None:
    chain = made("ptr", CountingModel(reply=reply, usage=usage))
    is_told = isinstance(usage, dict) and usage.items() >= COUNTS.items()
    config: Any = {"callbacks": [budget()]}
    pieces = [piece async for piece in chain.astream(f"{QUESTION}?", config)]
    for answer in (chain.invoke(QUESTION, config), pieces[-1]):
        assert record(answer)["status"] == "released"
        # One call a question without records: its wording.
        assert answer.usage_metadata == (COUNTS if is_told else None)


def test_a_chain_that_is_configured_anew_asks_the_model_alone_once() -> None:
    """Its copies share the limit of calls, and that the model has answered."""
    chain, account = made("vote"), budget()
    configured: Any = CHAINS["configurable_fields"](chain)
    for number in range(3):
        answer = configured.invoke(f"{QUESTION} {number}", {"callbacks": [account]})
        assert record(answer)["calls"] == 10 + (number == 0)
