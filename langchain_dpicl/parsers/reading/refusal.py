"""Whether a reply says that it has no answer: a public rule about one text."""

from __future__ import annotations

import re

from langchain_dpicl.parsers.reading.text import Passage, Token, passage

_AUXILIARIES = {"can't": "can not", "cannot": "can not", "won't": "will not"}
_SHORT = {
    "i'm": "i am",
    "it's": "it is",
    "that's": "that is",
    "there's": "there is",
    "isnt": "is not",
    "cant": "can not",
    "dont": "do not",
    "doesnt": "does not",
    "i'd": "i would",
    "i'll": "i will",
    "we're": "we are",
    "they're": "they are",
    "i've": "i have",
}

_RECORDS = (
    r"(?:records?|facts?|notes?|documents?|texts?|data|dataset|context|information|passages?|"
    r"reports?|files?|entries|entry|sources?|excerpts?|input|forms?|tickets?|reviews?|"
    r"interviews?|complaints?|transcripts?|materials?|snippets?|these|it|this|"
    r"those|nothing|none|content|details?)"
)
_SAY = (
    r"(?:say|tell|mention|state|specify|show|indicate|contain|include|provide|give|"
    r"list|reveal|name|describe|address|point|answer|support|identify|disclose|note|"
    r"offer|allow|clarify|cover|discuss|suggest|help|establish|settle|make)(?:s|es)?"
)
_TELL = (
    r"(?:know|tell|say|determine|answer|identify|find|see|pick|provide|confirm|infer|"
    r"conclude|establish|judge|assess|decide|name|give|help|assist|access|share|"
    r"comply|respond|make (?:a|any|that)|be (?:sure|certain|determined)|"
    r"speculate|guess|point|pinpoint|single|choose|comment)"
)
_TOLD = (
    r"(?:determined|known|answered|established|inferred|concluded|said|identified|"
    r"ascertained|derived|told|deduced|decided|found|extracted|confirmed|assessed)"
)
_GIVEN = (
    r"(?:stated|mentioned|specified|given|known|recorded|documented|clear|available|"
    r"provided|determinable|indicated|listed|disclosed|noted|found|sure|certain|"
    r"answerable|addressed|described|included|evident|discernible|shown|named|covered|"
    r"obvious|apparent|reported|identified|determined|established)"
)
_KNOWLEDGE = (
    r"(?:information|data|evidence|details?|context|records?|basis|material|"
    r"documentation|access)"
)
_ADVERBS = (
    r"(?:(?:really|actually|explicitly|clearly|specifically|honestly|simply|quite|"
    r"currently|directly|exactly|reliably|definitively|entirely|completely|just|"
    r"unfortunately|sadly|yet|at all|fully|precisely|truly|even|itself|themselves|"
    r"confidently|accurately|possibly|also|therefore|so|still|to) ){0,3}"
)
_WHERE = r"(?:in|by|from|on|here|within|anywhere|explicitly|clearly|enough|about)"
_HOLD = r"(?:the |these |those |this |my |our |any |your |provided |given ){0,3}"

