"""Both ways with the older generation of transformers, in an environment of its own.

    python tests/interop/run.py                    makes the environment, then compares
    python tests/interop/run.py --python PATH      uses an environment that is there

The other library saves a small random model of every class and we load it; we save each of them
again and it loads ours. Scores and all hidden states are compared in float32, relative to the
largest value; a model with one weight moved must be noticed. Its tokenizer must give our ids. The
figures go to `results.json` beside this file.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import venv
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from maskwright.model.checkpoint import pretrained
from maskwright.model.families.base.family import family
from maskwright.model.nn.mask import real
from maskwright.model.nn.transformer import Transformer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train

HERE = Path(__file__).parent
PINS = ("torch==2.13.0", "transformers==4.57.6")
TOLERANCE = 1e-5
CONTROL = "BertForMaskedLM"
TEXTS = [
    "The river had burst its bank, and the fields lay under water.",
    "Naïve café-goers paid €3.50 twice (2 crêpes, or was it 3?).",
    "def forward(self, x): return self.norm(x + self.attention(x))",
] * 4
ODD = [*"aé–字🙂\t\n\u00a0\u200b", "[MASK]", "[CLS] x [SEP]", "<|endoftext|>", "  two  spaces  "]


def environment(folder: Path) -> Path:
    """A fresh virtual environment with the pinned library; the path of its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    for pin in PINS:
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", pin]
        subprocess.run([*map(str, install)], check=True)
    return python


def foreign(python: Path, *arguments: object) -> None:
    """Run the other side; its complaints go to our own error stream."""
    subprocess.run([str(python), str(HERE / "foreign.py"), *map(str, arguments)], check=True)


