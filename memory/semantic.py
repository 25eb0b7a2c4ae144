"""What gives the vector of a text, by the settings of a home: nothing, wordllama on this machine, or a service.

wordllama comes with its model and asks nobody. A service speaks the embeddings API that OpenAI began and many servers
of one's own speak: texts and queries are sent there, so it is a recipient of what is remembered, which an erasure here
does not reach. Its key, if it wants one, is in the environment and never in a file of the home.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from tlog.errors import MalformedError, UnavailableError

if TYPE_CHECKING:
    from memory.config import Config

KEY_VARIABLE: Final = "MUNIMENT_SEMANTIC_KEY"
_SECONDS: Final = 10.0
_PAUSE: Final = 30.0
_DOWN_UNTIL: Final[dict[str, float]] = {}
"""Until when services that did not answer are not asked again, so that reads do not wait for each of them."""
_MAX_CHARACTERS: Final = 8192
"""Of a text that is longer, the beginning alone has a vector."""


class Embedder(Protocol):
    """What makes vectors; those of one name are compared with each other, and with no others."""

    name: str

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector for each text, all of one length; UnavailableError if there is none to be had now."""
        ...


def embedder_of(config: Config) -> Embedder | None:
    """What the settings name, None if search is by words alone."""
    if config.semantic == "off":
        return None
    if config.semantic == "wordllama":
        return _wordllama()
    if config.semantic_url is None or config.semantic_model is None:
        raise MalformedError(
            "config.toml: expected semantic_url and semantic_model beside semantic = 'endpoint'"
        )
    return _Endpoint(config.semantic_url, config.semantic_model)


class _Wordllama:
    """Static vectors of 256 numbers, from the model inside the package."""

    def __init__(self, model: Any, version: str) -> None:
        self.name = f"wordllama {version}"
        self._model = model

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        # A text without a word that the model knows has no direction: a space stands for an empty one.
        vectors: Sequence[Sequence[float]] = self._model.embed(
            [text[:_MAX_CHARACTERS] or " " for text in texts], norm=False
        )
        return vectors


@lru_cache(maxsize=1)
def _wordllama() -> _Wordllama:
    try:
        import wordllama
    except ImportError:
        raise UnavailableError(
            "expected the extra `semantic` to be installed (pip install 'muniment[semantic]')",
            code="semantic_missing",
        ) from None
    from importlib.metadata import version
    from pathlib import Path

    folder = Path(wordllama.__file__).parent
    return _Wordllama(wordllama.WordLlama.load(cache_dir=folder, disable_download=True), version("wordllama"))


class _Endpoint:
    """The embeddings of a service, by its address and the name of its model."""

    def __init__(self, url: str, model: str) -> None:
        self.name = f"{model} at {url}"
        self._url = url.rstrip("/") + "/embeddings"
        self._model = model

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if time.monotonic() < _DOWN_UNTIL.get(self._url, 0.0):
            raise UnavailableError(
                "expected the service of semantic_url, which did not answer just now",
                code="semantic_unavailable",
            )
        try:
            vectors = self._ask(texts)
        except UnavailableError:
            _DOWN_UNTIL[self._url] = time.monotonic() + _PAUSE
            raise
        return vectors

    def _ask(self, texts: Sequence[str]) -> list[list[float]]:
        import httpx

        key = os.environ.get(KEY_VARIABLE)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        body = {"model": self._model, "input": [text[:_MAX_CHARACTERS] or " " for text in texts]}
        try:
            answer = httpx.post(self._url, json=body, headers=headers, timeout=_SECONDS)
            answer.raise_for_status()
            rows = sorted(answer.json()["data"], key=lambda row: row["index"])
            vectors = [[float(number) for number in row["embedding"]] for row in rows]
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError, OverflowError):
            raise UnavailableError(
                "expected the service of semantic_url to answer with vectors", code="semantic_unavailable"
            ) from None
        usable = all(one and all(map(math.isfinite, one)) for one in vectors)
        if len(vectors) != len(texts) or len({len(one) for one in vectors}) > 1 or not usable:
            raise UnavailableError(
                "expected a vector of finite numbers, all of one length, for each text",
                code="semantic_unavailable",
            )
        return vectors
