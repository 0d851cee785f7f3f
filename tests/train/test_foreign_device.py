"""What a GPU would do is done on a device that is none (tests/foreign.py), in a process of its own:
training, resuming, fine-tuning, answering, measuring, looking inside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

TESTS = Path(__file__).parents[1]
RESUMED = "pretrain/test_objectives_run.py::test_a_resumed_run_is_the_run"
WALKED = (
    f"{RESUMED}[replaced-token]",
    f"{RESUMED}[distillation]",
    "train/walk_foreign.py",
    "analysis/test_layers.py::test_the_command_of_texts_that_begin_alike",
    "analysis/test_heads.py::test_the_command_of_attention",
    "inference/test_ask.py::test_a_run_is_measured_as_it_was_trained",
    "inference/test_ask_encoder_decoder.py::test_the_start_that_the_recipe_chose",
    "evaluate/test_minimal_pairs.py::test_the_command_prints_saves_and_shows",
)


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch takes no device that is written in Python",
)
def test_all_is_done_there() -> None:
    options = ["-p", "foreign", "-p", "no:cacheprovider", "-q", "-n0"]
    command = [sys.executable, "-m", "pytest", *options]
    command += [str(TESTS / walked) for walked in WALKED]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
