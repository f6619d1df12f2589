"""The table of where each request is answered."""

from __future__ import annotations

from schedo.cluster.homes import HOMES, Home
from schedo.cluster.merging import MERGERS
from schedo.protocol.operations import OPERATIONS


def test_each_operation_has_one_home() -> None:
    assert sorted(HOMES) == sorted(operation.name for operation in OPERATIONS)


def test_what_belongs_to_a_job_names_it_in_the_path() -> None:
    paths = {operation.name: operation.path for operation in OPERATIONS}

    assert all("{id}" in paths[name] for name, home in HOMES.items() if home is Home.JOB)


def test_each_operation_with_figures_of_all_servers_says_how_they_are_merged() -> None:
    homes = (Home.GATHER, Home.SEEN, Home.WORKER, Home.EVERYONE)
    joined = {name for name, home in HOMES.items() if home in homes}
    pauses = {"pause_server", "resume_server"}  # their responses are the same in all servers

    assert joined - pauses | {"invoke"} == set(MERGERS)  # a dry run is gathered


def test_only_reads_are_gathered_and_only_changes_are_confirmed_by_all() -> None:
    methods = {operation.name: operation.method for operation in OPERATIONS}

    for name, home in HOMES.items():
        assert home is not Home.GATHER or methods[name] == "GET"
        assert home is not Home.EVERYONE or methods[name] in ("POST", "PATCH")