_REFUSING = (
    (
        rf"(?:i |we )?{_ADVERBS}(?:do|does|did) not {_ADVERBS}know(?! (?:him|her"
        r"|them|"
        r"me|you|us|anyone|anybody|each|one)\b)"
    ),
    (
        rf"(?:i |we |one |you |it ){_ADVERBS}(?:can|could|am|are|is|would|will)"
        rf" {_ADVERBS}(?:not|never) {_ADVERBS}(?:be able to )?{_ADVERBS}{_TELL}\b"
    ),
    (
        rf"(?:i |we ){_ADVERBS}(?:am|are) {_ADVERBS}not {_ADVERBS}"
        r"(?:sure|certain|able to|in a position)\b"
    ),
    (
        rf"(?:i |we ){_ADVERBS}(?:do|did) not {_ADVERBS}(?:have|see|find)"
        rf" (?:\w+ ){{0,6}}?{_KNOWLEDGE}\b"
    ),
    (
        rf"(?:i |we )?(?:have|see|find|found) (?:no|insufficient|too little)"
        rf" (?:\w+ ){{0,3}}?(?:{_KNOWLEDGE}|idea|way|answer|clue|mention)\b"
    ),
    rf"(?:i |we )?{_ADVERBS}(?:am |are |was )?{_ADVERBS}unable to {_TELL}\b",
    rf"can not {_ADVERBS}(?:know|tell|say|determine|answer|be {_ADVERBS}{_TOLD})\b",
    (
        rf"(?:could|does|do|did|will) not {_ADVERBS}(?:be {_ADVERBS}{_TOLD}|say"
        r"|tell)"
        r"(?: |$)"
    ),
    rf"(?:\w+ ){{1,10}}?(?:can|could) not {_ADVERBS}be {_ADVERBS}{_TOLD}\b",
    (
        rf"(?:\w+ ){{0,4}}?{_RECORDS} (?:\w+ ){{0,5}}?(?:do|does|did|can|could"
        r"|would)"
        rf" {_ADVERBS}not {_ADVERBS}{_SAY}\b"
    ),
    (
        rf"(?:\w+ ){{0,3}}?{_RECORDS} (?:\w+ ){{0,3}}?(?:is|are|was|were) "
        rf"{_ADVERBS}(?:silent|inconclusive|insufficient|not (?:conclusive|enough|"
        r"sufficient|clear|helpful|specific))\b"
    ),
    (
        rf"(?:\w+ ){{0,3}}?{_RECORDS} (?:\w+ ){{0,3}}?(?:has|have|contains?|gives?|"
        r"provides?|offers?|includes?|holds?|says?) (?:no|nothing|insufficient"
        r"|little)"
        rf"(?: \w+){{0,3}}? ?(?:{_KNOWLEDGE}|mention|answer|indication|clue"
        r"|about|on"
        r"|of this|reference|that)\b"
    ),
    (
        rf"(?:nothing|nowhere|none) (?:in |of |from |among )?{_HOLD}{_RECORDS}"
        rf" (?:\w+ ){{0,4}}?{_SAY}\b"
    ),
    (
        rf"no {_RECORDS} (?:\w+ ){{0,4}}?(?:{_SAY}|is|are|was|were|provided"
        r"|available|"
        r"given|found|in|on|about|to)\b"
    ),
    (
        r"(?:no|not enough|not sufficient|insufficient|too little) (?:\w+ ){0,2}?"
        r"(?:information|data|details?|context|documentation)\b"
    ),
    (
        rf"(?:there |here )(?:is|are|was|were) {_ADVERBS}(?:no|not (?:enough|any|a|"
        r"sufficient)|insufficient|nothing|too little) (?:\w+ ){0,4}?"
        rf"(?:information|data|details?|context|mention|way|indication|answer|"
        rf"reference|records?|documentation|basis|(?:evidence|{_HOLD}(?:in|from) "
        rf"{_HOLD}{_RECORDS})|to (?:say|tell|determine|answer|go|base|suggest))\b"
    ),
    (
        r"(?:not enough|insufficient|not sufficient|too little) (?:\w+ ){0,2}?"
        r"(?:evidence|basis)\b"
    ),
    (
        rf"(?:(?:it|that|this|which|the answer|the information) (?:is|are|was|were|"
        rf"remains?) |is |was )?{_ADVERBS}not {_ADVERBS}{_GIVEN}(?: {_WHERE}\b|"
        r" to\b|"
        r" (?:what|which|who|whom|whether|if|how|when|where|why|that|as|because"
        r"|since|based|for)\b|$)"
    ),
    (
        rf"the \w+(?: \w+){{0,3}}? (?:is|are|was|were) {_ADVERBS}not {_ADVERBS}"
        rf"(?:{_GIVEN}(?: anywhere)? (?:in|by|from) {_HOLD}{_RECORDS}\b|(?:stated|"
        r"mentioned|specified|recorded|documented|known|clear)$)"
    ),
    (
        rf"(?:(?:it|that|this) (?:is|was|would be|seems|may be) )?{_ADVERBS}"
        rf"(?:not {_ADVERBS}possible|impossible|hard|difficult|tough|tricky)"
        r" (?:for me )?to "
        rf"{_ADVERBS}{_TELL}\b"
    ),
    (
        rf"(?:(?:it|that|this|the (?:\w+ ){{1,4}}?) (?:is|are|was|were|remains?|"
        r"seems) )?(?:still )?"
        r"(?:unknown|unclear|undetermined|uncertain|unspecified|undisclosed"
        r"|unstated|"
        r"indeterminate|inconclusive|undeterminable|unanswerable)"
        rf"(?: {_WHERE}\b| (?:what|which|who|whether|if|how|when|where|why|as"
        r"|because|"
        r"since|based|to|for|given)\b|$)"
    ),
    (
        r"(?:there is |i have |i see )?no (?:way (?:to|of) |(?:idea|clue|answer)"
        r"(?:$| (?:in|can|is|here|what|which|who|how)\b)|"
        r"(?:clear|single|obvious|definite|definitive|one|clearly) (?:\w+ ){0,3}?"
        r"(?:answer|winner|majority|pattern|consensus)\b|majority$|common one$|"
        r"single one$)"
    ),
    (
        r"(?:there |it )(?:is|are) not (?:a|any) (?:clear|single|definite"
        r"|definitive|"
        r"obvious) (?:\w+ ){0,2}?(?:answer|winner|majority|pattern)\b"
    ),
    (
        r"none (?:\w+ )?(?:mentioned|stated|specified|given|listed|named|documented"
        r"|most common|clearly|stands out)\b"
    ),
    (
        rf"none of {_HOLD}{_RECORDS} (?:\w+ ){{0,6}}?(?:{_SAY}|is|are|was|were|has|"
        r"have|had|contain)\b"
    ),
    (
        rf"(?:nothing|not) (?:(?:is|was|are) )?(?:said|stated|mentioned|recorded|"
        rf"specified|in {_HOLD}{_RECORDS}|there)\b"
    ),
    (
        r"not (?:sure|certain|known|clear|stated|mentioned|specified|given"
        r"|available|"
        r"applicable|provided)$"
    ),
    (
        r"(?:an? )?(?:(?:three|two|four|3|2|4) way )?(?:tie|tied)$|(?:it is )?a"
        r" tie$|"
        r"(?:evenly )?split(?: evenly)?$|n a$|na$|unsure$"
    ),
    r"(?:the )?(?:question|this) can not be|this question is unanswerable",
    r"(?:i )?(?:would|will) need (?:more|further|additional|access)\b",
    # The same in the languages that are asked for most.
    r"(?:das |ich |wir )?(?:weiß|weiss|wissen) (?:ich |wir )?(?:es |das )?nicht\b",
    r"ich weiß es nicht|keine (?:angabe|angaben|information|informationen)\b",
    r"(?:yo )?no (?:lo )?s[eé]\b|no se (?:menciona|sabe|indica|especifica)\b",
    r"je ne sais pas\b|(?:je l )?ignore$|non (?:précisé|mentionné|indiqué)\b",
    r"non (?:lo )?so\b|(?:eu )?não sei\b|ik weet het niet\b|не знаю\b|я не знаю\b",
    r"(?:我 )?不 知 道|无 法 (?:确 定|判 断|回 答)|わ か り ま せ ん|不 明$",
)
"""What a clause begins with that refuses to answer."""

