"""A saved model as an ONNX graph from raw columns to predictions, for ``sottovoce export``.

The graph encodes rows as the schema says, applies the linear model, and returns labels or numbers;
in double precision it computes what ``sottovoce predict`` does.  It is built node by node, because
scikit-learn and its converters have no steps for declared bounds, logarithms and clipped rows.

Inputs are the schema's columns, each (rows, 1): texts for categories, numbers for all else; a
vector is one input.  A missing number is NaN, allowed where the column declares `missing` or
`indicator`. A date is a number of its units since its epoch.  A *block* is a column's declaration
in the schema with the features that it yields; an *indicator* is a 0-1 feature that marks a level
or a missing value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from ..answers.own_site import AVERAGE
from ..answers.saved import SavedModel
from ..data.columns import Bins, Block, Category, Number, Vector
from ..data.curved import MIDDLE, Derived, Fourier, Pairs, Spline, Squares
from ..data.move import Move
from ..data.schema import Schema
from ..errors import InvalidInput
from ..problem.task import BoundedNumber, ManyClasses, Task
from ..util.later import Later
from ..util.typing import Any, Array, IntArray

onnx = Later("onnx")

# Versions of ONNX's operators and of its file format, which runtimes of 2022 and later can read.
OPSET, ML_OPSET, IR = 17, 3, 8
# Least divisor where rows are divided by their norms, so that a row of zeros stays zero.
_TINY = 1e-150


@dataclass(frozen=True)
class Linear:
    """The linear map of a saved run, ``encoded row @ weights.T + constant``, and its task.

    Parameters
    ----------
    schema : Schema
        The encoding of raw columns.
    whole : bool
        Whether rows of norm above 1 stay as they are; else they are clipped to norm 1
        (:meth:`sottovoce.Schema.encode`).
    weights : array (outputs, d)
    constant : float
    task : Task
    probabilities : bool
        Whether the loss gives probabilities of classes.
    move : Move, optional
        The centring of the run, after which some rows were clipped; their margins shrink with them.
    """

    schema: Schema
    whole: bool
    weights: Array
    constant: float
    task: Task
    probabilities: bool
    move: Move | None = None

    @classmethod
    def from_saved_model(cls, saved: SavedModel) -> Linear:
        """Construct the map of a saved model.

        If every site has a constant, all rows get the sites' average, or that of the one site which
        the model was loaded for.  InvalidInput for a model without a schema.
        """
        naming, schema = saved.naming, saved.schema
        if schema is None:
            raise InvalidInput(
                "run",
                None,
                "was trained without a schema, so its columns have no names",
                "train on a table",
            )
        task = schema.task
        known = saved.trained_by == "logistic" or saved.trained_by.startswith("softmax")
        if naming is None:
            weights = np.atleast_2d(task.vectors_by_margin(saved.model))
            return cls(schema, False, weights, 0.0, task, bool(task.names) and known, saved.move)
        assert naming.schema is not None
        weights, constant = saved.model, 0.0
        # A graph reads no site, so the constant is added after the product, and the last encoded
        # column, that of a common constant, gets the weight 0.
        if naming.sites:
            site = AVERAGE
            if saved.only is not None:
                site = saved.only
            constant = float(saved.named_model.constants[site])
            weights = np.append(weights[naming.constant == 0], 0.0)
        return cls(naming.schema, True, weights[None], constant, task, known)


@dataclass
class _Graph:
    """An ONNX graph under construction; methods add nodes and return the names of their outputs.

    Arguments named x are names of outputs or inputs of the graph, of shape (rows, columns).
    """

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)

    def add_constant(self, value: Any) -> str:
        """Add a constant, and return its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def add_node(
        self, kind: str, *inputs: str, out: str = "", domain: str = "", **more: Any
    ) -> str:
        """Add a node of operator `kind`, and return the name of its output.

        Parameters
        ----------
        kind : str
            Operator, such as "MatMul".
        *inputs : str
            Names of inputs, constants and outputs of other nodes.
        out : str
            Name of the output; empty for a new one.
        domain : str
            Empty for ONNX's own operators, "ai.onnx.ml" for those of machine learning.
        **more
            Attributes of the operator.

        Returns
        -------
        str
        """
        name = out or f"n{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [name], domain=domain, **more))
        return name

    def add_input(self, name: str, text: bool, width: int = 1) -> str:
        """Add an input (rows, width) unless it is there, as blocks may share a column.

        Parameters
        ----------
        name : str
            The column's name, which it returns.
        text : bool
            Whether it holds texts; else numbers in double precision.
        width : int
            Entries of a vector; 1 for other columns.

        Returns
        -------
        str

        Raises
        ------
        InvalidInput
            If one block reads the column as text and another as a number.
        """
        kind = onnx.TensorProto.DOUBLE
        if text:
            kind = onnx.TensorProto.STRING
        for one in self.inputs:
            if one.name == name:
                if one.type.tensor_type.elem_type != kind:
                    rule = (
                        "is declared both as a category and as a number, but an ONNX input is "
                        "either text or a number"
                    )
                    raise InvalidInput(name, None, rule, "give one of the two a column of its own")
                return name
        self.inputs.append(onnx.helper.make_tensor_value_info(name, kind, ["rows", width]))
        return name

    def cast_to_double(self, x: str) -> str:
        """Convert x to double precision."""
        return self.add_node("Cast", x, to=onnx.TensorProto.DOUBLE)

    def clip_to_bounds(self, x: str, lo: float, hi: float) -> str:
        """Clip the entries of x to [lo, hi]."""
        above = self.add_node("Max", x, self.add_constant(float(lo)))
        return self.add_node("Min", above, self.add_constant(float(hi)))

    def fill_missing(self, x: str, missing: float | None) -> str:
        """Replace missing numbers (NaN) by the declared number; None leaves them."""
        if missing is None:
            return x
        is_missing = self.add_node("IsNaN", x)
        return self.add_node("Where", is_missing, self.add_constant(float(missing)), x)

    def norms_of_rows(self, x: str) -> str:
        """Return the norms of rows, (rows, 1)."""
        square = self.add_node("Mul", x, x)
        return self.add_node(
            "Sqrt", self.add_node("ReduceSum", square, self.add_constant(np.array([1])), keepdims=1)
        )

    def interval_number(self, x: str, interior: Array) -> str:
        """Return the number, from 1, of the interval that holds each value of x (rows, 1).

        `interior` are the edges between intervals; a value on an edge is in the interval above it.
        """
        edges = self.add_constant(np.append(-np.inf, interior)[None])
        above = self.cast_to_double(self.add_node("GreaterOrEqual", x, edges))
        return self.add_node("ReduceSum", above, self.add_constant(np.array([1])), keepdims=1)

    def gather_columns(self, x: str, which: IntArray) -> str:
        """Select the columns of x at these positions."""
        return self.add_node("Gather", x, self.add_constant(which), axis=1)


