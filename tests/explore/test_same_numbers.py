"""What the browser computes is what Python computes: states, scores, attention, draws."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from explore.node import javascript, needs_node, plain_tokenizer
from maskwright.base import randomness
from maskwright.model.inference.generation import choose, distribution
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.nn.config import Relative
from maskwright.model.nn.layers import relative_buckets
from maskwright.model.nn.stack import Trace
from maskwright.ship.explore.bundle import tagged
from nn.points import ENCODERS, PAIRS, POINTS, model_of, tokens
from tokenizer.toy_tokenizers import trained

pytestmark = needs_node
CLOSE = 1e-5
# The page does not compute global tokens, nor blocks of longer texts, and says so.
REFUSED = ("global tokens encoder", "block-sparse encoder")
DRAWN = [name for name in POINTS if name not in REFUSED]


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What the browser makes of one row of every point of the configuration space."""
    folder = tmp_path_factory.mktemp("points")
    given = []
    for number, name in enumerate(DRAWN):
        network, file = model_of(name), folder / f"{number}.safetensors"
        save_file({n: p.detach().contiguous() for n, p in network.named_parameters()}, file)
        given.append({"name": name, "config": tagged(network.config), "file": str(file)})
    rows = {"ids": tokens(1)[0].tolist(), "source": tokens(1, 9, seed=1)[0].tolist()}
    return dict(
        javascript(
            """
            const { Cache, Network } = await load("network.js");
            const { tensors } = await load("safetensors.js");
            const { ids, source } = given.rows;
            return given.networks.map(({ name, config, file }) => {
              const network = new Network(config, tensors(bytes(file)));
              const trace = { hidden: [], weights: [], crossWeights: [] };
              const memory = config.encoder && config.decoder ? network.encode(source) : null;
              const states = config.decoder
                ? network.decode(ids, { memory, trace }) : network.encode(ids, { trace });
              let stepped = null;
              if (config.decoder) {
                const cache = new Cache();
                stepped = [[...ids.slice(0, 5)], ...ids.slice(5).map((id) => [id])].flatMap(
                  (some) => Array.from(network.decode(some, { memory, cache })));
              }
              return [name, {
                states: Array.from(states),
                logits: Array.from(network.logits(states)),
                weights: trace.weights.map((each) => Array.from(each.weights)),
                stepped,
              }];
            });
            """,
            {"networks": given, "rows": rows},
        )
    )


@pytest.mark.parametrize("name", DRAWN)
@torch.no_grad()
def test_every_point_of_the_configuration_space(
    name: str, networks: dict[str, dict[str, object]]
) -> None:
    network, ids, found = model_of(name).eval(), tokens(1), networks[name]
    trace = Trace()
    if name in ENCODERS:
        states = network.encode(ids, trace=trace)
    else:
        memory = network.encode(tokens(1, 9, seed=1)) if name in PAIRS else None
        states = network.decode(ids, memory=memory, trace=trace)
    logits = network.logits(states)
    np.testing.assert_allclose(found["states"], states.flatten(), atol=CLOSE)
    np.testing.assert_allclose(found["logits"], logits.flatten(), atol=CLOSE)
    for ours, theirs in zip(found["weights"], trace.weights, strict=True):  # type: ignore[call-overload]
        np.testing.assert_allclose(ours, theirs.flatten(), atol=CLOSE)
    if found["stepped"] is not None:
        np.testing.assert_allclose(found["stepped"], states.flatten(), atol=CLOSE)
    # A control: another row's numbers are none of these.
    assert (
        np.abs(np.roll(found["states"], network.config.width) - states.flatten().numpy()).max()
        > 0.1
    )


@pytest.mark.parametrize(
    ("name", "finding"), [(REFUSED[0], "global tokens"), (REFUSED[1], "at most 7")]
)
def test_what_the_page_does_not_compute(name: str, finding: str, tmp_path: Path) -> None:
    network = model_of(name)
    save_file(dict(network.state_dict()), tmp_path / "weights")
    message = javascript(
        """
        const { Network } = await load("network.js");
        const { tensors } = await load("safetensors.js");
        try {
          new Network(given.config, tensors(bytes(given.file))).encode([1, 2, 3, 4, 5, 6, 7, 8]);
        } catch ({ message }) { return message; }
        """,
        {"config": tagged(network.config), "file": str(tmp_path / "weights")},
    )
    assert finding in message


