"""Numbers know nothing of LangChain."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_of_langchain_is_imported() -> None:
    code = (
        "import sys\n"
        "from langchain_dpicl.accounting import Gaussian, check, compose\n"
        "event = Gaussian(noise_multiplier=2.0, sampling_rate=0.1)\n"
        "assert compose([event], 1e-6) > 0 and check([event], 1e-6).agrees\n"
        "names = [m for m in sys.modules if m.startswith('langchain')]\n"
        "print(*(m for m in names if not m.startswith('langchain_dpicl')))\n"
        "print(*(m for m in names if 'mechanisms' in m or 'budget' in m))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not run.stdout.strip()
