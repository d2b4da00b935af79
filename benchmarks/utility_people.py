"""Two public tables as short texts about one person each, and questions about them.

The tables are `tab_heart` (734 patients) and `tab_adult` (39,073 people of a census),
files `train.csv.gz`. Each row is one person, hence one privacy unit. Column names and
codes are worded readably and nothing is added; of `tab_adult`, `fnlwgt` (how many
people a row stands for in the census) and `education_num` (`education` once more) say
nothing about the person and are left out.

Values are worded as one word each ("single", not "never married"), so that a released
keyword is the whole answer, and without what the keyword parser drops ("yes", "no") or
the offline stand-in reads as a denial ("none", "never"). No question turns on a number
("older than 60"), which the stand-in can't compare. The questions were written before
anything was measured and none was dropped; near-ties and a rare condition are among
them. The true answers are counted.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from langchain_core.documents import Document

UNIT = "row"

PRESENT = {"0": "absent", "1": "present", "N": "absent", "Y": "present"}
SEX = {"M": "male", "F": "female", "Male": "male", "Female": "female"}
ANY: Mapping[str, str] = {}

HEART: dict[str, tuple[str, str, Mapping[str, str]]] = {
    # Label in the text: column, unit of a number, words for codes.
    "Sex": ("Sex", "", SEX),
    "Chest pain type": (
        "ChestPainType",
        "",
        {
            "ASY": "asymptomatic",
            "NAP": "nonanginal",
            "ATA": "atypical",
            "TA": "typical",
        },
    ),
    "Resting blood pressure": ("RestingBP", " mm Hg", ANY),
    "Serum cholesterol": ("Cholesterol", " mg/dl", ANY),
    "Fasting blood sugar": ("FastingBS", "", {"0": "normal", "1": "high"}),
    "Resting ECG": (
        "RestingECG",
        "",
        {"Normal": "normal", "LVH": "hypertrophy", "ST": "abnormal"},
    ),
    "Maximum heart rate": ("MaxHR", " beats a minute", ANY),
    "Exercise angina": ("ExerciseAngina", "", PRESENT),
    "ST depression": ("Oldpeak", " mm", ANY),
    "ST slope": (
        "ST_Slope",
        "",
        {"Up": "upsloping", "Flat": "flat", "Down": "downsloping"},
    ),
    "Heart disease": ("label", "", PRESENT),
}
ADULT: dict[str, tuple[str, str, Mapping[str, str]]] = {
    "Sex": ("sex", "", SEX),
    "Race": (
        "race",
        "",
        {
            "White": "white",
            "Black": "black",
            "Asian-Pac-Islander": "asian",
            "Amer-Indian-Eskimo": "indigenous",
            "Other": "another",
        },
    ),
    "Native country": ("native_country", "", {"?": "unknown"}),
    "Education": (
        "education",
        "",
        {
            "HS-grad": "highschool",
            "Some-college": "college",
            "Bachelors": "bachelor",
            "Masters": "master",
            "Assoc-voc": "vocational",
            "Assoc-acdm": "associate",
            "Prof-school": "professional-school",
            "Doctorate": "doctorate",
            "Preschool": "preschool",
            **{grade: f"grade-{grade}" for grade in ("9th", "10th", "11th", "12th")},
            **{grade: f"grade-{grade}" for grade in ("1st-4th", "5th-6th", "7th-8th")},
        },
    ),
    "Marital status": (
        "marital_status",
        "",
        {
            "Married-civ-spouse": "married",
            "Never-married": "single",
            "Divorced": "divorced",
            "Widowed": "widowed",
            "Separated": "separated",
            "Married-spouse-absent": "apart",
            "Married-AF-spouse": "armed-forces-spouse",
        },
    ),
    "Family role": (
        "relationship",
        "",
        {
            "Husband": "husband",
            "Wife": "wife",
            "Not-in-family": "independent",
            "Own-child": "child",
            "Unmarried": "unpartnered",
            "Other-relative": "relative",
        },
    ),
    "Employer": (
        "workclass",
        "",
        {
            "Private": "private",
            "Self-emp-not-inc": "self-employed",
            "Self-emp-inc": "incorporated",
            "Local-gov": "municipality",
            "State-gov": "state-government",
            "Federal-gov": "federal",
            "Without-pay": "unpaid",
            "Never-worked": "jobless",
            "?": "unknown",
        },
    ),
    "Occupation": (
        "occupation",
        "",
        {
            "Prof-specialty": "specialist",
            "Craft-repair": "craftsman",
            "Exec-managerial": "executive",
            "Adm-clerical": "clerk",
            "Sales": "salesman",
            "Other-service": "helper",
            "Machine-op-inspct": "machinist",
            "Transport-moving": "driver",
            "Handlers-cleaners": "cleaner",
            "Tech-support": "technician",
            "Farming-fishing": "farmer",
            "Protective-serv": "guard",
            "Priv-house-serv": "housekeeper",
            "Armed-Forces": "soldier",
            "?": "unknown",
        },
    ),
    "Working time": ("hours_per_week", " hours a week", ANY),
    "Capital gain": ("capital_gain", " dollars", ANY),
    "Capital loss": ("capital_loss", " dollars", ANY),
    "Income class": ("label", "", {"0": "low", "1": "high"}),
}


@dataclass(frozen=True)
class Asked:
    """A question, what it is about, and what it means on the table."""

    text: str
    about: str
    given: Mapping[str, str]


@dataclass(frozen=True)
class Truth:
    """The true answer, counted in the table."""

    answer: str
    rows: int
    """Rows that the question is about."""
    share: float
    """Share of the true answer among them."""
    second: float
    """Share of the runner-up."""


@dataclass(frozen=True)
class Table:
    """A table as texts and questions."""

    name: str
    rows: list[dict[str, str]]
    documents: list[Document]
    questions: tuple[Asked, ...]
    columns: Mapping[str, tuple[str, str, Mapping[str, str]]]

    def options(self, asked: Asked) -> tuple[str, ...]:
        """Return what may be answered: the column's words, from the public list."""
        _, _, words = self.columns[asked.about]
        return tuple(dict.fromkeys(words.values()))

    def truth(self, asked: Asked) -> Truth:
        """Count the true answer."""
        about = Counter(
            row[asked.about]
            for row in self.rows
            if all(row[label] == value for label, value in asked.given.items())
        )
        (answer, most), (_, second), *_ = [*about.most_common(2), ("", 0), ("", 0)]
        total = sum(about.values())
        return Truth(answer, total, most / total, second / total)


