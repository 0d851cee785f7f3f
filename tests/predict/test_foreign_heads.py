"""Folders of transformers that have a head and say no task."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

import maskwright
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict.file import predict_file
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import CheckpointError, DataError, IncompatibleError
from maskwright.ship.serve.dialects.base.messages import ModelReference
from tokenizer.toy_tokenizers import trained

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
}


def foreign(model: Path, out: Path, **settings: Any) -> Path:
    """A fresh `BertForSequenceClassification` with the tokenizer of `model`."""
    shutil.copytree(model / "tokenizer", out)
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=400, **SIZES, **settings)
    transformers.BertForSequenceClassification(config).save_pretrained(out)
    return out


def theirs(folder: Path, text: str, other: str | None = None) -> torch.Tensor:
    """The scores of transformers."""
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        scores: torch.Tensor = model(**tokenizer(text, other, return_tensors="pt")).logits[0]
    return scores


def rounded(answer: Any) -> Any:
    """An answer to four digits."""
    return json.loads(json.dumps(answer), parse_float=lambda text: round(float(text), 4))


def test_one_score_without_a_word_about_it_is_a_logit(model: Path, tmp_path: Path) -> None:
    """As `pipeline` has it: a reranker's score is between 0 and 1, a regression's is a number."""
    folder = foreign(model, tmp_path / "logit", num_labels=1)
    (said,) = load(folder).predict(["the cat"])
    assert said["score"] == pytest.approx(theirs(folder, "the cat").sigmoid().item(), abs=1e-5)
    # So is that of a single class, whose share of all would always be 1.
    config = folder / "config.json"
    plain = json.loads(config.read_text())
    config.write_text(json.dumps({**plain, "problem_type": "single_label_classification"}))
    assert load(folder).predict(["the cat"]) == [said]
    folder = foreign(model, tmp_path / "number", num_labels=1, problem_type="regression")
    (said,) = load(folder).predict(["the cat"])
    assert said["score"] == pytest.approx(theirs(folder, "the cat").item(), abs=1e-5)


def test_what_a_folder_lacks_is_named(model: Path, tmp_path: Path) -> None:
    """Neither a missing tokenizer nor a head without architecture ends in a missing task alone."""
    folder = foreign(model, tmp_path / "folder", num_labels=2)
    config = folder / "config.json"
    plain = json.loads(config.read_text())
    config.write_text(json.dumps({**plain, "architectures": None}))
    with pytest.raises(IncompatibleError) as caught:
        load(folder)
    assert "classifier.weight" in str(caught.value.found)
    config.write_text(json.dumps(plain))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(IncompatibleError) as caught:
        load(folder).predict(["the cat"])
    assert "tokenizer.json" in str(caught.value.wanted)


IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"
OLD = "sbert_ce_default_activation_function"
NEW = "sentence_transformers"


@pytest.mark.parametrize(
    ("keys", "about", "activation"),
    [
        ({}, None, "Sigmoid"),
        ({OLD: IDENTITY}, None, "Identity"),
        ({NEW: {"activation_fn": "torch.nn.Identity"}, OLD: SIGMOID}, None, "Identity"),
        ({NEW: {"version": "5.1.2"}}, None, "Sigmoid"),
        ({NEW: {"activation_fn": SIGMOID}}, {"activation_fn": IDENTITY}, "Identity"),
    ],
)
def test_the_score_of_a_cross_encoder_is_that_of_its_folder(
    keys: dict[str, Any], about: dict[str, Any] | None, activation: str, model: Path, tmp_path: Path
) -> None:
    folder = foreign(model, tmp_path / "m", num_labels=1, **keys)
    if about is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(about))
    predictor = load(folder)
    (said,) = predictor.predict([("the cat", "a dog")])
    logit = theirs(folder, "the cat", "a dog")
    wanted = {"Identity": logit, "Sigmoid": logit.sigmoid()}
    assert said["score"] == pytest.approx(wanted[activation].item(), abs=1e-5)
    assert wanted["Identity"].item() != pytest.approx(wanted["Sigmoid"].item(), abs=1e-2)
    assert predictor.findings == []


@pytest.mark.parametrize(
    ("keys", "files"),
    [
        ({NEW: {"activation_fn": "torch.nn.modules.activation.Tanh"}}, {}),
        ({OLD: ["Sigmoid"]}, {}),
        ({}, {"config_sentence_transformers": {"prompts": {"q": "?"}, "default_prompt_name": "q"}}),
        ({OLD: SIGMOID}, {"sentence_bert_config": {"do_lower_case": True}}),
    ],
)
def test_what_is_not_done_with_scores_is_refused(
    keys: dict[str, Any], files: dict[str, Any], model: Path, tmp_path: Path
) -> None:
    folder = foreign(model, tmp_path / "m", num_labels=1, **keys)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    with pytest.raises(IncompatibleError):
        load(folder)


def test_scores_of_several_classes_are_told_apart_from_those_of_other_libraries(
    model: Path, tmp_path: Path
) -> None:
    named = foreign(model, tmp_path / "named", num_labels=3, **{OLD: IDENTITY})
    assert [finding.name for finding in load(named).findings] == ["scores-as-shares"]
    assert load(foreign(model, tmp_path / "plain", num_labels=3)).findings == []


def test_several_numbers_are_refused(model: Path, tmp_path: Path) -> None:
    names = {0: "valence", 1: "arousal", 2: "dominance"}
    folder = foreign(model, tmp_path / "m", problem_type="regression", id2label=names)
    with pytest.raises(IncompatibleError, match="m") as caught:
        load(folder)
    assert "valence, arousal, dominance" in str(caught.value.found)


@pytest.mark.parametrize("problem", ["multi_label_classification", None])
def test_two_texts_of_a_file(model: Path, tmp_path: Path, problem: str | None) -> None:
    folder = foreign(model, tmp_path / "m", num_labels=3, problem_type=problem)
    asked = {"text": "the cat", "text_pair": "a dog"}
    one, two = load(folder).predict([asked, "the cat"])
    ((first, *_),) = load(folder).predict([asked], top=3)
    shares = theirs(folder, "the cat", "a dog")
    best = shares.sigmoid() if problem else shares.softmax(0)
    assert first["score"] == pytest.approx(best.max().item(), abs=1e-5) and one != two
    rows = [asked, {"text": "the cat", "text_pair": ""}, {"text": "the cat"}]
    source = tmp_path / "new.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = io.StringIO()
    predict_file(folder, source, told)
    found = [json.loads(line)["prediction"] for line in told.getvalue().splitlines()]
    assert list(map(rounded, found)) == list(map(rounded, (one, two, two)))
    source.write_text('{"premise": "the cat", "hypothesis": "a dog"}\n')
    told = io.StringIO()
    named = {"text": ["premise"], "text_pair": ["hypothesis"]}
    predict_file(folder, source, told, columns=named)
    assert rounded(json.loads(told.getvalue())["prediction"]) == rounded(found[0])


@pytest.mark.parametrize("names", [("text", "text_pair"), ("premise", "hypothesis")])
def test_two_texts_are_measured_as_such(
    model: Path, tmp_path: Path, names: tuple[str, str]
) -> None:
    """The labels are what the library says of pairs, so half a pair would not get all right."""
    folder = foreign(model, tmp_path / "m", num_labels=3)
    words = ("the cat", "a dog", "she ran")
    pairs = [(one, other) for one in words for other in words]
    told = [f"LABEL_{int(theirs(folder, *pair).argmax())}" for pair in pairs]
    alone = [f"LABEL_{int(theirs(folder, one).argmax())}" for one, _ in pairs]
    assert len(set(told)) > 1 and told != alone  # the control
    data = tmp_path / "pairs.csv"
    lines = [f"{one},{other},{label}" for (one, other), label in zip(pairs, told, strict=True)]
    data.write_text("\n".join([",".join((*names, "label")), *lines]) + "\n")
    found = evaluate_file(folder, data, stream=io.StringIO())
    assert found["accuracy"].value == 1.0
    columns = {"text": [names[0]], "text_pair": [names[1]]}
    assert evaluate_file(folder, data, columns=columns, stream=io.StringIO()) == found
    half = evaluate_file(folder, data, columns={"text": [names[0]]}, stream=io.StringIO())
    assert half["accuracy"].value < 1.0


def with_labels(model: Path, out: Path, names: dict[int, str]) -> Path:
    return foreign(model, out, id2label=names, label2id={v: k for k, v in names.items()})


def numbered(folder: Path, data: Path, number: dict[str, int], named: bool = False) -> Path:
    """Rows whose labels are what the model answers, by the numbers of a file's own."""
    words = ["the cat", "a dog", "she ran", "the mat", "a cat sat", "mat", "dog ran", "she sat"]
    answers = [said["label"] for said in load(folder).predict(words)]
    assert len(set(answers)) > 1, "the control: else no label is right by chance"
    lines = [f"{text},{a if named else number[a]}" for text, a in zip(words, answers, strict=True)]
    data.write_text("\n".join(["text,label", *lines]) + "\n")
    return data


