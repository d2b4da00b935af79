"""What a model's reply says: public rules about one text.

The prompt asks for a form. A reader accepts what a careful person would accept without
having to interpret. All else is *unreadable*, which is an outcome of its own.

Privacy:
    No function knows more than one reply and public things, so no record changes how
    another group's reply is read. None raises on any text. Each takes time linear in
    the length of the reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache

from langchain_dpicl.parsers.words import (
    LONGEST,
    NEGATORS,
    STOP_WORDS,
    form,
    forms_once,
    lemma,
    row,
    spelled,
    tokenize,
    word_set,
    words_of,
)

MOST_WORDS = 25
"""Words of the longest reply that is searched for the one option that it names."""

SHORT_WORDS = 4
"""Words of the longest reply that chooses an option by naming it."""

OPTION_WORDS = 10
"""Words of the longest drafted option; what is longer is a sentence."""

SENTENCE_WORDS = 5
"""Words of the longest line of a draft that is no sentence."""

PHRASE_WORDS = 3
"""Words of the longest answer that counts as one phrase."""


class NoChoice(Enum):
    """What a reply says that chooses no option."""

    NONE = "none"
    """None of the options, or that the records don't tell."""

    UNREADABLE = "unreadable"
    """Several options, or something else."""


NONE, UNREADABLE = NoChoice.NONE, NoChoice.UNREADABLE


# ---- choices -------------------------------------------------------------------------

_ARTICLES = word_set("a an the")
_LEADING = _ARTICLES | word_set(
    "answer option choice label category final best my is are it it's they likely "
    "mainly mostly most probably so boxed"
)
_CHOOSING = word_set(
    "answer best bet biggest choice choose chose chosen common commonest dominant "
    "frequent frequently go guess largest leading leads likely main mainly majority "
    "most mostly often option opt pick picked predominantly primary principal say "
    "select selected top typically usually"
)
_POLAR = {"yes", "no"}
DENYING = NEGATORS | word_set(
    "unlikely dont instead except besides excluded denied absent fails tie tied split "
    "versus vs before ahead deny denies unlike least less rarely few doubt whether "
    "contradict contradicts avoid avoids apart second last runner negative refuse "
    "wrong incorrect mistake otherwise etc zero 0 false possible might could would "
    "previously similar nicht kein keine pas aucun sin ning\u00fan nessuno n\u00e3o "
    "\u4e0d \u6ca1 \u6c92 \u7121 \u975e"
)
"""Words beside which an option may be named and not chosen."""

_DENIAL = re.compile(
    r"\bthan (?![\d$]|half\b)|\brul(?:ed|ing) out\b|\bused to\b|\bamong others\b"
    r"|n't\b|\bthings like\b|\b(?:anything|all) but\b|\bif (?!i had\b|pressed\b)|\?"
    r"|\bonly one\b|^\W*one (?!of the (?:most|main)\b)|\u306a\u3044|\u307e\u305b\u3093"
)
_CERTAIN = re.compile(
    r"\bi(?:'m| am| can't| cannot| can not| could not)(?: not)?(?: be)?(?: \w+)? "
    r"(?:certain|sure)\b(?! (?:whether|if|that|it|about|of|who|what|which|how)\b)"
    r"|\bnot (?:only|just)\b|,? \bi (?:think|believe|guess)\b"
)
_NO_DOUBT = re.compile(r"\b(?:no|without(?: a| any)?) doubt\b|\bi would (?=\w)|\bi'd ")
_ADDED = re.compile(r",\s+(?:with|followed by|compared (?:to|with))\s")
_BRACKETS = re.compile(r"(?<!\s)\s*[(\[][^()\[\]]*[)\]]")
_ITEM = re.compile(r"^[\W_]*(?:\d{1,3}|[A-Za-z])[.):]+[*_]*\s+(?=\S)")
_HEAD = re.compile(r"^[\W_]*(yes|no)\b[*_`\"']*(?:[,.;:!]|\s-|$)", re.IGNORECASE)
_REMARK = re.compile(r"[:;.!]\s|\s-+\s|\u2014|,\s(?=because|as |since|in |seen)")
_CLAUSE = re.compile(r"[,:;.!]\s|\n|\s-+\s|\u2014|\b(?:but|while|al?though|whereas)\b")
_TOLD = re.compile(r"\b(answer|choice|choose|guess|is|pick|say)\W{1,4}\b")
_SENTINEL = re.compile(
    r"\b(?:none|not any) of (?:these|those|them|the (?:\w+ ){0,2}?(?:above|options?|"
    r"choices?|answers?|labels?|categories))\b|\bno (?:\w+ )?(?:option|answer|label|"
    r"choice)s?\b(?: \w+)? (?:fits?|appl\w+|match\w*|leads?)\b"
)
_NOTHING = ({"none"}, {"n", "a"}, {"na"}, {"nothing"}, {"neither"})
Forms = Mapping[str, int | None]
Form = Callable[[str], str]


