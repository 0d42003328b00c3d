"""An isolation forest as flat arrays: grown by scikit-learn, walked by NumPy, many devices at once, each with its own forest.

A tree is stored as a full binary tree of eight levels, node n having its children at 2n + 1 and 2n + 2, so that no pointers are
needed and every walk takes eight steps. A branch that ends early is continued by splits that send everything to the left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

TREES: Final = 64
SAMPLES: Final = 256
"""Samples a tree: more only hide what is rare among what is usual (Liu, Ting, Zhou 2008)."""
DEPTH: Final = 8
"""Levels of splits: log2(SAMPLES), where scikit-learn stops as well."""
INNER: Final = 2**DEPTH - 1
LEAVES: Final = 2**DEPTH

Floats = NDArray[np.float64]


def expected_path(samples: NDArray[np.intp] | int) -> Floats:
    """Mean number of splits that isolate one of *samples* points, c(n) of the paper: 0 for one point."""
    n = np.maximum(np.asarray(samples, np.float64), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        path = 2.0 * (np.log(n - 1.0) + np.euler_gamma) - 2.0 * (n - 1.0) / n
    return np.where(n < 2, 0.0, np.where(n == 2, 1.0, path))


_SPAN: Final = SAMPLES + 1
PATHS: Final = (np.arange(DEPTH + 1)[:, None] + expected_path(np.arange(_SPAN))).ravel()
"""Path length by leaf code. A leaf is coded depth * 257 + samples, which is exact and takes two bytes."""


class Forests(NamedTuple):
    """The forests of many devices; the first axis is the device's slot."""

    feature: NDArray[Any]
    """(slots, trees, inner): the feature that a node splits on, unsigned."""
    threshold: NDArray[np.float32]
    """(slots, trees, inner): values above it go right."""
    value: NDArray[np.float32]
    """(slots, trees, inner): mean path length of the samples that came by."""
    leaf: NDArray[np.uint16]
    """(slots, trees, leaves): the code of where a walk ends, an index into PATHS."""


