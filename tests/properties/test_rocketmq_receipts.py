"""Receipts of popped messages: round trips; other text is a receipt or a BadReceipt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimq.core.pop.receipts import Receipt
from trimq.protocols.rocketmq.wire.receipt_text import BadReceipt, read_receipt, write_receipt

numbers = st.integers(0, 2**62)
receipts = st.builds(Receipt, st.booleans(), st.integers(0, 2**31), numbers, numbers)


@given(receipts, numbers, st.booleans(), numbers, st.none() | numbers)
def test_a_receipt_is_read_as_it_was_written(
    receipt: Receipt, invisible_ms: int, is_ordered: bool, start: int, position: int | None
) -> None:
    text = write_receipt(receipt, invisible_ms, "broker-a", is_ordered, start, position)
    assert read_receipt(text) == (receipt, invisible_ms, "broker-a", is_ordered, position)


@given(st.text(alphabet="01٣ -x", max_size=40) | st.text())
def test_any_text_is_a_receipt_or_refused(text: str) -> None:
    try:
        read_receipt(text)
    except BadReceipt:
        return
    assert len(text.split(" ")) >= 8