_REFUSALS = re.compile("|".join(f"(?:{pattern})" for pattern in _REFUSING))

_OPENINGS = re.compile(
    r"(?:(?:well|so|hmm|um|oh|sorry|unfortunately|sadly|regrettably|apologies|honestly|"
    r"frankly|okay|ok|sure|answer|the answer is|final answer|and|but|however|therefore|"
    r"thus|hence|also|please|note|that|because|since|as|i apologize|my apologies|"
    r"i am (?:so |very |really )?sorry|i am afraid|i regret|i fear|i must say|"
    r"i would say|i think|my answer is|it (?:seems|appears|looks)|"
    r"(?:based on|according to|from|given|in|judging by|going by|looking at|with|using|"
    r"after reviewing|after reading) (?:just |only )?(?:the |these |this "
    r"|those |what )?"
    r"(?:\w+ ){0,2}?"
    r"(?:records?|notes|information|data|context|documents?|text|passages?|reports?|"
    r"excerpts?|here|this|these|that|above|alone)(?: (?:provided|given|above|here|"
    r"alone|i have|you shared|available|shown))?"
    r"|as an? (?:large )?(?:ai|language|artificial)(?: intelligence)?"
    r"(?: language)?(?: model)?(?: assistant)?) )*"
)
_TURN = re.compile(
    r"\b(?:i would (?:\w+ )?(?:say|guess|go|pick|choose|lean|bet|suggest|opt|vote)|"
    r"if (?:i|you|we) (?:had|must|need)|if (?:forced|pressed|pushed)|"
    r"(?:best|educated|closest|my) (?:guess|answer|bet|match)|i (?:think|believe|"
    r"suspect|guess|lean)|would be (?:my|the))\b"
    r"|^(?:\w+ ){0,3}(?:most likely|more likely|probably|likely|perhaps|maybe|"
    r"presumably|seems|appears to be|suggests)\b"
)
_BUT = re.compile(r"^(?:but|however|still|nevertheless|yet)\b")
_EXCEPT = re.compile(r"\b(?:other than|except|besides|apart from|aside from|beyond)\b")
_NEGATIVE = re.compile(
    r"\b(?:not|no|none|nobody|nothing|never|neither|nor|without|only in|just)\b"
)
_COURTESY = re.compile(
    r"\b(?:happy to|glad to|let me know|if (?:there|more)|if you (?:share|"
    r"provide|have|can|could|send|give|tell|would|want)|please|would you|could you"
    r"|feel free|can help|more (?:data|records|information)|sorry|thank)\b"
)
_POINTING = re.compile(r"^(?:\w+ )?(?:that|this) (?:is|would be|could be|may be) ")
_SOME_WORDS = 30
_FEW = 3
_SUBJECT = re.compile(rf"{_HOLD}{_RECORDS}")