def build_onnx_model(model: Linear) -> Any:
    """Build the graph, an ``onnx.ModelProto``; InvalidInput without the extra ``onnx``.

    Outputs are ``label`` (texts) and, where the loss gives them, ``probabilities`` (rows, classes)
    in the order of the metadata's ``classes``; or ``prediction``, in the target's unit.
    """
    try:
        onnx.helper.make_node  # noqa: B018  # loads the library
    except ImportError:
        raise InvalidInput(
            "onnx", None, "needs the onnx library", "run: pip install 'sottovoce[onnx]'"
        ) from None
    graph, schema = _Graph(), model.schema
    row = _clip_to_unit_ball(graph, _add_encoded_row(graph, schema), schema, model.whole)
    margins = graph.add_node("MatMul", row, graph.add_constant(model.weights.T))
    if model.constant:
        margins = graph.add_node("Add", margins, graph.add_constant(model.constant))
    if model.move is not None:
        margins = graph.add_node("Div", margins, _divisor_of_moved_rows(graph, row, model.move))
    outputs = _add_outputs(graph, margins, model)
    made = onnx.helper.make_graph(graph.nodes, "sottovoce", graph.inputs, outputs, graph.constants)
    opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    found = onnx.helper.make_model(
        made, opset_imports=opsets, ir_version=IR, producer_name="sottovoce"
    )
    entry = found.metadata_props.add()
    entry.key = "classes"
    entry.value = "\n".join(model.task.names)
    onnx.checker.check_model(found)
    return found


