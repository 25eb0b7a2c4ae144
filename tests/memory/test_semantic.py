"""Search by meaning: off unless asked for, resumed anywhere, erased with the text, one model at a time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from memory import semantic, semantic_index, wiring
from memory import vectors as vector_bytes
from memory.config import new_config, parse_config
from memory.model import SCOPES, Principal
from memory.service import Memory
from memory.wiring import Home
from tlog.errors import MalformedError, UnavailableError

pytest.importorskip("numpy", reason="the extra `semantic` is not installed")

ME = Principal("acme", "ops", "desk", SCOPES)
OTHER = Principal("umbrella", "ops", "desk", SCOPES)
SENSES = (("boat", "canoe", "ship"), ("dog", "hound", "puppy"), ("tea", "brew", "cuppa"))


class Senses:
    """Vectors with a number for each sense: words of one sense lie together, whatever their letters."""

    def __init__(self, name: str = "senses 1") -> None:
        self.name = name
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        return [[1.0, *(sum(word in text for word in sense) * 9.0 for sense in SENSES)] for text in texts]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        opened.write_config(replace(opened.config, semantic="wordllama"))
        yield opened


@pytest.fixture
def senses(monkeypatch: pytest.MonkeyPatch) -> Senses:
    made = Senses()
    semantic_index._WIDTHS.clear()
    monkeypatch.setattr(
        semantic_index, "embedder_of", lambda config: made if config.semantic != "off" else None
    )
    return made


def fill(memory: Memory) -> str:
    wanted: str = memory.remember("he keeps a canoe in the shed")["id"]
    for text in ("the hound sleeps", "a cuppa at noon", "rain on the roof", "a wall of bricks"):
        memory.remember(text)
    return wanted


def vectors(home: Home) -> list[tuple[int, str]]:
    with home.memory(ME)._parts.store.read_whole() as view:
        return [(seq, model) for seq, model in view.rows("SELECT seq, model FROM vectors ORDER BY seq")]


def test_finds_by_meaning_what_no_word_of_the_query_says(home: Home, senses: Senses) -> None:
    me = home.memory(ME)
    wanted = fill(me)
    (fact,) = me.recall("boat", explain=True)["facts"]
    assert fact["id"] == wanted
    assert fact["why"]["from_meaning"] > 0 and fact["why"]["words"] == []


def test_what_has_no_word_is_near_to_nothing(home: Home, senses: Senses) -> None:
    me = home.memory(ME)
    fill(me)
    assert me.recall("boat")["facts"]
    assert me.recall("?! \N{EM DASH}")["facts"] == []


def test_is_off_unless_asked_for(home: Home, senses: Senses) -> None:
    home.write_config(replace(home.config, semantic="off"))
    me = home.memory(ME)
    fill(me)
    assert me.recall("boat")["facts"] == []
    assert senses.asked == [] and vectors(home) == []


def test_others_are_neither_found_nor_counted(home: Home, senses: Senses) -> None:
    me, other = home.memory(ME), home.memory(OTHER)
    fill(me)
    alone = [(fact["id"], fact["why"]) for fact in me.recall("boat sleeps", explain=True)["facts"]]
    fill(other)
    other.remember("a canoe beside a ship")
    semantic_index.catch_up(me._parts)
    assert [(fact["id"], fact["why"]) for fact in me.recall("boat sleeps", explain=True)["facts"]] == alone


def test_an_erased_fact_has_no_vector(home: Home, senses: Senses) -> None:
    me = home.memory(ME)
    wanted = fill(me)
    me.recall("boat")
    assert len(vectors(home)) == 5
    me.forget(id=[wanted], confirm=me.forget_preview(id=[wanted])["confirm"])
    assert len(vectors(home)) == 4
    assert me.recall("boat")["facts"] == []


def test_what_is_erased_between_reading_and_writing_gets_none(home: Home, senses: Senses) -> None:
    me = home.memory(ME)
    wanted = fill(me)
    embed = senses.embed

    def erase_first(texts: Sequence[str]) -> list[list[float]]:
        senses.embed = embed  # type: ignore[method-assign]
        me.forget(id=[wanted], confirm=me.forget_preview(id=[wanted])["confirm"])
        return embed(texts)

    senses.embed = erase_first  # type: ignore[method-assign]
    semantic_index.catch_up(me._parts)
    assert len(vectors(home)) == 4


def test_a_new_model_takes_the_place_of_the_old_one_and_reads_go_on(
    home: Home, senses: Senses, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = home.memory(ME)
    wanted = fill(me)
    me.recall("boat")
    senses.name = "senses 2"
    monkeypatch.setattr(semantic_index, "_BATCH", 2)
    assert [fact["id"] for fact in me.recall("canoe")["facts"]] == [wanted]
    # A read waits for one step of it, however many it would take for what is new.
    assert sorted(model for _, model in vectors(home)) == ["senses 1"] * 3 + ["senses 2"] * 2
    assert semantic_index.catch_up(me._parts) == 3
    assert {model for _, model in vectors(home)} == {"senses 2"}
    assert semantic_index.catch_up(me._parts) == 0


def test_a_model_that_answers_with_wider_vectors_makes_all_of_them_anew(home: Home, senses: Senses) -> None:
    me = home.memory(ME)
    wanted = fill(me)
    assert [fact["id"] for fact in me.recall("boat")["facts"]] == [wanted]
    embed = senses.embed
    # The service has another model now, under the name of the old one.
    senses.embed = lambda texts: [[*vector, 0.0, 1.0] for vector in embed(texts)]  # type: ignore[method-assign]
    late = me.remember("a hound and a puppy")["id"]
    assert [fact["id"] for fact in me.recall("dog")["facts"]] == []
    assert semantic_index.catch_up(me._parts) == 5
    assert [fact["id"] for fact in me.recall("boat")["facts"]] == [wanted]
    assert late in [fact["id"] for fact in me.recall("dog")["facts"]]
    with me._parts.store.read_whole() as view:
        assert view.rows("SELECT DISTINCT length(vector) FROM vectors") == [(6,)]
    assert semantic_index.catch_up(me._parts) == 0
    semantic_index._WIDTHS.clear()
    senses.embed = embed  # type: ignore[method-assign]
    # Another process knows of no width before it has asked.
    assert semantic_index.catch_up(me._parts) == 6


def test_a_model_that_does_not_answer_leaves_the_words(home: Home, senses: Senses) -> None:
    me = home.memory(ME)
    wanted = fill(me)
    me.recall("boat")

    def fail(texts: Sequence[str]) -> list[list[float]]:
        raise UnavailableError("down", code="semantic_unavailable")

    senses.embed = fail  # type: ignore[method-assign]
    assert [fact["id"] for fact in me.recall("canoe")["facts"]] == [wanted]


def test_a_publication_does_not_fail_with_the_model(home: Home, senses: Senses) -> None:
    me = home.memory(ME)
    fill(me)

    def fail(texts: Sequence[str]) -> list[list[float]]:
        raise UnavailableError("down", code="semantic_unavailable")

    senses.embed = fail  # type: ignore[method-assign]
    assert me.publish()["size"] > 0


def test_what_a_server_does_regularly_gives_vectors_with_nothing_to_publish(
    home: Home, senses: Senses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semantic_index, "_BATCH", 2)
    monkeypatch.setattr(semantic_index, "AT_A_TURN", 1)
    fill(home.memory(ME))
    assert home.publish_if_needed() is not None and len(vectors(home)) == 2
    assert home.publish_if_needed() is None and len(vectors(home)) == 4
    assert home.publish_if_needed() is None and len(vectors(home)) == 5


def test_a_server_publishes_without_the_extra(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(config: object) -> None:
        raise UnavailableError("not installed", code="semantic_missing")

    monkeypatch.setattr(semantic_index, "embedder_of", missing)
    fill(home.memory(ME))
    assert home.publish_if_needed() is not None


def test_the_model_in_the_package_needs_no_network() -> None:
    pytest.importorskip("wordllama", reason="the extra `semantic` is not installed")
    embedder = semantic.embedder_of(replace(new_config("o", "on", 0), semantic="wordllama"))
    assert embedder is not None
    texts = ["she paddles a canoe", "rowing boats on the lake", "a bill from the tax office"]
    packed = list(enumerate(vector_bytes.pack(embedder.embed(texts)), start=1))
    (asked,) = embedder.embed(["boat"])
    near = vector_bytes.nearest(list(asked), packed)
    assert max(near, key=lambda seq: near[seq]) == 2


# A service of one's own


class _Service(BaseHTTPRequestHandler):
    answer: bytes = b""
    seen: dict[str, object]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).seen = body | {"key": self.headers.get("authorization"), "path": self.path}
        rows = [{"index": place, "embedding": [1.0, place]} for place, _ in enumerate(body["input"])]
        data = self.answer or json.dumps({"data": rows[::-1]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_service_gives_vectors_in_the_order_asked(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(semantic.KEY_VARIABLE, "sesame")
    config = replace(new_config("o", "on", 0), semantic="endpoint", semantic_url=service, semantic_model="m")
    embedder = semantic.embedder_of(config)
    assert embedder is not None
    assert embedder.embed(["a", "b"]) == [[1.0, 0.0], [1.0, 1.0]]
    assert _Service.seen == {
        "model": "m",
        "input": ["a", "b"],
        "key": "Bearer sesame",
        "path": "/v1/embeddings",
    }


@pytest.mark.parametrize(
    "answer",
    [
        b"{}",
        b"no",
        b'{"data": []}',
        b'{"data": [{"index": 0, "embedding": ["x"]}]}',
        b'{"data": [{"index": 0, "embedding": []}]}',
        b'{"data": [{"index": 0, "embedding": [NaN]}]}',
        b'{"data": [{"index": 0, "embedding": [1e999]}]}',
        b'{"data": [{"index": 0, "embedding": [1' + b"0" * 400 + b"]}]}",
    ],
)
def test_a_service_that_answers_with_anything_else_is_unavailable(
    service: str, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(_Service, "answer", answer)
    config = replace(new_config("o", "on", 0), semantic="endpoint", semantic_url=service, semantic_model="m")
    embedder = semantic.embedder_of(config)
    assert embedder is not None
    with pytest.raises(UnavailableError):
        embedder.embed(["a"])


def test_a_service_that_failed_is_left_alone_for_a_while(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(semantic.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(_Service, "answer", b"no")
    config = replace(new_config("o", "on", 0), semantic="endpoint", semantic_url=service, semantic_model="m")
    embedder = semantic.embedder_of(config)
    assert embedder is not None
    for word in ("first", "second"):
        with pytest.raises(UnavailableError):
            embedder.embed([word])
    assert _Service.seen["input"] == ["first"]
    monkeypatch.setattr(_Service, "answer", b"")
    now[0] += 31
    assert embedder.embed(["third"]) == [[1.0, 0.0]]


def test_a_service_without_an_address_is_an_error() -> None:
    with pytest.raises(MalformedError):
        semantic.embedder_of(replace(new_config("o", "on", 0), semantic="endpoint"))


def test_the_setting_is_one_of_three() -> None:
    config = b'version = 1\norigin = "o"\nissuer = "i"\nsubject = "s"\ncreated_at = 1\nsemantic = "often"\n'
    with pytest.raises(MalformedError):
        parse_config(config)
