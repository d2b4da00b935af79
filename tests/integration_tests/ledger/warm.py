"""Imported once by the server that forks the workers: what each would have to load."""

from faces import Charge, open_account

Charge(open_account(":memory:", queries=3)).once(lambda: "a draw")
Charge(open_account(":memory:", queries=3, scope="unit")).collect(["someone"])
