"""
From a schema document to a validator: quick to say yes, exact at the edges, clear when it says no.

JSON has one kind of number, and JSON Schema takes `1e300` for an integer. But a double that large
stands for many integers at once, so CONTRACT JSON-2 lets an integer's place take a whole float up
to 2^53 and no further. The engine sees no difference between `1e300` and 10**300. Therefore:

- The schema it is given first is narrower than the real one: in every integer's place it also asks
  for -2^53 to 2^53. What passes needs no second look, and nearly everything passes.
- What does not pass is looked at again by the real schema; by one whose `type` is checked here if
  a float is there that `type` must judge by more than its value.
- Where a narrower part could make the whole wider (`not`, `oneOf`, …), nothing is narrowed; a
  second small schema watches for large numbers instead.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from ferrule._ijson import DEFAULT_LIMITS, Limits
from ferrule._plain import is_array, is_object
from ferrule.errors import Problem
from ferrule.schema._document import Document, Draft, Node
from ferrule.schema._engine import Builder, Engine, compiled
from ferrule.schema._explain import Explainer
from ferrule.schema._foreign import read
from ferrule.schema._words import EXACT, types_in


class Validator:
    """
    A compiled schema. Immutable, and safe for concurrent use.

    The values it takes are JSON as `read_json` makes it.
    """

    __slots__ = ("_builder", "_draft", "_engines", "_explainers", "_integers", "_quick", "_text")

    _quick: Callable[[object], bool] | None

    def __init__(self, document: Document, *, later: bool = False) -> None:
        # A quarter of the size of the same dicts, and only a refusal needs them.
        self._text = document.text
        self._draft = document.draft
        self._quick = None if later else self._made(document)

    def _made(self, document: Document) -> Callable[[object], bool]:
        """Make what says yes, and note what is to be known of the schema when that says no."""
        # The document is ours to narrow; from here on its text says what the schema was.
        places = [node for node in document.nodes if _is_place_of_integers(node)]
        widens = bool(places) and any(not _WIDENING.isdisjoint(node) for node in document.nodes)
        if not widens:
            _narrow(places)
        engine, self._builder = compiled(document)
        self._integers = bool(places)
        # What is kept is a function of its key: at worst two threads make the same thing.
        self._engines = {self._builder: engine} if widens or not places else {}
        self._explainers: dict[Builder, Explainer] = {}
        return _watched(engine) if widens else engine.is_valid

    def _takes(self, value: object) -> bool:
        """Say whether the quick look accepts `value`; the first one makes what looks."""
        if self._quick is None:
            self._quick = self._made(self._document())
        return self._quick(value)

    @property
    def schema(self) -> Node:
        """The schema that is enforced, as a copy that nobody else holds."""
        schema: Node = json.loads(self._text)
        return schema

    def is_valid(self, value: object) -> bool:
        """Say whether the schema accepts `value`."""
        return self._takes(value) or (
            self._integers and self._engine_of(self._builder_for(value)).is_valid(value)
        )

    def problems(self, value: object) -> tuple[Problem, ...]:
        """
        Return what is wrong with `value`, in its order; nothing if it is valid.

        Names at most twenty problems; the cost is linear in the value.

        Raises:
            ValidatorCrash: a pattern that runs only under a step limit ran into it.
        """
        if self._takes(value):
            return ()
        builder = self._builder_for(value)
        if self._integers and self._engine_of(builder).is_valid(value):
            return ()
        return self._explainer_of(builder).problems(value)

    def _builder_for(self, value: object) -> Builder:
        """Return how to judge `value`: exactly, if there is a float in it that asks for it."""
        if not self._integers:
            return self._builder
        fourth = self._draft is Draft.DRAFT_4
        if not fourth and _SMALL.is_valid(value):
            return self._builder
        limit = -1 if fourth else EXACT
        if any(abs(item) > limit and item.is_integer() for item in _floats(value)):
            return msgspec.structs.replace(self._builder, exact=True)
        return self._builder

    def _engine_of(self, builder: Builder) -> Engine:
        engine = self._engines.get(builder)
        if engine is None:
            engine = self._engines[builder] = builder.build(self._document().root)
        return engine

    def _explainer_of(self, builder: Builder) -> Explainer:
        explainer = self._explainers.get(builder)
        if explainer is None:
            explainer = self._explainers[builder] = Explainer(self._document(), builder)
        return explainer

    def _document(self) -> Document:
        return Document(self.schema, self._draft, self._text)


def compile(
    schema: Mapping[str, object] | bool,  # noqa: FBT001  # true and false are schemas
    *,
    limits: Limits = DEFAULT_LIMITS,
    later: bool = False,
) -> Validator:
    """
    Compile a schema, from draft-04 to 2020-12 as its `$schema` says, 2020-12 when it does not.

    Formats are asserted. References lead to places inside the schema; nothing is fetched, no file
    is opened. Patterns run in linear time, those that cannot under a step limit. The input is
    neither kept nor changed.

    Args:
        schema: The schema.
        limits: What it may weigh.
        later: Whether it is known to compile, and is when somebody first asks.

    Raises:
        InvalidSchema: the schema is not JSON, breaks its dialect or a budget, or refers outside
            itself; the sentence says what would fix it.
    """
    return Validator(read(schema, limits), later=later)


_WIDENING = frozenset({"contains", "if", "not", "oneOf"})
"""Keywords that may accept more when a schema inside them accepts less."""


def _is_place_of_integers(node: Mapping[str, object]) -> bool:
    types = types_in(node.get("type"))
    return "integer" in types and "number" not in types


def _narrow(places: Iterable[dict[str, object]]) -> None:
    """Let the integer places of a document ask for -2^53 to 2^53."""
    for node in places:
        # A bound that is no number stays, so that the engine refuses the schema for it.
        if _is_below(node.get("minimum", -EXACT - 1), -EXACT):
            node["minimum"] = -EXACT
        if _is_below(EXACT, node.get("maximum", EXACT + 1)):
            node["maximum"] = EXACT


def _is_below(one: object, other: object) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one < other
    return False


def _watched(engine: Engine) -> Callable[[object], bool]:
    """Return a check that only lets pass what has no number beyond 2^53."""
    return lambda value: engine.is_valid(value) and _SMALL.is_valid(value)


_SMALL = Builder(Draft.DRAFT_2020_12).build(
    {
        "minimum": -EXACT,
        "maximum": EXACT,
        "items": {"$ref": "#"},
        "additionalProperties": {"$ref": "#"},
    }
)
"""Accepts a value whose numbers, at every depth, are between -2^53 and 2^53."""


def _floats(value: object) -> Iterator[float]:
    """Find the floats in a JSON value."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float):
            yield item
        elif is_object(item):
            stack.extend(item.values())
        elif is_array(item):
            stack.extend(item)