def test_numbers_are_connected_with_classes_by_names_or_a_told_assumption(
    model: Path, tmp_path: Path
) -> None:
    """The file numbers its classes otherwise than the model does."""
    names = {0: "positive", 1: "negative"}
    folder = with_labels(model, tmp_path / "m", names)
    data = tmp_path / "data" / "test.csv"
    data.parent.mkdir()
    theirs_are = {"negative": 0, "positive": 1}
    numbered(folder, data, theirs_are)

    def measured() -> tuple[float, str]:
        told = io.StringIO()
        return evaluate_file(folder, data, stream=told)["accuracy"].value, told.getvalue()

    right, said = measured()
    assert right == 0.0 and "assumed: numbers in 'label'" in said
    assert "0 = 'positive', 1 = 'negative'" in said
    (data.parent / "labels.json").write_text(json.dumps(theirs_are))
    right, said = measured()
    assert right == 1.0 and "assumed" not in said
    (data.parent / "labels.json").write_text('["bad", "good"]')
    with pytest.raises(DataError, match=r"test\.csv, line 9, column 'label'"):
        measured()
    (data.parent / "labels.json").unlink()
    numbered(folder, data, {}, named=True)
    right, said = measured()
    assert right == 1.0 and "assumed" not in said, "names need no numbers"
    numbered(folder, data, {"negative": 0, "positive": 2})
    with pytest.raises(DataError, match=r"test\.csv, line 9, column 'label'"):
        measured()


