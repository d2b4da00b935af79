from __future__ import annotations

import subprocess
import sys

from langchain_dpicl import accounting


def test_import_is_light() -> None:
    heavy = "{'scipy', 'dp_accounting', 'prv_accountant', 'mpmath', 'langchain_core'}"
    code = (
        "import sys, langchain_dpicl.accounting as a;"
        f"assert not {heavy} & set(sys.modules);"
        "a.noise_multiplier(1.0, 1e-6, uses=20);"
        f"assert not {heavy} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_are_sorted_and_there() -> None:
    names = sorted(accounting.__all__, key=lambda name: (not name.isupper(), name))
    assert list(accounting.__all__) == names
    assert all(hasattr(accounting, name) for name in accounting.__all__)
