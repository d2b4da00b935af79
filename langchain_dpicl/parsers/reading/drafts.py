"""The options that a model drafted, read from a reply that may hold other text.

The rules, in this order:

1. If there is a code fence, only its text is read.
2. A JSON list or object gives its strings, also one that is cut off: of objects the
   "option", "answer", "label", "name", "text" or "value", or else the first string.
3. Where lines are numbered or have bullets, only these are options.
4. Other lines are options unless they are remarks: an introduction that ends in a
   colon, a note, a sentence, something said in the first person.
5. A single line may list its options with commas, semicolons or bars.

A remark after an option ("asthma - a common one", "COPD: rarer") is cut off. Options
that differ only in case, punctuation or inflection are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from langchain_dpicl.parsers.reading.denials import ARTICLES
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.parsers.reading.text import LONGEST, passage, spelled, word_set

MOST_WORDS = 10
"""Words of the longest option; what is longer is a sentence."""

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.MULTILINE)
_JSON = re.compile(r"""[\[{]\s{0,200}["'{\[]""")
_JSON_TOKEN = re.compile(
    r"""\s+|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.|(?<=\w)'(?=\w))*)'|([\[\]{}:,])"""
    r"""|[^\s\[\]{}:,"']+|["']""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROLS = {"n": " ", "t": " ", "r": " ", "b": "", "f": ""}
_KEYS = ("option", "answer", "label", "name", "text", "value", "title")
_MARKER = re.compile(
    "^([ \t]{0,20}(?:>[ \t])?)(?:[-*+\u2022\u25aa\u25cf\u25e6\u2013\u2014\u00b7]"
    r"(?:[ \t]+\[[ xX]?\])?[ \t]+|[*_]{0,2}\(?(?:\d{1,3}|[a-zA-Z])[.):][*_]{0,2}"
    r"(?:[ \t]+|(?=\*\*|[^\W\d]{2})))(?=\S)"
)
_INLINE = re.compile(r"(?:^|[\s,;])\(?\d{1,2}[.)]\s+(?=\S)")
_MARKUP = re.compile(r"\*\*|__|`|</?[a-z]{1,10}>|\\(?=[_*#])")
_SPACES = re.compile(r" {2,}")
_REMARK = re.compile(
    " (?:-{1,3}|\u2013|->|=>|\u2192|//) |\u2014|: |; |\t| \\| |[.!?] (?=\\S)"
)
_BRACKET = re.compile(r"\s*[(\[]([^()\[\]]*)(?:[)\]]|$)[\s.,;:]*$")
_UNKEPT = word_set(
    "also approx common commonly e.g eg especially example frequent frequently high "
    "i.e ie least less likelihood likely low maybe medium more most mostly often "
    "perhaps plausible possible possibly probable probably rare rarely rarer unlikely "
    "usually very"
)
_KEPT_WORDS = 3
_OPENERS = re.compile(
    r"(?:note|notes|n\.?b|disclaimer|caveat|remember|keep in mind|please|hope this|let "
    r"me|feel free|if you|i|i'm|i'd|i've|i'll|we|sure|certainly|of course|absolutely|"
    r"okay|ok|great question|good question|sorry|unfortunately|apologies|as an ai|"
    r"here|here's|below|based on|without|according to|depending on|in summary|overall|"
    r"however|the following|the above|the actual|the exact|the real|the true|"
    r"these (?:are|options|answers|were|could|may|might|possib)|"
    r"those are|this (?:is|list|depends)|ranked|ordered|sorted|answers are|"
    r"possible (?:short )?(?:answers|options|labels)|options|output|answer key|json|"
    r"would you|do you|thank|in order)\b"
)
_ALWAYS = word_set(
    "sure certainly absolutely okay ok sorry note notes json options output"
)
_LIST = re.compile(
    r"^[^,;]{0,80}?\b(?:are|is|include|includes|included|be|as|like)\b:?\s+(?=\S)"
)
_LEAD = re.compile(
    r"^(?:(?:some|the|these|possible|likely|common|plausible|most|short|answers?|"
    r"options?|candidates?|here|it|they|could|might|may)\s+){1,6}",
    re.IGNORECASE,
)
_AND = re.compile(r"^(?:and|or|und|oder|et|ou|y|o)\s+", re.IGNORECASE)
_LAST_AND = re.compile(r"\s+(?:and|or)\s+", re.IGNORECASE)
_SENTENCE_WORDS = 6
_ITEM_WORDS = 6
_REFUSED = frozenset(
    {
        "none",
        "none of these",
        "none of the above",
        "n/a",
        "na",
        "other",
        "others",
        "etc",
    }
)
_STRIPPED = " \t\n\r\"'`*_.,;:!?|"


def read_drafts(reply: str, max_labels: int) -> list[str]:
    r"""Return the options that a model drafted, at most `max_labels`, in its order.

    The reply is public: it answers the question alone.

    Args:
        reply: What the model wrote.
        max_labels: Most options to take.

    Returns:
        Different options without remarks; empty where the model refuses.

    Example:
        >>> read_drafts("Sure!\n1. **Asthma** - common\n2. COPD\n3. asthma", 8)
        ['Asthma', 'COPD']
        >>> read_drafts('["asthma", "COPD", "lung can', 8)
        ['asthma', 'COPD']
    """
    text = _unfenced(spelled(reply)[:LONGEST])
    found = _json_strings(text)
    options = map(_cleaned, _line_options(text) if found is None else found)
    different: dict[str, str] = {}
    for option in options:
        key = _key(option)
        if key and not _no_option(option):
            different.setdefault(key, option)
        if len(different) >= max_labels:
            break
    return list(different.values())[: max(max_labels, 0)]


def _unfenced(text: str) -> str:
    """Return the text in code fences, or the whole text if there are none."""
    parts = _FENCE.split(text)
    inside = "\n".join(parts[1::2]).strip()
    return inside or "\n".join(parts)


def _key(option: str) -> str:
    tokens = passage(option).tokens
    kept = [token.stem for token in tokens if token.word not in ARTICLES]
    return "".join(kept or [token.stem for token in tokens])


def _no_option(option: str) -> bool:
    plain = " ".join(option.casefold().split())
    long = len(option.split()) > MOST_WORDS
    return long or plain in _REFUSED or says_nothing(option)


def _cleaned(option: str) -> str:
    """Return an option without markup, remark and punctuation around it."""
    option = _MARKUP.sub("", option).strip(_STRIPPED)
    option = _SPACES.sub(" ", option)
    head = _REMARK.split(option, maxsplit=1)[0].strip(_STRIPPED)
    option = head or option
    match = _BRACKET.search(option[-200:])
    if match and not _worth_keeping(match[1]):
        option = option[: len(option) - len(match[0])] or option
    elif match and not match[0].rstrip(_STRIPPED).endswith((")", "]")):
        option = f"{option})"
    return " ".join(_AND.sub("", option.strip(_STRIPPED)).split())


def _worth_keeping(inside: str) -> bool:
    """Return whether brackets hold another name and no remark."""
    words = inside.casefold().split()
    return (
        0 < len(words) <= _KEPT_WORDS
        and not any(sign in inside for sign in ",;:%=/?!")
        and not any(word.strip(".") in _UNKEPT or word[:1].isdigit() for word in words)
    )


def _line_options(text: str) -> list[str]:
    """Return the lines that are options."""
    lines = [line for line in text.split("\n") if line.strip()]
    marked = [(line, _MARKER.match(line)) for line in lines]
    inline = _inline(lines)
    if inline:
        return inline
    rows = [(line, match) for line, match in marked if match]
    if len(rows) > 1 or (rows and len(lines) == 1):
        outer = min(len(match[1].expandtabs(4)) for _, match in rows)
        taken = [
            line[match.end() :]
            for line, match in rows
            if len(match[1].expandtabs(4)) <= outer + 1
        ]
        return [line for line in taken if not _is_remark(line, marked=True)]
    cells = _table(lines)
    if cells:
        return cells
    plain = [match.re.sub("", line) if match else line for line, match in marked]
    kept = [line for line in plain if not _is_remark(line, marked=False)]
    if len(kept) <= 1:
        listed = [option for line in kept or plain for option in _listed(line)]
        return listed or kept
    return kept


def _inline(lines: list[str]) -> list[str]:
    """Return the options of "1. asthma 2. COPD" within one line."""
    for line in lines:
        if len(_INLINE.findall(line)) > 1:
            return [part for part in _INLINE.split(line)[1:] if part.strip()]
    return []


def _table(lines: list[str]) -> list[str]:
    """Return the first cells with letters of a table's rows, without its head."""
    rows = [line.strip() for line in lines if line.strip().startswith("|")]
    if len(rows) < _KEPT_WORDS:
        return []
    ruled = [i for i, row in enumerate(rows) if not set(row) - set("|-: ")]
    body = rows[ruled[0] + 1 :] if ruled else rows
    cells = ([cell.strip() for cell in row.strip("|").split("|")] for row in body)
    return [
        next((cell for cell in row if any(map(str.isalpha, cell))), "") for row in cells
    ]


def _is_remark(line: str, *, marked: bool) -> bool:
    """Return whether a line is about the options and is not an option."""
    bare = _SPACES.sub(" ", _MARKUP.sub("", line).strip(" \t\"'*_#>"))
    folded = bare.casefold()
    words = folded.split()
    if not words or bare.endswith(":") or says_nothing(bare):
        return True
    opener = _OPENERS.match(folded.lstrip("("))
    if opener and len(words) == 1:
        return opener[0] in _ALWAYS
    if opener and (len(words) > _KEPT_WORDS or folded.endswith(("!", ":"))):
        return True
    if opener and opener[0] in _ALWAYS and folded[opener.end() :][:1] in set(":,!."):
        return True
    head = _REMARK.split(bare, maxsplit=1)[0]
    if marked:
        return len(head.split()) > MOST_WORDS
    sentence = len(words) > _SENTENCE_WORDS and bare.endswith((".", "!", "?"))
    bracketed = bare.startswith("(") and bare.endswith((")", ").")) and len(words) > 1
    return sentence or bracketed or len(head.split()) > MOST_WORDS


def _listed(line: str) -> list[str]:
    """Return the options that one line lists, if it lists any."""
    bare = _MARKUP.sub("", line).strip(" \t\"'*_#>.[]")
    if ":" in bare:
        lead, _, rest = bare.partition(":")
        if rest.strip() and ("," in rest or ";" in rest or "|" in rest):
            bare = rest
        elif "," in lead:
            bare = lead
    if _LEAD.match(bare):
        bare = _LIST.sub("", bare, count=1)
    for sign in (";", "|", " / ", ","):
        parts = [part.strip() for part in bare.split(sign)]
        if len(parts) > 1:
            *first, last = parts
            # "A, B and C" ends in two options; "food and drink" stays one.
            ends = (
                [last]
                if _AND.match(last) or sign != ","
                else _LAST_AND.split(last, maxsplit=1)
            )
            options = [part for part in (*first, *ends) if part]
            short = all(len(option.split()) <= _ITEM_WORDS for option in options)
            return options if short and not says_nothing(line) else []
    return []


def _json_strings(text: str) -> list[str] | None:
    """Return the strings of the first JSON value; None if there is none."""
    begin = _JSON.search(text)
    if begin is None:
        return None
    reader = _JsonReader()
    for match in _JSON_TOKEN.finditer(text, begin.start()):
        if not reader.take(match):
            break
    return list(reader.strings())


class _JsonReader:
    """Collects strings of JSON that may have commas too many, or be cut off."""

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.objects: list[list[tuple[str, str]]] = []
        self.lists: list[str | list[tuple[str, str]]] = []
        self.alone: list[list[tuple[str, str]]] = []
        self.key: str | None = None
        self.text: str | None = None

    def take(self, match: re.Match[str]) -> bool:
        """Take one token; return whether the value goes on."""
        string = match[1] if match[1] is not None else match[2]
        if string is not None:
            self.text = _unescaped(string)
            return True
        sign = match[3]
        if match[0] in {'"', "'"}:
            return False  # The text ends within a string.
        if sign == ":":
            self.key, self.text = self.text, None
        elif sign == ",":
            self._keep()
        elif sign is not None and sign in "[{":
            self.stack.append(sign)
            self.key = self.text = None
            if sign == "{":
                self.objects.append([])
        elif sign is not None:
            self._keep()
            self._close(sign)
            return bool(self.stack)
        return True

    def _keep(self) -> None:
        if self.text is not None and self.stack:
            if self.stack[-1] == "[":
                self.lists.append(self.text)
            elif self.objects:
                self.objects[-1].append((self.key or "", self.text))
        self.key = self.text = None

    def _close(self, sign: str) -> None:
        self.stack.pop()
        if sign == "}" and self.objects:
            done = self.objects.pop()
            if self.stack[-1:] == ["["]:
                self.lists.append(done)
            else:
                self.alone.append(done)

    def strings(self) -> Iterator[str]:
        """Yield the options: those of lists, or else those of an object."""
        self._keep()
        if self.lists:
            for item in self.lists:
                if isinstance(item, str):
                    yield item
                elif item:
                    named = {key.casefold(): value for key, value in reversed(item)}
                    known = (named[key] for key in _KEYS if key in named)
                    yield next(known, item[0][1])
            return
        for pairs in [*self.alone, *self.objects]:
            yield from (value for _, value in pairs)


def _unescaped(text: str) -> str:
    def sign(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _CONTROLS.get(match[2], match[2])

    return _ESCAPE.sub(sign, text)
