"""Every command of the runbooks is run, in order, as an operator would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.check_types import ROOT
from support.groups_fakes import WordEmbedding, note, retrieved
from support.ledgers import UNIT_PLANNED, spend
from support.postgres import PostgresServer, Standby

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.operate import ErasureCertificate

PAGES = ROOT / "docs" / "operate"
_BLOCK = re.compile(r"^```sh ?(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(page: str, kind: str = "") -> str:
    """Return the shell commands of a page, one program."""
    found = _BLOCK.findall((PAGES / f"{page}.md").read_text())
    return "".join(text for name, text in found if name == kind)


def run(program: str, folder: Path, **variables: str) -> str:
    """Run a program by a shell that stops at the first error."""
    environment = {
        **os.environ,
        **variables,
        "PATH": os.pathsep.join(
            [variables.get("PATH", ""), str(folder / "bin"), os.environ["PATH"]]
        ),
        "PYTHONPATH": str(ROOT),
    }
    (folder / "bin").mkdir(exist_ok=True)
    script = folder / "bin" / "dpicl"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dpicl_main "$@"\n')
    (folder / "bin" / "dpicl_main.py").write_text(
        "import sys\nfrom langchain_dpicl.cli import main\nsys.exit(main())\n"
    )
    environment["PYTHONPATH"] += os.pathsep + str(folder / "bin")
    script.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """A folder with an index and a ledger in use: people have paid."""
    people = [note(f"p-{i}", f"rash of number {i}") for i in range(40)]
    retrieved(people, n_groups=4).save(tmp_path / "index")
    charged(f"sqlite:///{tmp_path / 'clinic.db'}")
    return tmp_path


def charged(url: str) -> None:
    ledger = Ledger(url)
    spend(ledger, UNIT_PLANNED, ["p-17", "p-18"])
    ledger.dispose()


def state_in(folder: Path, name: str = "clinic.db") -> tuple[int, bool, int]:
    """Return how many charges and balances a ledger has, and whether it is closed."""
    ledger = Ledger(f"sqlite:///{folder / name}", create=False)
    ledger.verify()
    book, balances = ledger.state("notes"), list(ledger.unit_balances("notes"))
    ledger.dispose()
    return book.used, not book.is_open, len(balances)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def standby(postgres: PostgresServer) -> Iterator[Standby]:
    made = postgres.standby("second")
    yield made
    postgres.start()
    made.close()


def test_the_first_day(tmp_path: Path) -> None:
    create, look = commands("run").split("dpicl ledger list")
    run(create, tmp_path)
    charged(f"sqlite:///{tmp_path / 'clinic.db'}")
    run(f"LEDGER=sqlite:///clinic.db\ndpicl ledger list{look}", tmp_path)
    assert state_in(tmp_path) == (1, False, 2)


def test_erasing(service: Path) -> None:
    said = run(commands("erase"), service)
    assert "Erased 1 document." in said
    assert "is of this person" in said
    follower = RetrievedGroups.load(service / "index", WordEmbedding(), follow=True)
    assert follower.n_units == 39
    certificate = ErasureCertificate.load(service / "p-17.json")
    assert certificate.is_of("p-17", service / "index")
    assert state_in(service) == (1, False, 2), "a balance is gone"
    # The next person, as the page says, by standard input.
    run("echo p-18 | dpicl erase - --index index", service)
    follower.refresh()
    assert follower.n_units == 38


def test_backing_up_and_restoring(service: Path) -> None:
    ledger = "export LEDGER=sqlite:///clinic.db\n"
    run(ledger + commands("run", "backup"), service)
    charged(f"sqlite:///{service / 'clinic.db'}")
    assert state_in(service)[0] == 2
    run(ledger + commands("run", "restore"), service)
    # The charge that the backup has forgotten is found in the old file.
    assert state_in(service) == (1, True, 2)
    assert state_in(service / "old")[0] == 2
    assert (service / "notes-monday.jsonl").read_text().count('"kind": "charge"') == 1


def test_backing_up_postgres(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.new_database()
    charged(url)
    database = url.replace("+psycopg", "")
    run(
        commands("run", "postgres"),
        tmp_path,
        DATABASE=database,
        PATH=str(postgres.programs),
    )
    assert "COPY test_1.dpicl_entry" in (tmp_path / "clinic-monday.sql").read_text()


def test_a_standby_that_takes_over(
    tmp_path: Path, postgres: PostgresServer, standby: Standby
) -> None:
    url = postgres.new_database()
    charged(url)
    variables = {
        "PRIMARY": url.replace("+psycopg", ""),
        "STANDBY": standby.name,
        "LEDGER": url,
        "PATH": str(postgres.programs),
    }
    run(commands("run", "standby"), tmp_path, **variables)
    deadline = time.monotonic() + 60
    question = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
    with postgres.connect(url) as connection:
        while connection.execute(question).fetchone() != (1,):
            assert time.monotonic() < deadline, "nobody waits for the standby"
            time.sleep(0.05)
    ledger = Ledger(url, create=False, require_synchronous=True)
    spend(ledger, UNIT_PLANNED)
    ledger.dispose()
    postgres.stop()
    new = standby.url(url)
    variables |= {"NEW": new.replace("+psycopg", ""), "NEW_LEDGER": new}
    run(commands("run", "failover"), tmp_path, **variables)
    after = Ledger(new, create=False)
    after.verify()
    assert after.state("notes").used == 2, "a charge was forgotten"
    after.dispose()
