"""A saved model as an ONNX graph from raw columns to answers: the schema's encoding, the linear model, the labels.

It computes in double precision what ``sottovoce predict`` does.  scikit-learn has no steps for declared bounds,
logarithms and shortened rows, and its converters have none either, so it is built node by node.  Inputs are the
schema's columns, each (rows, 1), texts for categories and else numbers; a vector is one input.  A missing number is
NaN, allowed where the column declares `missing` or `indicator`.  A date is a number of its units since its epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..answers.saved import SavedModel
from ..data.columns import Bins, Block, Category, Number, Vector
from ..data.schema import Schema
from ..errors import InvalidInput
from ..problem.task import BoundedNumber, ManyClasses, Task
from ..util.later import Later
from ..util.typing import Any, Array

onnx = Later("onnx")

OPSET, ML_OPSET, IR = 17, 3, 8  # for runtimes of 2022 on
_TINY = 1e-150  # shorter rows are taken to be zero where rows are divided by their norms


@dataclass(frozen=True)
class Linear:
    """What a saved run says of a raw row: ``encoded row @ weights.T + constant``, and what that means."""

    schema: Schema
    whole: bool  # whether rows longer than the divisor stay as they are: see :meth:`sottovoce.data.Schema.encode`
    weights: Array  # (outputs, d)
    constant: float
    task: Task
    probabilities: bool

    @classmethod
    def of(cls, saved: SavedModel) -> Linear:
        """Of a saved model; with a constant a site, a row of no known site gets their mean."""
        naming, schema = saved.naming, saved.schema
        if schema is None:
            raise InvalidInput("run", None, "was trained without a schema, so it knows no columns", "train on a table")
        task, known = schema.task, saved.trained_by == "logistic" or saved.trained_by.startswith("softmax")
        if naming is None:
            return cls(schema, False, np.atleast_2d(task.vectors(saved.model)), 0.0, task, bool(task.names) and known)
        assert naming.schema is not None
        weights, constant = saved.model, 0.0
        if naming.sites:  # the last encoded column holds the constant of all; a row of no site has none
            constant = float((weights[naming.constant > 0] * naming.value) @ saved.shares)
            weights = np.append(weights[naming.constant == 0], 0.0)
        return cls(naming.schema, True, weights[None], constant, task, known)


@dataclass
class _Graph:
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)

    def put(self, value: Any) -> str:
        """The name of a new constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind: str, *inputs: str, out: str = "", domain: str = "", **more: Any) -> str:
        """The name of a new node's output."""
        name = out or f"n{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [name], domain=domain, **more))
        return name

    def take(self, name: str, text: bool, width: int = 1) -> str:
        """The name of a new input (rows, width)."""
        kind = onnx.TensorProto.STRING if text else onnx.TensorProto.DOUBLE
        self.inputs.append(onnx.helper.make_tensor_value_info(name, kind, ["rows", width]))
        return name

    def doubles(self, x: str) -> str:
        return self.add("Cast", x, to=onnx.TensorProto.DOUBLE)

    def clip(self, x: str, lo: float, hi: float) -> str:
        return self.add("Min", self.add("Max", x, self.put(float(lo))), self.put(float(hi)))

    def filled(self, x: str, missing: float | None) -> str:
        return x if missing is None else self.add("Where", self.add("IsNaN", x), self.put(float(missing)), x)

    def norms(self, x: str) -> str:
        square = self.add("Mul", x, x)
        return self.add("Sqrt", self.add("ReduceSum", square, self.put(np.array([1])), keepdims=1))


def to_onnx(model: Linear) -> Any:
    """The graph, an ``onnx.ModelProto``; refused without the extra ``onnx``.

    Outputs are ``label`` (texts) and, where the loss gives them, ``probabilities`` (rows, classes) in the order of the
    metadata's ``classes``; or ``prediction``, in the target's unit.
    """
    try:
        onnx.helper.make_node  # noqa: B018  # loads the library
    except ImportError:
        raise InvalidInput("onnx", None, "needs the onnx library", "run: pip install 'sottovoce[onnx]'") from None
    graph, schema = _Graph(), model.schema
    parts = [_block(graph, block, schema) for block in schema.blocks]
    weighted = [
        graph.add("Mul", x, graph.put(float(block.weight))) for x, block in zip(parts, schema.blocks, strict=True)
    ]
    row = graph.add("Concat", *weighted, axis=1) if len(weighted) > 1 else weighted[0]
    if schema.intercept:
        one = graph.add("ReduceSum", graph.add("Mul", row, graph.put(0.0)), graph.put(np.array([1])), keepdims=1)
        row = graph.add("Concat", row, graph.add("Add", one, graph.put(float(schema.intercept))), axis=1)
    row = _in_ball(graph, row, schema, model.whole)
    margins = graph.add("MatMul", row, graph.put(model.weights.T))
    if model.constant:
        margins = graph.add("Add", margins, graph.put(model.constant))
    outputs = _answers(graph, margins, model)
    made = onnx.helper.make_graph(graph.nodes, "sottovoce", graph.inputs, outputs, graph.constants)
    opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    found = onnx.helper.make_model(made, opset_imports=opsets, ir_version=IR, producer_name="sottovoce")
    entry = found.metadata_props.add()
    entry.key, entry.value = "classes", "\n".join(model.task.names)
    onnx.checker.check_model(found)
    return found


