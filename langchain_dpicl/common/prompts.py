"""The prompts' fixed text: public, and the same for every group.

The two keyword prompts are those of Wu, Panda, Wang and Mittal, *Privacy-Preserving
In-Context Learning for Large Language Models* (ICLR 2024), Algorithm 3: the words
"with the following word suggestions" are theirs.
"""

from __future__ import annotations

from langchain_core.messages import HumanMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import (
    ChatPromptTemplate,
    PromptTemplate,
)

GROUP_PROMPT = ChatPromptTemplate.from_template(
    "Answer the question from the records below. {format_instructions}\n\n"
    "Question: {question}\n\nRecords:\n{context}\n\nAnswer:"
)
"""What each group is asked; `context` holds the group's records, and
`format_instructions` says how the parser wants to be answered."""

SENTENCE_INSTRUCTIONS = (
    'Answer in one short sentence. If the records do not say, answer "I don\'t know."'
)
"""How to answer where the meaning counts."""

KEYWORD_INSTRUCTIONS = (
    "Reply with the answer alone: at most three words, no sentence, no explanation. "
    'If the records do not say, answer "I don\'t know."'
)
"""How to answer where words are counted."""

NONE_OF_THESE = "none of these"
"""The last option of every choice."""

CHOICE_INSTRUCTIONS = (
    "Choose one option: the one that the records support best. Answer with that option "
    f'alone. If the records support none of them, answer "{NONE_OF_THESE}".\n\n'
    "Options:\n{options}"
)
"""How to choose; `options` are lines."""

OPTION_INSTRUCTIONS = (
    "Choose one option: the one that the records support best. Answer with that option "
    "alone.\n\nOptions:\n{options}"
)
"""The same where the options' likelihoods are read: one of them comes next."""

LETTER_INSTRUCTIONS = "Answer with one letter alone:\n{options}"
"""What ends a prompt whose answer is the letter of an option; `options` are lines."""

DRAFT_PROMPT = ChatPromptTemplate.from_template(
    "List the possible answers to the question below, likeliest first: at most "
    "{max_labels}. Write each one as briefly as it can be said, all of one kind and no "
    "two of the same meaning, one a line, and nothing else. The answer will be looked "
    "up in records that you do not see.\n\n"
    "Question: {question}\nPossible answers:"
)
"""The question alone: what could be answered. No record takes part."""

READING_PROMPT = ChatPromptTemplate.from_template(
    "Fill in the fields below from the records of one person. For each field choose "
    "the one value of its list that the records support best, word for word; where "
    "several do, the main one. Where the records do not tell, take the last one.\n\n"
    "Fields:\n{columns}\n\n"
    "Reply with one JSON object that has these fields as its keys, in this order, and "
    "nothing else.\n\nRecords:\n{records}\n\nJSON:"
)
"""One unit's records alone, and the columns of a public schema to fill in."""

VALUES_PROMPT = ChatPromptTemplate.from_template(
    "A table is about to be made of records that you do not see. List the values that "
    "its columns can have, from general knowledge.\n\n"
    "What the records are: {about}\nIts columns:\n{columns}\n\n"
    "For each column: at most {max_values} values, likeliest first; each as briefly "
    "as it can be said; all of one kind; no two of the same meaning, none a part "
    'of another one. Add "none" where somebody may have none. Leave out "other" '
    'and "unknown".\n\n'
    "Reply with one JSON object, from each column's name to the list of its values, "
    "and nothing else.\n\nJSON:"
)
"""A schema's values from what everybody may know. No record takes part."""

PUBLIC_PROMPT = ChatPromptTemplate.from_template(
    "Answer the question in one short sentence. If you do not know, answer "
    '"I don\'t know."\n\nQuestion: {question}\nAnswer:'
)
"""The zero-shot question: no record takes part."""

FACTS_PROMPT = ChatPromptTemplate.from_template(
    "Answer the question from the facts below, in one or two short sentences, with "
    'their numbers. If they do not tell, answer "I don\'t know."\n\n'
    "Facts:\n{context}\n\nQuestion: {question}\nAnswer:"
)
"""A question to released facts; no record takes part."""

KEYWORD_PROMPT = ChatPromptTemplate.from_template(
    "Answer the question in one short sentence, with the following word "
    "suggestions: {keywords}\n\nQuestion: {question}\nAnswer:"
)
"""The rewrite after propose-test-release: an unordered set of words."""

RANKED_KEYWORD_PROMPT = ChatPromptTemplate.from_template(
    "Answer the question in one short sentence, with the following word "
    "suggestions ranked by their frequency from high to low: {keywords}\n\n"
    "Question: {question}\nAnswer:"
)
"""The rewrite after the joint exponential mechanism: words in rank order."""

DOCUMENT_PROMPT = PromptTemplate.from_template("{page_content}")
"""How one record is written into the context."""

DOCUMENT_SEPARATOR = "\n\n---\n\n"
"""What stands between two records of a context."""

FEW_SHOT_CUE = "Label: {label}\nText:"
"""Where a new example begins: the model goes on after it."""

ABSTAIN_TEXT = (
    "No answer leads clearly, so none can be given without the risk of giving a single "
    "person's information away."
)
"""The refusal where no answer leads clearly."""

FALLBACK_NOTE = "From general knowledge, not from the records:"
"""What stands before the model's own answer, which no record had a part in."""


def plain_text(prompt: PromptValue) -> str:
    """Return a prompt as a plain text: a single human message is its text.

    Example:
        >>> from langchain_core.prompt_values import StringPromptValue
        >>> plain_text(StringPromptValue(text="Why?"))
        'Why?'
    """
    messages = prompt.to_messages()
    is_single = len(messages) == 1 and isinstance(messages[0], HumanMessage)
    return str(messages[0].text) if is_single else prompt.to_string()
