"""Membership attacks: they find plain RAG, not ours, and a chain that leaks."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from support.attacked_parts import (
    CORPUS,
    NOTES,
    OUTSIDE,
    PLAIN,
    Leaky,
    budget_of,
    overlap,
    private_chain,
    watched,
)
from support.frames import locals_of

from langchain_dpicl.audit import AuditReport, aattack, attack
from langchain_dpicl.audit.attacks import ALL
from langchain_dpicl.audit.probes import ATTACKS, Rarity
from langchain_dpicl.cli import main
from langchain_dpicl.errors import InvalidParameterError, NoBudgetError

MEMBERS, OTHERS = CORPUS[:14], OUTSIDE[:14]


def cells(report: AuditReport, chain: str) -> dict[Any, dict[str, Any]]:
    return {
        row[1]: dict(zip(report.columns, row, strict=True))
        for row in report.rows
        if row[0] == chain
    }


def test_they_find_plain_rag_and_not_the_private_chain() -> None:
    chain = private_chain()
    report = attack(chain, MEMBERS, OTHERS, plain=PLAIN, progress=False)
    assert report.is_sound
    plain, private = cells(report, "plain"), cells(report, "private")
    assert list(plain) == list(private) == list(ALL)
    assert max(row["AUC"] for row in plain.values()) > 0.9
    for row in private.values():
        assert row["AUC from"] <= 0.5 <= row["AUC to"]
        assert row["AUC"] < row["AUC allowed"] < 1
    assert plain["s2mia"]["AUC allowed"] is None
    assert report.measured["AUC, plain"] > 0.9
    # Nothing is charged in the user's account.
    assert chain.budget is not None
    assert chain.budget.spent().queries == 0
    # The report is the operator's: it holds no record all the same.
    told = json.dumps(report.to_dict())
    assert not any(n.page_content[:30] in told for n in (*MEMBERS, *OTHERS))


def test_a_chain_that_leaks_is_caught() -> None:
    chain = private_chain(Leaky, budget=budget_of(epsilon=0.2))
    report = attack(chain, MEMBERS, OTHERS, attacks=["s2mia"], progress=False)
    assert not report.is_sound
    assert "More than the charge allows: s2mia" in report.summary
    row = cells(report, "private")["s2mia"]
    assert row["AUC from"] > row["AUC allowed"]


def test_an_account_that_ends_early_leaves_questions_unanswered() -> None:
    chain = private_chain(budget=budget_of(queries=1))
    report = attack(
        chain, MEMBERS[:2], OTHERS[:2], attacks=["interrogation"], progress=False
    )
    assert report.is_sound
    assert cells(report, "private")["interrogation"]["AUC"] == 0.5


@pytest.mark.parametrize("is_sync", [True, False])
def test_no_observer_sees_a_record_or_an_answer(is_sync: bool) -> None:
    given = (private_chain(), MEMBERS[:2], OTHERS[:2])
    terms: dict[str, Any] = {"attacks": ["s2mia"], "progress": False, "plain": PLAIN}
    with watched() as seen:
        if is_sync:
            attack(*given, **terms)
        else:
            asyncio.run(aattack(*given, **terms))
    assert seen == []
    with watched() as seen:  # The twin: the same chain, asked in the open.
        private_chain().invoke(MEMBERS[0].page_content)
    assert seen


def test_an_error_of_the_plain_chain_names_no_record() -> None:
    def broken(question: str) -> str:
        raise ValueError(question)

    with pytest.raises(InvalidParameterError, match="plain chain failed") as caught:
        attack(
            private_chain(),
            MEMBERS[:2],
            OTHERS[:2],
            plain=RunnableLambda(broken),
            progress=False,
        )
    shown = "".join(traceback.format_exception(caught.value))
    assert "ValueError" not in shown


@pytest.mark.parametrize("is_sync", [True, False])
def test_the_frames_of_an_error_show_no_record(is_sync: bool) -> None:
    given = (private_chain(), MEMBERS, MEMBERS)
    with pytest.raises(InvalidParameterError) as caught:
        if is_sync:
            attack(*given, progress=False)
        else:
            asyncio.run(aattack(*given, progress=False))
    shown = "".join(locals_of(caught.value, __name__))
    assert MEMBERS[0].page_content not in shown


def test_awaiting_does_the_same() -> None:
    chain = private_chain()

    async def audit() -> AuditReport:
        return await aattack(
            chain, MEMBERS[:4], OTHERS[:4], plain=PLAIN, progress=False
        )

    awaited = asyncio.run(audit())
    blocking = attack(chain, MEMBERS[:4], OTHERS[:4], plain=PLAIN, progress=False)
    assert cells(awaited, "plain") == cells(blocking, "plain")


@pytest.mark.parametrize("name", ALL)
def test_a_probe_scores_the_record_and_not_a_refusal(name: str) -> None:
    rarity = Rarity(n.page_content for n in NOTES)
    for note in NOTES[:30]:
        probe = ATTACKS[name](note.page_content, rarity)
        whole = [note.page_content] * len(probe.questions)
        assert probe.score(whole) == 1
        assert probe.score(["I don't know."] * len(probe.questions)) < 0.2
        assert note.page_content not in repr(probe)


def test_a_question_does_not_hold_what_is_looked_for() -> None:
    rarity = Rarity(n.page_content for n in NOTES)
    for note in NOTES[:30]:
        for name in ("masked", "interrogation", "repeat"):
            probe = ATTACKS[name](note.page_content, rarity)
            assert probe.score(list(probe.questions)) == 0, name


@pytest.mark.parametrize(
    ("members", "others", "given", "match"),
    [
        (MEMBERS, MEMBERS, {}, "a text in common"),
        (
            MEMBERS,
            [Document(f"x {n.page_content}", metadata=n.metadata) for n in MEMBERS],
            {},
            "a unit in common",
        ),
        (MEMBERS[:1], OTHERS, {}, "two or more records as members"),
        (MEMBERS, ["a text", "another"], {}, "others must be Documents"),
        (MEMBERS, OTHERS, {"attacks": ["moon"]}, "Choose attacks= among repeat"),
        (MEMBERS, OTHERS, {"attacks": []}, "Choose attacks="),
        (MEMBERS, OTHERS, {"plain": overlap}, "plain must be a chain, not function"),
        (MEMBERS, OTHERS, {"confidence": 1.0}, "confidence"),
    ],
)
def test_what_cannot_be_attacked_is_refused(
    members: Any, others: Any, given: dict[str, Any], match: str
) -> None:
    with pytest.raises(InvalidParameterError, match=match) as caught:
        attack(private_chain(), members, others, progress=False, **given)
    assert MEMBERS[0].page_content[:20] not in str(caught.value)


def test_without_terms_nothing_is_asked() -> None:
    with pytest.raises(NoBudgetError):
        attack(private_chain(budget=None), MEMBERS, OTHERS, progress=False)


def test_the_command_reads_files_and_chains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "attacked_app", raising=False)
    (tmp_path / "attacked_app.py").write_text(
        "from support.attacked_parts import PLAIN as plain, budget_of, private_chain\n"
        "chain = private_chain(budget=None).with_config(callbacks=[budget_of()])\n"
    )
    for name, side in (("members", MEMBERS[:3]), ("others", OTHERS[:3])):
        lines = [{"text": n.page_content, **n.metadata} for n in side]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    status = main(
        [
            *(
                "audit",
                "attacks",
                "attacked_app:chain",
                "--plain",
                "attacked_app:plain",
            ),
            *("--members", "members.jsonl", "--others", "others.jsonl", "--json"),
            *("--out", "report.json"),
        ]
    )
    assert status == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"]["members"] == 3
    assert AuditReport.load("report.json").to_dict() == found
