"""Public schemas of the tables in `utility_tabular.py`.

Everything here comes from the tables' public descriptions (UCI, OpenML, StatLib,
Kaggle) and from general knowledge: round bounds, bins at customary thresholds (a
glucose of 126 mg/dl, a BMI of 30), the categories of the code books. Nothing was
computed from the rows, as nothing may be where rows are private.

Each table has two schemas. With global privacy (`GDPTable`) many columns are cheap.
With local privacy (`LDPTable`) every column takes its share of a row's epsilon, so that
a few columns with small domains must do: those that are generally known to matter
(schooling and marriage for income, glucose for diabetes), not those that look best
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_dpicl.tabular import CategoricalColumn, NumericColumn, TableSchema

LABEL = "label"
"""What the label's column is called in all files."""

Column = CategoricalColumn | NumericColumn


@dataclass(frozen=True)
class Dataset:
    """A table, and what is public about it.

    Attributes:
        about: What its rows are.
        columns: The features that are used with global privacy.
        label: What is to be told of a row.
        local: The features that are used with local privacy; where they name another
            column than `columns` does, it is a coarser one.
    """

    about: str
    columns: tuple[Column, ...]
    label: CategoricalColumn
    local: tuple[str | Column, ...]

    def schema(self) -> TableSchema:
        """Return the schema for global privacy."""
        return TableSchema(label=LABEL, columns=(*self.columns, self.label))

    def local_schema(self) -> TableSchema:
        """Return the schema for local privacy: few columns, few values."""
        known = {column.name: column for column in self.columns}
        chosen = [known[one] if isinstance(one, str) else one for one in self.local]
        return TableSchema(label=LABEL, columns=(*chosen, self.label))


def label(shown: str, texts: Iterable[str]) -> CategoricalColumn:
    """Return the label's column: its values are numbered from 0."""
    named = {str(at): text for at, text in enumerate(texts)}
    return CategoricalColumn(name=LABEL, shown=shown, values=list(named), texts=named)


def category(
    name: str,
    values: str | Iterable[str],
    *,
    shown: str | None = None,
    other: str | None = None,
    texts: Mapping[str, str] | None = None,
) -> CategoricalColumn:
    """Return a column of categories: words, or a list of values."""
    domain = values.split() if isinstance(values, str) else list(values)
    said = {value: text for value, text in (texts or {}).items() if value in domain}
    return CategoricalColumn(
        name=name, shown=shown, values=domain, other=other, texts=said
    )


def whole(
    name: str,
    bounds: tuple[int, int],
    bins: Iterable[int],
    unit: str | None = None,
    **more: Any,
) -> NumericColumn:
    """Return a column of integers."""
    return _number("integer", name, bounds, bins, unit=unit, **more)


def real(
    name: str, bounds: tuple[float, float], bins: Iterable[float], **more: Any
) -> NumericColumn:
    """Return a column of numbers, which are shown with one decimal."""
    return _number("number", name, bounds, bins, **{"decimals": 1, **more})


def _number(
    kind: str,
    name: str,
    bounds: tuple[float, float],
    bins: Iterable[float],
    **more: Any,
) -> NumericColumn:
    lower, upper = bounds
    fields = {"lower": lower, "upper": upper, "bins": tuple(bins), **more}
    return NumericColumn(kind=kind, name=name, **fields)


_COUNTRIES = (
    "United-States Cambodia England Puerto-Rico Canada Germany "
    "Outlying-US(Guam-USVI-etc) India Japan Greece South China Cuba Iran Honduras "
    "Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
    "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua "
    "Scotland Thailand Yugoslavia El-Salvador Trinadad&Tobago Peru Hong "
    "Holand-Netherlands ?"
)


