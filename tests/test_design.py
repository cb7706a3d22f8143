"""DESIGN.md agrees with the code."""

from __future__ import annotations

import pytest

from tools.design import BEGIN, END, PAGE, faults, folder_table, packages_without_purpose, shown_table, with_table


def test_every_package_states_its_purpose() -> None:
    assert packages_without_purpose() == []


def test_the_table_of_folders_is_that_of_the_packages() -> None:
    """`python -m tools.design` generates the table."""
    assert shown_table(PAGE.read_text()) == folder_table()


def test_every_file_and_function_that_the_design_names_exists() -> None:
    assert list(faults(PAGE.read_text())) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("`clock.py`", None),
        ("`tools/design.py`", None),
        ("`Passes.join` (`storage/group_commit/passes.py`)", None),
        ("`Passes.join` and `Ticket` (`storage/group_commit/passes.py`)", None),
        ("`core/nowhere.py`", "there is no core/nowhere.py"),
        ("`Passes.jump` (`storage/group_commit/passes.py`)", "has no Passes.jump"),
        ("`Passes.join`, `jump` (`storage/group_commit/passes.py`)", "has no jump"),
    ],
)
def test_a_name_that_the_source_does_not_have_is_found(text: str, fault: str | None) -> None:
    found = list(faults(text))
    assert found == [] if fault is None else fault in found[0]


def test_the_table_takes_the_place_of_the_old_one() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_table(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert shown_table(with_table(page, "new")) == "new"
