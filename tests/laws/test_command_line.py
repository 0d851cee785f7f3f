"""The set of verbs and options is frozen here: it grows by a decision, not by accident."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from maskwright import cli

FROZEN = {
    "quickstart": {"--minutes", "--out"},
    "tokenizer": {"--text", "--kind", "--vocabulary", "--lowercase", "--out", "--read"},
    "pretrain": {"recipe", "--text", "--set", "--out"},
    "adapt": {"model", "--text", "--minutes", "--set", "--out"},
    "resume": {"run", "--set"},
    "compare": {"recipes", "--budget", "--seeds", "--text", "--data", "--set", "--out"},
    "evaluate": {
        "model", "--text", "--data", "--how", "--part", "--column", "--out", "--read",
    },
    "finetune": {
        "model", "--model", "--data", "--method", "--task", "--column", "--read", "--seeds",
        "--epochs", "--batch", "--rate", "--length", "--layer-decay", "--head-rate",
        "--patience", "--long",
        "--pooling", "--measure", "--prompt", "--curve", "--out", "--weight-decay", "--warmup",
        "--accumulate",
    },
    "predict": {"model", "file", "--also", "--column", "--read", "--top", "--out"},
    "probe": {
        "model", "--data", "--word", "--task", "--column", "--read", "--items", "--out",
    },
    "attention": {"model", "--text", "--sentence", "--tree", "--out"},
    "fill-mask": {"model", "text", "--top"},
    "generate": {
        "model", "prompt", "--tokens", "--temperature", "--top-k", "--top-p", "--seed",
    },
    "show": {"thing", "--set"},
    "list": {"room"},
}  # fmt: skip


def verbs() -> dict[str, argparse.ArgumentParser]:
    actions = cli.parser()._actions
    return dict(next(a for a in actions if isinstance(a, argparse._SubParsersAction)).choices)


def test_verbs_and_options_are_those_of_the_list() -> None:
    found = {
        name: {a.option_strings[-1] if a.option_strings else a.dest for a in verb._actions}
        - {"--help", "--debug"}
        for name, verb in verbs().items()
    }
    assert found == FROZEN


def test_help_names_every_verb_and_imports_nothing_heavy() -> None:
    code = "import sys; from maskwright import cli; cli.main(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert all(re.search(rf"^ +{name}\b", done.stdout, re.M) for name in FROZEN)
    probe = (
        "import sys; from maskwright import cli\n"
        "try: cli.main(['pretrain', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'rich', 'sklearn'}\n"
        "print('loaded', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip().endswith("loaded []")


def test_a_terminal_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert cli.main(["predict", str(tmp_path)]) == 64
    assert "no rows to answer" in capsys.readouterr().err


def test_the_package_itself_is_the_command() -> None:
    command = [sys.executable, "-m", "maskwright", "list", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 64 and "there is no list of that" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["pretrian", "tiny"], 64, "did you mean 'pretrain'"),
        (["pretrain", "bert-mni"], 64, "'bert-mini'"),
        (["pretrain"], 64, "recipe"),
        (["pretrain", "tiny", "--set", "training.bach=3"], 64, "'batch'"),
        (["pretrain", "tiny", "--set", "training.batch=many"], 64, "a whole number"),
        (["pretrain", "tiny", "--set", "training.batch"], 64, "path=value"),
        (["pretrain", "tiny", "--text", "nowhere/text.txt"], 64, "no such text"),
        (["pretrain", "missing.toml"], 64, "no such recipe file"),
        (["resume", "nowhere"], 64, "no such run"),
        (["fill-mask", "nowhere", "a [MASK]"], 64, "no such model"),
        (["list", "familys"], 64, "'families'"),
        (["show", "quikstart"], 64, "'quickstart'"),
        (["generate", "--temperature", "hot", "x"], 64, "invalid float"),
        (["show", "tiny", "--set", "evaluation.rows=0"], 64, "evaluation.rows"),
        (["show", "tiny", "--set", "evaluation.batch=-3"], 64, "evaluation.batch"),
        (["show", "tiny", "--set", "evaluation.every=-5"], 64, "evaluation.every"),
        (["show", "tiny", "--set", "checkpoints.every=-1"], 64, "checkpoints.every"),
        (["show", "tiny", "--set", "training.threads=0"], 64, "training.threads"),
        (["show", "tiny", "--set", "training.log_seconds=-1"], 64, "training.log_seconds"),
        (["show", "tiny", "--set", "initialisation.deviation=-1"], 64, "initialisation.deviation"),
        (["show", "tiny", "--set", "training.schedule.cooldown=0.1"], 64, "come to 0 before"),
    ],
)  # fmt: skip
def test_a_mistake_gets_an_answer_without_a_traceback(
    arguments: list[str],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: object,
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert cli.main(arguments) == code
    shown = capsys.readouterr().err
    assert shown.startswith("error E-") and "Traceback" not in shown
    assert re.search(says, shown), shown


class OutOfMemoryError(RuntimeError):
    """Called as torch's is."""


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore"), "the GPU"),
        (MemoryError(), "this machine"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "this machine"),
    ],
)
def test_too_little_memory_is_no_fault_of_ours(
    error: Exception,
    where: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(room: str) -> list[str]:
        raise error

    monkeypatch.setattr("maskwright.catalogue.names", full)
    assert cli.main(["list"]) == 69
    shown = capsys.readouterr().err
    assert f"where:  {where}" in shown and "Traceback" not in shown and "more" not in shown[-9:]
    assert ("CUDA_VISIBLE_DEVICES=" in shown) is (where == "the GPU")


def test_a_fault_of_our_own_is_called_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(room: str) -> list[str]:
        raise RuntimeError("gone wrong")

    monkeypatch.setattr("maskwright.catalogue.names", broken)
    assert cli.main(["list"]) == 70
    shown = capsys.readouterr().err
    assert "gone wrong" in shown and "E-BUG" in shown
