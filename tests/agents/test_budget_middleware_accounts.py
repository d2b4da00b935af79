"""What counts as a spent budget, for each kind of account."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from support.agent_parts import (
    ENDED,
    QUESTION,
    SPENT,
    WAYS,
    AgentModel,
    account,
    asking,
    calling,
    journal,
    middleware,
    private_chain,
    run,
    texts,
    tool_messages,
)
from support.fakes import notes

from langchain_dpicl import (
    InvalidParameterError,
    KSAPTROutputParser,
    LedgerError,
    PlanMismatchError,
    PublicFirstGate,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.offline import HashingEmbeddings


@pytest.mark.parametrize("way", WAYS)
async def test_a_filter_is_spent_when_it_cannot_pay_this_chain(
    way: str, groups: RetrievedGroups
) -> None:
    budget = account(queries=3, accounting="zcdp")
    model = AgentModel(turns=[calling(QUESTION, QUESTION, QUESTION), "Cough."])
    agent = create_agent(model, middleware=[middleware(groups, "end")])
    state = await run(way, agent, asking(), budget)
    assert texts(state)[-1] == "Cough."
    again = AgentModel(turns=[])
    agent = create_agent(again, middleware=[middleware(groups, "end")])
    state = await run(way, agent, asking(), budget)
    assert ENDED in texts(state)[-1]
    # A chain with more noise of its own can still be paid by what is left, or not at
    # all: what counts is this chain's price.
    cheap = account(queries=3, accounting="zcdp", account="cheap")
    dear = VoteOutputParser(labels=["cough", "rash"], noise_multiplier=0.3)
    private_chain(groups, budget=cheap, parser=dear).invoke(QUESTION)
    model = AgentModel(turns=[])
    agent = create_agent(model, middleware=[middleware(groups, "end", parser=dear)])
    state = await run(way, agent, asking(), cheap)
    assert "account 'cheap'" in texts(state)[-1]
    assert cheap.can_afford(VoteOutputParser(labels=["cough", "rash"]).event_template())
    assert [len(journal(found)) for found in (budget, cheap)] == [3, 1]


@pytest.mark.parametrize("way", WAYS)
async def test_a_gate_is_counted_too(way: str, groups: RetrievedGroups) -> None:
    budget = account(queries=2, accounting="zcdp")
    gate = PublicFirstGate(noise_multiplier=0.3)
    model = AgentModel(turns=["Hello."])
    agent = create_agent(model, middleware=[middleware(groups, "end", gate=gate)])
    assert texts(await run(way, agent, asking(), budget))[-1] == "Hello."
    spending = private_chain(groups, budget=budget)
    spending.invoke(QUESTION)
    state = await run(way, agent, asking(), budget)
    assert ENDED in texts(state)[-1]
    assert budget.can_afford(spending.parser.event_template())


@pytest.mark.parametrize("way", WAYS)
async def test_a_per_unit_account_never_ends(way: str) -> None:
    groups = RetrievedGroups.from_documents(
        notes(300),
        HashingEmbeddings(),
        unit_key="patient",
        n_groups=60,
        score_threshold=0.1,
    )
    budget = account(queries=1, scope="unit")
    model = AgentModel(turns=[calling(QUESTION), calling(QUESTION), "Who knows?"])
    agent = create_agent(model, middleware=[middleware(groups, "end")])
    state = await run(way, agent, asking(), budget)
    assert texts(state)[-1] == "Who knows?"
    assert [m.status for m in tool_messages(state)] == ["success", "success"]
    assert {model.system_of(turn) for turn in range(3)} == {""}
    assert len(journal(budget)) == 2


@pytest.mark.parametrize("way", WAYS)
async def test_an_account_that_does_not_fit_is_not_called_spent(
    way: str, groups: RetrievedGroups
) -> None:
    planned = account()
    private_chain(groups, budget=planned, parser=KSAPTROutputParser(k=1)).invoke("Why?")
    open_noise = account(accounting="zcdp", queries=None)
    for budget, error in (
        (planned, PlanMismatchError),
        (open_noise, InvalidParameterError),
    ):
        model = AgentModel(turns=[calling(QUESTION)])
        agent = create_agent(model, middleware=[middleware(groups, "end")])
        with pytest.raises(error):
            await run(way, agent, asking(), budget)
    assert [len(journal(budget)) for budget in (planned, open_noise)] == [1, 0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("accounting", [None, "zcdp"])
async def test_a_closed_account_ends_the_run(
    accounting: Any, way: str, groups: RetrievedGroups
) -> None:
    budget = account(accounting=accounting)
    budget.ledger.close_account("notes")
    agent = create_agent(AgentModel(turns=[]), middleware=[middleware(groups, "end")])
    assert ENDED in texts(await run(way, agent, asking(), budget))[-1]
    # An informed model that calls all the same: no answer, and no way to go on.
    model = AgentModel(turns=[calling(QUESTION), "."])
    agent = create_agent(model, middleware=[middleware(groups)])
    with pytest.raises(LedgerError):
        await run(way, agent, asking(), budget)
    assert SPENT in model.system_of(0)