def _add_encoded_row(graph: _Graph, schema: Schema) -> str:
    """Add the features of all blocks and the constant, (rows, d), before any row is clipped.

    As the other functions below, it returns the name of its output.
    """
    known: dict[str, str] = {}
    for block in schema.blocks:
        if not isinstance(block, Derived):
            known[block.name] = _add_block(graph, block, schema)
    # Derived blocks read the features of others, wherever these stand.
    for block in schema.blocks:
        if isinstance(block, Derived):
            known[block.name] = _add_derived_block(graph, block, known)
    weighted = [
        graph.add_node("Mul", known[block.name], graph.add_constant(float(block.weight)))
        for block in schema.blocks
    ]
    row = weighted[0]
    if len(weighted) > 1:
        row = graph.add_node("Concat", *weighted, axis=1)
    if not schema.intercept:
        return row
    # A column of zeros for any number of rows, to which the constant is added.
    nothing = graph.add_node("Mul", row, graph.add_constant(0.0))
    zero = graph.add_node("ReduceSum", nothing, graph.add_constant(np.array([1])), keepdims=1)
    constant = graph.add_node("Add", zero, graph.add_constant(float(schema.intercept)))
    return graph.add_node("Concat", row, constant, axis=1)


def _add_block(graph: _Graph, block: Block, schema: Schema) -> str:
    """Add the features of one block, (rows, k), before its weight."""
    if isinstance(block, Vector):
        return _add_vector_block(graph, block)
    assert isinstance(block, Bins | Category | Number | Spline)
    source = block.column or block.name
    if isinstance(block, Spline):
        return _add_spline_block(
            graph, graph.fill_missing(graph.add_input(source, False), block.missing), block
        )
    if isinstance(block, Number):
        return _add_number_block(graph, graph.add_input(source, False), block)
    if isinstance(block, Bins):
        return _add_bins_block(graph, graph.add_input(source, False), block)
    return _add_category_block(graph, graph.add_input(source, True), block, frozenset(schema.na))


def _add_vector_block(graph: _Graph, block: Vector) -> str:
    """Add the entries of a vector, divided by its norm or by the declared bound on norms."""
    x = graph.fill_missing(
        graph.add_input(block.name, False, len(block.feature_names)), block.missing
    )
    x = graph.clip_to_bounds(x, block.lo, block.hi)
    norms = graph.norms_of_rows(x)
    # A norm in words ("unit") divides by the vector's own norm; a number is a bound, up to which
    # vectors keep their length.
    least = _TINY
    if not isinstance(block.norm, str):
        least = float(block.norm)
    return graph.add_node("Div", x, graph.add_node("Max", norms, graph.add_constant(least)))


def _add_number_block(graph: _Graph, raw: str, block: Number) -> str:
    """Add a number scaled to [0, 1] or [-1, 1], and an indicator of missing ones if declared."""
    x = graph.clip_to_bounds(graph.fill_missing(raw, block.missing), block.lo, block.hi)
    if block.transform == "log1p":
        x = graph.add_node("Log", graph.add_node("Add", x, graph.add_constant(1.0)))
    a, b = block.mapped_range
    length, offset = 2.0, 1.0
    if block.to == "[0,1]":
        length, offset = 1.0, 0.0
    slope = length / (b - a)
    shift = -a * slope - offset
    x = graph.add_node(
        "Add", graph.add_node("Mul", x, graph.add_constant(slope)), graph.add_constant(shift)
    )
    if not block.indicator:
        return x
    mark = graph.add_node(
        "Mul",
        graph.cast_to_double(graph.add_node("IsNaN", raw)),
        graph.add_constant(block.indicator_value),
    )
    return graph.add_node("Concat", x, mark, axis=1)


