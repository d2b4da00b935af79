"""How the offline next-token model reads a prompt, cuts texts up and spells them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from langchain_dpicl.common.slots import hidden_repr
from langchain_dpicl.offline.words import STOP_STEMS, stem, word_set

END = ""  # The token that ends a text; it spells nothing.
_TOKEN = re.compile(
    r"\d+(?:[.,]\d+)*(?:(?:s|st|nd|rd|th)\b)?"
    r"|[^\W\d_]+(?:'(?!s\b)[^\W\d_]+)*"
    r"|'s\b|(?<=\w)-(?=\w)|[-\u2013\u2014]+|[.,;:!?()$%&/]"
)
_COMPOUND = re.compile(r"(?<=[a-z])(?=[A-Z])|_")
_APOSTROPHES = str.maketrans({"\u2019": "'", "\u2018": "'"})
_DASH = "\u2013"
_DASHES = "-\u2013\u2014"
_HYPHEN = "-"
_NO_SPACE_BEFORE = frozenset(".,;:!?)%/") | {_HYPHEN, "'s", END}
_NO_SPACE_AFTER = frozenset("($/") | {_HYPHEN}
_SENTENCE_ENDS = frozenset(".!?")
_TASK_STEMS = frozenset(
    map(
        stem,
        word_set(
            """
            accordingly answer base category class example follow generate give kind
            label make match produce sample sentence short similar text title topic type
            word write
            """
        ),
    )
)
"""Words of instructions that say what to do and not what about."""

_BLANK = re.compile(r"\n[ \t]*\n\s*")
_QUOTES = "\"'\u201c\u2018`"
_CLOSING = "\"'\u201d\u2019`"


def cut(text: str) -> list[str]:
    """Return the tokens of a text, as they are written.

    Quotation marks are left out: nothing tells whether they open or close.

    Example:
        >>> cut("Who's Ann's well-known uncle?")
        ['Who', "'s", 'Ann', "'s", 'well', '-', 'known', 'uncle', '?']
    """
    text = text.translate(_APOSTROPHES)
    found: list[str] = _TOKEN.findall(text)
    if any(dash in text for dash in _DASHES):
        found = [_dash(text, match) for match in _TOKEN.finditer(text)]
    return found


def _dash(text: str, match: re.Match[str]) -> str:
    """Return a match; a hyphen joins the parts of a word, other dashes are one."""
    token = match[0]
    if token[0] not in _DASHES:
        return token
    joins = match.start() and text[match.start() - 1].isalnum()
    joins = joins and text[match.end() : match.end() + 1].isalnum()
    return _HYPHEN if joins and token == _HYPHEN else _DASH


def spell(written: Iterable[str]) -> str:
    """Return the text that tokens make, with capitals where sentences start.

    Example:
        >>> spell(["who", "'s", "well", "-", "known", "?", "ann", "."])
        "Who's well-known? Ann."
    """
    pieces: list[str] = []
    starts, glued = True, True
    for token in written:
        if token == END:
            continue
        if not glued and token not in _NO_SPACE_BEFORE:
            pieces.append(" ")
        pieces.append(token[:1].upper() + token[1:] if starts else token)
        glued = token in _NO_SPACE_AFTER
        starts = token in _SENTENCE_ENDS or (starts and not token[0].isalnum())
    return "".join(pieces)


class Vocabulary:
    """The tokens that can be generated: public, numbered, `END` first.

    `words` belong to it in any case; the passages' most frequent words fill it up.
    """

    def __init__(
        self, words: Iterable[str], passages: Iterable[Sequence[str]], size: int
    ) -> None:
        counts: Counter[str] = Counter()
        forms: dict[str, Counter[str]] = {}
        for passage in passages:
            before = "."
            for token in passage:
                folded = token.casefold()
                counts[folded] += 1
                if before not in _SENTENCE_ENDS:
                    forms.setdefault(folded, Counter())[token] += 1
                before = token
        listed = {word.casefold(): word for word in words}
        frequent = sorted(counts, key=lambda word: (-counts[word], word))
        chosen = list(dict.fromkeys([END, *listed, *frequent]))[:size]
        self.words = tuple(chosen)
        self.ids = {word: at for at, word in enumerate(chosen)}
        self.written = tuple(
            listed.get(word) or (_usual(forms[word]) if word in forms else word)
            for word in chosen
        )

        self.content = tuple(
            word[:1].isalnum() and stem(word) not in STOP_STEMS for word in chosen
        )
        self._about = tuple(
            content and stem(word) not in _TASK_STEMS
            for word, content in zip(chosen, self.content, strict=True)
        )

    def __len__(self) -> int:
        return len(self.words)

    @property
    def before_start(self) -> int:
        """What stands before a text's first token."""
        return len(self.words)

    @property
    def unknown(self) -> int:
        """What stands for tokens that are not in the vocabulary."""
        return len(self.words) + 1

    def encode(self, text: str) -> list[int]:
        """Return a text's tokens as ids, `unknown` for those outside."""
        return self.encode_tokens(cut(text))

    def subject(self, text: str) -> list[int]:
        """Return the tokens of an instruction that say what about, each once.

        Compound names are taken apart: "PlaceOfBirth", "place_of_birth".
        """
        parts = _COMPOUND.sub(" ", text)
        known = (token for token in self.encode(parts) if token < len(self))
        return list(dict.fromkeys(token for token in known if self._about[token]))

    def encode_tokens(self, tokens: Iterable[str]) -> list[int]:
        """Return tokens as ids; see `encode`."""
        unknown, ids = self.unknown, self.ids
        return [ids.get(token.casefold(), unknown) for token in tokens]


