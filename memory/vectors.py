"""Vectors as the store keeps them, one signed byte a number, and how near to a query they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_LEAST: Final = 1.0
_SPAN: Final = 3.0
_MAX_NEAR: Final = 48
_PEAK: Final = 127


def pack(vectors: Sequence[Sequence[float]]) -> list[bytes]:
    """Each vector as bytes: its direction, to a hundredth of its largest number."""
    import numpy

    rows = numpy.asarray(vectors, dtype=numpy.float32)
    peaks = numpy.abs(rows).max(axis=1, keepdims=True)
    scaled = numpy.rint(rows * (_PEAK / numpy.where(peaks == 0, 1, peaks))).astype(numpy.int8)
    return [row.tobytes() for row in scaled]


def nearest(query: Sequence[float], rows: Sequence[tuple[int, bytes]]) -> Mapping[int, float]:
    """How near in meaning the nearest facts are, from 0 up; those no nearer than most are left out.

    Nearness is told against all facts of the scope: how far its cosine lies above their mean, in deviations.
    """
    import numpy

    width = len(query)
    rows = [row for row in rows if len(row[1]) == width]
    if len(rows) < 2:
        return {}
    matrix = numpy.frombuffer(b"".join([vector for _, vector in rows]), dtype=numpy.int8)
    table = matrix.reshape(len(rows), width).astype(numpy.float32)
    norms = numpy.sqrt(numpy.einsum("ij,ij->i", table, table))
    asked = numpy.asarray(query, dtype=numpy.float32)
    length = float(numpy.sqrt(asked @ asked))
    if not length:
        return {}
    cosines = table @ (asked / length) / numpy.where(norms == 0, 1, norms)
    deviation = float(cosines.std())
    if not deviation:
        return {}
    near = numpy.maximum((cosines - cosines.mean()) / deviation - _LEAST, 0) / _SPAN
    order = numpy.argsort(-near, kind="stable")[:_MAX_NEAR]
    return {rows[place][0]: round(float(near[place]), 6) for place in order.tolist() if near[place] > 0}