def adult() -> Dataset:
    """UCI Adult, an extract of the census of 1994.

    Left out, as the code book explains: `fnlwgt`, a weight of the survey, and
    `education`, of which `education_num` is the order.
    """
    unknown = {"?": "unknown"}
    return Dataset(
        "people in the US census of 1994",
        (
            whole("age", (17, 90), (30, 45, 60), "years"),
            category(
                "workclass",
                "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov "
                "Without-pay Never-worked ?",
                shown="kind of employer",
                texts=unknown,
            ),
            whole("education_num", (1, 16), (9, 13), shown="education level"),
            category(
                "marital_status",
                "Married-civ-spouse Divorced Never-married Separated Widowed "
                "Married-spouse-absent Married-AF-spouse",
            ),
            category(
                "occupation",
                "Tech-support Craft-repair Other-service Sales Exec-managerial "
                "Prof-specialty Handlers-cleaners Machine-op-inspct Adm-clerical "
                "Farming-fishing Transport-moving Priv-house-serv Protective-serv "
                "Armed-Forces ?",
                texts=unknown,
            ),
            category(
                "relationship",
                "Wife Own-child Husband Not-in-family Other-relative Unmarried",
            ),
            category("race", "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
            category("sex", "Female Male"),
            whole("capital_gain", (0, 100_000), (5_000,), "dollars"),
            whole("capital_loss", (0, 5_000), (1_500,), "dollars"),
            whole("hours_per_week", (1, 99), (35, 45), "hours", shown="working week"),
            category("native_country", _COUNTRIES, texts=unknown),
        ),
        label("income", ("at most 50,000 dollars", "over 50,000 dollars")),
        (
            category(
                "marital_status",
                ("Married-civ-spouse", "not married"),
                other="not married",
            ),
            "education_num",
            "age",
            "capital_gain",
        ),
    )


def bank() -> Dataset:
    """UCI Bank Marketing: calls of a Portuguese bank, 2008 to 2010."""
    yes_no = "no yes"
    return Dataset(
        "calls of a bank that offers term deposits",
        (
            whole("age", (18, 95), (30, 40, 60), "years"),
            category(
                "job",
                "admin. blue-collar entrepreneur housemaid management retired "
                "self-employed services student technician unemployed unknown",
                texts={"admin.": "administration"},
            ),
            category("marital", "divorced married single", shown="marital status"),
            category("education", "primary secondary tertiary unknown"),
            category("default", yes_no, shown="credit default"),
            whole("balance", (-10_000, 50_000), (0, 1_000), "euros"),
            category("housing", yes_no, shown="housing loan"),
            category("loan", yes_no, shown="personal loan"),
            category("contact", "cellular telephone unknown"),
            whole("day", (1, 31), (11, 21), shown="day of the month"),
            category("month", "jan feb mar apr may jun jul aug sep oct nov dec"),
            whole("duration", (0, 3_600), (180, 480), "seconds", shown="call duration"),
            whole("campaign", (1, 50), (2, 4), shown="number of calls"),
            whole("pdays", (-1, 999), (0, 180), shown="days since the last campaign"),
            whole("previous", (0, 50), (1,), shown="number of earlier calls"),
            category(
                "poutcome",
                "failure other success unknown",
                shown="outcome of the last campaign",
            ),
        ),
        label("decision", ("declines", "subscribes")),
        (
            "duration",
            category(
                "poutcome",
                ("success", "no success"),
                other="no success",
                shown="outcome of the last campaign",
            ),
            "housing",
        ),
    )


def blood() -> Dataset:
    """UCI Blood Transfusion: donors of a center in Hsin-Chu, Taiwan.

    `monetary` is left out: it is 250 ml times `frequency`.
    """
    return Dataset(
        "blood donors",
        (
            whole(
                "recency",
                (0, 72),
                (3, 12),
                "months",
                shown="time since the last donation",
            ),
            whole("frequency", (1, 50), (3, 8), shown="number of donations"),
            whole(
                "time",
                (1, 100),
                (24, 48),
                "months",
                shown="time since the first donation",
            ),
        ),
        label("behavior in March 2007", ("stays away", "comes again")),
        ("recency", "frequency"),
    )


def calhousing() -> Dataset:
    """StatLib California Housing: block groups in the census of 1990."""
    return Dataset(
        "blocks of houses in California",
        (
            real(
                "median_income",
                (0, 15),
                (2.5, 3.5, 5),
                unit="times ten thousand dollars",
            ),
            whole("median_age", (1, 52), (18, 35), "years", shown="age of the houses"),
            whole("total_rooms", (0, 20_000), (1_000, 3_000)),
            whole("total_bedrooms", (0, 4_000), (250, 600)),
            whole("population", (0, 10_000), (750, 1_750), "people"),
            whole("households", (0, 4_000), (250, 600)),
            real("latitude", (32, 42), (34.5, 38.5), decimals=2),
            real("longitude", (-125, -114), (-121, -118), decimals=2),
        ),
        label("median house value", ("below the median", "above the median")),
        ("median_income", "latitude", "longitude"),
    )


def car() -> Dataset:
    """UCI Car Evaluation: all combinations of six properties, with a verdict."""
    price = "vhigh high med low"
    medium = {"med": "medium"}
    spoken = {"vhigh": "very high", **medium}
    most = {"5more": "5 or more", "more": "5 or more"}
    return Dataset(
        "cars and a verdict",
        (
            category("buying", price, shown="price", texts=spoken),
            category("maint", price, shown="upkeep", texts=spoken),
            category("doors", "2 3 4 5more", shown="number of doors", texts=most),
            category("persons", "2 4 more", shown="number of seats", texts=most),
            category("lug_boot", "small med big", shown="trunk", texts=medium),
            category("safety", "low med high", texts=medium),
        ),
        label("verdict", ("unacceptable", "acceptable", "good", "excellent")),
        ("safety", "persons", "buying", "maint"),
    )


def diabetes() -> Dataset:
    """Pima Indians Diabetes. A 0 stands for "not measured" in five columns."""
    return Dataset(
        "women who were examined for diabetes",
        (
            whole("Pregnancies", (0, 20), (2, 5), shown="number of pregnancies"),
            whole("Glucose", (50, 200), (100, 126, 150), "mg/dl", shown="glucose"),
            whole("BloodPressure", (40, 120), (80,), "mm Hg", shown="blood pressure"),
            whole("SkinThickness", (0, 60), (20, 35), "mm", shown="skin fold"),
            whole("Insulin", (0, 600), (1, 150), "mu U/ml", shown="insulin"),
            real("BMI", (15, 60), (25, 30, 35), shown="body mass index"),
            real(
                "DiabetesPedigreeFunction",
                (0, 2.5),
                (0.3, 0.6),
                shown="pedigree function",
                decimals=2,
            ),
            whole("Age", (21, 80), (30, 45), "years", shown="age"),
        ),
        label("diagnosis", ("healthy", "ill")),
        ("Glucose", "BMI", "Age"),
    )


def heart() -> Dataset:
    """Kaggle Heart Failure Prediction, joined from five UCI heart tables."""
    return Dataset(
        "patients who were examined for heart disease",
        (
            whole("Age", (20, 90), (45, 55, 65), "years", shown="age"),
            category("Sex", "F M", shown="sex", texts={"F": "female", "M": "male"}),
            category(
                "ChestPainType",
                "TA ATA NAP ASY",
                shown="chest pain",
                texts={
                    "TA": "typical angina",
                    "ATA": "atypical angina",
                    "NAP": "not angina",
                    "ASY": "asymptomatic",
                },
            ),
            whole("RestingBP", (80, 200), (130, 150), "mm Hg", shown="blood pressure"),
            whole("Cholesterol", (0, 600), (1, 200, 240), "mg/dl", shown="cholesterol"),
            category(
                "FastingBS",
                "0 1",
                shown="fasting blood sugar",
                texts={"0": "normal", "1": "raised"},
            ),
            category("RestingECG", "Normal ST LVH", shown="electrocardiogram"),
            whole("MaxHR", (60, 210), (120, 150), "beats", shown="maximum pulse"),
            category(
                "ExerciseAngina",
                "N Y",
                shown="angina under exercise",
                texts={"N": "no", "Y": "yes"},
            ),
            real("Oldpeak", (-3, 7), (0.5, 1.5), unit="mm", shown="ST depression"),
            category("ST_Slope", "Up Flat Down", shown="ST slope"),
        ),
        label("diagnosis", ("healthy", "ill")),
        ("ST_Slope", "ExerciseAngina", "ChestPainType", "Sex"),
    )


def jungle() -> Dataset:
    """OpenML Jungle Chess endgames of two pieces; the board has 7 files, 9 ranks."""

    def piece(side: str) -> tuple[NumericColumn, ...]:
        of = f"of {side.capitalize()}"
        name = f"{side}_piece0_"
        return (
            whole(f"{name}strength", (0, 7), (2, 4, 6), shown=f"strength {of}"),
            whole(f"{name}file", (0, 6), (2, 5), shown=f"file {of}"),
            whole(f"{name}rank", (0, 8), (3, 6), shown=f"rank {of}"),
        )

    return Dataset(
        "endgames of Jungle Chess",
        (*piece("white"), *piece("black")),
        label("result of the first player", ("no win", "a win")),
        (
            "white_piece0_strength",
            "black_piece0_strength",
            "white_piece0_rank",
            "black_piece0_rank",
        ),
    )


DATASETS: dict[str, Callable[[], Dataset]] = {
    "adult": adult,
    "bank": bank,
    "blood": blood,
    "calhousing": calhousing,
    "car": car,
    "diabetes": diabetes,
    "heart": heart,
    "jungle": jungle,
}
