"""Which options a reply names, where, and which of them it sets aside."""

from __future__ import annotations

import pytest

from langchain_dpicl.parsers.reading.denials import denied_after
from langchain_dpicl.parsers.reading.mentions import (
    chooses_none,
    listed,
    mentions,
    options_of,
)
from langchain_dpicl.parsers.reading.text import passage

AILS = ("asthma", "COPD", "flu")


def named(reply: str, labels: tuple[str, ...] = AILS) -> str:
    """Return each option that is named, as "label:first-behind", "not" if aside."""
    return " ".join(
        f"{'not ' * one.aside}{(*labels, 'none')[one.option]}:{one.start}-{one.end}"
        for one in mentions(passage(reply), options_of(labels))
    )


CASES: list[tuple[str, str]] = [
    # A denial covers the rest of its clause.
    ("not asthma", "not asthma:1-2"),
    ("It is not asthma, COPD", "not asthma:3-4 COPD:4-5"),
    ("not the asthma but COPD", "not asthma:2-3 COPD:4-5"),
    ("not only asthma", "asthma:2-3"),
    ("no doubt asthma", "asthma:2-3"),
    ("no", ""),
    ("asthma no", "asthma:0-1"),
    ("not asthma; COPD", "not asthma:1-2 COPD:2-3"),
    ("never COPD, asthma", "not COPD:1-2 asthma:2-3"),
    ("no one but asthma", "asthma:3-4"),
    ("nothing except asthma", "asthma:2-3"),
    ("no other than asthma", "asthma:3-4"),
    ("not asthma except COPD", "not asthma:1-2 COPD:3-4"),
    ("except asthma", "not asthma:1-2"),
    ("not a flu besides asthma", "not flu:2-3 asthma:4-5"),
    ("isn't asthma", "not asthma:1-2"),
    ("asthma. not", "asthma:0-1"),
    ("not merely a flu", "flu:3-4"),
    ("asthma not flu", "not asthma:0-1 not flu:2-3"),
    ("not: asthma", "asthma:1-2"),
    ("not just not flu", "not flu:3-4"),
    # A list is set aside as a whole.
    ("not asthma or flu", "not asthma:1-2 not flu:3-4"),
    ("not asthma, COPD or flu", "not asthma:1-2 not COPD:2-3 not flu:4-5"),
    ("not asthma and flu", "not asthma:1-2 not flu:3-4"),
    ("not asthma, flu", "not asthma:1-2 flu:2-3"),
    ("asthma, not COPD or flu", "asthma:0-1 not COPD:2-3 not flu:4-5"),
    ("neither asthma nor the flu", "not asthma:1-2 not flu:4-5"),
    ("asthma or not COPD", "asthma:0-1 not COPD:3-4"),
    ("flu, asthma or not COPD", "flu:0-1 asthma:1-2 not COPD:4-5"),
    ("not asthma, COPD; flu", "not asthma:1-2 COPD:2-3 flu:3-4"),
    ("not asthma, COPD, flu", "not asthma:1-2 COPD:2-3 flu:3-4"),
    ("not asthma / flu", "not asthma:1-2 not flu:2-3"),
    ("not asthma, or, flu", "not asthma:1-2 not flu:3-4"),
    ("rather than asthma or flu", "not asthma:2-3 not flu:4-5"),
    ("not asthma but COPD or flu", "not asthma:1-2 COPD:3-4 flu:5-6"),
    (
        "not asthma, COPD and flu or COPD",
        "not asthma:1-2 not COPD:2-3 not flu:4-5 not COPD:6-7",
    ),
    ("not asthma, none of these or flu", "not asthma:1-2 not flu:6-7"),
    ("not asthma or\nflu", "not asthma:1-2 flu:3-4"),
    ('not asthma or "flu"', "not asthma:1-2 not flu:3-4"),
    ("not asthma or (flu)", "not asthma:1-2 flu:3-4"),
    ("not asthma or a, the flu", "not asthma:1-2 not flu:5-6"),
    ("not asthma or a a a flu", "not asthma:1-2 not flu:6-7"),
    ("not asthma or a a the a flu", "not asthma:1-2 not flu:7-8"),
    ("not asthma or with flu", "not asthma:1-2 not flu:4-5"),
    ("flu or asthma were ruled out", "not flu:0-1 not asthma:2-3"),
    # What is said of several is said of the whole list, what is said of one is not.
    ("asthma, COPD and flu were excluded", "not asthma:0-1 not COPD:1-2 not flu:3-4"),
    ("asthma and COPD weren't seen", "not asthma:0-1 not COPD:2-3"),
    ("asthma and COPD ruled out", "not asthma:0-1 not COPD:2-3"),
    ("asthma and COPD excluded", "not asthma:0-1 not COPD:2-3"),
    ("asthma or COPD is unlikely", "not asthma:0-1 not COPD:2-3"),
    ("asthma and COPD was ruled out", "asthma:0-1 not COPD:2-3"),
    ("asthma and COPD has been excluded", "asthma:0-1 not COPD:2-3"),
    ("asthma and COPD not", "asthma:0-1 not COPD:2-3"),
    ("asthma, COPD was excluded", "asthma:0-1 not COPD:1-2"),
    ("asthma and COPD aren't unlikely", "asthma:0-1 COPD:2-3"),
    (
        "both asthma and COPD have been very clearly excluded",
        "not asthma:1-2 not COPD:3-4",
    ),
    # A question that is answered by "no".
    ("asthma? No, COPD", "not asthma:0-1 COPD:2-3"),
    ("asthma? Nope", "not asthma:0-1"),
    ("asthma? Yes", "asthma:0-1"),
    # Without a verb of its own.
    ("asthma excluded", "not asthma:0-1"),
    ("asthma ruled out", "not asthma:0-1"),
    ("asthma unlikely", "not asthma:0-1"),
    ("asthma ruled out by flu", "asthma:0-1 not flu:4-5"),
    ("asthma excluded the flu", "asthma:0-1 not flu:3-4"),
    # Names after phrases that compare.
    ("rather than asthma", "not asthma:2-3"),
    ("rather than the asthma", "not asthma:3-4"),
    ("rather than just one of asthma", "not asthma:5-6"),
    ("rather than one of a few asthma", "not asthma:6-7"),
    ("rather than one of the few cases asthma", "asthma:7-8"),
    ("rather than big asthma", "asthma:3-4"),
    ("than asthma", "not asthma:1-2"),
    ("than the asthma", "not asthma:2-3"),
    ("than in asthma", "asthma:2-3"),
    ("more than 5 asthma", "asthma:3-4"),
    ("other than asthma", "not asthma:2-3"),
    ("none other than asthma", "asthma:3-4"),
    ("none of the many notes other than asthma", "asthma:7-8"),
    ("none of the many long notes other than asthma", "asthma:8-9"),
    ("none, other than asthma", "not asthma:3-4"),
    ("asthma besides flu", "asthma:0-1 not flu:2-3"),
    ("no notes besides asthma", "asthma:3-4"),
    ("ahead of asthma", "not asthma:2-3"),
    ("rather, than asthma", "not asthma:2-3"),
    ("followed by 12 asthma", "not asthma:3-4"),
    ("followed by the 12 cases of asthma", "not asthma:6-7"),
    ("compared with asthma", "not asthma:2-3"),
    ("compared asthma", "asthma:1-2"),
    ("aside from the COPD", "not COPD:3-4"),
    ("nothing aside from asthma", "not asthma:3-4"),
    ("unlike the asthma", "not asthma:2-3"),
    ("instead asthma", "asthma:1-2"),
    ("rather than flu asthma", "not flu:2-3 asthma:3-4"),
    ("rather than flu and asthma", "not flu:2-3 asthma:4-5"),
    ("opposed to flu, asthma", "not flu:2-3 asthma:3-4"),
    ("than x than asthma", "not asthma:3-4"),
    ("ruled out by the asthma", "not asthma:4-5"),
    ("in than asthma", "not asthma:2-3"),
    ("versus some asthma", "not asthma:2-3"),
    ("none of the many long old notes other than asthma", "not asthma:9-10"),
    ("no asthma, other than flu", "not asthma:1-2 not flu:4-5"),
    ("in other asthma", "asthma:2-3"),
    ("not x apart from asthma", "not asthma:4-5"),
    ("rather than because asthma", "asthma:3-4"),
    ("flu rather than asthma", "flu:0-1 not asthma:3-4"),
    ("flu than asthma than COPD", "flu:0-1 not asthma:2-3 not COPD:4-5"),
    ("other than asthma no flu", "not asthma:2-3 not flu:4-5"),
    # A denial behind a name.
    ("asthma is absent", "not asthma:0-1"),
    ("asthma is absent, COPD", "not asthma:0-1 COPD:3-4"),
    ("asthma was ruled out", "not asthma:0-1"),
    ("asthma was ruled in", "asthma:0-1"),
    ("asthma can not be it", "not asthma:0-1"),
    ("asthma could be ruled out", "not asthma:0-1"),
    ("asthma can be excluded", "not asthma:0-1"),
    ("asthma has been ruled out", "not asthma:0-1"),
    ("asthma could have been excluded", "not asthma:0-1"),
    ("asthma can be", "asthma:0-1"),
    ("asthma can't be excluded", "asthma:0-1"),
    ("asthma cannot be ruled out", "asthma:0-1"),
    ("asthma could not have been ruled out", "asthma:0-1"),
    ("asthma was not ruled in", "not asthma:0-1"),
    ("asthma is not absent", "asthma:0-1"),
    ("asthma not excluded", "asthma:0-1"),
    ("asthma is not only", "asthma:0-1"),
    ("asthma does not", "not asthma:0-1"),
    ("asthma isn't", "not asthma:0-1"),
    ("asthma isn't just", "asthma:0-1"),
    ("asthma cannot", "not asthma:0-1"),
    ("asthma not", "not asthma:0-1"),
    ("asthma not only", "asthma:0-1"),
    ("asthma not flu", "not asthma:0-1 not flu:2-3"),
    ("asthma, is absent", "asthma:0-1"),
    ("asthma", "asthma:0-1"),
    ("asthma are excluded", "not asthma:0-1"),
    ("flu would not", "not flu:0-1"),
    ("asthma would be not", "not asthma:0-1"),
    ("asthma is", "asthma:0-1"),
    ("asthma absent", "not asthma:0-1"),
    ("asthma is also not", "asthma:0-1"),
    ("asthma is only absent", "asthma:0-1"),
    ("asthma is not the least", "not asthma:0-1"),
    ("asthma dont", "asthma:0-1"),
    ("asthma isnt least", "asthma:0-1"),
    ("asthma isnt it", "not asthma:0-1"),
    ("asthma cannot only", "asthma:0-1"),
    ("asthma is denied", "not asthma:0-1"),
    ("asthma does not only", "asthma:0-1"),
    ("asthma can be not", "not asthma:0-1"),
    ("asthma was ruled out by flu", "not asthma:0-1 not flu:5-6"),
    ("asthma seems excluded", "not asthma:0-1"),
    ("asthma is ruled is out", "asthma:0-1"),
    ("asthma, not", "asthma:0-1"),
    ("asthma isn't. Not it", "not asthma:0-1"),
    ("asthma (not)", "asthma:0-1"),
    ("asthma no", "asthma:0-1"),
    ("asthma unlike", "asthma:0-1"),
    ("flu asthma than", "flu:0-1 asthma:1-2"),
    ("asthma cannot only be", "asthma:0-1"),
    ("asthma cannot be it", "not asthma:0-1"),
    ("asthma doesn't just", "asthma:0-1"),
    # The longest name counts.
    ("asthmas", "asthma:0-1"),
    ("a sthma", "asthma:0-2"),
    ("as t h m a", "asthma:0-5"),
    ("as. thma", ""),
    ("the asthma", "asthma:1-2"),
    ("flu none of these", "flu:0-1 none:1-4"),
    ("none of these", "none:0-3"),
    ("none of these flu", "not flu:3-4"),
    ("none of these. flu", "none:0-3 flu:3-4"),
    ("none of these because flu", "none:0-3 flu:4-5"),
    ("none of these, flu", "none:0-3 flu:3-4"),
    ('none of these"', "none:0-3"),
    ("no answer", "none:0-2"),
    ("none applies to flu", "not flu:3-4"),
    ("none of the given options fit", "none:0-5"),
    ("none fit", "none:0-2"),
    ("no one", ""),
]


