"""The words of a reply: where each one stands, and its stem."""

from __future__ import annotations

import pytest

from langchain_dpicl.parsers.reading.text import LONGEST, folded, passage, spelled, stem

PLACED: list[tuple[str, str]] = [
    # Each word with its sentence, part and clause; "#" numbers a line, "*" is bold.
    # Clauses: commas, colons, brackets. Parts: brackets, semicolons, dashes.
    (
        "Asthma (4 of 6), not COPD.",
        "asthma/0.0.0 4/0.1.1 of/0.1.1 6/0.1.1 not/0.0.2 copd/0.0.2",
    ),
    (
        "a; b, c: d - e -- f .. g",
        "a/0.0.0 b/0.1.1 c/0.1.2 d/0.1.3 e/0.4.4 f/0.5.5 g/0.5.6",
    ),
    ("a/b|c", "a/0.0.0 b/0.0.1 c/0.0.2"),
    ("a - b", "a/0.0.0 b/0.1.1"),
    ("a-b", "a/0.0.0 b/0.0.0"),
    ("a -b", "a/0.0.0 b/0.0.0"),
    ("a \u2014 b; c", "a/0.0.0 b/0.1.1 c/0.2.2"),
    ("[a] {b} c", "a/0.1.1 b/0.2.2 c/0.0.0"),
    ("a (b (c) d) e", "a/0.0.0 b/0.1.1 c/0.2.2 d/0.1.1 e/0.0.0"),
    ("a ) b, c", "a/0.0.0 b/0.0.0 c/0.0.1"),
    ("x (a, b) c (d) e", "x/0.0.0 a/0.1.1 b/0.1.2 c/0.0.0 d/0.3.3 e/0.0.0"),
    ("a (b; c), d", "a/0.0.0 b/0.1.1 c/0.2.2 d/0.0.3"),
    # Sentences end at a stop before a space, or at the end of a line.
    (
        "one. two! three? four.five (six.) seven",
        "one/0.0.0 two/1.1.1 three/2.2.2 four/3.3.3 five/3.3.3 six/3.4.4 seven/4.5.5",
    ),
    ("a... b", "a/0.0.0 b/0.0.1"),
    ("a?! b", "a/0.0.0 b/1.1.1"),
    ("\u3042\u3002b", "\u3042/0.0.0 b/1.1.1"),
    ("x\ny\n\nz", "x/0.0.0 y/1.1.1 z/2.2.2"),
    ("a,\nb", "a/0.0.0 b/1.1.1"),
    ("5.\nnext", "5/0.0.0 next/1.1.1"),
    ("12. word", "#12/0.0.0 word/0.0.0"),
    ("about 5. next", "about/0.0.0 5/0.0.0 next/1.1.1"),
    ("one; two. three, four", "one/0.0.0 two/0.1.1 three/1.2.2 four/1.2.3"),
    # Abbreviations and single letters end none.
    (
        "e.g. this, i.e. that, approx. ten.",
        "e/0.0.0 g/0.0.0 this/0.0.0 i/0.0.1 e/0.0.1 that/0.0.1 approx/0.0.2 ten/0.0.2",
    ),
    ("so Dr. X and Mr. Y", "so/0.0.0 dr/0.0.0 x/0.0.0 and/0.0.0 mr/0.0.0 y/0.0.0"),
    ("like b. next", "like/0.0.0 b/0.0.0 next/0.0.0"),
    ("like 5. next", "like/0.0.0 5/0.0.0 next/1.1.1"),
    (
        "seen (e.g. here) vs. there",
        "seen/0.0.0 e/0.1.1 g/0.1.1 here/0.1.1 vs/0.0.0 there/0.0.0",
    ),
    ("see b.\nnext", "see/0.0.0 b/0.0.0 next/1.1.1"),
    ("see b! next", "see/0.0.0 b/0.0.0 next/1.1.1"),
    # Words that begin a part, or a clause.
    ("a because b so c", "a/0.0.0 because/0.1.1 b/0.1.1 so/0.2.2 c/0.2.2"),
    ("so a", "so/0.0.0 a/0.0.0"),
    ("a, so b", "a/0.0.0 so/0.2.2 b/0.2.2"),
    ("but a but b", "but/0.0.0 a/0.0.0 but/0.1.1 b/0.1.1"),
    ("a and is b and c", "a/0.0.0 and/0.0.0 is/0.0.1 b/0.0.1 and/0.0.1 c/0.0.1"),
    ("a and, has", "a/0.0.0 and/0.0.0 has/0.0.2"),
    ("is and is", "is/0.0.0 and/0.0.0 is/0.0.1"),
    (
        "x (a and has b) and has c",
        "x/0.0.0 a/0.1.1 and/0.1.1 has/0.1.2 b/0.1.2 and/0.0.0 has/0.0.3 c/0.0.3",
    ),
    ("a, making b", "a/0.0.0 making/0.2.2 b/0.2.2"),
    ("a making b", "a/0.0.0 making/0.0.0 b/0.0.0"),
    ("a and making b", "a/0.0.0 and/0.0.0 making/0.0.0 b/0.0.0"),
    ("a; making b", "a/0.0.0 making/0.1.1 b/0.1.1"),
    # Numbers of lines.
    (
        "1. a\n2) b\n(c) d\n- 3. e",
        "#1/0.0.0 a/0.0.0 #2/1.1.1 b/1.1.1 #c/2.3.3 d/2.3.3 #3/3.4.4 e/3.4.4",
    ),
    ("aa\nOption 1: f", "aa/0.0.0 #option/1.1.1 #1/1.1.1 f/1.1.1"),
    ("aa\n4.g\n5.6 h", "aa/0.0.0 #4/1.1.1 g/1.1.1 5.6/2.2.2 h/2.2.2"),
    ("1. a, b", "#1/0.0.0 a/0.0.0 b/0.0.1"),
    ("1. and has a", "#1/0.0.0 and/0.0.0 has/0.0.1 a/0.0.1"),
    ("123. a", "#123/0.0.0 a/0.0.0"),
    ("1234. a", "1234/0.0.0 a/1.1.1"),
    ("option b) x", "#option/0.0.0 #b/0.0.0 x/0.0.0"),
    ("a) b) c", "#a/0.0.0 b/0.0.0 c/0.0.0"),
    ("1. (a) b", "#1/0.0.0 a/0.0.0 b/0.0.0"),
    ("A: b, c", "#a/0.0.0 b/0.0.0 c/0.0.1"),
    ("> * 7) a", "#7/0.0.0 a/0.0.0"),
    ("2.) a", "#2/0.0.0 a/0.0.0"),
    ("1.\nb", "1/0.0.0 b/1.1.1"),
    # Bold.
    ("**a b** c __d__ `e` f", "*a/0.0.0 *b/0.0.0 c/0.0.0 *d/0.0.0 *e/0.0.0 f/0.0.0"),
    ("**a\nb** c", "*a/0.0.0 b/1.1.1 *c/1.1.1"),
    ("`a **b` c** d", "*a/0.0.0 *b/0.0.0 *c/0.0.0 d/0.0.0"),
    ("** a ** b", "*a/0.0.0 b/0.0.0"),
    ("**a** **b c** d", "*a/0.0.0 *b/0.0.0 *c/0.0.0 d/0.0.0"),
    ("**a `b\n`c` d", "*a/0.0.0 *b/0.0.0 *c/1.1.1 d/1.1.1"),
    ("a **b, c** d", "a/0.0.0 *b/0.0.0 *c/0.0.1 d/0.0.1"),
    # Boxed.
    ("\\boxed{a b} c } d", "boxed/0.0.0 *a/0.1.1 *b/0.1.1 c/0.0.0 d/0.0.0"),
    ("boxed {a\nb} c", "boxed/0.0.0 *a/0.1.1 b/1.2.2 c/1.2.2"),
    ("x {boxed} y {z} w", "x/0.0.0 boxed/0.1.1 y/0.0.0 z/0.2.2 w/0.0.0"),
    ("a {b} c", "a/0.0.0 b/0.1.1 c/0.0.0"),
    ("boxed: {a} b", "boxed/0.0.0 *a/0.1.1 b/0.0.0"),
    # Words.
    ("1 to 3 and 2.5, 1,000", "1/0.0.0 3/0.0.0 and/0.0.0 2.5/0.0.0 1,000/0.0.1"),
    ("12 to 15 to 20", "12/0.0.0 15/0.0.0 20/0.0.0"),
    ("to 3 to x", "to/0.0.0 3/0.0.0 to/0.0.0 x/0.0.0"),
    ("a\u0301b c", "\xe1b/0.0.0 c/0.0.0"),
    ("a\u0301\u0302 b", "\xe1\u0302/0.0.0 b/0.0.0"),
    ("don't 'x' y' o'clock's", "don't/0.0.0 x/0.0.0 y/0.0.0 o'clock's/0.0.0"),
    (
        "\u732b\u3068\u72ac x\u732by",
        "\u732b/0.0.0 \u3068/0.0.0 \u72ac/0.0.0 x/0.0.0 \u732b/0.0.0 y/0.0.0",
    ),
    ("x_y-z", "x/0.0.0 y/0.0.0 z/0.0.0"),
    ("3x x3 3,x 1,2,3", "3x/0.0.0 x3/0.0.0 3/0.0.0 x/0.0.1 1,2,3/0.0.1"),
    ("\ud55c\uad6d b", "\ud55c/0.0.0 \uad6d/0.0.0 b/0.0.0"),
    # A sentence's end closes its brackets.
    ("aa (bb. cc) dd, ee", "aa/0.0.0 bb/0.1.1 cc/1.2.2 dd/1.2.2 ee/1.2.3"),
    ("aa (bb. (cc) dd) ee", "aa/0.0.0 bb/0.1.1 cc/1.3.3 dd/1.2.2 ee/1.2.2"),
    ("aa [bb\ncc] dd", "aa/0.0.0 bb/0.1.1 cc/1.2.2 dd/1.2.2"),
    ("aa. (bb) cc", "aa/0.0.0 bb/1.2.2 cc/1.1.1"),
]


