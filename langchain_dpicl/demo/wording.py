"""What the generated clinic's notes are made of: facts, names, and phrasings.

Phrasings of one fact share few content words on purpose. Where all notes use the
same verb, this verb ties with the answer at the top of every word count and takes the
gap that a private release needs.
"""

from __future__ import annotations

from typing import NamedTuple


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


class Condition(NamedTuple):
    """A diagnosis, what is typical of it, and what else occurs."""

    name: str
    drugs: tuple[str, ...]  # The usual drug first.
    effects: tuple[str, ...]  # Side effects of the usual drug, the dominant one first.
    topic: str  # What the notes on this diagnosis talk about besides.
    values: tuple[str, ...]  # What patients say to the topic, the dominant value first.


# The clinic's diagnoses; a patient has two of them.
CONDITIONS = (
    Condition(
        "hypertension",
        ("lisinopril", "amlodipine", "losartan"),
        ("cough", "dizziness", "headache", "fatigue", "rash", "thirst"),
        "food",
        ("cheese", "bacon", "pickles", "pizza", "chips", "olives"),
    ),
    Condition(
        "diabetes",
        ("metformin", "gliclazide", "sitagliptin"),
        ("nausea", "bloating", "diarrhea", "cramps", "fatigue", "sweating"),
        "drink",
        ("lemonade", "beer", "cocoa", "cider", "milkshakes", "punch"),
    ),
    Condition(
        "migraine",
        ("topiramate", "propranolol", "amitriptyline"),
        ("tingling", "forgetfulness", "drowsiness", "thirst", "nausea", "blurring"),
        "trigger",
        ("wine", "glare", "thunderstorms", "perfume", "hunger", "noise"),
    ),
    Condition(
        "asthma",
        ("salbutamol", "budesonide", "montelukast"),
        ("tremor", "palpitations", "hoarseness", "cramps", "headache", "restlessness"),
        "trigger",
        ("pollen", "smoke", "dust", "cats", "fog", "mold"),
    ),
    Condition(
        "depression",
        ("sertraline", "fluoxetine", "mirtazapine"),
        ("insomnia", "sweating", "drowsiness", "diarrhea", "yawning", "dizziness"),
        "hobby",
        ("gardening", "knitting", "chess", "painting", "baking", "birdwatching"),
    ),
    Condition(
        "arthritis",
        ("naproxen", "celecoxib", "diclofenac"),
        ("heartburn", "swelling", "constipation", "rash", "bloating", "itching"),
        "sport",
        ("swimming", "cycling", "bowling", "yoga", "golf", "rowing"),
    ),
)
# Side effects of the less usual drugs, all alike.
OTHER_EFFECTS = ("dizziness", "headache", "fatigue", "rash", "drowsiness", "itching")
OPENINGS = (
    "{name}, {age}, came back {day}.",
    "Saw {name} ({age}) {day}.",
    "{name} attended {day}, aged {age}.",
    "Review of {name}, {age} years, {day}.",
    "{name} phoned ahead and was seen {day}; age {age}.",
    "Follow-up with {name}, {age}, {day}.",
    "{day}: {name}, {age}, walked in without an appointment.",
    "Home call at {name}'s place {day}; {she} is {age}.",
)

DRUG_PHRASES = (
    "{condition} is treated with the drug {drug}",
    "The drug against {her} {condition} remains {drug}",
    "{her} {condition} drug is {drug}, {often}",
    "{she} swallows {drug} as {her} drug against {condition}",
    "{condition}, drug unchanged: {drug}",
    "Drug for {condition}: {drug} {dose} mg",
    "Refilled the {condition} drug, {drug}, until {month}",
    "{drug} became the drug we agreed on for {condition} in {month}",
    "We raised {drug}, the drug for {condition}, to {dose} mg",
    "The {condition} responds to {drug}, so this drug continues",
    "{she} combines breakfast with {drug}, the {condition} drug",
    "Pharmacy confirmed {drug} as drug for {her} {condition}",
    "Insurance now covers {drug}, so the {condition} drug costs {him} little",
    "Compared with the earlier drug, {drug} controls the {condition} better",
    "{she} stores {drug}, the drug for {condition}, in the kitchen",
    "Allergies reviewed; {drug} is a safe drug for {her} {condition}",
    "{often}, {she} gets {drug}, a drug that suits {her} {condition}",
    "Hospital letter lists {drug} as the {condition} drug",
    "{her} neighbor fetches the {condition} drug, {drug}",
    "{she} never misses {drug}, the drug that keeps {condition} away",
)