@pytest.mark.parametrize(("reply", "expected"), CASES)
def test_a_reply_names_options_and_sets_some_aside(reply: str, expected: str) -> None:
    assert named(reply) == expected


PARTS = ("arm (left)", "leg (right)", "toe (rare)", "(odd)", "eye (7)")
SPELLINGS: list[tuple[tuple[str, ...], str, str]] = [
    (("yes", "no", "it depends"), "yes", "yes:0-1"),
    (("yes", "no", "it depends"), "the yes", ""),
    (("yes", "no", "it depends"), "it is a yes", "yes:3-4"),
    (("yes", "no", "it depends"), "say no", "no:1-2"),
    (("yes", "no", "it depends"), "it is no", "no:2-3"),
    (("yes", "no", "it depends"), "no, it is", "no:0-1"),
    (("yes", "no", "it depends"), "they no", ""),
    (("yes", "no", "it depends"), "yes to it", ""),
    (("yes", "no", "it depends"), "1. no", "no:1-2"),
    (("yes", "no", "it depends"), "1. no x", ""),
    (("yes", "no", "it depends"), "yes.no", "yes:0-1"),
    (("yes", "no", "it depends"), 'yes"', "yes:0-1"),
    (("yes", "no", "it depends"), "yes' x", ""),
    (("yes", "no", "it depends"), "x, no", "no:1-2"),
    (("yes", "no", "it depends"), "x: no.", "no:1-2"),
    (("yes", "no", "it depends"), "Yes. no\nx", "yes:0-1 no:1-2"),
    (("yes", "no", "it depends"), "x no\ny", ""),
    (("yes", "no", "it depends"), "no)", "no:0-1"),
    (("yes", "no", "it depends"), "yes it depends", "it depends:1-3"),
    (("bcdefghij",), "b c d e f g h i j", "bcdefghij:0-9"),
    (("bcdefghij",), "b c d e f ghi j", "bcdefghij:0-7"),
    (("bcdefghijk",), "b c d e f g h i j k", ""),
    (("bcdefghijk",), "b c d e f g h i jk", "bcdefghijk:0-9"),
    (
        ("cardiogenic shock with pulmonary edema",),
        "cardiogenic shock with pulmonary edema",
        "cardiogenic shock with pulmonary edema:0-5",
    ),
    (
        ("cardiogenic shock with pulmonary edema",),
        "cardiogenic shock with pulmonary",
        "",
    ),
    (
        ("a b c d e f g h i j k l m",),
        "a b c d e f g h i j k l m",
        "a b c d e f g h i j k l m:1-13",
    ),
    (
        ("a b c d e f g h i j k l m",),
        "b c d e f g h i j k l m",
        "a b c d e f g h i j k l m:0-12",
    ),
    (("a b c d e f g h i j k l m",), "b c d e f g h i j k l", ""),
    (
        ("diabetes", "type 2 diabetes", "diabetes type"),
        "type 2 diabetes type",
        "type 2 diabetes:0-3",
    ),
    (
        ("diabetes", "type 2 diabetes", "diabetes type"),
        "diabetes type 2 diabetes",
        "diabetes type:0-2 diabetes:3-4",
    ),
    (
        ("diabetes", "type 2 diabetes", "diabetes type"),
        "type 2. diabetes",
        "diabetes:2-3",
    ),
    (
        ("diabetes", "type 2 diabetes", "diabetes type"),
        "diabetes, type",
        "diabetes type:0-2",
    ),
    (("C", "C++", "C#"), "C++", "C++:0-1"),
    (("C", "C++", "C#"), "C", "C:0-1"),
    (("C", "C++", "C#"), "C#", "C#:0-1"),
    (("C", "C++", "C#"), "C--", "C:0-1"),
    (("C", "C++", "C#"), "(C++)", "C++:0-1"),
    (("C", "C++", "C#"), "C+", ""),
    (("C", "C++", "C#"), "c+++", ""),
    (("C", "C++", "C#"), "C #", "C:0-1"),
    (("C", "C++", "C#"), "+C", ""),
    (("C", "C++", "C#"), "use C, C++ and C#", "C:1-2 C++:2-3 C#:4-5"),
    (("<5", ">5", "5"), "<5", "<5:0-1"),
    (("<5", ">5", "5"), ">5", ">5:0-1"),
    (("<5", ">5", "5"), "5", "5:0-1"),
    (("<5", ">5", "5"), "< 5", "<5:0-1"),
    (("<5", ">5", "5"), "=5", ""),
    (("<5", ">5", "5"), "5<", "<5:0-1"),
    (("<5", ">5", "5"), "<<5", ""),
    (("<5", ">5", "5"), "(>5)", ">5:0-1"),
    (("noted", "notes"), "noted", "noted:0-1"),
    (("noted", "notes"), "notes", "notes:0-1"),
    (("noted", "notes"), "note", ""),
    (("noted", "notes"), "a noted one", "noted:1-2"),
    (("noted+", "notes+", "notes"), "noted+", "noted+:0-1"),
    (("noted+", "notes+", "notes"), "notes+", "notes+:0-1"),
    (("noted+", "notes+", "notes"), "notes", "notes:0-1"),
    (("noted+", "notes+", "notes"), "noted", "notes:0-1"),
    (("<5 mg", ">5 mg", "5 mg"), "<5 mg", "<5 mg:0-2"),
    (("<5 mg", ">5 mg", "5 mg"), "> 5 mg", ">5 mg:0-2"),
    (("<5 mg", ">5 mg", "5 mg"), "5 mg", "5 mg:0-2"),
    (("<5 mg", ">5 mg", "5 mg"), "=5 mg", ""),
    (("5 mg+", "5 mg"), "5 mg+", "5 mg+:0-2"),
    (("5 mg+", "5 mg"), "5 mg", "5 mg:0-2"),
    (("5+ mg", "5 mg"), "5+ mg", "5+ mg:0-2"),
    (("5+ mg", "5 mg"), "5 mg", "5 mg:0-2"),
    (("5+ mg", "5 mg"), "5 + mg", "5+ mg:0-2"),
    (("use", "use!"), "use", ""),
    (PARTS, "arm", "arm (left):0-1"),
    (PARTS, "left", "arm (left):0-1"),
    (PARTS, "leg right", "leg (right):0-2"),
    (PARTS, "right", "leg (right):0-1"),
    (PARTS, "toe", "toe (rare):0-1"),
    (PARTS, "rare", ""),
    (PARTS, "odd", "(odd):0-1"),
    (PARTS, "eye", "eye (7):0-1"),
    (PARTS, "7", ""),
    (PARTS, "arm (left)", "arm (left):0-2"),
    (PARTS, "left arm", "arm (left):0-1 arm (left):1-2"),
    (("the flu", "a"), "flu", "the flu:0-1"),
    (("the flu", "a"), "the flu", "the flu:1-2"),
    (("the flu", "a"), "a", "a:0-1"),
    (("the flu", "a"), "a flu", "a:0-1 the flu:1-2"),
]


