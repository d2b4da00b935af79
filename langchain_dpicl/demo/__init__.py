"""A generated clinic to try the library on: notes with planted secrets, and questions.

Everybody in it is invented. The corpus is the same for the same arguments in every
process and release, so that answers, and leaks, can be checked by machine.
"""

from langchain_dpicl.demo.corpus import Patient, clinic, patients, secrets_of
from langchain_dpicl.demo.questions import DemoQuestion, questions

__all__ = [
    "DemoQuestion",
    "Patient",
    "clinic",
    "patients",
    "questions",
    "secrets_of",
]
