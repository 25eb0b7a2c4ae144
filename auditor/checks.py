"""All checks of values, in order: a log, a store against it, and what both say was erased."""

from __future__ import annotations
