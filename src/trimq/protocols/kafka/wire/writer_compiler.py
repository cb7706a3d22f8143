"""Compiles message schemas into writers. A writer is one straight-line function for one message and version: it takes
the `append` method of a list and the message, and appends the bytes piece by piece."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from trimq.model import Buffer
from trimq.protocols.kafka.messages.schema import NO_ID, Field, Struct, includes
from trimq.protocols.kafka.wire import primitives
from trimq.protocols.kafka.wire.code_builder import CodeBuilder

Writer = Callable[[Callable[[Buffer], None], Any], None]

SHORT_ARRAY = 16  # arrays of numbers shorter than this are packed by a precompiled struct


def compile_writer(message: type[Struct], version: int, flexible: bool) -> Writer:
    """Compiles the writer of a message. The writer raises Python's errors for values that do not fit their fields."""
    return build_writer_source(message, version, flexible).compile(f"writer of {message.__name__} version {version}")


def build_writer_source(message: type[Struct], version: int, flexible: bool) -> CodeBuilder:
    names = {"NO_ID": NO_ID, "VARINTS": primitives.VARINTS, "varint": primitives.varint, "pack_array": pack_array}
    return WriterBuilder(CodeBuilder(names), version, flexible).write(message)


@cache
def short_arrays(formats: str) -> tuple[Callable[..., bytes], ...]:
    """Returns packers of a length followed by that many numbers, indexed by the count."""
    length, number = formats[0], formats[1:]
    return tuple(struct.Struct(f">{length}{count}{number}").pack for count in range(SHORT_ARRAY))


def pack_array(number: str, values: list[Any]) -> bytes:
    return struct.pack(f">{len(values)}{number}", *values)