def _add_bins_block(graph: _Graph, raw: str, block: Bins) -> str:
    """Add the indicators of the intervals of a number, without that of the reference."""
    x = graph.fill_missing(raw, block.missing)
    edges = np.asarray(block.edges, dtype=float)
    m = len(block.edges) - 1
    number = graph.interval_number(x, edges[1:-1])
    kept = [k + 1.0 for k in range(m) if k != block.base]
    # A missing number is a level of its own.
    if block.indicator:
        number = graph.add_node(
            "Where", graph.add_node("IsNaN", raw), graph.add_constant(m + 1.0), number
        )
        kept.append(m + 1.0)
    return graph.cast_to_double(
        graph.add_node("Equal", number, graph.add_constant(np.array([kept])))
    )


def _add_category_block(graph: _Graph, raw: str, block: Category, na: frozenset[str]) -> str:
    """Add the indicators of the levels of a category, without that of the reference."""
    rest = len(block.values)
    codes = block.level_by_spelling(na)
    names = [name for name, _ in block.values]
    if block.other:
        names.append("other")
    number = graph.add_node(
        "LabelEncoder",
        raw,
        domain="ai.onnx.ml",
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=rest,
    )
    kept_groups = [k for k, name in enumerate(names) if name != block.base]
    if block.indicator and block.base != "missing":
        kept_groups.append(rest + 1)
    groups = graph.add_constant(np.array([kept_groups], dtype=np.int64))
    return graph.cast_to_double(graph.add_node("Equal", number, groups))


def _add_spline_block(graph: _Graph, raw: str, block: Spline) -> str:
    """Add a number's B-splines, as :meth:`sottovoce.data.curved.Spline.spline_features`."""
    # Beyond the outer knots a curve stays at its value there.
    x = graph.clip_to_bounds(raw, block.knots[0], block.knots[-1])
    # Knots at the ends are repeated `degree` times, so the first interval has the number 1.
    stretches = np.arange(len(block.repeated) - 1) - block.degree + 1.0
    number = graph.interval_number(x, np.asarray(block.knots[1:-1]))
    found = graph.cast_to_double(
        graph.add_node("Equal", number, graph.add_constant(stretches[None]))
    )
    for p in range(1, block.degree + 1):
        start, end, width = (graph.add_constant(values[None]) for values in block.supports(p))
        up = graph.clip_to_bounds(
            graph.add_node("Div", graph.add_node("Sub", x, start), width), 0.0, 1.0
        )
        down = graph.clip_to_bounds(
            graph.add_node("Div", graph.add_node("Sub", end, x), width), 0.0, 1.0
        )
        # The recursion of Cox and de Boor: each spline of degree p rises with one of degree p - 1
        # and falls with the next.
        at = np.arange(len(block.repeated) - p - 1)
        rising = graph.gather_columns(graph.add_node("Mul", up, found), at)
        falling = graph.gather_columns(graph.add_node("Mul", down, found), at + 1)
        found = graph.add_node("Add", rising, falling)
    return found


def _add_derived_block(graph: _Graph, block: Derived, known: dict[str, str]) -> str:
    """Add the features of a derived block, from those of other blocks in `known`."""
    if isinstance(block, Pairs):
        return _add_pairs_block(graph, block, known)
    numbers = [graph.gather_columns(known[one.name], np.array([0])) for one in block.of]
    c = graph.add_node("Concat", *numbers, axis=1)
    if isinstance(block, Squares):
        squares = graph.add_node("Mul", c, c)
        around_middle = graph.add_node("Sub", squares, graph.add_constant(MIDDLE))
        return graph.add_node("Min", around_middle, graph.add_constant(1.0))
    assert isinstance(block, Fourier)
    angles = graph.add_node("MatMul", c, graph.add_constant(block.directions))
    # Runtimes have no cosine in double precision.
    shifted = graph.add_node("Add", angles, graph.add_constant(0.5 * np.pi))
    waves = graph.add_node(
        "Concat", graph.add_node("Sin", shifted), graph.add_node("Sin", angles), axis=1
    )
    return graph.add_node("Mul", waves, graph.add_constant(float(np.sqrt(2.0 / block.features))))