def test_numbers_in_the_names_of_classes_are_theirs(model: Path, tmp_path: Path) -> None:
    stars = {n: f"{n + 1} star" + "s" * (n > 0) for n in range(3)}
    folder = with_labels(model, tmp_path / "m", stars)
    data, told = tmp_path / "test.csv", io.StringIO()
    numbered(folder, data, {name: n + 1 for n, name in stars.items()})
    assert evaluate_file(folder, data, stream=told)["accuracy"].value == 1.0
    assert "1 = '1 star'" in told.getvalue()
    # Names of the file's own for LABEL_0 and LABEL_1.
    folder = foreign(model, tmp_path / "plain", num_labels=2)
    numbered(folder, data, {"LABEL_0": 0, "LABEL_1": 1})
    right = data.read_text()
    assert evaluate_file(folder, data, stream=io.StringIO())["accuracy"].value == 1.0
    data.write_text(right.replace(",0", ",bad").replace(",1", ",good"))
    with pytest.raises(DataError, match=r"test\.csv, line 2, column 'label'") as refused:
        evaluate_file(folder, data, stream=io.StringIO())
    assert "labels.json" in str(refused.value.do)
    (tmp_path / "labels.json").write_text('{"bad": 0, "good": 1}')
    assert evaluate_file(folder, data, stream=told)["accuracy"].value == 1.0
    assert "bad = 'LABEL_0'" in told.getvalue()


def test_special_tokens_of_the_model_that_texts_cannot_have_are_told(
    model: Path, tmp_path: Path
) -> None:
    folder = foreign(model, tmp_path / "m", num_labels=2)
    assert load(folder).findings == []
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<e1>", "</e1>"]})
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(tokenizer), **SIZES)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "MANIFEST.json").unlink(missing_ok=True)
    source, said = tmp_path / "new.txt", list[str]()
    source.write_text("the <e1> cat </e1> sat\n")
    predict_file(folder, source, io.StringIO(), say=said.append)
    assert any("<e1>" in line and "special tokens" in line for line in said)


@pytest.mark.parametrize("pad", ["none", "the end", "its own"])
def test_a_classifier_that_reads_to_the_left_gives_the_scores_of_each_text_alone(
    pad: str, tmp_path: Path
) -> None:
    """A text that ends with the token for padding is understood before it, as in transformers."""
    tokenizer = trained("byte-bpe", "gpt2")
    folder = tmp_path / "m"
    tokenizer.save(folder)
    end = tokenizer.end
    assert end is not None
    name = tokenizer.vocabulary[end]
    number = {"none": None, "the end": end, "its own": tokenizer.vocabulary_size - 1}[pad]
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "initializer_range": 0.5}
    config = transformers.GPT2Config(
        vocab_size=tokenizer.vocabulary_size,
        num_labels=1,
        problem_type="regression",
        pad_token_id=number,
        **sizes,
    )
    torch.manual_seed(0)
    network = transformers.GPT2ForSequenceClassification(config).eval()
    network.save_pretrained(folder)
    ends = ["the cat", f"the cat{name}", f"the cat{name}{name}", name, f"the {name} cat", "a dog"]
    reader = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    with torch.no_grad():
        alone = [network(**reader(text, return_tensors="pt")).logits.item() for text in ends]
    found = [answer["score"] for answer in load(folder).predict(ends)]
    assert found == pytest.approx(alone, abs=1e-4)
    assert (abs(found[0] - found[1]) < 1e-4) == (pad == "the end"), "the control"


