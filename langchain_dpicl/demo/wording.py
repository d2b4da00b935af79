"""What the generated clinic's notes are made of: facts, names, and phrasings.

Phrasings of one fact share few content words on purpose: a word that all notes used
would tie with the answer in every count of words.
"""

from __future__ import annotations

from typing import NamedTuple


def word_list(text: str) -> tuple[str, ...]:
    """Return the words of a list that is written with spaces."""
    return tuple(text.split())


class Condition(NamedTuple):
    """A diagnosis, what is typical of it, and what else occurs."""

    name: str
    topic: str  # What the notes on this diagnosis talk about besides.
    values: tuple[str, ...]  # What patients say to the topic, the dominant value first.
    drugs: tuple[str, ...]  # The usual drug first.
    effects: tuple[str, ...]  # Side effects of the usual drug, the dominant one first.


def _condition(text: str) -> Condition:
    name, topic, *lists = text.split("; ")
    return Condition(name, topic, *map(word_list, lists))


_CONDITIONS = """\
hypertension; food; cheese bacon pickles pizza chips olives
; lisinopril amlodipine losartan; cough dizziness headache fatigue rash thirst

diabetes; drink; lemonade beer cocoa cider milkshakes punch
; metformin gliclazide sitagliptin; nausea bloating diarrhea cramps fatigue sweating

migraine; trigger; wine glare thunderstorms perfume hunger noise
; topiramate propranolol amitriptyline; tingling drowsiness thirst nausea blurring

asthma; trigger; pollen smoke dust cats fog mold
; salbutamol budesonide montelukast; tremor palpitations hoarseness cramps headache

depression; hobby; gardening knitting chess painting baking birdwatching
; sertraline fluoxetine mirtazapine; insomnia sweating drowsiness yawning dizziness

arthritis; sport; swimming cycling bowling yoga golf rowing
; naproxen celecoxib diclofenac; heartburn swelling constipation bloating itching
"""
CONDITIONS = tuple(map(_condition, _CONDITIONS.split("\n\n")))
"""The clinic's diagnoses; a patient has two of them."""

# Side effects of the less usual drugs, all alike.
OTHER_EFFECTS = ("dizziness", "headache", "fatigue", "rash", "drowsiness", "itching")

OPENINGS = (
    "{name}, {age}, came back on {day}.",
    "Saw {name} ({age}) on {day}.",
    "{name} attended on {day}, aged {age}.",
    "{name} ({age}) walked in without an appointment on {day}.",
    "Home call at {name}'s place on {day}; {she} is {age}.",
)
DRUG_PHRASES = (
    "{condition} is treated with the drug {drug}",
    "The drug against {her} {condition} remains {drug}",
    "{condition}, drug unchanged: {drug}",
    "Refilled the {condition} drug, {drug}, until {month}",
    "Pharmacy confirmed {drug} as drug for {her} {condition}",
    "{she} stores {drug}, the drug for {condition}, in the kitchen",
    "Hospital letter lists {drug} as the {condition} drug",
)
EFFECT_PHRASES = (
    "Side effect of {drug}: {effect}",
    "{she} puts the {effect} down to {drug}, a side effect {she} can live with",
    "The side effect bothering {him} on {drug} is {effect}",
    "Asked about {drug}, {she} complains of {effect} as a side effect",
    "{her} spouse noticed the {effect}, a side effect expected from {drug}",
    "Evenings bring {effect}, which makes it a nightly side effect of {drug}",
    "{she} ticked {effect} under side effect in the {drug} questionnaire",
    "Since {drug} was started {she} reports {effect}",
)
TOPIC_PHRASES = (
    "{topic} discussed for {condition}: {value}",
    "For {condition} the {topic} {she} returns to is {value}",
    "{her} daughter thinks {value} is the {topic} behind the {condition}",
    "The nurse circled {value} as {topic} on the {condition} sheet",
    "{value}, the {topic} {she} connects with {condition}",
    "Our {condition} group voted too; {her} {topic} is {value}",
    "No surprise that {value} is the {topic} written beside {condition}",
)
# One kind of secret a note, in turn, and what it looks like.
SECRETS = {
    "phone number": "555-{}-{}",
    "door code": "{}#{}",
    "policy number": "HX-{}{}",
    "bank locker": "key {}-{}",
}
CLOSINGS = (
    "Back in {count} weeks.",
    "Labs sent, results by {month}.",
    "Lungs clear, heart sounds regular.",
    "Wound on the left hand healed well.",
)
MONTHS = ("January", "March", "April", "May", "July", "August", "October", "December")

WOMEN = word_list(
    """
    Ada Alma Amara Beatriz Bianca Carmen Chiara Clara Daria Dolores Edith Elena
    Esther Fatima Freya Gloria Greta Hana Helga Ines Irma Judith Karin Leila Lucia
    Maeve Mina Nadia Noor Olga Petra Priya Renata Ruth Selma Sofia Tamar Ulla Vera
    Wanda
    """
)

MEN = word_list(
    """
    Abel Ahmed Anton Bruno Cesar Dario Diego Emil Ernst Farid Felix Gustav Hamza
    Hugo Igor Ivan Jonas Jorge Kofi Kurt Lars Leon Marco Milan Nikolai Omar Oscar
    Pavel Quentin Rafael Ravi Samir Sven Tariq Theo Umberto Viktor Walter Yusuf
    Zoltan
    """
)

SURNAMES = word_list(
    """
    Abara Alvarez Amsel Bakker Baptiste Becker Benoit Bianchi Castillo Cohen Dahl
    Danso Delgado Dubois Eriksen Farkas Ferrari Fuchs Garcia Goldberg Haddad Hansen
    Horvat Ibarra Ivanova Jansen Kaplan Keller Kimura Kowalski Larsen Lehmann
    Lindqvist Lopez Marino Mbeki Mendes Moreau Nakamura Navarro Novak Okafor Olsen
    Ortega Papadakis Pereira Petrov Quist Rahman Richter Romano Rossi Sandoval
    Schuster Silva Sokolov Tanaka Torres Ulrich Vargas Wagner Weiss Yilmaz Zeman
    """
)
