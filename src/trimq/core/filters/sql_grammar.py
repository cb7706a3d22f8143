"""Grammar of SQL filters. Compiles each rule to a function of a message's properties.

Text after a complete expression is ignored, as in Apache RocketMQ: `a > 3 b` is `a > 3`. `NOT` and the signs bind only
to the next operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import lark
from lark.exceptions import UnexpectedInput, UnexpectedToken

from trimq.core.filters.sql_filter import InvalidSqlFilter, Matches, Properties
from trimq.core.filters.sql_values import INT64, Incomparable, Value, compare, compare_order

Evaluate = Callable[[Properties], Value]

_GRAMMAR = r"""
?start: either
?either: both | either OR both
?both: equality | both AND equality
?equality: comparison
    | equality EQUAL comparison
    | equality UNEQUAL comparison -> unequal
    | equality IS NULL -> is_null
    | equality IS NOT NULL -> is_not_null
?comparison: unary
    | comparison ORDER unary
    | comparison SEARCH TEXT -> search
    | comparison NOT SEARCH TEXT -> not_search
    | comparison BETWEEN unary AND unary -> between
    | comparison NOT BETWEEN unary AND unary -> not_between
    | comparison IN "(" texts ")" -> is_in
    | comparison NOT IN "(" texts ")" -> is_not_in
texts: TEXT ("," TEXT)*
?unary: PLUS unary -> same
    | MINUS unary -> negated
    | NOT unary -> opposite
    | primary
?primary: constant | property | "(" either ")" -> same
constant: TEXT | WHOLE | DECIMAL | TRUE | FALSE | NULL
property: NAME

