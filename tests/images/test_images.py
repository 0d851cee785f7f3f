"""Images: decoded, prepared as their file says, found in folders, learned from and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import maskwright
from checkpoint.small import model_of, readable, small
from labelled.tables import write
from maskwright.ask.predict.predictor import load as load_model
from maskwright.base.errors import (
    CheckpointError,
    DataError,
    IncompatibleError,
    MaskwrightError,
)
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.layout import About
from maskwright.model.families.base.family import family
from maskwright.ship.serve.served_model import open_all
from maskwright.text.images.decode import read_image
from maskwright.text.images.processor import ImageProcessor, resized
from maskwright.text.tables.files import load
from maskwright.text.tables.labelled_images import find_images
from small_tasks import finetuned, results_of

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
USUAL = ImageProcessor(size=8)


def ppm(file: Path, pixels: np.ndarray) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    kind = b"P6" if pixels.ndim == 3 else b"P5"
    header = b"%s\n# by a test\n%d %d\n255\n" % (kind, *pixels.shape[1::-1])
    file.write_bytes(header + pixels.tobytes())
    return str(file)


def model(folder: Path, processor: ImageProcessor | None = USUAL) -> Path:
    keys = {"num_channels": 3, "id2label": {"0": "cat", "1": "dog"}}
    network = model_of(small(family("vit"), "ViTForImageClassification", **keys))
    about = About(family="vit", labels=("cat", "dog"), images=processor)
    pretrained.save(network, None, folder, about)
    return folder


def test_an_image_is_answered_as_the_network_answers_its_patches(tmp_path: Path) -> None:
    names = [ppm(tmp_path / f"{n}.ppm", image) for n, image in enumerate(PIXELS)]
    loaded = maskwright.load(model(tmp_path / "model"), precision="float32")
    network = pretrained.load(tmp_path / "model").model
    values = PIXELS / 127.5 - 1  # rows of two by two patches, each by channel, row and column
    grid = values.reshape(4, 2, 4, 2, 4, 3).transpose(0, 1, 3, 5, 2, 4).reshape(4, 4, 48)
    rows = readable(network, torch.zeros(4, 1)).index_fill(1, torch.tensor([0]), 5.0)
    rows[:, 1:] = torch.from_numpy(grid)
    with torch.no_grad():
        shares = network.head("classifier", network.encode(rows)[:, 0]).softmax(-1)
    for given in (names, list(PIXELS)):
        answers = loaded.predict(given)
        for answer, share in zip(answers, shares.tolist(), strict=True):
            assert answer["score"] == pytest.approx(max(share), abs=1e-5)
            assert answer["label"] == ("cat", "dog")[int(np.argmax(share))]
    assert loaded.abilities == ("predict",)
    for ask in (loaded.embed, loaded.generate, loaded.fill_mask, loaded.tokens):
        with pytest.raises(IncompatibleError):
            ask("a text")
    with pytest.raises(IncompatibleError):  # a request could name any file of the machine
        open_all({"images": tmp_path / "model"}, {}, "float32")


@pytest.mark.parametrize(
    ("image", "changes"),
    [
        (PIXELS[0, :, :, 0], {}),
        (PIXELS[0, :6], {"size": None}),
        (PIXELS[0] / 255, {}),
        (np.zeros((8, 8, 4), np.uint8), {}),
        ("nowhere.ppm", {}),
        (3, {}),
    ],
)
def test_what_is_not_converted_is_refused(image: Any, changes: dict[str, Any]) -> None:
    processor = ImageProcessor(**{"size": 8, **changes})
    with pytest.raises(DataError) as refused:
        processor.read(image, 8, 3, "image 1")
    assert refused.value.where and refused.value.found and refused.value.wanted and refused.value.do
    assert processor.read(PIXELS[0], 8, 3, "").shape == (8, 8, 3), "the control"
    to_rgb = ImageProcessor(size=8, to_rgb=True)
    assert (to_rgb.read(PIXELS[0, :, :, 0], 8, 3, "") == PIXELS[0, :, :, :1]).all()


def test_pillow_decodes_what_stands_upright_alone(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra `vision` is not installed")
    pixels, names = PIXELS[0, :6], {n: str(tmp_path / n) for n in ("a.png", "b.png", "c.gif")}
    picture = image.fromarray(pixels)
    turned = picture.getexif()
    turned[0x0112] = 6  # to be turned by 90 degrees to the right
    picture.save(names["a.png"])
    picture.save(names["b.png"], exif=turned)
    picture.convert("L").save(names["c.gif"], save_all=True, append_images=[image.new("L", (8, 6))])
    assert (read_image(names["a.png"]) == pixels).all()
    assert (read_image(names["b.png"]) == np.rot90(pixels, -1)).all()
    for broken in (names["c.gif"], ppm(tmp_path / "d.png", pixels)):
        (tmp_path / "d.png").write_bytes((tmp_path / "a.png").read_bytes()[:60])
        with pytest.raises(DataError) as refusal:
            read_image(broken, to_rgb=True)
        assert refusal.value.where == broken


@pytest.mark.parametrize(
    "keys",
    [
        {"do_center_crop": True},
        {"resample": 3},
        {"size": {"shortest_edge": 8}},
        {"image_mean": [0.5]},
        {"image_std": [0, 1, 1]},
        {"rescale_factor": "1/255"},
        {"do_resize": 1},
    ],
)
def test_a_processor_comes_back_and_variations_are_refused(
    keys: dict[str, Any], tmp_path: Path
) -> None:
    folder = model(tmp_path / "model")
    file = folder / "preprocessor_config.json"
    written = json.loads(file.read_text())
    assert ImageProcessor.of_json(written, "") == USUAL
    with pytest.raises(CheckpointError):
        ImageProcessor.of_json({**written, **keys}, "")


def test_resizing_weighs_what_a_pixel_covers() -> None:
    ramp = np.repeat(np.arange(0, 64, 8, dtype=np.uint8)[None, :, None], 8, 0)
    assert (resized(ramp, 8) == ramp).all()
    # 8 (.875 + 2 · .875 + 3 · .625 + 4 · .375 + 5 · .125) / 3.5 = 15.1, and 56 less that
    assert resized(ramp, 2)[0, :, 0].tolist() == [15, 41]


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_classes_of_images_are_learned_and_judged(tmp_path: Path, is_shuffled: bool) -> None:
    """By the brightness of the upper half, which pixels tell, too; the control has labels drawn."""
    draw = np.random.default_rng(0)
    for number in range(60):
        pixels, is_cat = PIXELS[number % 4] // 2, bool(number % 2)
        pixels[:4] += np.uint8(100 * is_cat)
        label = draw.integers(0, 2) if is_shuffled else is_cat
        ppm(tmp_path / "data" / ("dog", "cat")[int(label)] / f"{number}.ppm", pixels)
    out, base = tmp_path / "out", model(tmp_path / "model")
    finetuned(base, tmp_path / "data", out, method="embeddings", folds=2)
    rows = {row[0]: row[1] for row in results_of(out)["table"]["rows"]}
    assert {"majority", "pixels"} <= {*rows}
    assert (float(rows["pixels"].split()[0]) > 0.9) is not is_shuffled
    file = next((tmp_path / "data" / "cat").iterdir())
    assert (load_model(out).predict([str(file)])[0]["label"] == "cat") or is_shuffled


def test_folders_and_files_of_many_are_tables(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for label in ("cat", "dog"):
            ppm(tmp_path / "folder" / part / label / "1.ppm", PIXELS[0])
    table = load(tmp_path / "folder")
    assert {part: len(rows) for part, rows in table.parts.items()} == {"train": 2, "validation": 2}
    assert [row.values["label"] for row in table.parts["train"]] == ["cat", "dog"]
    for name in ("README.md", "LICENSE.txt", "train/notes.txt"):
        (tmp_path / "folder" / name).write_text("hi")
    assert load(tmp_path / "folder").parts == table.parts
    (tmp_path / "folder" / "train" / "cat" / "1.txt").write_text("A text of the class cat.")
    assert find_images(tmp_path / "folder") is None, "the control: texts in the folder of a class"
    (tmp_path / "cifar").mkdir()
    (tmp_path / "cifar" / "data_batch_1.bin").write_bytes(bytes(3073))
    (tmp_path / "cifar" / "batches.meta.txt").write_text("airplane")  # as it is published
    assert len(load(tmp_path / "cifar").first) == 1
    (tmp_path / "named").mkdir()
    ppm(tmp_path / "named" / "1.ppm", PIXELS[0]), ppm(tmp_path / "named" / "2.ppm", PIXELS[1])
    (tmp_path / "named" / "metadata.csv").write_text("file_name,label\n1.ppm,cat\n")
    namesake = ppm(tmp_path / "named" / "other" / "1.ppm", PIXELS[2])
    (counts,) = load(tmp_path / "named").counts.values()
    assert sorted(counts.ignored.files) == [str(tmp_path / "named" / "2.ppm"), namesake]
    for image in ("figures/a.ppm", "logos/b.ppm"):
        ppm(tmp_path / "texts" / image, PIXELS[0])
    for text in ("pos/1.txt", "neg/1.txt"):
        write(tmp_path / "texts" / text, "A text of a class.")
    assert [row.values["label"] for row in load(tmp_path / "texts").first] == ["neg", "pos"]
    ppm(tmp_path / "texts" / "pos" / "img" / "a.ppm", PIXELS[0])
    assert find_images(tmp_path / "texts") is None
    for name, sizes, content in (
        ("train-images-idx3-ubyte", (2, 8, 8), PIXELS[:2, :, :, 0].tobytes()),
        ("train-labels-idx1-ubyte", (2,), bytes([7, 3])),
    ):
        header = bytes([0, 0, 8, len(sizes)]) + np.array(sizes, ">u4").tobytes()
        (tmp_path / name).write_bytes(header + content)
    (rows,) = load(tmp_path / "train-images-idx3-ubyte").parts.values()
    assert [row.values["label"] for row in rows] == [7, 3]
    read = ImageProcessor(size=8).read(rows[1].values["image"], 8, 1, "")
    assert (read[..., 0] == PIXELS[1, :, :, 0]).all()
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3]))
    (tmp_path / "data_batch_1.bin").write_bytes(b"12")
    for broken in ("train-images-idx3-ubyte", "data_batch_1.bin"):
        (tmp_path / "copy").mkdir(exist_ok=True)
        for file in tmp_path.glob("*-ubyte"):
            (tmp_path / "copy" / file.name).write_bytes(file.read_bytes())
        (tmp_path / "copy" / "data_batch_1.bin").write_bytes(b"12")
        with pytest.raises(MaskwrightError):
            find_images(tmp_path / "copy" / broken)


def pretrain_images(folder: Path, out: Path, *settings: str) -> Path:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "image_size": 8}
    sizes = {} if "model.folder" in "".join(settings) else sizes
    return maskwright.pretrain(
        "vit-tiny",
        out,
        text=folder,
        settings=[
            *(f"model.settings.{key}={value}" for key, value in sizes.items()),
            *("rows.length=5", "training.batch=8", "training.budget=2steps"),
            *("corpus.held_out=0.2", *settings),
        ],
    )


def test_hidden_patches_are_learned_and_what_is_said_of_them_is_true(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(0)
    for number in range(20):
        pixels = draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        ppm(tmp_path / "data" / ("test" if number < 2 else "train") / f"{number}.ppm", pixels)
    saved = pretrain_images(tmp_path / "data", tmp_path / "run")
    said = capsys.readouterr().out
    page = (tmp_path / "run" / "report.html").read_text()
    page = page.partition("<main")[2].partition(">name =")[0]  # without styles and the recipe
    page = page.replace("--text", "")
    for word in ("perplexity", "unigram", "nats", "token", "Held-out text", "On text"):
        assert word not in said and word not in page, word
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    reading = run["corpus"]["read"]["train"]
    assert [note["name"] for note in reading["notes"]] == ["part-left-out"]
    assert reading["summary"].startswith("18 ")
    assert run["references"]["mean_image_loss"] == pytest.approx(0.5, abs=0.1)  # of -1 to 1
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["kind"] == "evaluation" and lines[-1].keys() == {
        "kind",
        "step",
        "loss",
        "targets",
    }
    assert lines[1]["tokens"] == 2 * 8 * 5, "positions, not numbers"
    opened = pretrained.load(saved)
    assert opened.about.images == ImageProcessor() and opened.config.heads[0].kind == "patch"
    # It is trained further, and is the body of a classifier.
    further = pretrain_images(
        tmp_path / "data", tmp_path / "more", f"model.folder={tmp_path / 'run'}"
    )
    assert not torch.equal(
        pretrained.load(further).model.tokens.mask.weight, opened.model.tokens.mask.weight
    )
    for number in range(20):
        pixels = draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        ppm(tmp_path / "labelled" / ("cat", "dog")[number % 2] / f"{number}.ppm", pixels)
    finetuned(tmp_path / "run", tmp_path / "labelled", tmp_path / "out", method="full", epochs=1)
    head = load_model(tmp_path / "out").model.config
    assert head.heads[0].kind == "sequence" and not head.tokens.mask


@pytest.mark.parametrize(
    ("setting", "where"),
    [
        ("rows.length=6", "--set rows.length"),
        ("corpus.limit_bytes=9", "corpus.limit_bytes"),
        ("objective.name=masked", "objective.name"),
        ("rows.kind=blocks", "rows.kind"),
        ("model.settings.num_channels=2", "tokenizer"),
        ("model.architecture=ViTForImageClassification", "model.heads"),
    ],
)
def test_a_recipe_that_reads_images_refuses_what_is_for_texts(
    tmp_path: Path, setting: str, where: str
) -> None:
    for number, pixels in enumerate(PIXELS):
        ppm(tmp_path / "data" / f"{number}.ppm", pixels)
    with pytest.raises(MaskwrightError) as refused:
        pretrain_images(tmp_path / "data", tmp_path / "run", setting)
    assert refused.value.where == where and not (tmp_path / "run" / "checkpoints").exists()