def clauses(read: Passage) -> list[list[Token]]:
    """Return a reply's words clause by clause, in order."""
    found: list[list[Token]] = []
    for token in read.tokens:
        if found and found[-1][-1].clause == token.clause:
            found[-1].append(token)
        else:
            found.append([token])
    return found


def refuses(read: Passage) -> int | None:
    """Return the number of words up to where a reply answers after all, if it refuses.

    Args:
        read: A reply.

    Returns:
        None where the reply does not begin by saying that it has no answer. Otherwise
        the place of the first word after "but", "if I had to choose" and the like; the
        number of all words where there is no such turn.
    """
    begin = 0
    spoken = clauses(read)
    for number, clause in enumerate(spoken):
        text = _plain(clause)
        if _is_refusal(text):
            return _turn(spoken[number + 1 :], begin + len(clause))
        if not _is_opening(text, clause, read):
            break
        begin += len(clause)
    return None


def says_nothing(text: str) -> bool:
    """Return whether a reply says that it has no answer, and gives none.

    A public rule about one reply, so it may turn that reply into an abstention. A hedge
    with an answer after it is an answer.

    Example:
        >>> says_nothing("I don't know."), says_nothing("I don't know him.")
        (True, False)
        >>> says_nothing("I'm not certain, but asthma.")
        False
    """
    return nothing_said(passage(text))


def nothing_said(read: Passage) -> bool:
    """Return whether a reply says nothing; see `says_nothing`."""
    turn = refuses(read)
    if turn is not None:
        return turn == len(read.tokens)
    if [token.word for token in read.tokens] in ([], ["n", "a"]):
        return True
    return _concludes_nothing(read)


def _concludes_nothing(read: Passage) -> bool:
    """Return whether a reply ends in "so I can't say"."""
    for clause in reversed(clauses(read)):
        text = _plain(clause)
        if _TURN.search(text):
            return False
        if clause[0].word in {"so", "therefore", "thus", "hence"} and _is_refusal(text):
            return True
    return False


def _plain(clause: list[Token]) -> str:
    """Return a clause's first words without short forms.

    Their number and length are bounded, and so is the time of every pattern.
    """
    words: list[str] = []
    for token in clause[:_SOME_WORDS]:
        word = token.word[:_SOME_WORDS]
        if token.item:
            continue
        word = _SHORT.get(word) or _AUXILIARIES.get(word) or word
        if word.endswith("n't"):
            word = f"{word[:-3]} not"
        words.append(word.replace("'", " "))
    return " ".join(words)


def _is_refusal(text: str) -> bool:
    bare = _OPENINGS.sub("", f"{text} ", count=1).rstrip()
    return _REFUSALS.match(bare) is not None and not _EXCEPT.search(bare)


def _is_opening(text: str, clause: list[Token], read: Passage) -> bool:
    """Return whether a clause only leads up to what is said."""
    whole = _OPENINGS.fullmatch(f"{text} ") is not None
    after = read.text[clause[-1].end : clause[-1].end + 2]
    question = text in {"good question", "great question", "interesting question"}
    subject = _SUBJECT.fullmatch(text) is not None
    return (
        whole or question or subject or (after.startswith("!") and len(clause) <= _FEW)
    )


def _turn(rest: list[list[Token]], begin: int) -> int:
    """Return the place of the first word after a turn, or of the end."""
    place = begin
    total = begin + sum(map(len, rest))
    reason = False
    sentence: int | None = None
    for clause in rest:
        text = _plain(clause)
        if clause[0].sentence != sentence:
            sentence, reason = clause[0].sentence, False
        reason = reason or clause[0].word in {"because", "since", "as", "which"}
        dull = _COURTESY.search(text) or _POINTING.match(text) or _is_refusal(text)
        turned = (_BUT.match(text) and len(clause) > 1) or (
            _TURN.search(text) and not reason
        )
        if turned and not dull and not _NEGATIVE.search(text):
            return place
        place += len(clause)
    return total