WRITTEN: dict[str, dict[str, Any]] = {
    "greedy": {"max_length": 12},
    "summaries": {
        **{"num_beams": 4, "max_length": 14, "min_length": 8, "length_penalty": 2.0},
        **{"early_stopping": True, "no_repeat_ngram_size": 2, "forced_bos_token_id": 5},
    },
    "short": {"num_beams": 3, "max_new_tokens": 7, "length_penalty": 0.5},
    "no penalty": {"num_beams": 4, "max_length": 12, "length_penalty": 0.0},
    "a reward": {"num_beams": 4, "max_length": 12, "length_penalty": -3.0},
    "nothing said": {},
}


def writer(out: Path, **settings: Any) -> Path:
    """A fresh BART that writes, with what its folder says of that."""
    tokenizer = trained("byte-bpe", "roberta")
    tokenizer.save(out)
    (out / "MANIFEST.json").unlink()
    sizes = {"d_model": 16, "max_position_embeddings": 64, "init_std": 0.4}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 1, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 32}
    config = transformers.BartConfig(
        vocab_size=tokenizer.vocabulary_size,
        pad_token_id=tokenizer.pad,
        bos_token_id=tokenizer.begin,
        eos_token_id=tokenizer.end,
        decoder_start_token_id=tokenizer.end,
        forced_eos_token_id=tokenizer.end,
        **sizes,
    )
    torch.manual_seed(0)
    network = transformers.BartForConditionalGeneration(config)
    network.generation_config.update(**settings)
    network.save_pretrained(out)
    return out


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_a_folder_that_writes_answers_as_its_settings_say(tmp_path: Path) -> None:
    texts, found = ["kalo mine ta", "poche ban der wes"], dict[str, list[str]]()
    for name, settings in WRITTEN.items():
        folder = writer(tmp_path / name, **settings)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        network = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        with torch.no_grad():
            ids = [
                network.generate(tokenizer(text, return_tensors="pt").input_ids)[0]
                for text in texts
            ]
        wanted = [tokenizer.decode(row, skip_special_tokens=True).strip() for row in ids]
        predictor = load(folder)
        found[name] = [answer["generated_text"] for answer in predictor.predict(texts)]
        assert found[name] == wanted, name
        names = [finding.name for finding in predictor.findings]
        assert names == (["generation-length"] if name == "nothing said" else [])
    # Without a penalty and with a reward of short texts the same are best.
    assert len({str(answers) for answers in found.values()}) == len(WRITTEN) - 1, "the control"


def test_what_is_said_of_writing_is_followed_told_or_refused(tmp_path: Path) -> None:
    folder = writer(tmp_path / "m", max_length=9)
    settings, config = folder / "generation_config.json", folder / "config.json"
    plain, of_model = json.loads(settings.read_text()), json.loads(config.read_text())
    odd = {"repetition_penalty": 1.3, "suppress_tokens": [7], "eos_token_id": [2, 9]}
    settings.write_text(json.dumps({**plain, **odd}))
    (finding,) = load(folder).findings
    assert finding.name == "generation-settings" and all(key in finding.what for key in odd)
    opened = maskwright.load(folder, precision="float32")
    assert "predict" in opened.abilities and [f.name for f in opened.findings] == [finding.name]
    # A server makes vectors of its states, too, as of any model that was trained for no task here.
    chosen = SimpleNamespace(task_type=opened.predictor.task_type, engine=opened.opened())
    assert ModelReference.makes_vectors.fget(chosen)  # type: ignore[attr-defined]
    chosen.engine = SimpleNamespace(model=SimpleNamespace(writes_for_texts=False))
    assert not ModelReference.makes_vectors.fget(chosen)  # type: ignore[attr-defined]
    # One task's settings and prefix are followed; of several none is.
    settings.unlink()
    task = {"prefix": "kalo: ", "max_length": 6}
    config.write_text(json.dumps({**of_model, "task_specific_params": {"summarization": task}}))
    summaries = load(folder)
    assert summaries.task_type.options["prompt"] == "kalo: {source}"
    assert list(summaries.predict(["ta"])[0]) == ["summary_text"]
    both = {"summarization": task, "translation_en_to_de": task}
    config.write_text(json.dumps({**of_model, "task_specific_params": both}))
    assert {f.name for f in load(folder).findings} == {"generation-tasks", "generation-length"}
    config.write_text(json.dumps(of_model))
    for key, value in {
        **{"num_beams": "4", "max_length": 1e9, "no_repeat_ngram_size": -1},
        **{"forced_bos_token_id": 10**6, "early_stopping": "often", "length_penalty": 1e9},
    }.items():
        settings.write_text(json.dumps({**plain, key: value}))
        with pytest.raises(CheckpointError, match=key):
            load(folder)
    for key, value in {"early_stopping": "never", "forced_eos_token_id": [2]}.items():
        settings.write_text(json.dumps({**plain, key: value}))
        (finding,) = load(folder).findings
        assert finding.name == "generation-settings" and f"not followed: {key}" in finding.what
    settings.write_text(json.dumps(plain))
    assert not load(folder).findings, "the control"
