"""Messages as each protocol's producers send them, with the kinds of names and values that cause trouble."""

from __future__ import annotations

from hypothesis import strategies as st

from trimq.formats.amqp_content.content import Content
from trimq.formats.amqp_content.field_tables import FieldTable, Timestamp
from trimq.formats.amqp_content.property_list import EMPTY, write_properties
from trimq.formats.crossing.rocketmq import RESERVED, UnitFields
from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.model import Record

TIMES = st.one_of(st.just(-1), st.integers(0, 1 << 45))
TROUBLESOME = (
    *sorted(RESERVED),
    *("rmq.TAGS", "rmq.KEYS", "rmq.UNIQ_KEY", "rmq.flag", "amqp.type", "amqp.priority", "amqp.user-id"),
    *("trimq.from", "trimq.kept", "trimq.null", "h.a", "h.h.a", "CC", "BCC", "x-death", "x-delay", "timestamp_in_ms"),
    *("kafka.key", "TRIMQ_FROM", "TRIMQ_KEPT", "TRIMQ_TTL_MS", "__SHARDINGKEY", "TIMER_DELIVER_MS", "trace", "ORDER"),
)
names = st.one_of(
    st.sampled_from(TROUBLESOME), st.text(max_size=8), st.text(alphabet="abc", min_size=1, max_size=300)
).map(lambda text: text.encode("utf-8", "replace").decode())
texts = st.text(max_size=12).map(lambda text: text.encode("utf-8", "replace").decode())
values = st.one_of(
    st.none(), st.binary(max_size=12), texts.map(str.encode), st.sampled_from((b"amqp", b"rocketmq", b"5"))
)

records = st.builds(
    Record,
    body=st.one_of(st.none(), st.binary(max_size=40)),
    key=st.one_of(st.none(), st.binary(max_size=12), texts.map(str.encode), st.just(b"orders"), st.just(b"k" * 300)),
    headers=st.lists(st.tuples(names, values), max_size=5).map(tuple),
    timestamp_ms=TIMES,
)

_property_text = texts.map(lambda text: text.translate({0: None, 1: None, 2: None})).filter(bool)
_property_names = names.map(lambda text: text.translate({0: None, 1: None, 2: None})).filter(bool)
units = st.builds(
    UnitFields,
    body=st.binary(max_size=40),
    properties=st.dictionaries(_property_names, _property_text, max_size=6),
    born_ms=TIMES,
    flag=st.sampled_from((0, 0, 7)),
    reconsume_times=st.sampled_from((0, 0, 2)),
    born_host=st.sampled_from((pack_host("127.0.0.1", 4000), pack_host("::2", 1))),
)

_short = texts.filter(lambda text: len(text.encode()) <= 255)
_cells = st.one_of(
    texts, texts, st.none(), st.booleans(), st.integers(-(1 << 40), 1 << 40), st.binary(max_size=8), st.floats(0, 9),
    st.just(Timestamp(5)), st.lists(texts, max_size=2), st.dictionaries(_short, texts, max_size=2),
)  # fmt: skip


@st.composite
def contents(draw: st.DrawFn) -> Content:
    table: FieldTable = draw(st.dictionaries(names.filter(lambda name: len(name.encode()) <= 255), _cells, max_size=5))
    shorts = ("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type")
    chosen = draw(st.dictionaries(st.sampled_from((*shorts, "app_id", "cluster_id", "user_id")), _short, max_size=4))
    octets = draw(st.dictionaries(st.sampled_from(("priority", "delivery_mode")), st.integers(0, 255), max_size=2))
    times = draw(st.dictionaries(st.just("timestamp"), st.integers(0, 1 << 35), max_size=1))
    header = write_properties(**chosen, **octets, **times, **({"headers": table} if table else {})) or EMPTY
    exchange = draw(st.sampled_from((b"", b"", b"logs")))
    key = draw(st.one_of(st.just(b"orders"), _short.map(str.encode), st.binary(max_size=5)))
    return Content(exchange, key, header, draw(st.binary(max_size=40)), draw(st.integers(0, 1 << 45)))