@pytest.mark.parametrize(("text", "placed"), PLACED)
def test_each_word_knows_its_place(text: str, placed: str) -> None:
    found = [
        f"{'*' * one.bold}{'#' * one.item}{one.word}"
        f"/{one.sentence}.{one.part}.{one.clause}"
        for one in passage(text).tokens
    ]
    assert " ".join(found) == placed


@pytest.mark.parametrize("text", [text for text, _ in PLACED])
def test_words_and_gaps_make_up_the_text(text: str) -> None:
    read = passage(text)
    pieces = [read.gap(0)]
    for place, token in enumerate(read.tokens):
        assert read.text[token.start : token.end] == token.word
        assert token.stem == stem(token.word)
        pieces += [token.word, read.gap(place + 1)]
    assert "".join(pieces) == read.text == folded(text)


STEMS = """
ties tie, dies die, flies fly, cries cry, ies ies, skies sky, is is, gas gas, bus bus,
basis basis, class class, cats cat, kisses kiss, dishes dish, churches church,
boxes box, buzzes buzz, axes ax, sees see, has has,
woman's woman, o'clock oclock, it's it,
one 1, twelve 12, zero 0, 1's 1, 1,000 1000, 1,000s 1000s, 2nd 2nd, x2s x2s,
tied tied, studied study, cried cri, allied ally,
sing sing, king king, bring bring, running run, falling fall, passing pass,
buzzing buzz, seeing se, agreed agreed, freed freed, feed feed, seed seed, red red,
added ad, planned plan, rolled roll, hoped hop, baked bak, used used, using using,
booed boo, needed need, trained train, training train, trains train,
rhythmed rhythm, thrumming thrum, nthing nthing, flying fly, styling styl,
be be, see see, tree tre, use use, age age, ages age, notes not, thee the,
\u00fcses \u00fcses, species species, during during, string string, hundred hundred
"""


