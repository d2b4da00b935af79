"""What every report says alike: about the promise, who sees what, and what is left out.

The pages of the docs say more: the guarantee, and what is not protected.
"""

from __future__ import annotations

from dataclasses import dataclass

PUBLIC = (
    "This page holds public facts of the account: its terms, its charges, and what the "
    "operator wrote. No record, no unit id, no salt and no unit's own balance stands "
    "in it."
)
NEIGHBORS = (
    "Two collections of records are neighbors if one is the other plus all records of "
    "one unit. A unit is added or removed, and nothing else.",
    "Some answers also state a relation of a slot, add_remove or replace. This is a "
    "consequence, not another kind of neighbor. Records are asked in groups, and a "
    "slot is the place of one group. A keyed hash assigns each unit to one group. So "
    "one unit more or less changes at most one slot: the slot appears or vanishes "
    "(add_remove), or it says something else (replace). The noise is set for that "
    "change.",
    "To exchange one person for another is to remove one and to add one. It counts as "
    "two units in the table of households.",
)
AGAINST = (
    "Protected is every unit, against anybody who chooses the questions, sees all "
    "answers with their records, and knows the records of all other units. Nobody can "
    "tell from the answers whether the unit's records were there, beyond epsilon and "
    "delta."
)
CHANGES = (
    "A unit is its id, not a version of its records. Records that are added, corrected "
    "or deleted while the account is open are records of the same unit. One epsilon "
    "covers all versions together, over the whole life of the account.",
    "A unit whose records are deleted loses nothing more. What was released before "
    "stays released, and stays charged.",
    "Assumed: how the records of the others change does not depend on this unit's "
    "records, except through what was released.",
)
CHANGES_UNIT = (
    "A unit that comes later starts with its whole balance. Deleting its records "
    "leaves the balance: the same id never gets a new one."
)
CHANGES_CORPUS = (
    "A unit that comes later is protected by the same total, and has taken part in "
    "fewer releases."
)
ASSUMPTIONS = (
    "One id is one person, and every record carries the id of the person whom it is "
    "about.",
    "What is given for a unit was read and parsed without regard to other units.",
    "The model answers each prompt by itself: no reply depends on another group's "
    "prompt, and the same holds for embeddings.",
    "Questions, labels, prompts, schemas and parameters were chosen without looking "
    "at the records.",
    "The ledger is not rolled back, and all releases over these records are charged "
    "to accounts that this report or another one names.",
    "The operating system's random numbers are secret and unpredictable.",
)
ACTORS = (
    ("provider of the model", "prompts with records of the groups", "trusted"),
    ("provider of the embeddings", "texts of records, one unit a call", "trusted"),
    ("operator", "records, index, salt, ledger", "trusted"),
    ("callers", "questions, answers and their public records", "not trusted"),
    ("everybody else", "whatever callers pass on", "not trusted"),
    ("auditors", "this page; audits on request of the operator", "trusted with audits"),
)
"""Who there is, what they see, and whether the proof needs to trust them."""

NOT_COVERED = (
    ("The provider of the model", "It reads the prompts, and so the records in them."),
    ("Time and bill", "Calls are padded; their length and the retries are not."),
    ("What everybody shares", "A fact that holds without the person comes out."),
    ("Groups of people", "A household loses more than one person: see the table."),
    ("Ids that are wrong", "A person with two ids is protected half as well."),
    ("Answers that depend on each other", "Batches or caches that tie prompts."),
    ("What the application adds", "Parameters that were looked up in the records."),
    ("Several accounts", "Each is a promise of its own, and the promises add up."),
    ("The ledger", "Whoever can write to it can make it forget."),
    ("Places that code can't close", "Crash reports, debuggers, snapshots of memory."),
)
"""The page "What is not protected" has all of it, under these titles among others."""

