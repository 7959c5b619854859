"""What goes into a function of a Core ML model, comes out of it and stays: names, shapes, dtypes; and coremltools' way to ask."""

from __future__ import annotations

import math
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

# coremltools' ArrayFeatureType.ArrayDataType; what it does not have is 0.
_DATA_TYPES = {"float16": 65552, "float32": 65568, "int32": 131104, "int8": 131080}


class ArrayType(NamedTuple):
    """``multiArrayType`` of coremltools' specification."""

    shape: tuple[int, ...]
    dataType: int


class StateType(NamedTuple):
    """``stateType`` of coremltools' specification."""

    arrayType: ArrayType


class FeatureType(NamedTuple):
    """``type`` of coremltools' specification; a state has both."""

    multiArrayType: ArrayType
    stateType: StateType
    isOptional: bool


class Feature(NamedTuple):
    """An input, an output or a state."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # the default; -1: any size
    shapes: tuple[tuple[int, ...], ...] = ()  # enumerated: all that are allowed
    ranges: tuple[tuple[int, int], ...] = ()  # the least and the most of each axis; -1: no limit
    optional: bool = False

    @property
    def nbytes(self) -> int:
        """Of the default shape; 0 where that is not known."""
        return 0 if -1 in self.shape else math.prod(self.shape) * self.dtype.itemsize

    @property
    def type(self) -> FeatureType:
        array = ArrayType(self.shape, _DATA_TYPES.get(self.dtype.name, 0))
        return FeatureType(array, StateType(array), self.optional)


def features(native: Sequence[Any]) -> dict[str, Feature]:
    """By name, in the order of the model."""
    return {name: Feature(name, np.dtype(dtype), *rest) for name, dtype, *rest in native}


class Metadata(NamedTuple):
    """What the author of a model wrote."""

    shortDescription: str
    versionString: str
    author: str
    license: str
    userDefined: Mapping[str, str]


class FunctionDescription(NamedTuple):
    """One function, with coremltools' names."""

    name: str
    input: tuple[Feature, ...]
    output: tuple[Feature, ...]
    state: tuple[Feature, ...]

    @property
    def state_nbytes(self) -> int:
        return sum(each.nbytes for each in self.state)


class ModelDescription(NamedTuple):
    """``description`` of a specification: the lists are those of the function that a call without a name runs."""

    input: tuple[Feature, ...]
    output: tuple[Feature, ...]
    state: tuple[Feature, ...]
    functions: tuple[FunctionDescription, ...]
    defaultFunctionName: str
    metadata: Metadata


class Spec(NamedTuple):
    """What ``Model.get_spec`` gives: the fields of coremltools' specification that describe a model."""

    specificationVersion: int
    description: ModelDescription