EQUAL: "="
UNEQUAL.1: "<>"
ORDER: ">=" | "<=" | ">" | "<"
PLUS: "+"
MINUS: "-"
NOT.3: /NOT(?![a-z0-9_$])/i
AND.3: /AND(?![a-z0-9_$])/i
OR.3: /OR(?![a-z0-9_$])/i
BETWEEN.3: /BETWEEN(?![a-z0-9_$])/i
IN.3: /IN(?![a-z0-9_$])/i
IS.3: /IS(?![a-z0-9_$])/i
TRUE.3: /TRUE(?![a-z0-9_$])/i
FALSE.3: /FALSE(?![a-z0-9_$])/i
NULL.3: /NULL(?![a-z0-9_$])/i
SEARCH.3: /(CONTAINS|STARTSWITH|ENDSWITH)(?![a-z0-9_$])/i
DECIMAL.2: /[0-9]+\.[0-9]*(E[+-]?[0-9]+)?|\.[0-9]+(E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+/i
WHOLE.1: /0|[1-9][0-9]*L?/i
TEXT: /'(''|[^'])*'/
NAME: /[a-z_$][a-z0-9_$]*/i
BLANK: /[ \t\n\r\f]+/
LINE_COMMENT.4: /--[^\n\r]*(\r\n|\n|\r)/
BLOCK_COMMENT.4: "/*" /[^*]*\*+([^\/*][^*]*\*+)*/ "/"
%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

_OPERATORS = frozenset(
    ("EQUAL", "UNEQUAL", "ORDER", "PLUS", "MINUS", "NOT", "AND", "OR", "BETWEEN", "IN", "IS", "SEARCH", "LPAR")
)
_MAX_FLOAT = 1.7976931348623157e308


class _Node(NamedTuple):
    evaluate: Evaluate
    is_boolean: bool = False
    is_constant: bool = False
    is_property: bool = False
    value: Value = None


def parse(text: str, max_operators: int) -> Matches:
    """Raises InvalidSqlFilter if the text is not a valid expression."""
    try:
        evaluate = _as_boolean(_read(text, max_operators)).evaluate
    except UnexpectedInput as error:
        raise InvalidSqlFilter(f"syntax error at character {error.pos_in_stream}") from None

    def matches(properties: Properties) -> bool:
        try:
            return evaluate(properties) is True
        except Incomparable:
            return False

    return matches


def _read(text: str, max_operators: int) -> _Node:
    session: Any = _PARSER.parse_interactive(text)
    operators = 0
    try:
        for token in session.lexer_thread.lex(session.parser_state):
            operators += token.type in _OPERATORS
            if operators > max_operators:
                raise InvalidSqlFilter(f"the expression has more than {max_operators} operators")
            session.feed_token(token)
    except UnexpectedToken:
        if "$END" not in session.accepts():
            raise
    result = session.feed_eof()
    assert isinstance(result, _Node)
    return result


def _as_boolean(node: _Node) -> _Node:
    """Accepts a Boolean expression, or a property alone: that is false if present, since properties are strings, and
    unknown if absent."""
    if node.is_boolean:
        return node
    if node.is_property:
        return _Node(lambda properties: None if node.evaluate(properties) is None else False, is_boolean=True)
    raise InvalidSqlFilter("the expression is not Boolean")


class _Builder(lark.Transformer):  # type: ignore[type-arg]
    """Builds a node for each rule during parsing."""

    def either(self, parts: list[_Node]) -> _Node:
        left, right = _as_boolean(parts[0]).evaluate, _as_boolean(parts[2]).evaluate

        def evaluate(properties: Properties) -> Value:
            first = left(properties)
            if first is True:
                return True
            second = right(properties)
            return True if second is True else None if first is None or second is None else False

        return _Node(evaluate, is_boolean=True)

    def both(self, parts: list[_Node]) -> _Node:
        return _and(_as_boolean(parts[0]), _as_boolean(parts[2]))

    def equality(self, parts: list[_Node]) -> _Node:
        left, _, right = parts
        if (left.is_constant and left.value is None) or (right.is_constant and right.value is None):
            raise InvalidSqlFilter("nothing is equal to NULL: use IS NULL")
        if left.is_constant and right.is_constant and left.is_boolean and not right.is_boolean:
            raise InvalidSqlFilter("a Boolean can only be compared with a Boolean")
        return _equal(left, right)

    def unequal(self, parts: list[_Node]) -> _Node:
        return self.opposite([parts[1], self.equality(parts)])

    def is_null(self, parts: list[_Node]) -> _Node:
        return _equal(parts[0], _NULL)

    def is_not_null(self, parts: list[_Node]) -> _Node:
        return self.opposite([parts[0], _equal(parts[0], _NULL)])

    def comparison(self, parts: list[_Node]) -> _Node:
        return _ordered(parts[0], str(parts[1]), parts[2])

    def between(self, parts: list[_Node]) -> _Node:
        value, _, low, _, high = parts
        if low.is_constant and high.is_constant and _is_backwards(low.value, high.value):
            raise InvalidSqlFilter("BETWEEN needs its lower bound first")
        return _and(_ordered(value, ">=", low), _ordered(value, "<=", high))

    def not_between(self, parts: list[_Node]) -> _Node:
        value, _, _, low, _, high = parts
        return self.either([_ordered(value, "<", low), parts[1], _ordered(value, ">", high)])

    def search(self, parts: list[_Node]) -> _Node:
        return _search(parts[0], str(parts[1]).upper(), _text(str(parts[2])), False)

    def not_search(self, parts: list[_Node]) -> _Node:
        return _search(parts[0], str(parts[2]).upper(), _text(str(parts[3])), True)

    def texts(self, parts: list[lark.Token]) -> frozenset[str]:
        return frozenset(_text(str(part)) for part in parts)

    def is_in(self, parts: list[_Node]) -> _Node:
        return _in(parts[0], parts[-1], False)

    def is_not_in(self, parts: list[_Node]) -> _Node:
        return _in(parts[0], parts[-1], True)

    def same(self, parts: list[_Node]) -> _Node:
        return parts[-1]

    def negated(self, parts: list[_Node]) -> _Node:
        value = parts[1].evaluate

        def evaluate(properties: Properties) -> Value:
            found = value(properties)
            return -found if isinstance(found, int | float) and not isinstance(found, bool) else None

        return _Node(evaluate)

    def opposite(self, parts: list[_Node]) -> _Node:
        value = _as_boolean(parts[1]).evaluate

        def evaluate(properties: Properties) -> Value:
            found = value(properties)
            return None if found is None else not found

        return _Node(evaluate, is_boolean=True)

    def constant(self, parts: list[lark.Token]) -> _Node:
        value = _read_constant(parts[0])
        is_boolean = value is None or isinstance(value, bool)
        return _Node(lambda _: value, is_boolean, is_constant=True, value=value)

    def property(self, parts: list[lark.Token]) -> _Node:
        name = str(parts[0])
        return _Node(lambda properties: properties.get(name), is_property=True)


def _read_constant(token: lark.Token) -> Value:
    text = str(token)
    match token.type:
        case "TEXT":
            return _text(text)
        case "WHOLE":
            digits = text.rstrip("lL")
            if len(digits) > 19 or int(digits) > INT64:
                raise InvalidSqlFilter(f"{text[:40]} is too large")
            return int(digits)
        case "DECIMAL":
            if float(text) > _MAX_FLOAT:
                raise InvalidSqlFilter(f"{text[:40]} is too large")
            return float(text)
        case "NULL":
            return None
    return token.type == "TRUE"


def _text(quoted: str) -> str:
    return quoted[1:-1].replace("''", "'")


def _is_backwards(low: Value, high: Value) -> bool:
    try:
        return low is None or high is None or compare(high, low) < 0
    except Incomparable as error:
        raise InvalidSqlFilter(str(error)) from None


def _and(first: _Node, second: _Node) -> _Node:
    left, right = first.evaluate, second.evaluate

    def evaluate(properties: Properties) -> Value:
        one = left(properties)
        if one is False:
            return False
        other = right(properties)
        return False if other is False else None if one is None or other is None else True

    return _Node(evaluate, is_boolean=True)


def _equal(first: _Node, second: _Node) -> _Node:
    left, right = first.evaluate, second.evaluate

    def evaluate(properties: Properties) -> Value:
        one, other = left(properties), right(properties)
        if one is None or other is None:
            return True if one is other else None if one is None else False
        return compare(one, other) == 0

    return _Node(evaluate, is_boolean=True)


_ORDERS: dict[str, Callable[[int], bool]] = {
    ">": lambda answer: answer > 0,
    ">=": lambda answer: answer >= 0,
    "<": lambda answer: answer < 0,
    "<=": lambda answer: answer <= 0,
}


def _ordered(first: _Node, operator: str, second: _Node) -> _Node:
    for node in (first, second):
        if node.is_boolean or (node.is_constant and isinstance(node.value, str)):
            raise InvalidSqlFilter("only numbers can be compared with <, <=, > and >=")
    left, right, holds = first.evaluate, second.evaluate, _ORDERS[operator]

    def evaluate(properties: Properties) -> Value:
        one, other = left(properties), right(properties)
        return None if one is None or other is None else holds(compare_order(one, other))

    return _Node(evaluate, is_boolean=True)


_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _search(node: _Node, operator: str, wanted: str, is_not: bool) -> _Node:
    value, holds = node.evaluate, _SEARCHES[operator]

    def evaluate(properties: Properties) -> Value:
        found = value(properties)
        return bool(wanted) and isinstance(found, str) and holds(found, wanted) is not is_not

    return _Node(evaluate, is_boolean=True)


def _in(node: _Node, wanted: object, is_not: bool) -> _Node:
    if not node.is_property:
        raise InvalidSqlFilter("IN needs a property on its left")
    assert isinstance(wanted, frozenset)
    value = node.evaluate

    def evaluate(properties: Properties) -> Value:
        found = value(properties)
        return None if found is None else (found in wanted) is not is_not

    return _Node(evaluate, is_boolean=True)


_NULL = _Node(lambda _: None, is_boolean=True, is_constant=True)
_PARSER = lark.Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(), maybe_placeholders=False)
