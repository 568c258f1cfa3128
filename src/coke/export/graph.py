"""A graph of ONNX as it grows: nodes that name their results, constants kept once each.

Reals are doubles throughout: a wave's angle may be thousands of turns, as those of the Laplacian
kernel are, and in float32 it would be off by a part of a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from coke.errors import CokeError, InputError

OPSET, LEARNING, IR = 18, 3, 8  # of the end of 2022; any later program reads them
_LARGEST = (1 << 31) - (1 << 20)  # bytes that protobuf writes


class Tensor(NamedTuple):
    """An input or output of the whole."""

    name: str
    kind: str  # DOUBLE, STRING, INT64 or BOOL
    shape: tuple[int | str, ...]
    about: str = ""


def _package() -> Any:
    """The package, which is an extra."""
    try:
        return import_module("onnx")
    except ImportError as error:
        raise CokeError(f"ONNX needs an extra ({error}): pip install 'coke-learn[onnx]'") from error


class Building:
    """Nodes in the order in which they are reckoned."""

    def __init__(self, taken: Sequence[str]) -> None:
        self._onnx, self._taken, self._numbers = _package(), set(taken), count()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def constant(self, value: Any) -> str:
        """The name of an array; text as an array of objects."""
        array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
        content = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        key = (array.dtype.str, array.shape, content)
        if key not in self._known:
            self._known[key] = self._named("constant")
            made = self._onnx.numpy_helper.from_array(array, self._known[key])
            self._constants.append(made)
        return self._known[key]

    def node(self, op: str, *inputs: Any, name: str = "", **how: Any) -> str:
        """The name of what an operator makes of named results, or of numbers and arrays."""
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        out = name or self._named(op.lower())
        domain = "ai.onnx.ml" if op == "LabelEncoder" else ""
        made = self._onnx.helper.make_node(op, names, [out], domain=domain, **how)
        self._nodes.append(made)
        return out

    def _named(self, what: str) -> str:
        """A name that no column has."""
        names = (f"{what}_{k}" for k in self._numbers)
        return next(name for name in names if name not in self._taken)

    def encoded(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], said: dict[str, str]
    ) -> bytes:
        """The whole as bytes, checked by ONNX's own checker; the same for the same model."""
        helper = self._onnx.helper
        tensors = ([_tensor(self._onnx, one) for one in some] for some in (inputs, outputs))
        graph = helper.make_graph(self._nodes, "coke", *tensors, self._constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", LEARNING)]
        whole = helper.make_model(graph, opset_imports=opsets, ir_version=IR)
        whole.producer_name = "coke"
        helper.set_model_props(whole, said)
        if whole.ByteSize() > _LARGEST:
            raise InputError(
                f"a model of {whole.ByteSize()} bytes: an ONNX file holds {_LARGEST}; train with "
                "fewer features"
            )
        self._onnx.checker.check_model(whole, full_check=True)
        return bytes(whole.SerializeToString(deterministic=True))


def _tensor(onnx: Any, tensor: Tensor) -> Any:
    kind = getattr(onnx.TensorProto, tensor.kind)
    return onnx.helper.make_tensor_value_info(tensor.name, kind, tensor.shape, tensor.about)