@pytest.mark.parametrize("pair", STEMS.replace("\n", " ").strip().split(", "))
def test_a_stem_is_the_word_without_its_simple_endings(pair: str) -> None:
    word, wanted = pair.split()
    assert stem(word) == wanted


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a\r\nb\rc\n", "a\nb\nc\n"),
        ("\u2018a\u2019 \u201cb\u201d \u2013 \u2015", "'a' \"b\" - \u2014"),
        ("\u226550 \u226450 a\u200bb", ">=50 <=50 ab"),
        ("<think>a</think>b", "b"),
        ("<think>a</think>b</think>c", "c"),
        ("<THINKING>a</Thinking>b", "b"),
        ("<thought>a</thought><reasoning>b</reasoning>c", "c"),
        ("a<think>b", "a"),
        ("a<think>b<think>c", "a"),
        ("a</think>b<think>c</think>d<think>e", "d"),
        ("a < b", "a < b"),
    ],
)
def test_a_text_has_one_spelling_and_no_thoughts(text: str, read: str) -> None:
    assert spelled(text) == read


def test_of_a_long_reply_the_end_is_read() -> None:
    assert LONGEST == 20_000
    text = "ab" + "-" * (LONGEST - 1)
    assert folded(text) == text[1:]
    assert folded(text[1:]) == text[1:]
    assert [token.word for token in passage(text).tokens] == ["b"]