FACTS = {
    "controller": "Who is responsible for the records",
    "contact": "How to reach them",
    "operator": "Who runs the service and keeps the ledger",
    "provider": "Whose models read the records, and under which agreement",
    "callers": "Who may ask",
    "people": "Whose records they are, and about how many people",
    "records": "What the records are, and where they come from",
    "purpose": "What the answers are for",
    "legal_basis": "On which legal basis",
    "unit_check": "How it was checked that one id is one person",
    "why_epsilon": "Why this epsilon and this delta",
    "other_releases": "What else is released of the same records",
    "minimization": "Whether less could be collected",
    "security": "How records, index, salt and ledger are kept; encryption at rest",
    "bias": "Whose answers get worse by the noise, and what is done about it",
    "region": "Which region, and whose law",
    "sector": "Which sector",
    "curator_type": "Government, Industry or Nonprofit",
    "signed_by": "Who signs",
    "signed_on": "When",
    "valid_until": "Until when",
}
"""What only the operator can say, by name; all of it is optional."""


@dataclass(frozen=True)
class Question:
    """One of the hazards that NIST SP 800-226 names, as a question.

    Attributes:
        section: Where it stands in the publication.
        text: The question, in our words.
        answer: What the library knows.
        facts: What the operator has to say, by the names of `FACTS`.
    """

    section: str
    text: str
    answer: str
    facts: tuple[str, ...] = ()


def _asked(section: str, text: str, answer: str, facts: str = "") -> Question:
    return Question(section, text, answer, tuple(facts.split()))


NIST = (
    _asked(
        "2.2 The privacy parameter",
        "Is epsilon small enough to mean something?",
        "Epsilon is {epsilon:g} for the whole account, and {spent:.3g} is spent. "
        "Somebody who was 50 % sure gets at most {sure} sure. NIST calls epsilon up to "
        "1 conservative, and says that values up to 20 are in use.",
        "why_epsilon",
    ),
    _asked(
        "2.3 Variants",
        "Can privacy fail outright, with probability delta?",
        "Delta is {delta:g} in all. The library refuses a delta of one over the number "
        "of units or more. {failing}",
    ),
    _asked(
        "2.4 The unit of privacy",
        "Does the unit cover what a person would call an invasion?",
        "{unit} The whole history of a unit counts, not an event or a day.",
        "unit_check people",
    ),
    _asked(
        "2.5 Comparing guarantees",
        "Can the figures be compared with others?",
        "The curve gives epsilon at every delta. Unit, relation, noise and events are "
        "stated, so that anybody can convert them anew.",
    ),
    _asked(
        "2.6 Other releases",
        "Is anything released of the same records without noise, or from another "
        "account?",
        "The ledger knows its own accounts alone.",
        "other_releases",
    ),
    _asked(
        "3 Algorithms",
        "Are the mechanisms of one's own making?",
        "Published mechanisms, each proven in one file and tested against exact laws. "
        "A second accountant checks the first. No outside body has certified them.",
    ),
    _asked(
        "3.2, 3.3 Utility and bias",
        "Does the noise make answers worse, and for whom?",
        "Where the groups do not agree clearly, nothing comes out. So what few people "
        "have in common comes out more rarely.",
        "bias",
    ),
    _asked(
        "3.7 Unstructured data",
        "Is it clear whose data a text is?",
        "A text belongs to the id that it carries. Other people whom it mentions are "
        "not protected by that id.",
        "unit_check records",
    ),
    _asked(
        "4.1 Query model",
        "What holds where anybody may ask anything, again and again?",
        "The account is charged, durably, before any group is asked. It is never "
        "overspent and gives no refunds. When it is spent, questions are refused.",
        "callers",
    ),
    _asked(
        "4.2 Threat model",
        "Who is trusted, and do they deserve it?",
        "Central model: the operator and the providers see records, and callers do "
        "not.",
        "operator provider",
    ),
    _asked(
        "4.3 Implementation",
        "Do floating point, time or errors give anything away?",
        "Noise is drawn over integers, exactly, from the operating system. Calls are "
        "padded to a public number. Errors hold no private text. Time is not covered.",
    ),
    _asked(
        "4.4 Security and access",
        "Are the records and what is made of them kept safe?",
        "The table of files shows who may read them. The library does not encrypt.",
        "security",
    ),
    _asked(
        "4.5 Data collection",
        "Need the data be collected at all?",
        "No library can say.",
        "minimization purpose",
    ),
)
"""Sections as in the initial public draft of December 2023."""