def read_choice(
    reply: str,
    options: Sequence[str],
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> int | NoChoice:
    """Return which public option a reply chooses.

    An option is read in any letter case, markup or inflection, and with a remark in
    brackets. A reply chooses it if it is the option alone, or if its first or last line
    is. Else it has `MOST_WORDS` words at most, names no other option and holds no word
    of denial. Then it chooses the option that it begins with, as a clause by itself, or
    that it names in `SHORT_WORDS` words or in one clause with a choosing word ("most").

    Args:
        reply: What a group answered. Private.
        options: The public options.
        aliases: Further public spellings of an option.

    Example:
        >>> options = ["asthma", "COPD"]
        >>> read_choice("**Asthma** (4 of 6)", options)
        0
        >>> read_choice("None of these.", options), read_choice("not asthma", options)
        (<NoChoice.NONE: 'none'>, <NoChoice.UNREADABLE: 'unreadable'>)
    """
    forms, form = forms_of(options, aliases), forms_once()
    text = spelled(reply)
    lines = [line for line in text.split("\n") if words_of(line)]
    alone = [_alone(line, forms, form, only=len(lines) == 1) for line in lines]
    if len(set(alone) - {None}) > 1:
        return UNREADABLE
    for place in alone[:1] + alone[-1:]:
        if place is not None:
            return place
    head = _HEAD.match(text)
    said = forms.get(head[1].casefold()) if head else None
    return _only_named(text, forms, form) if said is None else said


def _alone(line: str, forms: Forms, form: Form, *, only: bool) -> int | NoChoice | None:
    """Return the option that a line is, apart from markup, number and remark."""
    for text in dict.fromkeys((line, _BRACKETS.sub("", line))):
        for start in dict.fromkeys((text, _ITEM.sub("", text) if only else text)):
            words = words_of(start)[: MOST_WORDS + 1]
            while 0 < len(words) <= MOST_WORDS:
                for key in (_key(words, form), row(words, form)):
                    if (place := forms.get(key)) is not None:
                        return place
                if set(words) in _NOTHING or _SENTINEL.fullmatch(" ".join(words)):
                    return NONE
                if words[0] not in _LEADING or "?" in line:
                    break
                words = words[1:]
    return None


def _only_named(text: str, forms: Forms, form: Form) -> int | NoChoice:
    """Return the only option that a short reply names, if it chooses it."""
    folded = _ADDED.split(text.casefold(), maxsplit=1)[0]
    if _SENTINEL.search(folded):
        return NONE
    if len(words_of(text)) <= MOST_WORDS:
        sure = _NO_DOUBT.sub(" mostly ", _CERTAIN.sub(" ", folded))
        folded = sure if named_in(words_of(sure), forms, form)[0] else folded
        named, others = named_in(words_of(folded), forms, form)
        bare = _TOLD.sub(r"\1 ", _BRACKETS.sub(" ", folded))
        denied = DENYING & set(others) & set(words_of(bare)) or _DENIAL.search(bare)
        if len(named) == 1 and not denied and _chooses(bare, forms, form):
            return named.pop()
    return NONE if declines(text) else UNREADABLE


def _chooses(text: str, forms: Forms, form: Form) -> bool:
    """Return whether a reply chooses the one option that it names."""
    if len([word for word in text.split() if word not in _ARTICLES]) <= SHORT_WORDS:
        return True
    head = _REMARK.split(text, maxsplit=1)[0]
    if isinstance(_alone(head, forms, form, only=True), int):
        return True
    parts = map(words_of, _CLAUSE.split(text))
    clauses = (named_in(words, forms, form) for words in parts)
    return any(named and _CHOOSING.intersection(others) for named, others in clauses)


def named_in(
    words: Sequence[str], forms: Forms, form: Form = form
) -> tuple[list[int], list[str]]:
    """Return the options that words name, and the other words. Longer names win."""
    lemmas = list(map(form, words))
    longest = max(map(len, forms), default=0)
    named: dict[int, None] = {}
    others: list[str] = []
    start = 0
    while start < len(words):
        key, best = "", 0
        for end in range(start, len(words)):
            key += lemmas[end]
            if len(key) > longest:
                break
            if key not in _POLAR and (place := forms.get(key)) is not None:
                best, option = end + 1, place
        if best:
            named.setdefault(option)
        else:
            others.append(words[start])
        start = best or start + 1
    return list(named), others


def forms_of(
    options: Sequence[str], aliases: Mapping[str, Sequence[str]] | None = None
) -> Forms:
    """Return the spellings of each option; None marks one that two options share.

    A spelling is its words, those outside its brackets, those inside, or an alias.
    """
    given = tuple((name, tuple(more)) for name, more in (aliases or {}).items())
    return _forms(tuple(options), given)


@lru_cache(maxsize=256)
def _forms(
    options: tuple[str, ...], aliases: tuple[tuple[str, tuple[str, ...]], ...]
) -> Forms:
    forms: dict[str, int | None] = {}
    for place, option in enumerate(options):
        text = spelled(option)
        inside = " ".join(re.findall(r"\(([^()]*)\)", text))
        spellings = [text, *map(spelled, dict(aliases).get(option, ()))]
        if inside:
            spellings += [_BRACKETS.sub("", text), inside]
        for key in {_key(words_of(spelling)) for spelling in spellings} - {""}:
            forms[key] = place if forms.get(key, place) == place else None
    for place, option in enumerate(options):  # A whole option is itself.
        words = words_of(spelled(option))
        forms[_key(words)] = forms[row(words)] = place
    return forms


def _key(words: Sequence[str], form: Form = form) -> str:
    bare = words[1:] if len(words) > 1 and words[0] in _ARTICLES else words
    return "".join(map(form, bare))


# ---- refusals ------------------------------------------------------------------------

_LONG_FORMS = {"cannot": "can not", "can't": "can not", "won't": "will not"}
_LONG_FORMS |= {"dont ": "do not ", "n't": " not", "'m ": " am ", "'s ": " is "}
_AROUND = word_set(
    "i we one two three it this that these those the there here which a an any as ai "
    "language model is are was were be been am do does did can could would will has "
    "have contain contains give gives show shows see remains seems record records "
    "note notes tickets reviews data context information documents document text "
    "texts excerpts details reports files provided given available answer reason "
    "sorry unfortunately afraid hmm well so and but by from based according however "
    "to on in of my question good really honestly simply just clearly enough more way "
    "able yet explicitly at all possible points actually even evenly specifically "
    "medical your"
)
_LACKING = word_set(
    "not no none nothing insufficient unable impossible hard difficult unknown "
    "unclear unspecified undetermined unsure uncertain silent n na tie tied split "
    "inconclusive"
)
_BY_ITSELF = _LACKING - word_set(
    "not no none nothing insufficient unable impossible hard difficult n"
)
_NOT_TOLD = word_set(
    "mentioned stated specified recorded documented determined identified"
)
_TELLING = _NOT_TOLD | word_set(
    "know tell say says answer answers identify find provide confirm infer conclude "
    "name assess help assist access comply disclose discuss specify state mention "
    "mentions indicate determine contain include list address reveal pick point "
    "points choose given known clear provided listed indicated disclosed said "
    "described answered inferred sure certain available information info data detail "
    "details idea clue record records notes majority consensus applicable single "
    "common most stands clearly show shows access"
)
_FOLLOWING = word_set(
    "what who why when how if whether because for about with until us out"
)
_FOLLOWING |= _AROUND - {"of"} | _TELLING
_ELSEWHERE = word_set("ichweissesnicht jenesaispas nolos\u00e9 nonloso n\u00e3osei")
_ANSWERS = re.compile(
    r"\b(?:but|however|still|though|if i had to|if pressed|guess|i would say|i think|"
    r"probably|most likely|maybe|would be|anything other|i'd)\b"
)
_COURTESY = re.compile(
    r"\b(?:happy|glad|let me know|please|if you|would need|not|no|never|because)\b"
)
_PART = re.compile(r"[.!?](?:\s|$)|[,;:\n]| because | since | - ")


def declines(text: str) -> bool:
    """Return whether a reply says that it has no answer, and gives none.

    Its first words say so: a word of lacking ("not", "no", "unclear") between words
    about the records and the answer alone, and what is not told or known behind it.

    Example:
        >>> declines("I don't know."), declines("I'm not certain, but asthma.")
        (True, False)
        >>> declines("No information is given."), declines("No pain was reported.")
        (True, False)
    """
    plain = spelled(text[:LONGEST]).casefold()
    for short, long in _LONG_FORMS.items():
        plain = plain.replace(short, long)
    parts = [words for part in _PART.split(plain) if (words := words_of(part)[:40])]
    for place, words in enumerate(parts[:6]):
        if _lacks(words):
            rest = " ".join(" ".join(part) for part in (words[2:], *parts[place + 1 :]))
            answer = _ANSWERS.search(rest)
            return answer is None or bool(_COURTESY.search(rest[answer.start() :]))
        if not _AROUND.issuperset(words):
            break
    last = parts[-1] if parts else []
    return last[:1] == ["so"] and _lacks(last[1:])


def _lacks(words: Sequence[str]) -> bool:
    """Return whether the first words of a clause say that something is not told."""
    if "".join(words) in _ELSEWHERE:
        return True
    start = next((i for i, word in enumerate(words) if word in _LACKING), len(words))
    telling = _TELLING if _AROUND.issuperset(words[:start]) else _NOT_TOLD
    for word, after in zip(words[start:], [*words[start + 1 :], "it"], strict=False):
        if (word, after) == ("n", "a"):
            return True
        told = word in telling or (word in _BY_ITSELF and telling is _TELLING)
        if told and (after in _FOLLOWING or word == "mention"):
            return True
        if word not in _AROUND | _LACKING:
            return False
    return False


# ---- drafts --------------------------------------------------------------------------

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.MULTILINE)
_JSON = re.compile(r"[\[{]\s*[\[{\"']|^\s*\[\s*\]")
_STRING = re.compile(
    r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.|(?<=\w)'(?=\w))*')(\s*:)?""", re.DOTALL
)
_KEYS = ("option", "answer", "label", "name", "text", "value")
_MARK = re.compile(
    r"^\s{0,3}[*_]{0,2}(?:[-*+\u2022]|\d{1,2}[.)]|[a-zA-Z]\))[*_]{0,2}\s+(?:\[.?\]\s)?(?=\S)"
)
_INLINE = re.compile(
    r",?\s(?:and|or)\s(?=[^,;|]*$)|[;,|]\s|(?:^|\s)\d{1,2}[.)]\s+(?=\S)"
)
_BEFORE = re.compile(r"^.*?(?:: |\b(?:are|include) )")
_EDGES = " \t\"'*_.,;:!`"
_ADDITION = re.compile(
    r" (?:-{1,2}|\u2014|->) (?=[a-z])|: (?=[a-z])|\s\((?=[a-z\d][^()]*[ %])"
)
_INTRO = re.compile(r"(?i)(?:sure|certainly|okay|here|notes?|let me|i|these|this)\b")
_NO_OPTION = {"none", "other", "others", "etc", "none of these", "none of the above"}


def read_drafts(reply: str, most: int) -> list[str]:
    r"""Return the options that a model drafted, at most so many, in its order.

    They stand in a JSON list, one a line, or in one line with commas between them.

    Args:
        reply: What the model wrote about the question alone. Public.
        most: Most options to take.

    Example:
        >>> read_drafts("Sure!\n1. **Asthma**\n2. COPD\n3. asthma", 8)
        ['Asthma', 'COPD']
        >>> read_drafts("2 visits, 3 visits or more visits", 8)
        ['2 visits', '3 visits', 'more visits']
    """
    text = spelled(reply)
    text = "\n".join(_FENCE.split(text)[1::2]).strip() or text
    options: dict[str, str] = {}
    for option in _strings(text) if _JSON.search(text) else _lines(text):
        bare = " ".join(option.replace("**", "").strip(_EDGES).split())
        words = words_of(bare)
        taken = 0 < len(words) <= OPTION_WORDS and " ".join(words) not in _NO_OPTION
        if taken and not declines(bare):
            options.setdefault(_key(words), bare)
    return list(options.values())[:most]


def _strings(text: str) -> list[str]:
    """Return the strings of a JSON list, also of one that is cut off, or of objects."""
    start, end = text.find("[") + 1, text.rfind("]")
    found = _STRING.findall(text[start : end if end > start else None])
    names = {name[1:-1].casefold() for name, is_key in found if is_key}
    key = next((key for key in _KEYS if key in names), None)
    before = ["", *(name[1:-1].casefold() if is_key else "" for name, is_key in found)]
    return [
        string[1:-1]
        for name, (string, is_key) in zip(before, found, strict=False)
        if not is_key and (key is None or name == key)
    ]


def _lines(text: str) -> list[str]:
    """Return the lines that are options, or the parts of the one that lists them."""
    lines = [line for line in text.split("\n") if line.strip()]
    marked = [_MARK.sub("", line) for line in lines if _MARK.match(line)]
    kept = marked if len(marked) > 1 else [one for one in lines if not _is_remark(one)]
    if len(kept) > 1:
        return [_ADDITION.split(line, maxsplit=1)[0] for line in kept]
    line = (lines if len(lines) == 1 else kept or [""])[0]
    if declines(line):
        return []
    parts = [part for part in _INLINE.split(_BEFORE.sub("", line)) if part.strip()]
    is_list = len(parts) > 1 and all(len(words_of(p)) <= OPTION_WORDS for p in parts)
    return parts if is_list else kept


def _is_remark(line: str) -> bool:
    """Return whether a line speaks about the list: a sentence, a heading."""
    bare = line.strip(" #>_*")
    long = len(words_of(bare)) > SENTENCE_WORDS
    opens = _INTRO.match(bare) and (long or set(bare) & set(".!:"))
    ends = bare.endswith(":") or (long and bare[-1:] in ".!?")
    return ends or bool(opens) or bare[:1] in "(|"


# ---- items and sentences -------------------------------------------------------------

_FRAME = re.compile(r"\bbased on\b|\blooks? like\b")
_HEDGES = _LEADING | word_set(
    "they was were be that's usually possibly perhaps maybe presumably tied uncertain "
    "unclear"
)


def dropped_words(
    words: Iterable[str], texts: Iterable[str] = (), language: str | None = "en"
) -> frozenset[str]:
    """Return public words, and those of public texts, in the forms that `items` drops.

    Example:
        >>> sorted(dropped_words(["the"], ["Which fees?"]))
        ['fee', 'fees', 'the', 'which']
    """
    found = {word.casefold() for word in words}
    for text in texts:
        for word in tokenize(text):
            found |= {word, lemma(word, language)}
    return frozenset(found)


def items(
    answer: str, dropped: Collection[str] = STOP_WORDS, language: str | None = "en"
) -> list[str]:
    """Return the different items that an answer counts for, in its order.

    An answer of up to `PHRASE_WORDS` words counts as one phrase of lemmas, without
    articles, hedges and text in brackets, so that "no chest pain" is one item and not
    three. In a longer one each word counts, by its lemma, that is not dropped.

    Args:
        answer: What a group answered. Private.
        dropped: Public words that do not count in a longer answer: `dropped_words`.
        language: Language of the lemmas; None: no lemmas.

    Example:
        >>> items("**No chest pain.**"), items("None of these")
        (['no chest pain'], [])
        >>> items(
        ...     "Most customers use two adapters.", dropped_words(["customer", "use"])
        ... )
        ['most', 'two', 'adapter']
    """
    phrase = phrase_of(answer, language)
    if phrase is not None:
        return [phrase] if phrase else []
    words = tokenize(_FRAME.sub(" ", answer.casefold()))
    kept = dict.fromkeys(word for word in words if word not in dropped)
    forms = dict.fromkeys(lemma(word, language) for word in kept)
    return [one for one in forms if one not in dropped]


def phrase_of(answer: str, language: str | None = "en") -> str | None:
    """Return the one item of a short answer; "" for no answer, None for a longer one.

    Example:
        >>> phrase_of("**The coughs**"), phrase_of("I don't know.")
        ('cough', '')
    """
    text = spelled(answer).casefold()
    if declines(text) or _SENTINEL.search(text):
        return ""
    words = tokenize(_BRACKETS.sub("", _ITEM.sub("", text))) or tokenize(text)
    inner = [place for place, word in enumerate(words) if word not in _HEDGES]
    words = words[inner[0] : inner[-1] + 1] if inner else words[-1:]
    if len(words) > PHRASE_WORDS:
        return None
    return " ".join(lemma(word, language) for word in words)


_TAIL = re.compile(r"\b(?:(?:rather|other|more \w+)? than|instead of|unlike)\b[^,;.]*")


def keeps(
    sentence: str,
    released: Iterable[str],
    question: str = "",
    language: str | None = "en",
) -> bool:
    """Return whether a sentence says what the released words say. All are public.

    It does if it names more than a third of them, those of the question aside, and
    does not refuse or deny them.

    Example:
        >>> keeps("They mostly complain about overdraft fees.", ["overdraft", "fee"])
        True
        >>> keeps("Overdraft fees are not a common complaint.", ["overdraft", "fee"])
        False
    """

    def forms(words: Iterable[str]) -> set[str]:
        return {lemma(word, language) for word in words}

    text = spelled(sentence).casefold()
    wanted, said = words_of(spelled(" ".join(released))), words_of(text)
    if not wanted or not said or declines(text):
        return False
    if set(wanted) <= _POLAR:
        denies = bool(DENYING & set(said) or _DENIAL.search(text))
        denies = said[0] == "no" if said[0] in _POLAR else denies
        return len(set(wanted)) == 1 and denies == (wanted[0] == "no")
    telling = forms(wanted) - forms(words_of(spelled(question))) or forms(wanted)
    for part in re.split(r"[,;.]\s|\bbut\b", _TAIL.sub("", text)):
        words = words_of(part)
        found = [i for i, word in enumerate(words) if lemma(word, language) in telling]
        joined = forms(words + words_of(part.replace("-", "")))
        first, last = (found[0], found[-1]) if found else (0, -3)
        near = words[max(first - 1, 0) : first] + words[last + 1 : last + 3]
        denied = any(word == "not" or word.endswith("n't") for word in near)
        if not denied and len(telling & joined) * 3 > len(telling):
            return True
    return False