def grow(samples: NDArray[np.float32], seed: int) -> tuple[Forests, NDArray[np.bool_], int]:
    """A forest for *samples* (n, features), n >= 2, without NaN, as (one slot, which tree saw which sample (n, trees), samples a tree).

    A tree sees at most half of the samples, so that each sample can be judged by trees that have never seen it.
    """
    from sklearn.ensemble import IsolationForest

    size = max(2, min(SAMPLES, len(samples) // 2))
    grown = IsolationForest(n_estimators=TREES, max_samples=size, random_state=seed).fit(samples)
    forests = flattened([estimator.tree_ for estimator in grown.estimators_], samples.shape[1])
    saw = np.zeros((len(samples), TREES), bool)
    for tree, members in enumerate(grown.estimators_samples_):
        saw[members, tree] = True
    return forests, saw, size


def flattened(trees: list[Any], features: int) -> Forests:
    """scikit-learn's trees (`tree_`) as one slot of arrays."""
    shape = (1, len(trees))
    forests = Forests(
        feature=np.zeros((*shape, INNER), np.min_scalar_type(features - 1)),
        threshold=np.full((*shape, INNER), np.inf, np.float32),
        value=np.zeros((*shape, INNER), np.float32),
        leaf=np.zeros((*shape, LEAVES), np.uint16),
    )
    for n, tree in enumerate(trees):
        _flatten(tree, Forests(*(array[0, n] for array in forests)))
    return forests


def _flatten(tree: Any, into: Forests) -> None:
    count, left, right = tree.n_node_samples, tree.children_left, tree.children_right
    ends = left < 0
    # float32 readings compare alike with the largest float32 that is not above the float64 threshold.
    limit = tree.threshold.astype(np.float32)
    limit = np.where(limit > tree.threshold, np.nextafter(limit, np.float32(-np.inf)), limit)
    nodes = np.zeros(1, np.intp)
    depth = np.zeros(len(count), np.intp)
    levels = []
    for level in range(DEPTH):
        levels.append(nodes)
        inner = slice(2**level - 1, 2 ** (level + 1) - 1)
        splits = ~ends[nodes]
        into.feature[inner] = np.where(splits, tree.feature[nodes], 0)
        into.threshold[inner] = np.where(splits, limit[nodes], np.float32(np.inf))
        nodes = np.column_stack([np.where(splits, left[nodes], nodes), np.where(splits, right[nodes], nodes)]).ravel()
        depth[nodes] = np.where(np.repeat(splits, 2), level + 1, depth[nodes])
    into.leaf[:] = depth[nodes] * _SPAN + count[nodes]
    mean = np.where(ends, depth + expected_path(count), 0.0)
    for node in np.flatnonzero(~ends)[::-1]:  # scikit-learn numbers children after their parent
        mean[node] = (mean[left[node]] * count[left[node]] + mean[right[node]] * count[right[node]]) / count[node]
    into.value[:] = np.concatenate([mean[level] for level in levels])


def paths(forests: Forests, slots: NDArray[np.intp], x: NDArray[np.float32]) -> Floats:
    """How many splits each tree takes to isolate each row of *x* (rows, features), (rows, trees); a short path is strange.

    A row goes through the forest of its slot. NaN is not allowed in *x*.
    """
    *_, (node, _) = _walk(forests, slots, x)
    return _ends(forests, slots, node)


def credits(forests: Forests, slots: NDArray[np.intp], x: NDArray[np.float32]) -> Floats:
    """By how much the splits on each feature make the mean path of a row shorter than that of the samples, (rows, features).

    A split is credited with what it changes in the path that is to be expected, so the credits of a row sum up exactly.
    """
    rows, features = x.shape
    offset = _offset(forests, slots)
    value = forests.value.ravel()
    total = np.zeros(rows * features)
    before = value.take(offset).astype(np.float64)
    for level, (node, cell) in enumerate(_walk(forests, slots, x), 1):
        after = value.take(offset + node).astype(np.float64) if level < DEPTH else _ends(forests, slots, node)
        total += np.bincount(cell.ravel(), (before - after).ravel(), minlength=rows * features)
        before = after
    mean: Floats = total.reshape(rows, features) / forests.feature.shape[1]
    return mean


def mean_path(forests: Forests, slots: NDArray[np.intp]) -> Floats:
    """The mean path of the samples that each slot's forest was grown from, (rows,)."""
    mean: Floats = forests.value[slots, :, 0].mean(axis=1, dtype=np.float64)
    return mean


def _walk(forests: Forests, slots: NDArray[np.intp], x: NDArray[np.float32]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Level by level: the nodes that rows come to, (rows, trees), and the cells of *x*, counted row by row, that sent them there."""
    feature, threshold, flat = forests.feature.ravel(), forests.threshold.ravel(), x.ravel()
    offset = _offset(forests, slots)
    place = np.arange(len(x))[:, None] * x.shape[1]
    node = np.zeros_like(offset)
    for _ in range(DEPTH):
        at = offset + node
        cell = place + feature.take(at)
        node = 2 * node + 1 + (flat.take(cell) > threshold.take(at))
        yield node, cell


def _offset(forests: Forests, slots: NDArray[np.intp]) -> NDArray[np.intp]:
    """Where the inner nodes of each row's trees begin, (rows, trees)."""
    trees = forests.feature.shape[1]
    offset: NDArray[np.intp] = (slots[:, None] * trees + np.arange(trees)) * INNER
    return offset


def _ends(forests: Forests, slots: NDArray[np.intp], node: NDArray[np.intp]) -> Floats:
    leaf = _offset(forests, slots) // INNER * LEAVES + node - INNER
    ends: Floats = PATHS.take(forests.leaf.ravel().take(leaf))
    return ends