def _usual(forms: Counter[str]) -> str:
    return min(forms, key=lambda form: (-forms[form], form))


class Shown(NamedTuple):
    """A prompt, taken apart."""

    frame: str  # The text before the first exemplar: the instruction.
    label: str  # What the cue's lines say of the text that is to come: its label.
    exemplars: tuple[str, ...]  # The exemplars, in the prompt's order.

    def __repr__(self) -> str:
        return hidden_repr(self)


def shown(prompt: str) -> Shown:
    r"""Take a prompt apart whose end waits for a text.

    The last lines of a prompt, its cue ("Label: sports", "Text:"), stand before every
    exemplar too, as templates repeat. Nothing else is needed to find the exemplars, and
    any template will do.

    Example:
        >>> tuple(shown("Write.\n\nLabel: a\nText: x y\n\nLabel: a\nText:"))
        ('Write.', 'a', ('x y',))
        >>> shown('Type: "Who"\nText: "An x."\n\nType: "Who"\nText: "').exemplars
        ('An x.',)
    """
    text = prompt.replace("\r\n", "\n").strip()
    block = _BLANK.split(text)[-1]
    head, _, cue = block.rpartition("\n")
    label = " ".join(line.partition(":")[2] or line for line in head.split("\n"))
    frame, *pieces = _split(text, block)
    if not pieces and head:
        frame, *pieces = _without_heads(_split(text, cue), head.count("\n") + 1)
    exemplars = (_unquoted(piece, cue) for piece in pieces)
    return Shown(frame.strip(), label.strip(), tuple(x for x in exemplars if x))


def _split(text: str, mark: str) -> list[str]:
    """Return what stands before, between and after lines that begin with the mark.

    The mark at the very end is where the model goes on: nothing stands after it. No
    regular expression of the mark: Python keeps those, and a prompt may be private.
    """
    first, *others = f"\n{text.removesuffix(mark)}".split(f"\n{mark}")
    return [first.removeprefix("\n"), *others]


def _without_heads(pieces: list[str], most: int) -> list[str]:
    """Take away the lines at the end of all pieces that lead to the next cue.

    They say the same of different texts: what stands before their colon is equal.
    """
    for _ in range(most):
        parts = [piece.rstrip().rpartition("\n") for piece in pieces]
        if len({line.partition(":")[0] for _, _, line in parts}) > 1:
            break
        pieces = [before for before, _, _ in parts]
    return pieces


def _unquoted(piece: str, cue: str) -> str:
    piece = piece.strip()
    if cue[-1:] and cue[-1] in _QUOTES:
        piece = piece.rstrip(_CLOSING)
    return piece
