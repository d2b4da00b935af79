"""The items that an answer counts for: lemmas, or one phrase.

Public rules about one answer. An answer of up to three words counts as its phrase, so
that "no chest pain" is one item and not three. In a longer answer each word counts, by
its lemma, except the words of the question, function words, and words that models put
in front of an answer. "None of these" is no answer.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING

from langchain_dpicl.parsers.reading.mentions import chooses_none
from langchain_dpicl.parsers.reading.refusal import nothing_said
from langchain_dpicl.parsers.reading.text import Passage, passage, word_set

if TYPE_CHECKING:
    from simplemma import Lemmatizer

MAX_PHRASE = 3
"""Words of the longest answer that counts as a phrase."""

_LONGEST_WORD = 40

STOP_WORDS: frozenset[str] = word_set(
    "a about also although am an and any are as at be because been being but by "
    "can could did do does doing due each either etc for from had has have having he "
    "her here hers herself him himself his how however i if into is it its itself just "
    "let may me might mine must my myself of one or other others ought our ours "
    "ourselves own per quite rather same shall she should so some such than that the "
    "their theirs them themselves then there therefore these they this those though "
    "through thus to too upon us very was we were what when where whether which while "
    "who whom whose why will with within would yet you your yours yourself "
    # What models put in front of an answer.
    "according based given indicate look provided seem show suggest"
)
"""English words that answer no question: of grammar, and of where an answer is from.

Words that can be an answer, such as "up" and "none", are not among them.
"""

_SHORT_FORMS = word_set(
    "i'm i'd i'll i've it's that's there's he's she's they're we're you're what's let's"
)
_FRAMES = {("based", "on"), ("look", "like"), ("looks", "like")}
_LEADING = word_set(
    "a an answer be is it it's its mostly mainly usually probably likely possibly "
    "perhaps maybe the they they're that's was were are"
)
_TRAILING = word_set(
    "likely maybe perhaps possibly probably presumably tied uncertain unclear mostly "
    "mainly usually"
)


def lemma(word: str, language: str | None = "en") -> str:
    """Return a word's lemma, a pure function of the word.

    Args:
        word: One word, case-folded.
        language: A language code of simplemma; None leaves words unchanged.

    Raises:
        ValueError: If simplemma does not know the language.

    Example:
        >>> lemma("adapters"), lemma("children"), lemma("adapters", None)
        ('adapter', 'child', 'adapters')
    """
    if language is None or not word or len(word) > _LONGEST_WORD:
        return word
    return _lemmatizer().lemmatize(word, lang=language).casefold()


@lru_cache(maxsize=1)
def _lemmatizer() -> Lemmatizer:
    """Return the lemmatizer without a cache, which would keep private words."""
    from simplemma import Lemmatizer

    return Lemmatizer(cache_max_size=0)


def items_of(
    answer: str, question_words: Collection[str] = (), language: str | None = "en"
) -> list[str]:
    """Return the different items that an answer counts for, in its order.

    Privacy:
        A pure function of one answer and of public things.

    Args:
        answer: What a group answered. Private.
        question_words: Public words that carry no news in a longer answer.
        language: Language of the lemmas; None: no lemmas. Stop words are English.

    Returns:
        One phrase of lemmas for an answer of up to `MAX_PHRASE` words, without
        articles, hedges and text in brackets; the lemmas of the other words for a
        longer one; nothing where the answer says that it has none.

    Example:
        >>> items_of("**No chest pain.**"), items_of("The new routers")
        (['no chest pain'], ['new router'])
        >>> items_of("Most customers use two adapters.", ["customer", "use"])
        ['most', 'two', 'adapter']
    """
    read = passage(answer)
    if nothing_said(read) or chooses_none(read):
        return []
    if (phrase := _lemmas(read, language)) is not None:
        return [phrase]
    asked = {
        form
        for word in question_words
        for token in _words(passage(word))
        for form in (token, lemma(token, language))
    }
    found: dict[str, None] = {}
    before = ""
    for word in _words(read):
        form = lemma(word, language)
        framing, before = (before, word) in _FRAMES, word
        bare = word.replace("n't", "").removesuffix("'s")
        stop = {word, form, bare} & STOP_WORDS or word in _SHORT_FORMS
        if not stop and not framing and not {word, form} & asked:
            found.setdefault(form)
    return list(found)


def phrase_of(answer: str, language: str | None = "en") -> str | None:
    """Return the one item that a short answer counts for; see `items_of`.

    Example:
        >>> phrase_of("**No chest pain.**"), phrase_of("None of these")
        ('no chest pain', None)
    """
    read = passage(answer)
    if nothing_said(read) or chooses_none(read):
        return None
    return _lemmas(read, language)


def _lemmas(read: Passage, language: str | None) -> str | None:
    phrase = _phrase(read)
    if not 0 < len(phrase) <= MAX_PHRASE:
        return None
    return " ".join(lemma(word, language) for word in phrase)


def _words(read: Passage) -> list[str]:
    """Return words; hyphens within one belong to it."""
    joined: list[str] = []
    end = -1
    for token in read.tokens:
        if token.item:
            continue
        gap = read.text[end : token.start] if end >= 0 else ""
        word = token.word.removesuffix("'s")
        glued = end == token.start or gap == "-"
        if glued and joined and word:
            joined[-1] = f"{joined[-1]}{gap}{word}"
        elif word:
            joined.append(word)
        end = token.end
    return joined


def _phrase(read: Passage) -> list[str]:
    """Return the words of a short answer, without what is around it."""
    tokens = [token for token in read.tokens if not token.item]
    outside = [token for token in tokens if not _in_brackets(read, token.start)]
    kept = Passage(read.text, tuple(outside or tokens))
    words = _words(kept)
    while len(words) > 1 and words[0] in _LEADING:
        words.pop(0)
    while len(words) > 1 and words[-1] in _TRAILING:
        words.pop()
    return words


def _in_brackets(read: Passage, place: int) -> bool:
    before = read.text[:place]
    return before.count("(") > before.count(")")
