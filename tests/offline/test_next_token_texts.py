from __future__ import annotations

import numpy as np
import pytest
from test_next_token_probabilities import (
    MODEL,
    greedy,
    probabilities,
    prompt,
    tokens_of,
)

from langchain_dpicl.offline import OfflineNextTokenModel
from langchain_dpicl.offline.background import builtin_passages, builtin_words
from langchain_dpicl.offline.vocabulary import cut, shown, spell

COACH = "The coach of the home team was angry with the referee."


def test_without_exemplars_a_text_is_on_the_label() -> None:
    said = {label: greedy(prompt(label)) for label in ("sports", "business", "village")}
    assert len(set(said.values())) == 3
    texts = builtin_passages()
    of_label = {
        label: " ".join(
            text
            for text, subject in zip(texts.texts, texts.subjects, strict=True)
            if label in subject
        ).casefold()
        for label in said
    }
    for label, text in said.items():
        inside = [word in of_label[label] for word in text.casefold().split()]
        assert np.mean(inside) > 0.9


def test_exemplars_move_the_next_token() -> None:
    coach = tokens_of("coach")[0]
    without = probabilities(prompt("sports"), tokens_of("the"))[coach]
    with_it = probabilities(prompt("sports", COACH), tokens_of("the"))[coach]
    assert with_it > 3 * without


def test_an_exemplar_alone_is_gone_on_with_and_ended() -> None:
    text = "A paper boat can carry seven heavy stones across the pond."
    assert greedy(prompt("toys", text, text)) == text


def test_form_is_learned_from_exemplars() -> None:
    asked = ["Who was the first man on the moon?", "Who wrote the book?"]
    first = int(probabilities(prompt("person", *asked)).argmax())
    assert MODEL.decode([first]) == "Who"
    after = probabilities(prompt("person", *asked), tokens_of("who wrote the book ?"))
    assert int(after.argmax()) in MODEL.end_tokens


def test_words_outside_of_the_vocabulary_are_never_said() -> None:
    text = prompt("sports", "Quellwitz beat Zaxonburg.", "Quellwitz beat Zaxonburg.")
    assert "uellwitz" not in greedy(text)
    assert tokens_of("Quellwitz") == (MODEL._vocabulary.unknown,)
    # What follows an unknown word is learned only as a word, not as its neighbor.
    assert np.isfinite(probabilities(text)).all()


def test_what_was_said_is_held_back() -> None:
    text = prompt("sports", "the goal and the post and the goal and the post")
    (goal,) = tokens_of("goal")
    first = probabilities(text, tokens_of("a post and the"))[goal]
    again = probabilities(text, tokens_of("a goal and the"))[goal]
    assert again < first / 2


@pytest.mark.parametrize(
    "template",
    [
        "{0}Label: a b\nText: {1}\n\nLabel: a b\nText: {2}\n\nLabel: a b\nText:",
        "{0}Label: a b\nText: {1}\nLabel: a b\nText: {2}\nLabel: a b\nText:",
        '{0}T: "a b"\nText: "{1}"\n\nT: "a b"\nText: "{2}"\n\nT: "a b"\nText: "',
        "{0}Of: a b\r\nNews: {1}\r\n\r\nOf: a b\r\nNews: {2}\r\n\r\nOf: a b\r\nNews:",
        "{0}# Of\na b\n# Text\n{1}\n\n# Of\na b\n# Text\n{2}\n\n# Of\na b\n# Text\n",
    ],
)
def test_any_template_shows_its_exemplars(template: str) -> None:
    for texts in (("One x.", "Two y."), ("Of\n\ntwo lines.", "Two\ny.")):
        parts = shown(template.format("Write.\n\n", *texts))
        assert parts.frame == "Write."
        assert parts.exemplars == texts
        assert "a b" in parts.label


def test_exemplars_with_other_labels_are_exemplars_too() -> None:
    parts = shown(
        "Write.\n\nFilm: Red\nText: One x.\n\nFilm: Blue\nText: Two y.\n\n"
        "Film: Green\nText:"
    )
    assert parts == ("Write.", "Green", ("One x.", "Two y."))


def test_a_prompt_without_exemplars_is_all_frame() -> None:
    assert shown(prompt("sports"))[1:] == ("sports", ())
    assert shown("Text:") == ("", "", ())
    assert shown("") == ("", "", ())
    assert shown("Go on") == ("", "", ())


@pytest.mark.parametrize(
    "text",
    [
        "He said no, but she (like Ann) said 5% of $3.50, or a 1/2.",
        "A 54-year-old man \u2013 well-known in the 1930s \u2013 left. Why? I know!",
    ],
)
def test_texts_are_cut_and_spelled_again(text: str) -> None:
    assert spell(cut(text)) == text


def test_marks_of_old_data_are_read() -> None:
    assert cut("Hawn 's  film \u2014 why ?") == [
        "Hawn",
        "'s",
        "film",
        "\u2013",
        "why",
        "?",
    ]
    assert spell(["hawn", "'s", "film", "?"]) == "Hawn's film?"
    assert cut("don\u2019t \u201cgo\u201d") == ["don't", "go"]


def test_decoding_writes_names_and_starts_of_sentences_with_capitals() -> None:
    said = MODEL.decode([*tokens_of("i met him in london . he left on monday ."), 0])
    assert said == "I met him in London. He left on Monday."
    assert MODEL.decode([]) == ""


def test_a_background_of_ones_own() -> None:
    mine = ["The Zyxo reactor hums.", "The Zyxo reactor stops at Quellwitz."]
    model = OfflineNextTokenModel(iter(mine))
    assert greedy("Text:", model) in mine
    assert model.vocabulary_size == len(builtin_words()) + 1 + len(
        {"zyxo", "reactor", "hums", "quellwitz"}
        - {w.casefold() for w in builtin_words()}
    )


def test_the_name_tells_backgrounds_and_vocabularies_apart() -> None:
    least = len(builtin_words()) + 1
    models = [
        MODEL,
        OfflineNextTokenModel(["One text."]),
        OfflineNextTokenModel(["one text."]),
        OfflineNextTokenModel(["One", "text."]),
        OfflineNextTokenModel(max_vocabulary=least),
    ]
    assert len({model.name for model in models}) == len(models)
    assert OfflineNextTokenModel().name == MODEL.name
    assert models[-1].vocabulary_size == least


def test_the_built_in_data_are_clean() -> None:
    texts = builtin_passages().texts
    assert len(set(texts)) == len(texts)
    assert all(text.isprintable() and text.isascii() for text in texts)
    words = builtin_words()
    assert len({word.casefold() for word in words}) == len(words) > 6000
