"""Fast path for properties around a unique key: the layout is parsed once, with the same result as parsing each
text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimq.formats.rocketmq_unit.properties import KEYS, TAGS, UNIQUE_KEY, VALUE_ENDS, read_plain_properties, tags_code
from trimq.protocols.rocketmq.wire.fast_properties import PlainProperties, PropertyTemplates
from trimq.protocols.rocketmq.wire.responses import is_quotable

ADDED = "CLUSTER\x01c\x02"
SPECIAL = ("DELAY", "CLUSTER")


def parsed_fully(text: str) -> PlainProperties | None:
    properties = read_plain_properties(text)
    if properties is None or UNIQUE_KEY not in properties or not set(SPECIAL).isdisjoint(properties):
        return None
    unique = properties[UNIQUE_KEY]
    if not is_quotable(unique):
        return None
    separator = "" if text.endswith(VALUE_ENDS) else VALUE_ENDS
    code = tags_code(properties[TAGS]) if TAGS in properties else 0
    return unique, f"{text}{separator}{ADDED}".encode(), code, properties.get(KEYS)


NAMES = st.sampled_from(["UNIQ_KEY", "MY_UNIQ_KEY", "UNIQ_KEYS", "TAGS", "KEYS", "DELAY", "WAIT", "x", ""])
VALUES = st.sampled_from(["7F01", "7F02", "a b", 'a"b', "é", "UNIQ_KEY", "\x00", "", "true"])
TEXTS = st.lists(st.tuples(NAMES, VALUES), max_size=4).map(
    lambda items: "".join(f"{name}\x01{value}\x02" for name, value in items)
)
CUT = st.tuples(TEXTS, st.sampled_from(["", "\x02", "\x01", "UNIQ_KEY\x01z"]), st.integers(0, 1)).map(
    lambda made: (made[0] + made[1])[: len(made[0] + made[1]) - made[2]]
)


@given(st.lists(CUT, min_size=1, max_size=8))
def test_each_text_is_read_as_if_none_had_come_before_it(texts: list[str]) -> None:
    shapes = PropertyTemplates(ADDED, SPECIAL)
    for text in texts:
        found, expected = shapes.read(text), parsed_fully(text)
        assert found == expected or (found is None and "MY_UNIQ_KEY" in text)  # the slow path is always right


def test_a_shape_that_is_met_again_gives_the_new_key() -> None:
    shapes = PropertyTemplates(ADDED, SPECIAL)
    for unique in ("7F01", "7F02"):
        found = shapes.read(f"TAGS\x01A\x02UNIQ_KEY\x01{unique}\x02WAIT\x01true")
        written = f"TAGS\x01A\x02UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02{ADDED}".encode()
        assert found == (unique, written, tags_code("A"), None)


def test_many_shapes_do_not_stay() -> None:
    shapes = PropertyTemplates(ADDED, SPECIAL)
    for number in range(5000):
        assert shapes.read(f"UNIQ_KEY\x01k\x02x\x01{number}\x02") is not None
    assert len(shapes._templates) <= 1024
    assert shapes.read(f"UNIQ_KEY\x01k\x02x\x01{'y' * 2000}\x02") is not None
    assert all(len(before) + len(after) <= 1100 for before, after, _ in shapes._templates.values())
