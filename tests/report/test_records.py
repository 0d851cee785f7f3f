"""Runs and results as they recorded themselves: lists of them, and what may be compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.base.report.document import standing
from maskwright.base.report.records import compared, read_record, records_below
from maskwright.cli import main as cli

RUN = {"objective": "masked", "held_out": "a", "tokenizer": "t", "bits_per_byte": None}
LINES = {"uniform_loss": 9.0, "unigram_loss": 5.25}


def make_run(folder: Path, **changed: object) -> Path:
    facts = RUN | changed
    (folder / "data" / "held-out").mkdir(parents=True)
    run = {"recipe": "bert-mini", "references": LINES, "budget": {"steps": 2}}
    run["token_parts"] = []  # the training loss has other units, as that of static vectors
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "recipe.toml").write_text(f'[objective]\nname = "{facts["objective"]}"\n')
    evaluation = {"kind": "evaluation", "step": 2, "loss": 3.25, "top1": 0.5}
    evaluation["bits_per_byte"] = facts["bits_per_byte"]
    (folder / "metrics.jsonl").write_text(json.dumps(evaluation) + "\n")
    files = {"document_bytes.bin": {"bytes": 8, "sha256": facts["held_out"]}}
    manifest = {"files": files, "about": {"tokenizer": facts["tokenizer"]}}
    (folder / "data" / "held-out" / "manifest.json").write_text(json.dumps(manifest))
    return folder


def make_result(folder: Path, rows: str = "a") -> Path:
    folder.mkdir(parents=True)
    table = {"head": ["", "accuracy"], "rows": [["own", "0.9 (0.8 to 1.0)"], ["majority", "0.5"]]}
    results = {"task": "classification", "method": "full", "test": {"sha256": rows}}
    results |= {"table": table, "verdict": {"state": "good", "sentence": "Good: accuracy 0.9."}}
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def test_runs_and_results_below_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, result = make_run(tmp_path / "b" / "run"), make_result(tmp_path / "a")
    make_result(run / "within")  # a part of the run
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "results.json").write_text("{")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "results.json").write_text('{"recipes": {"tiny": {}}}')
    records = list(records_below(tmp_path))
    assert [record.folder for record in records[:3]] == [result, run, tmp_path / "damaged"]
    assert records[3].folder == tmp_path / "e" and "None" not in records[3].about
    assert records[2].kind == "damaged" and records[2].verdict
    assert records[1].verdict.endswith(standing(3.25, LINES))
    assert read_record(tmp_path) is None, "the control"
    assert cli.main(["runs", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "Good: accuracy 0.9." in shown and "loss 3.25" in shown and "bert-mini" in shown


@pytest.mark.parametrize(
    ("changed", "metrics"),
    [
        ({}, ("loss", "top1")),
        ({"objective": "causal"}, None),
        ({"held_out": "b"}, None),
        ({"tokenizer": "u"}, None),
        ({"tokenizer": "u", "bits_per_byte": 2.5}, None),  # one of them has none
    ],
)
def test_what_runs_are_compared_by(
    changed: dict[str, object], metrics: tuple[str, ...] | None, tmp_path: Path
) -> None:
    folders = [make_run(tmp_path / "a"), make_run(tmp_path / "b", **changed)]
    if metrics is not None:
        assert compared(folders)[0] == ("", "", *metrics)
        return
    with pytest.raises(IncompatibleError) as refused:
        compared(folders)
    assert refused.value.where == str(folders[1])


def test_bits_per_byte_are_compared_across_tokenizers(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / name, bits_per_byte=bits, tokenizer=name)
        for name, bits in (("a", 2.0), ("b", 2.5))
    ]
    assert [row[2:] for row in compared(folders)] == [("bits_per_byte",), ("2.0000",), ("2.5000",)]


def test_results_are_compared_on_the_same_rows(tmp_path: Path) -> None:
    one, same, other = (make_result(tmp_path / name, name[0]) for name in ("a1", "a2", "b"))
    assert [row[2] for row in compared([one, same])] == ["accuracy"] + 2 * ["0.9 (0.8 to 1.0)"]
    for folders, error in (([one, other], IncompatibleError), ([one, tmp_path], UsageError)):
        with pytest.raises(error):
            compared(folders)
    with pytest.raises(IncompatibleError):
        compared([one, make_run(tmp_path / "run")])
    for folder in (one, same):
        results = json.loads((folder / "results.json").read_text())
        (folder / "results.json").write_text(json.dumps({**results, "test": {}}))
    with pytest.raises(IncompatibleError) as caught:
        compared([one, same])
    assert "none recorded" in str(caught.value.found)
