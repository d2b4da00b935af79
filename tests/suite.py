"""Which of the two suites runs: `make test`, or `make test-all` (WHOLE)."""

from __future__ import annotations

import os

WHOLE = os.environ.get("DPICL_SUITE") == "whole"