def _add_pairs_block(graph: _Graph, block: Pairs, known: dict[str, str]) -> str:
    """Add the products of all features of each block with all features of each later block."""
    inside = [
        (graph.clip_to_bounds(known[one.name], -1.0, 1.0), len(one.feature_names))
        for one in block.of
    ]
    products = []
    for (a, p), (b, q) in combinations(inside, 2):
        left = graph.gather_columns(a, np.repeat(np.arange(p), q))
        right = graph.gather_columns(b, np.tile(np.arange(q), p))
        products.append(graph.add_node("Mul", left, right))
    return graph.add_node("Concat", *products, axis=1)


def _clip_to_unit_ball(graph: _Graph, row: str, schema: Schema, whole: bool) -> str:
    """Scale rows and clip them to norm 1, as :meth:`sottovoce.data.schema.divide_into_unit_ball`.

    If they stay `whole` they are scaled only.
    """
    slack, divisor = schema.slack, float(schema.divisor)
    if schema.unit:
        norms = graph.add_node("Max", graph.norms_of_rows(row), graph.add_constant(_TINY))
        return graph.add_node("Div", row, graph.add_node("Mul", norms, graph.add_constant(slack)))
    if whole or not schema.shortens:
        return graph.add_node("Mul", row, graph.add_constant(1.0 / (divisor * slack)))
    longest = graph.add_node("Max", graph.norms_of_rows(row), graph.add_constant(divisor))
    return graph.add_node("Div", row, graph.add_node("Mul", longest, graph.add_constant(slack)))


def _divisor_of_moved_rows(graph: _Graph, row: str, move: Move) -> str:
    """Add the divisor of margins of centred rows: the norm of the centred row, at least 1.

    See :class:`sottovoce.data.move.Move`.
    """
    constant = np.zeros(move.width)
    constant[list(move.constants)] = 1.0
    of_constants = graph.add_node("Mul", row, graph.add_constant(constant))
    x = graph.add_node("ReduceSum", of_constants, graph.add_constant(np.array([1])), keepdims=1)
    kept = graph.add_node("Mul", row, graph.add_constant(np.where(constant > 0.0, 1.0, move.gain)))
    taken = graph.add_node("Mul", x, graph.add_constant(move.gain / move.k * move.mean))
    return graph.add_node(
        "Max", graph.norms_of_rows(graph.add_node("Sub", kept, taken)), graph.add_constant(1.0)
    )


def _add_outputs(graph: _Graph, margins: str, model: Linear) -> list[Any]:
    """Add labels and probabilities, or numbers, and return their descriptions."""
    task, kinds = model.task, onnx.TensorProto
    if isinstance(task, BoundedNumber):
        half = 0.5 * (task.high - task.low)
        inside = graph.add_node(
            "Mul", graph.clip_to_bounds(margins, -1.0, 1.0), graph.add_constant(half)
        )
        graph.add_node("Add", inside, graph.add_constant(task.low + half), out="prediction")
        return [onnx.helper.make_tensor_value_info("prediction", kinds.DOUBLE, ["rows", 1])]
    if isinstance(task, ManyClasses):
        number = graph.add_node("ArgMax", margins, axis=1, keepdims=1)
    else:
        number = graph.add_node(
            "Cast", graph.add_node("Greater", margins, graph.add_constant(0.0)), to=kinds.INT64
        )
    graph.add_node(
        "LabelEncoder",
        number,
        out="label",
        domain="ai.onnx.ml",
        keys_int64s=list(range(len(task.names))),
        values_strings=list(task.names),
        default_string="",
    )
    outputs = [onnx.helper.make_tensor_value_info("label", kinds.STRING, ["rows", 1])]
    if model.probabilities:
        if isinstance(task, ManyClasses):
            graph.add_node("Softmax", margins, axis=1, out="probabilities")
        else:
            # Not 1 - yes, which loses the digits of a small one.
            yes = graph.add_node("Sigmoid", margins)
            no = graph.add_node("Sigmoid", graph.add_node("Neg", margins))
            graph.add_node("Concat", no, yes, axis=1, out="probabilities")
        shape = ["rows", len(task.names)]
        outputs.append(onnx.helper.make_tensor_value_info("probabilities", kinds.DOUBLE, shape))
    return outputs


__all__ = ["Linear", "build_onnx_model"]