@pytest.mark.parametrize(("labels", "reply", "expected"), SPELLINGS)
def test_a_name_is_known_by_its_words_signs_and_endings(
    labels: tuple[str, ...], reply: str, expected: str
) -> None:
    assert named(reply, labels) == expected


@pytest.mark.parametrize(
    ("between", "how"),
    [
        (" or ", "or"),
        (" nor ", "or"),
        ("/", "or"),
        (" or a ", "or"),
        (", or, ", "or"),
        (" or and ", "or"),
        (" and ", "and"),
        (" & ", "and"),
        (", and the ", "and"),
        (", & ", "and"),
        (", ", ","),
        (", the ", ","),
        (" ", None),
        (" the ", None),
        (" but ", None),
        (" or but ", None),
        (",\n", None),
        (" or\n", None),
        ("; ", None),
        (" (or) ", None),
        (". ", None),
        (" or a a a ", "or"),
        (" or a a a a ", None),
        ('", "', ","),
        (" **and** ", "and"),
    ],
)
def test_what_joins_two_names_makes_them_a_list(between: str, how: str | None) -> None:
    read = passage(f"asthma{between}COPD or flu")
    first, second, _ = mentions(read, options_of(AILS))
    assert listed(read, first, second) == how


@pytest.mark.parametrize(
    ("reply", "whether"),
    [
        ("None of these", True),
        ("none of these (all are tied)", True),
        ("none of these (all (nearly) are tied)", True),
        ("(as I said) none of the above", True),
        ("none", False),
        ("none of these, I think", False),
        ("none of these) all", False),
        ("", False),
    ],
)
def test_none_of_these_is_said_by_itself(reply: str, whether: bool) -> None:
    assert chooses_none(passage(reply)) is whether


def test_what_ends_at_a_word_is_denied_behind_it() -> None:
    read = passage("fees are not high, fees are")
    assert [denied_after(read, end) for end in range(1, 7)] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("thing", [options_of(AILS), options_of(AILS).forms["flu"][0]])
def test_what_is_kept_for_the_next_reply_can_not_be_changed(thing: object) -> None:
    with pytest.raises(AttributeError):
        setattr(thing, next(iter(vars(thing))), None)


def test_an_alias_is_looked_for_like_a_label() -> None:
    found = options_of(("COPD", "flu"), (("COPD", ("smoker's lung (chronic)",)),))
    read = passage("Smokers lung. Chronic. Smoker's lung chronic. COPD.")
    assert [(one.option, one.start, one.end) for one in mentions(read, found)] == [
        (0, 0, 2),
        (0, 2, 3),
        (0, 3, 6),
        (0, 6, 7),
    ]


def test_of_the_same_label_twice_the_first_is_meant_by_its_whole_text() -> None:
    found = options_of(("a-b", "a b", "c"))
    assert found.texts == {"a-b": 0, "a b": 1, "c": 2}
    assert found.whole == {("c",): 2}
    assert options_of(("x", "X")).texts == {"x": 0}