def batch() -> dict[str, Tensor]:
    """Rows of several lengths with two segments, and targets for decoders that read a source; no
    row has token 0 or 1, which may be padding, and each has its end token in the last place."""
    draw = torch.Generator().manual_seed(1)
    lengths = torch.tensor([13, 9, 1, 5])
    place = torch.arange(13)[None]
    tokens = torch.randint(2, 60, (4, 13), generator=draw)
    tokens[:, -1] = 60
    return {
        "input_ids": tokens,
        "attention_mask": (place < lengths[:, None]).long(),
        "token_type_ids": (place >= lengths[:, None] // 2).long(),
        "decoder_input_ids": torch.randint(2, 60, (4, 13), generator=draw),
        "decoder_attention_mask": (place < torch.tensor([[8], [1], [13], [4]])).long(),
    }


@torch.no_grad()
def outputs(
    model: Transformer, inputs: dict[str, Tensor], names: Collection[str]
) -> dict[str, Tensor]:
    """Our answer under `names`, the other library's; rows to choose from stand in pairs."""
    keep = real(inputs["attention_mask"].bool())
    encoder = model.config.encoder
    several = encoder is not None and encoder.embeddings.segments > 1
    segments = inputs["token_type_ids"] if several else None
    states = model.hidden_states(inputs["input_ids"], segments=segments, visible=keep)
    named = {"hidden_states": states}
    if len(model.config.stacks) == 2:
        written = real(inputs["decoder_attention_mask"].bool())
        seen = {"memory": states[-1], "memory_visible": keep}
        target = model.hidden_states(inputs["decoder_input_ids"], visible=written, **seen)
        named = {"encoder_hidden_states": states, "decoder_hidden_states": target}
    found = {f"{name}.{i}": s for name, each in named.items() for i, s in enumerate(each)}
    found = {name: state for name, state in found.items() if name in names}
    if len(named) == 2:
        found["encoder_last_hidden_state"] = states[-1]
    hidden, config = [*named.values()][-1][-1], model.config
    if config.vocabulary_head is None and not config.heads:
        found["last_hidden_state"] = hidden
        if model.pooler is not None:
            found["pooler_output"] = model.pool(hidden[:, 0])
    if config.vocabulary_head is not None:
        found["prediction_logits" if config.heads else "logits"] = model.logits(hidden)
    for head in config.heads:
        place = 0 if model.decoder is None else -1
        scores = model.head(head.name, hidden[:, place] if head.pools else hidden)
        if head.kind == "span":
            found |= {"start_logits": scores[..., 0], "end_logits": scores[..., 1]}
            continue
        if head.kind == "choice":
            scores = scores.view(-1, 2)
        if head.kind == "token" and head.labels == 1:
            scores = scores.squeeze(-1)
        of_pair = {"seq_relationship_logits", "sop_logits"}.intersection(names)
        found[of_pair.pop() if of_pair else "logits"] = scores
    return found


def apart(ours: dict[str, Tensor], theirs: dict[str, Tensor], inputs: dict[str, Tensor]) -> float:
    """The largest relative difference over all outputs, which must bear the same names; what
    stands at padding is left out: where a window holds nothing else, that generation takes the
    average of everything and we take zeros."""
    if ours.keys() != theirs.keys():
        raise SystemExit(f"outputs differ in name: {sorted(ours.keys() ^ theirs.keys())}")
    several = any(name.startswith("encoder") for name in theirs)
    worst = 0.0
    for name, expected in theirs.items():
        written = several and not name.startswith("encoder")
        keep = inputs["decoder_attention_mask" if written else "attention_mask"].bool()
        places = keep if expected.shape[:2] == keep.shape else ...
        difference = (ours[name] - expected)[places].abs().max() / expected[places].abs().max()
        worst = max(worst, float(difference))
    return worst


def compare_models(python: Path, scratch: Path) -> dict[str, dict[str, Any]]:
    """One entry per class: how far apart, loaded by us and loaded by them."""
    inputs = batch()
    save_file(inputs, scratch / "inputs.safetensors")
    theirs, ours = scratch / "theirs", scratch / "ours"
    theirs.mkdir()
    ours.mkdir()
    foreign(python, "make", scratch / "inputs.safetensors", theirs)
    models = {}
    for folder in sorted(path for path in theirs.iterdir() if path.is_dir()):
        models[folder.name] = pretrained.load(folder).model
        pretrained.save(models[folder.name], None, ours / folder.name)
    moved = pretrained.load(theirs / CONTROL).model
    with torch.no_grad():
        next(iter(moved.parameters()))[5, 0] += 1e-3
    foreign(python, "read", scratch / "inputs.safetensors", ours)
    reports = json.loads((ours / "reports.json").read_text())
    answered = load_file(theirs / f"{CONTROL}.outputs")
    control = apart(outputs(moved, inputs, answered), answered, inputs)
    if control < TOLERANCE:
        raise SystemExit(f"a moved weight was not noticed: {control}")
    results: dict[str, dict[str, Any]] = {}
    for name, model in models.items():
        answered = load_file(theirs / f"{name}.outputs")
        answer = outputs(model, inputs, answered)
        results[name] = {
            "we load theirs": apart(answer, answered, inputs),
            "they load ours": apart(answer, load_file(ours / f"{name}.outputs"), inputs),
            "their complaints": {key: value for key, value in reports[name].items() if value},
        }
    return results


def compare_words(python: Path, scratch: Path) -> dict[str, int]:
    """Per kind of tokenizer, how many of the odd texts get other ids there."""
    draw = random.Random(0)
    texts = TEXTS + ["".join(draw.choices(ODD, k=6)) + draw.choice(TEXTS) for _ in range(200)]
    (scratch / "texts.json").write_text(json.dumps(texts))
    wrong = {}
    for kind in ("character", "bpe", "byte-bpe", "wordpiece", "unigram"):
        choice = TokenizerChoice(kind=kind, vocabulary=400)  # type: ignore[arg-type]
        words = train(TEXTS, choice)
        words.save(scratch / kind)
        foreign(python, "words", scratch / "texts.json", scratch / kind)
        theirs = json.loads((scratch / kind / "ids.json").read_text())
        wrong[kind] = sum(
            words.encode(text) != ids for text, ids in zip(texts, theirs, strict=True)
        )
    return wrong


def compare_used(python: Path, scratch: Path) -> dict[str, Any]:
    """Per class, how far apart the answers are that the other library gives to its tokenizer's own
    output, or what it refused; and that `pipeline` answers."""
    sys.path.insert(0, str(HERE.parent))  # helpers of other tests
    from parity import used

    folders, out = scratch / "used", scratch / "as-used"
    out.mkdir()
    for name, architecture in used.CLASSES:
        used.folder_of(family(name), architecture, folders / architecture)
    script = HERE / "as_used.py"
    subprocess.run([str(python), str(script), str(folders), str(out)], check=True)
    told = json.loads((out / "answers.json").read_text())["models"]
    found: dict[str, Any] = {}
    for _, architecture in used.CLASSES:
        if error := told[architecture].get("error"):
            found[architecture] = error
            continue
        theirs = load_file(out / f"{architecture}.outputs")
        found[architecture] = used.apart(folders / architecture, architecture, theirs)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--python", type=Path, help="the interpreter of an environment that is there"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results.json", help="where figures go")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        python = chosen.python or environment(scratch / "environment")
        models = compare_models(python, scratch)
        words = compare_words(python, scratch)
        as_used = compare_used(python, scratch)
        versions = json.loads((scratch / "theirs" / "versions.json").read_text())
    worst = max(max(m["we load theirs"], m["they load ours"]) for m in models.values())
    complaints = sorted(name for name, m in models.items() if m["their complaints"])
    refused = [name for name, far in as_used.items() if isinstance(far, str) or far > TOLERANCE]
    good = worst < TOLERANCE and not complaints and not any(words.values()) and not refused
    report = {
        "against": versions,
        "torch here": torch.__version__,
        "tolerance": TOLERANCE,
        "largest relative difference": worst,
        "models": models,
        "texts with other ids, by tokenizer": words,
        "as used: the tokenizer's own output, and pipeline": as_used,
        "passed": good,
    }
    chosen.out.write_text(json.dumps(report, indent=2, sort_keys=True) + "\n")
    print(
        f"{'passed' if good else 'FAILED'}: {len(models)} models against transformers "
        f"{versions['transformers']}, largest relative difference {worst:.2e}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
