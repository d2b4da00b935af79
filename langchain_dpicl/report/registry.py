"""A draft entry for OpenDP's registry of deployments, in its YAML.

https://github.com/opendp/deployments-registry-data has the form. What only the
operator knows, and did not say in the facts, is `TODO`, also where the form has a list
of choices: a draft states nothing that nobody said.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from langchain_dpicl.report import texts

if TYPE_CHECKING:
    from langchain_dpicl.report.account import AccountReport

TODO = "TODO"
_CURATORS = ("Government", "Industry", "Nonprofit")
_SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
_HEAD = (
    "# A draft that langchain-dpicl {library} wrote on {created}.\n"
    "# Fill in every TODO. data_curator_type is one of {curators};\n"
    "# data_product_sector one of {sectors};\n"
    "# data_source_type Static or Dynamic; tier 1, 2 or 3.\n"
)
_VARIANTS = {"zcdp": "Zero-concentrated DP", "renyi": "Renyi DP", "pure": "Pure DP"}
_PRODUCTS = {
    "answer": "Interactive API",
    "examples": "Synthetic data",
    "table": "Summary statistics",
    "reports": "Summary statistics",
}


def entry_text(report: AccountReport) -> str:
    """Return the entry of an account as YAML; see `AccountReport.to_registry`."""
    import yaml

    # A class of its own, which writes texts of several lines as they stand.
    dumper_type: Any = type("Dumper", (yaml.SafeDumper,), {})

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    dumper_type.add_representer(str, text)
    head = _HEAD.format(
        library=report.library,
        created=report.created[:10],
        curators=", ".join(_CURATORS),
        sectors=", ".join(_SECTORS),
    )
    made = yaml.dump(
        entry(report),
        Dumper=dumper_type,
        sort_keys=False,
        allow_unicode=True,
        width=10**6,
    )
    # Names are never quoted: all of them are words.
    return head + re.sub(r'^( *(?:- )?)"(\w+)":', r"\1\2:", made, flags=re.MULTILINE)


def entry(report: AccountReport) -> dict[str, Any]:
    """Return the entry as JSON-able values."""
    facts, terms = report.facts, report.terms
    kinds = {line.kind for line in report.lines}
    products = {_PRODUCTS[kind] for kind in kinds}
    asks = "answer" in kinds

    def said(name: str) -> str:
        return facts.get(name) or TODO

    def chosen(name: str, known: tuple[str, ...]) -> str:
        return facts[name] if facts.get(name) in known else TODO

    def released(text: str) -> str:
        return text if kinds else TODO

    parameters: dict[str, float] = {"epsilon": terms.epsilon}
    if terms.accounting != "pure":
        parameters["delta"] = terms.delta
    if terms.accounting == "zcdp" and terms.filter is not None:
        parameters["rho"] = terms.filter.budget
    scope = (
        "Each unit has a budget of its own, and the account does not end"
        if terms.scope == "unit"
        else "One budget covers all units"
    )
    return {
        "url_slug": re.sub(r"\W+", "-", report.account.lower()).strip("-") or TODO,
        "deployment": {
            "basic": {
                "name": report.account,
                "data_curators": [
                    {
                        "data_curator_name": said("controller"),
                        "data_curator_type": chosen("curator_type", _CURATORS),
                    }
                ],
                "description": said("records"),
                "intended_use": said("purpose"),
                "data_product_type": products.pop() if len(products) == 1 else TODO,
                "data_product_region": said("region"),
                "publication_date": TODO,
                "data_product_sector": chosen("sector", _SECTORS),
            },
            "dp_variant": {
                "variant_name": _VARIANTS.get(terms.accounting, "Approximate DP"),
                "data_domain": said("records"),
                "unprotected_quantities": said("other_releases"),
            },
            "privacy_loss": {
                "privacy_unit": report.unit,
                "privacy_unit_details": texts.NEIGHBORS[0],
                "privacy_parameters": parameters,
                "privacy_parameters_details": f"{report.promise}. {scope}. "
                f"Spent when this was written: epsilon {report.spent:.4g}.",
            },
            "deployment_model": {
                "model_name": released("Local" if report.is_local else "Central"),
                "trust_assumptions": _listed(texts.ASSUMPTIONS),
                "actors": released(
                    _listed("{who} ({is}): {sees}".format(**a) for a in report.actors)
                ),
                "release_type": released(
                    "Many releases" if asks or report.releases > 1 else "One release"
                ),
                "release_type_details": scope + ".",
                "data_source_type": TODO,
                "data_source_type_details": _listed(report.changes),
                "access_type": released("Interactive" if asks else "Non-interactive"),
                "access_type_details": said("callers"),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": TODO,
                "mechanisms": _listed(
                    f"{proof.release}: {' '.join(proof.argument)}"
                    for proof in report.proofs
                )
                or TODO,
                "composition": report.promise + ".",
                "post_processing": "Wording, thresholds and consistency are computed "
                "from what was released.",
                "justification": said("why_epsilon"),
                "utility": TODO,
                "additional_information": _listed(
                    "{what}: {why}".format(**one) for one in texts.NOT_COVERED
                ),
            },
            "administrative": {
                "status": "Draft",
                "registry_authors": [TODO],
                "tier": TODO,
            },
        },
    }


def _listed(lines: Any) -> str:
    return "".join(f"- {line}\n" for line in lines)