class WriterBuilder:
    """Generates the source of one writer. Consecutive fixed-size fields, and the length that follows them, are packed
    by one call: `pending_fields` holds the fields that are not packed yet."""

    def __init__(self, source: CodeBuilder, version: int, flexible: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.pending_fields: list[tuple[str, str]] = []

    def write(self, message: type[Struct]) -> CodeBuilder:
        with self.source.block("def write(append, message):"):
            self.write_struct(message, "message", 0)
            if not self.source.lines[1:]:
                self.source.add("pass")
        return self.source

    def write_struct(self, kind: type[Struct], value: str, depth: int) -> None:
        tagged = []
        for field in kind.FIELDS:
            if not includes(field.versions, self.version):
                continue
            if field.tag is not None:
                tagged.append(field)
            else:
                self.write_field(field, f"{value}.{field.name}", depth)
        if self.flexible and tagged:
            self.flush()
            self.write_tags(tagged, value, depth)
        elif self.flexible:
            self.pending_fields.append(("", "x"))  # no tagged fields: their count is a zero byte
        self.flush()

    def write_field(self, field: Field, value: str, depth: int) -> None:
        if field.kind in primitives.FORMATS:
            self.pending_fields.append((value, primitives.FORMATS[field.kind]))
        elif field.kind == "struct":
            self.write_nested(field, value, depth)
        elif field.kind == "array":
            self.write_array(field, value, depth)
        else:
            self.write_bytes(field, value)

    def flush(self) -> None:
        if self.pending_fields:
            self.source.add(f"append({self.packed(self.pending_fields)})")
            self.pending_fields = []

    def packed(self, pending_fields: list[tuple[str, str]]) -> str:
        formats = "".join(code for _, code in pending_fields)
        if not formats.strip("x"):
            return repr(bytes(len(formats)))
        values = ", ".join(value for value, code in pending_fields if code != "x")
        return f"{self.source.name_of_struct('pack', formats)}({values})"

    def write_length(self, field: Field, length: str) -> None:
        """Generates the writing of a length together with the pending fields. `length` is below zero for null."""
        if not self.flexible:
            self.pending_fields.append((length, "h" if field.kind == "string" else "i"))
            self.flush()
            return
        self.source.add(f"length = {length} + 1")
        if not self.pending_fields:
            self.source.add("append(VARINTS[length] if length < 128 else varint(length))")
            return
        with self.source.block("if length < 128:"):
            self.source.add(f"append({self.packed([*self.pending_fields, ('length', 'B')])})")
        with self.source.block("else:"):
            self.flush()
            self.source.add("append(varint(length))")

    def write_bytes(self, field: Field, value: str) -> None:
        raw = "{}.encode()" if field.kind == "string" else "{}"
        if includes(field.nullable, self.version):
            self.source.add(f"value = {value}")
            self.source.add(f"raw = b'' if value is None else {raw.format('value')}")
            self.write_length(field, "(-1 if value is None else len(raw))")
        else:
            self.source.add(f"raw = {raw.format(value)}")
            self.write_length(field, "len(raw)")
        self.source.add("append(raw)")

    def write_array(self, field: Field, value: str, depth: int) -> None:
        element = field.element
        assert element is not None
        values = f"values_{depth}"
        if includes(field.nullable, self.version):
            self.flush()
            self.source.add(f"{values} = {value}")
            with self.source.block(f"if {values} is None:"):
                self.source.add(f"append({bytes(1) if self.flexible else bytes([255] * 4)!r})")
            with self.source.block("else:"):
                self.write_elements(field, element, values, depth)
        else:
            self.source.add(f"{values} = {value}")
            self.write_elements(field, element, values, depth)

    def write_elements(self, field: Field, element: Any, values: str, depth: int) -> None:
        one = Field("struct", element=element) if isinstance(element, type) else element()
        if one.kind in primitives.FORMATS:
            self.write_numbers(field, primitives.FORMATS[one.kind], values)
            return
        self.write_length(field, f"len({values})")
        each = f"each_{depth}"
        with self.source.block(f"for {each} in {values}:"):
            if isinstance(element, type):
                self.write_struct(element, each, depth + 1)
            else:
                self.write_field(one, each, depth + 1)
                self.flush()

    def write_numbers(self, field: Field, code: str, values: str) -> None:
        self.flush()
        head = "B" if self.flexible else "i"
        name = f"arrays_{head}{code}"
        self.source.names[name] = short_arrays(head + code)
        self.source.add(f"count = len({values})")
        with self.source.block(f"if count < {SHORT_ARRAY}:"):
            self.source.add(f"append({name}[count](count{' + 1' if self.flexible else ''}, *{values}))")
        with self.source.block("else:"):
            self.write_length(field, "count")
            self.source.add(f'append(pack_array("{code}", {values}))')

    def write_nested(self, field: Field, value: str, depth: int) -> None:
        assert isinstance(field.element, type)
        name = f"struct_{depth}"
        if not includes(field.nullable, self.version):
            self.flush()
            self.source.add(f"{name} = {value}")
            self.write_struct(field.element, name, depth + 1)
            return
        self.flush()
        self.source.add(f"{name} = {value}")
        with self.source.block(f"if {name} is None:"):
            self.source.add("append(b'\\xff')")
        with self.source.block("else:"):
            self.source.add("append(b'\\x01')")
            self.write_struct(field.element, name, depth + 1)

    def write_tags(self, tagged: list[Field], value: str, depth: int) -> None:
        """Generates the writing of the tagged fields that differ from their defaults, in the order of their tags."""
        tagged = sorted(tagged, key=lambda field: field.tag or 0)
        given = [self.is_given(field, f"{value}.{field.name}") for field in tagged]
        with self.source.block(f"if {' or '.join(given)}:"):
            self.source.add(f"tags_{depth} = []")
            for field, condition in zip(tagged, given, strict=True):
                with self.source.block(f"if {condition}:"):
                    self.write_tag(field, f"{value}.{field.name}", depth)
            self.source.add(f"append(varint(len(tags_{depth})))", f"append(b''.join(tags_{depth}))")
        with self.source.block("else:"):
            self.source.add("append(b'\\x00')")

    def is_given(self, field: Field, value: str) -> str:
        if field.kind == "array":
            return value
        if field.default is None:
            return f"{value} is not None"
        return f"{value} != {'NO_ID' if field.kind == 'uuid' else repr(field.default)}"

    def write_tag(self, field: Field, value: str, depth: int) -> None:
        # the length precedes a tagged field, so its pieces are collected in a list of their own
        outer, pieces, body = f"append_{depth}", f"pieces_{depth}", f"body_{depth}"
        self.source.add(f"{outer} = append", f"{pieces} = []", f"append = {pieces}.append")
        self.write_field(field, value, depth + 1)
        self.flush()
        self.source.add(f"append = {outer}", f"{body} = b''.join({pieces})")
        self.source.add(f"tags_{depth}.append({primitives.varint(field.tag or 0)!r} + varint(len({body})) + {body})")