def load_table(name: str, data: Path) -> Table:
    """Read a table and write each row as a text."""
    person, age, columns, questions = _TABLES[name]
    path = data / f"tab_{name}" / "train.csv.gz"
    rows, documents = [], []
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        for number, record in enumerate(csv.DictReader(lines)):
            row = {
                label: words.get(record[column], record[column]) + unit
                for label, (column, unit, words) in columns.items()
            }
            text = f"The {person} is {record[age]} years old. " + " ".join(
                f"{label}: {value}." for label, value in row.items()
            )
            rows.append(row)
            documents.append(Document(text, metadata={UNIT: number}))
    return Table(name, rows, documents, questions, columns)


_HEART_QUESTIONS = (
    Asked(
        "Which chest pain type is most common among patients with exercise angina?",
        "Chest pain type",
        {"Exercise angina": "present"},
    ),
    Asked(
        "Which chest pain type is most common among patients without exercise angina?",
        "Chest pain type",
        {"Exercise angina": "absent"},
    ),
    Asked(
        "Which chest pain type is most common among female patients?",
        "Chest pain type",
        {"Sex": "female"},
    ),
    Asked(
        "Which ST slope is most common among patients with heart disease?",
        "ST slope",
        {"Heart disease": "present"},
    ),
    Asked(
        "Which ST slope is most common among patients without heart disease?",
        "ST slope",
        {"Heart disease": "absent"},
    ),
    Asked(
        "Which sex is most common among patients with heart disease?",
        "Sex",
        {"Heart disease": "present"},
    ),
    Asked(
        "Which resting ECG is most common among patients with exercise angina?",
        "Resting ECG",
        {"Exercise angina": "present"},
    ),
    Asked(
        "Which exercise angina is most common among patients with asymptomatic chest "
        "pain?",
        "Exercise angina",
        {"Chest pain type": "asymptomatic"},
    ),
    Asked(
        "Which heart disease is most common among patients with high fasting blood "
        "sugar?",
        "Heart disease",
        {"Fasting blood sugar": "high"},
    ),
    Asked(
        "Which chest pain type is most common among patients with downsloping ST?",
        "Chest pain type",
        {"ST slope": "downsloping"},
    ),
)
_ADULT_QUESTIONS = (
    Asked(
        "Which marital status is most common among people with high income?",
        "Marital status",
        {"Income class": "high"},
    ),
    Asked(
        "Which family role is most common among people with high income?",
        "Family role",
        {"Income class": "high"},
    ),
    Asked(
        "Which marital status is most common among people whose family role is child?",
        "Marital status",
        {"Family role": "child"},
    ),
    Asked(
        "Which sex is most common among people whose occupation is clerk?",
        "Sex",
        {"Occupation": "clerk"},
    ),
    Asked(
        "Which education is most common among people whose occupation is craftsman?",
        "Education",
        {"Occupation": "craftsman"},
    ),
    Asked(
        "Which occupation is most common among people whose education is master?",
        "Occupation",
        {"Education": "master"},
    ),
    Asked(
        "Which employer is most common among female people?",
        "Employer",
        {"Sex": "female"},
    ),
    Asked(
        "Which income class is most common among married people?",
        "Income class",
        {"Marital status": "married"},
    ),
    Asked(
        "Which occupation is most common among people with high income?",
        "Occupation",
        {"Income class": "high"},
    ),
    Asked(
        "Which education is most common among people whose race is indigenous?",
        "Education",
        {"Race": "indigenous"},
    ),
)
_TABLES = {
    "heart": ("patient", "Age", HEART, _HEART_QUESTIONS),
    "adult": ("person", "age", ADULT, _ADULT_QUESTIONS),
}
