"""Compiles message schemas into readers. A reader is one straight-line function for one message and version: it takes
the bytes and a position, and returns the message and the position after it. It checks every length before it creates
objects."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from trimq.model import Buffer
from trimq.protocols.kafka.messages.schema import NO_ID, Field, Struct, includes
from trimq.protocols.kafka.wire import primitives
from trimq.protocols.kafka.wire.code_builder import CodeBuilder

NO_ELEMENT_LIMIT = 2**31 - 1  # of elements

# Arguments: the bytes, the position, and the maximum number of elements of all arrays together.
Reader = Callable[[Buffer, int, int], tuple[Any, int]]


def compile_reader(message: type[Struct], version: int, flexible: bool) -> Reader:
    """Compiles the reader of a message. The reader raises IndexError or struct.error for bytes that end too early."""
    return build_reader_source(message, version, flexible).compile(f"reader of {message.__name__} version {version}")


def build_reader_source(message: type[Struct], version: int, flexible: bool) -> CodeBuilder:
    names = {
        "NO_ID": NO_ID,
        "long_varint": primitives.long_varint,
        "read_varint": primitives.read_varint,
        "refuse_elements": primitives.refuse_elements,
        "refuse_length": primitives.refuse_length,
        "skip_tags": primitives.skip_tags,
        "unpack_from": struct.unpack_from,
    }
    return ReaderBuilder(CodeBuilder(names), version, flexible, holds_records(message)).write(message)


def holds_records(message: type[Struct]) -> bool:
    """Returns whether the message contains record batches, which are views of the received bytes."""
    return any(
        field.kind == "records" or (isinstance(field.element, type) and holds_records(field.element))
        for field in message.FIELDS
    )


def minimal_size(message: type[Struct], version: int, flexible: bool) -> int:
    """Returns the fewest bytes that a struct can take. Bounds the claimed length of an array."""
    return flexible + sum(
        minimal_field_size(field, version, flexible)
        for field in message.FIELDS
        if includes(field.versions, version) and field.tag is None
    )


def minimal_field_size(field: Field, version: int, flexible: bool) -> int:
    if field.kind in primitives.FORMATS:
        return struct.calcsize(">" + primitives.FORMATS[field.kind])
    if field.kind == "struct":
        assert isinstance(field.element, type)
        return 1 if includes(field.nullable, version) else minimal_size(field.element, version, flexible)
    return 1 if flexible else 2 if field.kind == "string" else 4


class ReaderBuilder:
    """Generates the source of one reader. Consecutive fixed-size fields, and the length that follows them, are unpacked
    by one call: `pending_fields` holds the fields that are not unpacked yet. In the source, the value of field `name`
    of a struct at depth 1 is `name_1`; other variables have no underscore before their depth."""

    def __init__(self, source: CodeBuilder, version: int, flexible: bool, views: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        # `bytes` decodes faster, but record batches must stay views of the received bytes
        self.text = 'str({}, "utf-8", "replace")' if views else '{}.decode("utf-8", "replace")'
        self.pending_fields: list[tuple[str, str]] = []

    def write(self, message: type[Struct]) -> CodeBuilder:
        with self.source.block(f"def read(buffer, position, most={NO_ELEMENT_LIMIT}):"):
            self.source.add("size = len(buffer)")
            made = self.read_struct(message, 0)
            self.source.add(f"return {made}, position")
        return self.source

    def read_struct(self, kind: type[Struct], depth: int) -> str:
        """Generates the reading of a struct; returns the expression that creates it."""
        values = []
        tagged = []
        for field in kind.FIELDS:
            value = f"{field.name}_{depth}"
            if not includes(field.versions, self.version):
                value = self.default_of(field)
            elif field.tag is not None:
                tagged.append((field, value))
            else:
                self.read_field(field, value, depth)
            values.append(value)
        if self.flexible:
            self.read_tags(tagged, depth)
        self.flush()
        self.source.names[kind.__name__] = kind
        return f"{kind.__name__}({', '.join(values)})"

    def default_of(self, field: Field) -> str:
        if field.kind == "array":
            return "None" if field.default is None else "[]"
        if field.kind == "uuid":
            return "NO_ID"
        if field.kind == "struct" and field.tag is None and field.nullable == "none":
            assert isinstance(field.element, type)
            self.source.names[field.element.__name__] = field.element
            return f"{field.element.__name__}()"
        return repr(field.default)

    def read_field(self, field: Field, value: str, depth: int) -> None:
        if field.kind in primitives.FORMATS:
            self.pending_fields.append((value, primitives.FORMATS[field.kind]))
        elif field.kind == "struct":
            self.read_nested(field, value, depth)
        elif field.kind == "array":
            self.read_length(field, f"count{depth}")
            self.read_unless_null(field, value, f"count{depth}", lambda: self.read_array(field, value, depth))
        else:
            self.read_length(field, "length")
            self.read_unless_null(field, value, "length", lambda: self.read_bytes(field, value))

    def flush(self) -> None:
        """Generates the unpacking of the pending fields."""
        if not self.pending_fields:
            return
        formats = "".join(code for _, code in self.pending_fields)
        targets = ", ".join(name for name, _ in self.pending_fields)
        if formats == "B":
            self.source.add(f"{targets} = buffer[position]")
        else:
            comma = "," if len(self.pending_fields) == 1 else ""
            unpack = self.source.name_of_struct("unpack_from", formats)
            self.source.add(f"{targets}{comma} = {unpack}(buffer, position)")
        self.source.add(f"position += {struct.calcsize('>' + formats)}")
        self.pending_fields = []

    def read_length(self, field: Field, name: str) -> None:
        """Generates the reading of a length, compact or not; null becomes a value below zero."""
        self.pending_fields.append((name, "B" if self.flexible else "h" if field.kind == "string" else "i"))
        self.flush()
        if self.flexible:
            with self.source.block(f"if {name} > 127:"):
                self.source.add(f"{name}, position = long_varint(buffer, position, {name})")
            self.source.add(f"{name} -= 1")

    def read_unless_null(self, field: Field, value: str, length: str, read: Callable[[], None]) -> None:
        if includes(field.nullable, self.version):
            with self.source.block(f"if {length} < 0:"):
                self.source.add(f"{value} = None")
            with self.source.block("else:"):
                read()
        else:
            read()

    def read_bytes(self, field: Field, value: str) -> None:
        slice_of = "buffer[position:end]"
        made = {"string": self.text.format(slice_of), "bytes": f"bytes({slice_of})", "records": slice_of}[field.kind]
        self.source.add("end = position + length")
        fits = "end <= size"
        if field.kind == "string":
            fits = f"0 <= length <= {primitives.LONGEST_STRING} and end <= size"
        elif not includes(field.nullable, self.version):
            fits = "0 <= length and end <= size"
        with self.source.block(f"if not ({fits}):"):
            self.source.add(f"refuse_length({field.name!r}, length, size - position)")
        self.source.add(f"{value} = {made}", "position = end")

    def read_array(self, field: Field, value: str, depth: int) -> None:
        element = field.element
        assert element is not None
        one = Field("struct", element=element) if isinstance(element, type) else element()
        assert isinstance(one, Field)
        smallest = minimal_field_size(one, self.version, self.flexible)
        assert smallest > 0  # otherwise any claimed count would pass the check
        count = f"count{depth}"
        with self.source.block(f"if not 0 <= {count} * {smallest} <= size - position:"):
            self.source.add(f"refuse_length({field.name!r}, {count}, size - position)")
        self.source.add(f"most -= {count}")
        with self.source.block("if most < 0:"):
            self.source.add(f"refuse_elements({field.name!r})")
        if one.kind in primitives.FORMATS:
            code = primitives.FORMATS[one.kind]
            self.source.add(f'{value} = list(unpack_from(f">{{{count}}}{code}", buffer, position))')
            self.source.add(f"position += {count} * {smallest}")
            return
        self.source.add(f"{value} = []")
        with self.source.block(f"for _ in range({count}):"):
            if isinstance(element, type):
                made = self.read_struct(element, depth + 1)
            else:
                made = f"element{depth + 1}"
                one.name = field.name
                self.read_field(one, made, depth + 1)
                self.flush()
            self.source.add(f"{value}.append({made})")

    def read_nested(self, field: Field, value: str, depth: int) -> None:
        assert isinstance(field.element, type)
        if not includes(field.nullable, self.version):
            self.flush()
            self.source.add(f"{value} = {self.read_struct(field.element, depth + 1)}")
            return
        self.pending_fields.append(("present", "b"))
        self.flush()
        self.source.add(f"{value} = None")
        with self.source.block("if present >= 0:"):
            self.source.add(f"{value} = {self.read_struct(field.element, depth + 1)}")

    def read_tags(self, tagged: list[tuple[Field, str]], depth: int) -> None:
        count = f"tags{depth}"
        self.pending_fields.append((count, "B"))
        self.flush()
        if not tagged:
            with self.source.block(f"if {count}:"):
                self.source.add(f"position = skip_tags(buffer, position, {count}, size)")
            return
        for field, value in tagged:
            self.source.add(f"{value} = {self.default_of(field)}")
        with self.source.block(f"if {count}:"):
            with self.source.block(f"if {count} > 127:"):
                self.source.add(f"{count}, position = long_varint(buffer, position, {count})")
            with self.source.block(f"if not 0 <= {count} * 2 <= size - position:"):
                self.source.add(f"refuse_length('the section of tagged fields', {count}, size - position)")
            with self.source.block(f"for _ in range({count}):"):
                self.read_known_tag(tagged, depth)

    def read_known_tag(self, tagged: list[tuple[Field, str]], depth: int) -> None:
        tag, end = f"tag{depth}", f"tagend{depth}"
        self.source.add(f"{tag}, position = read_varint(buffer, position)")
        self.source.add("length, position = read_varint(buffer, position)")
        self.source.add(f"{end} = position + length")
        with self.source.block(f"if length < 0 or {end} > size:"):
            self.source.add("refuse_length('a tagged field', length, size - position)")
        word = "if"
        for field, value in tagged:
            with self.source.block(f"{word} {tag} == {field.tag}:"):
                self.read_field(field, value, depth)
                self.flush()
            word = "elif"
        with self.source.block(f"if position > {end}:"):
            self.source.add(f"refuse_length('a tagged field', position - {end}, 0)")
        self.source.add(f"position = {end}")
