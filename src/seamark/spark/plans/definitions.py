"""What the columns of a plan are made of, as text that is the same in every process.

Spark's own text of a plan is not: it numbers columns by a counter of the process, cuts long lists
at a setting of the session, and has random ids and the options of sources in it. The SQL of an
expression has none of that, and has not changed from Spark 4.0 to 4.3. It names columns without
saying what they are, so each name that was computed gets its definition: ``sum(w) [w: (v + 1)]``.

Tests: ``tests/spark/test_computation.py``.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from seamark.spark.plans.column_origins import (
    named_queries,
    place_of_column,
    unions_with,
    united_columns,
)
from seamark.spark.plans.hidden_parameters import (
    body_of,
    fields_of,
    groupings_of,
    parameters_of,
    patterns_of,
    variables_of,
    zone_of,
)
from seamark.spark.plans.read_types import read_types, returned_type, told_type
from seamark.spark.plans.recorded_sql import recorded_sql
from seamark.spark.plans.time_windows import session_gap, time_column, time_window, window_text
from seamark.spark.plans.trees import class_name, each

LONGEST: Final = 200
"""Longer texts are cut, and end in a digest of the whole."""
MOST: Final = 40
"""Keys, functions or inputs of one operator that are listed; of more there is a digest."""


Text = str | dict[str, str]
"""An expression in words; a time window in its parts."""
Notes = dict[tuple[str, str], None]
"""What words leave out, in order: parts with their texts."""
_PARTS: Final = (
    *("expanded", "fields", "grouping sets", "hidden texts", "inputs", "lookups", "named queries"),
    *("parameters", "patterns", "queries", "returned types", "SQL functions", "time zone"),
    *("types", "united", "variables"),
)
_BY_PLACE: Final = frozenset({"CsvToStructs", "PythonUDF", "ScalaUDF"})
"""What fills a struct by the places of its fields; others know them by name."""
_QUERIES: Final = frozenset({"Exists", "LateralSubquery", "ListQuery", "ScalarSubquery"})


class Definitions:
    """The columns of one plan, resolved down to the columns of its sources."""

    def __init__(self, plan: Any, name_of: Callable[[Any], str]) -> None:
        """``name_of`` names a leaf of the plan: a source, a table."""
        self._plan = plan
        self._leaves = list(each(plan.collectLeaves()))
        self._name_of = name_of
        self._known: dict[int, str] = {}
        self._windows: dict[int, dict[str, str]] = {}
        self._hidden: dict[int, Notes] = {}
        self._found: Notes = {}
        self._told: dict[str, list[Notes]] = {}
        self._made_by: dict[int, str] = {}
        self._united_columns = frozenset(united_columns(plan))
        self._of_first: dict[tuple[int, int], tuple[str, Notes]] = {}
        self._first_plans: dict[tuple[int, int], Definitions] = {}

    def begin(self) -> None:
        """Forget what :meth:`hidden` tells."""
        self._found = {}
        self._told = {}

    def hidden(self) -> dict[str, Any]:
        """What decides the results of all that was told since, and is not in its words."""
        found = {part: sorted(text for of, text in self._found if of == part) for part in _PARTS}
        parts: dict[str, Any] = {
            part: shortened(", ".join(texts)) for part, texts in found.items() if texts
        }
        if inputs := found["inputs"]:
            parts["inputs"] = _bounded(dict(map(_named, inputs)))
        if details := self._details():
            parts["details"] = _bounded(details)
        return parts

    def _details(self) -> dict[str, str]:
        """By text that was told: what is hidden in it, where another order would be another result.

        ``first(v)`` is the text of two functions when one of them ignores nulls.
        """
        return {
            text: shortened(" | ".join(", ".join(map(" ".join, notes)) for notes in several))
            for text, several in self._told.items()
            if len({*map(tuple, several)}) > 1 or any(map(_has_an_order, several))
        }

    def told(self, expression: Any, below: Any) -> Text:
        """What an operator computes, over the plan ``below``; a time window in its parts."""
        around, self._found = self._found, {}
        text = self.key(expression, below)
        if isinstance(text, str):
            notes = {note: None for note in self._found if note[0] not in ("inputs", "types")}
            self._told.setdefault(text, []).append(notes)
        self._found = around | self._found
        return text

    def leaf_name(self, leaf: Any) -> str:
        """The name of the source or table that a leaf is."""
        return self._name_of(leaf)

    def key(self, expression: Any, below: Any) -> Text:
        """A key of an operator over the plan ``below``; a time window in its parts."""
        text = self.text(expression, below)
        if class_name(expression) == "AttributeReference":
            return self._windows.get(int(expression.exprId().id()), text)
        return text

    def text(self, expression: Any, below: Any) -> str:
        """An expression over the columns of the plan ``below``."""
        if class_name(expression) == "Alias":
            expression = expression.child()
        sql = str(expression.sql())
        defined: dict[int, tuple[str, str]] = {}
        for leaf in each(expression.collectLeaves()):
            kind = class_name(leaf)
            if kind == "AttributeReference":
                name = str(leaf.name())
                sql = _unqualified(sql, str(leaf.sql()), name)
                number = int(leaf.exprId().id())
                if number not in defined:
                    defined[number] = name, self._definition(leaf, below)
            elif kind == "Literal" and (written := str(leaf.sql())).startswith("TIMESTAMP '"):
                # the SQL shows it in the time zone of the session
                sql = sql.replace(written, f"TIMESTAMP {leaf.value()}")
            elif kind == "OuterReference":  # a query without a name has a random one
                sql = sql.replace(str(leaf.sql()), f"outer({leaf.name()})")
        self._note(expression)
        self._found |= {("types", text): None for text in read_types(expression)}
        if class_name(expression) == "AttributeReference":
            return shortened(defined[int(expression.exprId().id())][1])
        names = Counter(name for name, _ in defined.values())
        definitions = [f"{n}: {what}" for n, what in defined.values() if what != n or names[n] > 1]
        sql, mark = recorded_sql(sql)
        if mark:
            self._found["hidden texts", f"{sql} {mark}"] = None
        return shortened(f"{sql} [{', '.join(definitions)}]" if definitions else sql)

    def whole(self, expression: Any, below: Any) -> str:
        """An expression, and what its words leave out, in one text."""
        return self._with_notes(lambda: self.text(expression, below))

    def _with_notes(self, tell: Callable[[], str]) -> str:
        around, self._found = self._found, {}
        text = tell()
        notes = sorted(" ".join(note) for note in self._found if note[0] != "inputs")
        # these are compared one by one
        self._found = around | {note: None for note in self._found if note[0] == "inputs"}
        return "; ".join([text, *notes])

    def _definition(self, attribute: Any, below: Any) -> str:
        number = int(attribute.exprId().id())
        if number not in self._known:
            self._known[number] = str(attribute.name())  # a plan that refers to itself ends here
            around, self._found = self._found, {}
            self._known[number] = shortened(self._defined(attribute, below))
            self._hidden[number], self._found = self._found, around
        self._found |= self._hidden.get(number, {})
        if number in self._united_columns:
            self._note_united(attribute, below)
        return self._known[number]

    def _note(self, expression: Any) -> None:
        """Note what the SQL of an expression leaves out."""
        kind = class_name(expression)
        if kind in ("AttributeReference", "Literal"):
            return
        self._found |= {("parameters", text): None for text in parameters_of(expression, kind)}
        for part, told in (
            ("variables", variables_of(expression, kind)),
            ("time zone", zone_of(expression, kind, self._plan)),
            ("patterns", patterns_of(expression, kind)),
            ("fields", fields_of(expression, kind)),
            ("returned types", returned_type(expression, kind)),
            ("SQL functions", body_of(expression, kind)),
            ("queries", self._query(expression.plan()) if kind in _QUERIES else None),
        ):
            if told is not None:
                self._found[part, told] = None
        children = list(each(expression.children()))
        if kind == "GetStructField" and self._class_behind(children[0]) in _BY_PLACE:
            text = f"{expression.sql()} is column {int(expression.ordinal()) + 1}"
            self._found["parameters", text] = None
        for child in children:
            self._note(child)

    def _query(self, plan: Any) -> str:
        """A query inside an expression. Which tables it reads is not told, as of a join."""
        from seamark.spark.plans.subtrees import Subtrees  # it is made of definitions

        return Subtrees(plan, self._name_of, lambda _: "of any place").query()

    def _note_lookup(self, join: Any) -> None:
        """Note how a stream finds its row of a table."""
        condition = join.condition()
        text = self.text(condition.get(), join) if condition.isDefined() else "none"
        self._found["lookups", f"{str(join.joinType().sql()).lower()} join on {text}"] = None

    def _class_behind(self, expression: Any) -> str:
        kind = class_name(expression)
        if kind == "GetStructField":
            return self._class_behind(expression.children().head())
        if kind != "AttributeReference":
            return kind
        return self._made_by.get(int(expression.exprId().id()), "")

    def _defined(self, attribute: Any, node: Any) -> str:
        """Where a column comes from: the node that has it and whose children do not."""
        kind, children = class_name(node), list(each(node.children()))
        if kind == "Union":
            return self._united(attribute, node, children)
        for child in children:
            if child.outputSet().contains(attribute):
                if kind == "Join" and node.isStreaming() and not child.isStreaming():
                    self._note_lookup(node)
                return self._defined(attribute, child)
        if not children:
            if kind == "CTERelationRef":
                self._note_named_query(attribute, node)
            return self._column(attribute, str(attribute.name()))
        return self._made_in(attribute, node, children)

    def _made_in(self, attribute: Any, node: Any, children: list[Any]) -> str:
        """What a node makes a column of, which its children do not have."""
        kind, name = class_name(node), str(attribute.name())
        if kind in ("Project", "Aggregate"):
            listed = node.projectList() if kind == "Project" else node.aggregateExpressions()
            for expression in each(listed):
                if expression.exprId().equals(attribute.exprId()):
                    return self._alias(attribute, expression, children[0])
        if kind == "Expand":
            place = place_of_column(attribute, node.output())
            expression = node.projections().head().apply(place)
            if groupings := groupings_of(node, place):
                self._found["grouping sets", groupings] = None
            self._note_expanded(node, place)
            return self._alias(attribute, expression, children[0])
        if kind == "Generate":
            if int(node.generatorOutput().size()) > 1:
                which = f"is column {place_of_column(attribute, node.generatorOutput()) + 1}"
                self._found["fields", f"{node.generator().prettyName()}.{name} {which}"] = None
            return f"{self.text(node.generator(), children[0])}.{name}"
        if kind == "LateralJoin":
            texts = [self.text(expression, children[0]) for expression in each(node.expressions())]
            self._found["queries", " ".join(texts)] = None
        else:  # a function of whole rows
            self.note_inputs(children)
        python = [e for e in each(node.expressions()) if class_name(e).startswith("Python")]
        text = f"{str(python[0].sql()).split('(')[0] if python else kind}.{name}"
        if python and (returned := told_type(attribute)):
            self._found["returned types", f"{text} {returned}"] = None
        return text

    def _note_united(self, attribute: Any, below: Any) -> None:
        """Note what a column is in the first plan of a union, whose number the united one has."""
        number = int(attribute.exprId().id())
        unions = list(unions_with(attribute, below))
        plan = unions[0].children().head() if unions else below
        place = number, len(unions)
        if place not in self._of_first:
            own = self._definitions_of_first(unions, plan)
            own.begin()
            self._of_first[place] = own.whole(attribute, plan), own._found
        text, inputs = self._of_first[place]
        self._found |= {("united", f"{attribute.name()}: {text}"): None, **inputs}

    def _definitions_of_first(self, unions: list[Any], plan: Any) -> Definitions:
        """Those of the first plan of a union, made once; without a union those of the plan."""
        if not unions:
            return Definitions(plan, self._name_of)
        union = int(unions[0].output().head().exprId().id()), len(unions)
        if union not in self._first_plans:
            self._first_plans[union] = Definitions(plan, self._name_of)
        return self._first_plans[union]

    def _note_expanded(self, expand: Any, place: int) -> None:
        """Note what a column of a row is that becomes several, unless it is the same in each."""
        columns = [projection.apply(place) for projection in each(expand.projections())]
        if time_window(str(columns[0].sql())) is not None:
            return  # windows that overlap are told as one
        told = [self.whole(c, expand.child()) for c in columns if class_name(c) != "Literal"]
        if told and (len({*told}) > 1 or class_name(columns[0]) == "Literal"):
            self._found["expanded", ", ".join(told)] = None

    def _note_named_query(self, attribute: Any, leaf: Any) -> None:
        """Note what a query with a name makes a column of."""
        number = int(leaf.cteId())
        for query in named_queries(self._plan):
            if int(query.id()) == number:
                plan = query.child()
                column = plan.output().apply(place_of_column(attribute, leaf.output()))
                # it may have the number of the column that is being defined
                text = self._with_notes(lambda: self._defined(column, plan))  # noqa: B023
                self._found["named queries", f"{attribute.name()}: {text}"] = None

    def note_inputs(self, plans: Iterable[Any]) -> None:
        """Note every column of some plans: a function that gets whole rows may use any of them."""
        for plan in plans:
            for column in each(plan.output()):
                around, self._found = self._found, {}
                what = [self._definition(column, plan), *map(" ".join, self._found)]
                what += [kind] if (kind := told_type(column)) else []
                self._found = around | {("inputs", f"{column.name()}: {', '.join(what)}"): None}

    def _column(self, attribute: Any, name: str) -> str:
        """A column of a leaf, with the name of the leaf where an earlier one has the same."""
        earlier: list[Any] = []
        for leaf in self._leaves:
            if leaf.outputSet().contains(attribute):
                break
            earlier.append(leaf)
        if not any(name in list(leaf.schema().fieldNames()) for leaf in earlier):
            return name
        mine = self._name_of(self._leaves[len(earlier)])
        again = sum(self._name_of(leaf) == mine for leaf in earlier)
        return f"{mine}#{again + 1}.{name}" if again else f"{mine}.{name}"

    def _united(self, attribute: Any, node: Any, children: list[Any]) -> str:
        place = place_of_column(attribute, node.output())
        columns = [(child.output().apply(place), child) for child in children]
        definitions = [
            str(attribute.name())  # the first one has this number too, see _note_united
            if column.exprId().equals(attribute.exprId())
            else self._definition(column, child)
            for column, child in columns
        ]
        return " | ".join(dict.fromkeys(definitions))

    def _alias(self, attribute: Any, expression: Any, below: Any) -> str:
        inner = expression.child() if class_name(expression) == "Alias" else expression
        number = int(attribute.exprId().id())
        sql = str(inner.sql())
        window, gap = time_window(sql), session_gap(sql)
        if window is None and gap is None:
            text = self.text(inner, below)
            self._made_by[number] = self._class_behind(inner)
            return text
        column = {"of": self.text(time_column(inner), below)}
        if window is not None:
            parts = {"window": "time", **column, **window}
        else:
            parts = {"window": "session", **column, "gap": gap or ""}
        self._windows[number] = parts
        return window_text(parts)


def _bounded(texts: Mapping[str, str]) -> dict[str, str]:
    """The first texts by their names, and a digest of the rest."""
    names = sorted(texts)
    rest = {name: texts[name] for name in names[MOST:]}
    more = {f"and {len(rest)} more": shortened(str(rest))} if rest else {}
    return {shortened(name): texts[name] for name in names[:MOST]} | more


def _named(text: str) -> tuple[str, str]:
    name, _, what = text.partition(": ")
    return name, shortened(what)


def _has_an_order(notes: Notes) -> bool:
    parts = Counter(part for part, _ in notes)
    return max(parts.values(), default=0) > 1


def shortened(text: str) -> str:
    """The text, or its beginning with a digest of all of it."""
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{text[: LONGEST - 20]}… {digest}"


def _unqualified(sql: str, written: str, name: str) -> str:
    """The SQL without the alias that a column was reached by: ``a.id`` is ``id``."""
    quoted = "`" + name.replace("`", "``") + "`"
    plain = quoted if written.endswith(quoted) else name
    if plain == written:
        return sql
    return re.sub(rf"(?<![\w.`]){re.escape(written)}(?![\w`])", lambda _: plain, sql)