def test_draws() -> None:
    rng = np.random.default_rng(0)
    scores = (rng.standard_normal((40, 300)) * 3).astype(np.float32)
    scores[:, 100:110] = scores[:, :10]  # ties
    settings: list[tuple[GenerationSettings, tuple[int, ...]]] = [
        (GenerationSettings(temperature=0.7), ()),
        (GenerationSettings(temperature=1.0, top_k=20), ()),
        (GenerationSettings(temperature=1.0, top_p=0.9), ()),
        (GenerationSettings(temperature=1.3, top_k=50, top_p=0.8), (3, 4)),
    ]
    prompts = [[1, 2, 3], list(range(400)), [7]]
    found = javascript(
        """
        const { choose, distribution } = await load("sampling.js");
        const { key, nameOf, uniforms } = await load("random.js");
        const names = given.prompts.map((prompt) => nameOf(prompt));
        return {
          names: names.map(String),
          pair: String(nameOf([1, 2], [3, 4])),
          drawn: given.settings.map((setting, s) => given.scores.map((row, n) => {
            const p = distribution(Float32Array.from(row), setting);
            return Array.from({ length: 63 }, (_, step) =>
              choose(p, uniforms(key(given.purpose, s, names[n % 3], 0, step), 1)[0]));
          })),
        };
        """,
        {
            "scores": scores.tolist(),
            "prompts": prompts,
            "purpose": str(randomness.purpose_key("sample")),
            "settings": [
                {"temperature": s.temperature, "topK": s.top_k, "topP": s.top_p, "forbidden": ids}
                for s, ids in settings
            ],
        },
    )

    def name(ids: list[int]) -> int:
        data = np.asarray(ids, "<i8").tobytes()
        return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")

    assert found["names"] == [str(name(prompt)) for prompt in prompts]
    assert found["pair"] == str(name([3, 4, -1, 1, 2]))
    for number, (setting, forbidden) in enumerate(settings):
        chances = distribution(torch.from_numpy(scores), setting, forbidden)
        for row in range(len(scores)):
            own = number, name(prompts[row % 3]), 0
            keys = [randomness.key("sample", *own, step) for step in range(63)]
            numbers = randomness.uniforms(np.array(keys, np.uint64), 1)[:, 0]
            wanted = choose(chances[row : row + 1].expand(63, -1), numbers)
            assert found["drawn"][number][row] == wanted


def test_the_error_function_and_buckets() -> None:
    places = np.linspace(-6.5, 6.5, 4001).tolist()
    config = Relative(buckets=32, max_distance=128)
    found = javascript(
        """
        const { erf } = await load("numbers.js");
        const { bucket } = await load("network.js");
        const distances = Array.from({ length: 801 }, (_, i) => i - 400);
        const config = { buckets: 32, max_distance: 128 };
        return {
          erf: given.map(erf),
          both: distances.map((d) => bucket(config, d, true)),
          left: distances.map((d) => bucket(config, d, false)),
        };
        """,
        places,
    )
    np.testing.assert_allclose(found["erf"], [math.erf(x) for x in places], atol=1e-11)
    for both in (True, False):
        buckets = relative_buckets(config, 1, 801, 400, both, torch.device("cpu"))
        assert found["both" if both else "left"] == buckets[0].tolist()


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    whole = tmp_path / "whole.safetensors"
    save_file({"a": torch.arange(6.0), "b": torch.ones(3, dtype=torch.bfloat16)}, whole)
    cut = tmp_path / "cut.safetensors"
    data = whole.read_bytes()
    cut.write_bytes(data[:-2])
    odd = tmp_path / "odd.safetensors"  # numbers that begin at no multiple of their size
    size = int.from_bytes(data[:8], "little")
    odd.write_bytes((size + 1).to_bytes(8, "little") + data[8 : 8 + size] + b" " + data[8 + size :])
    found = javascript(
        """
        const { tensors } = await load("safetensors.js");
        const numbers = (path) => ["a", "b"].map(
          (name) => Array.from(tensors(bytes(path)).get(name)));
        let said = "";
        try { tensors(bytes(given.cut)); } catch (error) { said = error.message; }
        const copied = bytes(given.whole), none = tensors(copied);
        return { whole: numbers(given.whole), odd: numbers(given.odd), said,
          shared: none.get("a").buffer === copied, none: none.get("c") === undefined };
        """,
        {"whole": str(whole), "cut": str(cut), "odd": str(odd)},
    )
    assert found["whole"] == found["odd"] == [[0, 1, 2, 3, 4, 5], [1, 1, 1]]
    assert "cut off" in found["said"] and found["shared"] and found["none"]


def test_a_file_is_read_as_it_comes() -> None:
    """Its bytes are those of the server, whether it says how many there are, or says it wrongly."""
    found = javascript(
        """
        const { Files } = await load("files.js");
        const body = (parts) => new ReadableStream({ start(to) {
          for (const part of parts) to.enqueue(new Uint8Array(part));
          to.close();
        } });
        const read = async (headers, status = 200) => {
          globalThis.fetch = async () => new Response(body([[1, 2], [3]]), { status, headers });
          const told = [];
          try {
            const bytes = await new Files().bytes("x", (...own) => told.push(own));
            return [Array.from(new Uint8Array(bytes)), told];
          } catch (error) { return error.message; }
        };
        return [await read({ "Content-Length": 3 }), await read({}),
          await read({ "Content-Length": 2, "Content-Encoding": "gzip" }),
          await read({ "Content-Length": 4 }), await read({ "Content-Length": 2 }),
          await read({}, 404)];
        """
    )
    assert found[0] == [[1, 2, 3], [[2, 3], [3, 3]]] and found[1] == found[2] == [[1, 2, 3], []]
    assert "cut off" in found[3] and "longer" in found[4] and "not there (404)" in found[5]


def test_characters_that_could_only_be_dropped_are_refused() -> None:
    found = javascript(
        """
        const said = (words, text) => {
          try { return words.encode(text).length; } catch (error) { return error.message; }
        };
        const some = ["a", "b", "\\u0120"];
        const bytes = await wordsOf({ ...given, alphabet: some, kind: "byte-bpe" });
        const letters = await wordsOf({ ...given, alphabet: ["a", "b"], kind: "character" });
        return [[bytes, "ab é"], [bytes, "ab"], [letters, "ab 1"], [letters, "ba"]].map(
          ([words, text]) => said(words, text));
        """,
        plain_tokenizer(trained("byte-bpe")),
    )
    assert "does not have é" in found[0] and isinstance(found[1], int)
    assert "does not have   1" in found[2] and isinstance(found[3], int)
