from __future__ import annotations

import struct
import traceback

from trimq.protocols.kafka.wire.code_builder import CodeBuilder


def test_blocks_are_indented_and_compiled() -> None:
    source = CodeBuilder({"LIMIT": 3})
    with source.block("def below(number):"):
        with source.block("if number < LIMIT:"):
            source.add("return True")
        source.add("return False")
    below = source.compile("below")
    assert [below(2), below(3)] == [True, False]


def test_a_struct_is_made_once_and_called_by_name() -> None:
    source = CodeBuilder({})
    name = source.name_of_struct("pack", "h?")
    assert name == source.name_of_struct("pack", "h?")
    assert name.isidentifier()
    assert source.names[name](258, True) == struct.pack(">h?", 258, True)


def test_a_traceback_shows_the_line() -> None:
    source = CodeBuilder({})
    with source.block("def divide(number):"):
        source.add("return 1 / number")
    try:
        source.compile("division")(0)
    except ZeroDivisionError as error:
        shown = "".join(traceback.format_exception(error))
    assert "<division>" in shown
    assert "return 1 / number" in shown