def _block(graph: _Graph, block: Block, schema: Schema) -> str:
    """Features of one block, (rows, k), before its weight."""
    if isinstance(block, Vector):
        x = graph.filled(graph.take(block.name, False, len(block.names)), block.missing)
        x = graph.clip(x, block.lo, block.hi)
        norms = graph.norms(x)
        least = _TINY if isinstance(block.norm, str) else float(block.norm)
        return graph.add("Div", x, graph.add("Max", norms, graph.put(least)))
    assert isinstance(block, Bins | Category | Number)
    source = block.column or block.name
    if isinstance(block, Number):
        raw = graph.take(source, False)
        x = graph.clip(graph.filled(raw, block.missing), block.lo, block.hi)
        if block.transform == "log1p":
            x = graph.add("Log", graph.add("Add", x, graph.put(1.0)))
        a, b = block.range
        slope = (1.0 if block.to == "[0,1]" else 2.0) / (b - a)
        shift = -a * slope - (0.0 if block.to == "[0,1]" else 1.0)
        x = graph.add("Add", graph.add("Mul", x, graph.put(slope)), graph.put(shift))
        if not block.indicator:
            return x
        mark = graph.add("Mul", graph.doubles(graph.add("IsNaN", raw)), graph.put(block.mark))
        return graph.add("Concat", x, mark, axis=1)
    if isinstance(block, Bins):
        raw = graph.take(source, False)
        x = graph.filled(raw, block.missing)
        edges, m = np.asarray(block.edges, dtype=float), len(block.edges) - 1
        above = np.append(-np.inf, edges[1:-1])  # a row is in bin k if its value is above k of these, counted from 0
        index = graph.doubles(graph.add("GreaterOrEqual", x, graph.put(above[None])))
        number = graph.add("ReduceSum", index, graph.put(np.array([1])), keepdims=1)
        kept = [k + 1.0 for k in range(m) if k != block.base]
        if block.indicator:  # a level of its own
            number = graph.add("Where", graph.add("IsNaN", raw), graph.put(m + 1.0), number)
            kept.append(m + 1.0)
        return graph.doubles(graph.add("Equal", number, graph.put(np.array([kept]))))
    rest = len(block.values)
    codes = block.codes(frozenset(schema.na))
    names = [name for name, _ in block.values] + ["other"] * block.other
    number = graph.add(
        "LabelEncoder", graph.take(source, True), domain="ai.onnx.ml",
        keys_strings=list(codes), values_int64s=list(codes.values()), default_int64=rest,
    )  # fmt: skip
    kept_groups = [k for k, name in enumerate(names) if name != block.base]
    if block.indicator and block.base != "missing":
        kept_groups.append(rest + 1)
    return graph.doubles(graph.add("Equal", number, graph.put(np.array([kept_groups], dtype=np.int64))))


def _in_ball(graph: _Graph, row: str, schema: Schema, whole: bool) -> str:
    """As :meth:`sottovoce.data.Schema.into_ball`, or `whole`."""
    slack, divisor = schema.slack, float(schema.divisor)
    if schema.unit:
        norms = graph.add("Max", graph.norms(row), graph.put(_TINY))
        return graph.add("Div", row, graph.add("Mul", norms, graph.put(slack)))
    if whole or (schema.scale is None and all(block.reach <= 1.0 for block in schema.blocks)):
        return graph.add("Mul", row, graph.put(1.0 / (divisor * slack)))
    longest = graph.add("Max", graph.norms(row), graph.put(divisor))
    return graph.add("Div", row, graph.add("Mul", longest, graph.put(slack)))


def _answers(graph: _Graph, margins: str, model: Linear) -> list[Any]:
    task, kinds = model.task, onnx.TensorProto
    if isinstance(task, BoundedNumber):
        half = 0.5 * (task.high - task.low)
        inside = graph.add("Mul", graph.clip(margins, -1.0, 1.0), graph.put(half))
        graph.add("Add", inside, graph.put(task.low + half), out="prediction")
        return [onnx.helper.make_tensor_value_info("prediction", kinds.DOUBLE, ["rows", 1])]
    if isinstance(task, ManyClasses):
        number = graph.add("ArgMax", margins, axis=1, keepdims=1)
    else:
        number = graph.add("Cast", graph.add("Greater", margins, graph.put(0.0)), to=kinds.INT64)
    graph.add(
        "LabelEncoder", number, out="label", domain="ai.onnx.ml", keys_int64s=list(range(len(task.names))),
        values_strings=list(task.names), default_string="",
    )  # fmt: skip
    outputs = [onnx.helper.make_tensor_value_info("label", kinds.STRING, ["rows", 1])]
    if model.probabilities:
        if isinstance(task, ManyClasses):
            graph.add("Softmax", margins, axis=1, out="probabilities")
        else:
            yes, no = graph.add("Sigmoid", margins), graph.add("Sigmoid", graph.add("Neg", margins))
            graph.add("Concat", no, yes, axis=1, out="probabilities")
        outputs.append(onnx.helper.make_tensor_value_info("probabilities", kinds.DOUBLE, ["rows", len(task.names)]))
    return outputs


__all__ = ["Linear", "to_onnx"]