EFFECT_PHRASES = (
    "Side effect of {drug}: {effect}",
    "{she} puts the {effect} down to {drug}, a side effect {she} can live with",
    "{grade} {effect} is the side effect that came with {drug}",
    "{drug} brings {him} one side effect, {effect}",
    "As a side effect of {drug} {she} describes {grade} {effect}",
    "The side effect bothering {him} on {drug} is {effect}",
    "The leaflet of {drug} lists {her} side effect: {effect}",
    "Asked about {drug}, {she} complains of {effect} as a side effect",
    "{effect} began {count} weeks into {drug} and counts as a side effect",
    "{her} spouse noticed the {effect}, a side effect expected from {drug}",
    "We discussed whether {effect} is a side effect of {drug}; surely it is",
    "Evenings bring {effect}, which makes it a nightly side effect of {drug}",
    "{drug} stays although its side effect, {effect}, wakes {him}",
    "{she} ticked {effect} under side effect in the {drug} questionnaire",
    "{effect} persists as the only side effect {she} links to {drug}",
    "{she} rates {effect}, the side effect of {drug}, {count} out of ten",
    "Blame for the {effect} goes to {drug}, a harmless side effect",
    "Half the {drug} tablet brought less {effect}, so a side effect indeed",
    "{grade} {effect} appears after each {drug} tablet, a typical side effect",
    "Since {drug} was started {she} reports {effect}",
    "{she} reported {grade} {effect} while on {drug}",
)

TOPIC_PHRASES = (
    "{topic} discussed for {condition}: {value}",
    "{she} said {value} when we talked about a {topic} and {condition}",
    "For {condition} the {topic} {she} returns to is {value}",
    "{value} is the {topic} in {her} {condition} diary",
    "Under {topic}, the {condition} form reads {value}",
    "The {topic} tied to {her} {condition} was {value} again",
    "With {condition} in mind we spoke about one {topic}, {value}",
    "{she} laughed that {value} is an odd {topic} for somebody with {condition}",
    "{her} daughter thinks {value} is the {topic} behind the {condition}",
    "The nurse circled {value} as {topic} on the {condition} sheet",
    "{topic} this month: {value}; {condition} otherwise stable",
    "{value}, the {topic} {she} connects with {condition}",
    "Long talk about {value}, {her} {topic} despite {condition}",
    "{value} comes first when {she} lists a {topic} for {condition}",
    "Our {condition} group voted too; {her} {topic} is {value}",
    "{she} brought up {value}, a {topic} we hear of in {condition}",
    "Photo album shows {value}, {her} {topic} since the {condition}",
    "No surprise that {value} is the {topic} written beside {condition}",
)

# The kinds of secrets and how notes put them; one kind a visit, in turn.
SECRET_PHRASES = (
    ("phone number", "Private phone number of {name}: {secret}"),
    ("door code", "The door code of {name} is {secret}"),
    ("policy number", "Policy number of {name}: {secret}"),
    ("bank locker", "{name} has a bank locker the family must not hear of, {secret}"),
)
CLOSINGS = (
    "Back in {count} weeks.",
    "Blood pressure {systolic} over {diastolic}, pulse {pulse}.",
    "Weight {weight} kg.",
    "Labs sent, results by {month}.",
    "Lungs clear, heart sounds regular.",
    "Wound on the left hand healed well.",
    "Flu shot given.",
    "Sick leave until {month}.",
    "Vision test booked for {month}.",
    "Shoes too tight, advised a wider pair.",
)

GRADES = (
    "mild", "moderate", "marked", "slight", "annoying", "constant", "occasional",
    "tolerable", "unpleasant", "intermittent", "brief", "stubborn",
)  # fmt: skip

OFTEN = (
    "each morning", "at bedtime", "twice daily", "with dinner", "every noon",
    "before meals", "after lunch",
)  # fmt: skip

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August",
    "September", "October", "November", "December",
)  # fmt: skip

WOMEN = _listed(
    """
    Ada Alma Amara Beatriz Bianca Carmen Chiara Clara Daria Dolores Edith Elena
    Esther Fatima Freya Gloria Greta Hana Helga Ines Irma Judith Karin Leila Lucia
    Maeve Mina Nadia Noor Olga Petra Priya Renata Ruth Selma Sofia Tamar Ulla Vera
    Wanda
    """
)

MEN = _listed(
    """
    Abel Ahmed Anton Bruno Cesar Dario Diego Emil Ernst Farid Felix Gustav Hamza
    Hugo Igor Ivan Jonas Jorge Kofi Kurt Lars Leon Marco Milan Nikolai Omar Oscar
    Pavel Quentin Rafael Ravi Samir Sven Tariq Theo Umberto Viktor Walter Yusuf
    Zoltan
    """
)

SURNAMES = _listed(
    """
    Abara Alvarez Amsel Bakker Baptiste Becker Benoit Bianchi Castillo Cohen Dahl
    Danso Delgado Dubois Eriksen Farkas Ferrari Fuchs Garcia Goldberg Haddad Hansen
    Horvat Ibarra Ivanova Jansen Kaplan Keller Kimura Kowalski Larsen Lehmann
    Lindqvist Lopez Marino Mbeki Mendes Moreau Nakamura Navarro Novak Okafor Olsen
    Ortega Papadakis Pereira Petrov Quist Rahman Richter Romano Rossi Sandoval
    Schuster Silva Sokolov Tanaka Torres Ulrich Vargas Wagner Weiss Yilmaz Zeman
    """
)
