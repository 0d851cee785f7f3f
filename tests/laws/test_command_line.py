"""The set of verbs and options is frozen here: it grows by a decision, not by accident."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from laws.source import verbs
from maskwright.ask.results import TrainedModel
from maskwright.base import threads
from maskwright.base.config import lines_of
from maskwright.base.errors import DataError, UsageError
from maskwright.cli import main as cli
from maskwright.cli.parser import ALIASES, Parser, option_name
from maskwright.cli.verbs import finetune, predict
from maskwright.learn.finetune.recipe import FinetuneRecipe
from maskwright.model.checkpoint.fine_tuned import finish
from maskwright.ship.serve.errors import Limits

# Short for settings of a recipe that the field has names for.
SHORT = "--budget --rate --batch --length --seed --precision --device"
OPTIONS = {
    "quickstart": "--minutes --out",
    "curate": """
        text --address --budget --engine --held-out --look --out --plan --prove --read --recipe
        --seeds --set --skip-unreadable --steps --tokenizer --update --why --why-text --without
        --workers --write-recipe
    """,
    "tokenizer": "--kind --lowercase --out --read --text --vocabulary --wordpiece",
    "tokens": "model pair passage --beside --read --text",
    "pretrain": f"recipe --dry-run --log --minutes --out --set --steps --text {SHORT}",
    "adapt": f"model --minutes --out --set --text {SHORT}",
    "plan": "--disk --memory --recipe --set --text --time --write-recipe",
    "resume": "run --set",
    "doctor": "data model --column --out --read --task",
    "compare": "recipes --budget --data --out --seeds --set --text",
    "evaluate": """
        model --against --base --by --column --data --dimensions --generalisation --how --other-data
        --out --part --read --text
    """,
    "experiment": """
        models --accumulate --batch --budget --class-weights --column --data --device
        --epochs --folds --global-attention --gradient-checkpointing --hard-negatives
        --head-rate --label-smoothing --layer-decay --layer-mix --least-steps --length
        --long --measure --method --out --patience --pooling --precision --prompt --rate
        --read --schedule --search --seed --seeds --task --teacher --teacher-temperature
        --warmup --weight-decay --within-words
    """,
    "finetune": """
        model --accumulate --batch --budget --class-weights --column --curve --data --device
        --dimensions --dry-run --epochs --folds --global-attention --gradient-checkpointing
        --hard-negatives --head-rate --label-smoothing --layer-decay --layer-mix
        --least-steps --length --log --long --measure --method --model --out --patience
        --pooling --precision --prompt --rate --read --schedule --search --seed --seeds
        --set --task --teacher --teacher-temperature --warmup --weight-decay --within-words
    """,
    "predict": """
        file model --also --base --column --engine --hypothesis --labels --long --out --read
        --scores --server --server-token --task --threshold --top --uncertain
    """,
    "serve": """
        models --adapter --allowed-host --allowed-origin --config --engine --host --insecure --keys
        --name --port --precision --quiet --token --unix-socket
    """,
    "probe": "model --column --data --items --out --read --task --word",
    "attention": "model --image --out --sentence --text --tree",
    "explore": "models --no-browser --port --text",
    "fill-mask": "model text --top",
    "neighbours": "model words --minus --top",
    "import-vectors": "file --out",
    "generate": """
        model prompt --frequency-penalty --num-beams --precision --presence-penalty
        --repetition-penalty --seed --stop --temperature --tokens --top-k --top-p --typical-p
    """,
    "bench": "model --base --data --engine --out --seconds",
    "export": """
        model --base --bfloat16 --block --checkpoints --data --document-prompt --global-attention
        --half --int32 --int8 --length --max-loss --opset --out --pooling --query-prompt --sample
        --single-file --text-length --to --weights --window
    """,
    "show": "thing --set",
    "list": "kind",
    "runs": "folder",
    "completion": "shell",
}
FROZEN = {verb: set(options.split()) for verb, options in OPTIONS.items()}
ON_DEVICE = "doctor evaluate predict serve probe attention explore fill-mask generate bench"
FROM_HUB = f"{ON_DEVICE} tokens adapt experiment finetune neighbours export show"
for option, takers in {
    "--device": ON_DEVICE,
    "--precision": "evaluate predict bench",
    "--download": FROM_HUB,
}.items():
    for taker in takers.split():
        FROZEN[taker].add(option)
FROZEN["serve"] |= {f"--{name.replace('_', '-')}" for name in Limits.__dataclass_fields__}


def test_verbs_and_options_are_those_of_the_list() -> None:
    found = {
        name: {option_name(a) for a in verb._actions} - {"--help", "--debug", "--threads"}
        for name, verb in verbs().items()
    }
    assert found == FROZEN
    assert all("--threads" in verb._option_string_actions for verb in verbs().values())


def test_an_empty_path_is_refused_and_not_the_current_folder(tmp_path: Path) -> None:
    paths = {}
    for name, verb in verbs().items():
        for action in verb._actions:
            if action.type is Path or getattr(action, "exists", ""):
                paths[name, option_name(action)] = action
                with pytest.raises(UsageError) as refused:
                    verb._get_value(action, "")
                assert refused.value.where == option_name(action)
    assert {("predict", "model"), ("finetune", "--data"), ("doctor", "data")} <= paths.keys()
    with pytest.raises(UsageError) as refused:
        predict.do(verbs()["predict"].read([str(tmp_path), ""]))
    assert refused.value.where == "file"


def test_advice_on_a_missing_path_does_not_repeat_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model := tmp_path / "model").mkdir()
    (model / "config.json").write_text("{}")
    for command in (
        f"finetune {model} --data nowhere",
        f"finetune {model} --data 'no where'",
        f"doctor nowhere {model}",
        f"evaluate {model} --data nowhere",
        f"adapt {model} --text nowhere --out x",
        "runs nowhere",
    ):
        assert cli.main(shlex.split(command)) == 64
        (advice,) = re.findall("  do: +(.*)", capsys.readouterr().err)
        assert "where" not in advice and f"doctor {model}" not in advice


def test_the_names_of_the_field_are_understood_and_told_once() -> None:
    used = set()
    for name, verb in verbs().items():
        told = verb.format_help()
        for action in verb._actions:
            elsewhere = (name, option_name(action)) == ("curate", "--steps")  # which are no number
            assert not elsewhere or action.option_strings == ["--steps"]
            others = () if elsewhere else ALIASES.get(option_name(action), ())
            used |= {option_name(action)} if others else set()
            for other in others:
                assert verb._option_string_actions[other] is action
                shown = told.partition("\n\n")[2].partition("examples:")[0]
                assert len(re.findall(rf"(?<![\w-]){other}(?![\w-])", shown)) == 1, (other, told)
        examples = told.partition("examples:\n")[2].splitlines()
        assert len(examples) >= 2 and max(map(len, told.splitlines())) <= 80, name
        for _, _, *words in map(shlex.split, examples):
            assert verb.read(words[: -2 if words[-2:-1] == [">"] else None])
    assert used == ALIASES.keys()


@pytest.mark.parametrize("verb", FROZEN)
def test_every_verb_knows_the_name_that_was_meant(verb: str) -> None:
    for name in FROZEN[verb]:
        if not name.startswith("--"):
            continue
        mistyped = f"--{name[3]}{name[2]}{name[4:]}x"
        with pytest.raises(UsageError, match=rf"no such option(.|\n)*'{name}'"):
            verbs()[verb].read([mistyped, "3"])
    with pytest.raises(UsageError):  # the control
        verbs()[verb].read(["--qqqqqqqq", "3"])


def test_options_of_fine_tuning_are_the_fields_of_its_recipe() -> None:
    said = lines_of(FinetuneRecipe)
    assert said.keys() == FinetuneRecipe.__dataclass_fields__.keys()
    told = re.sub(r"\s+", " ", verbs()["finetune"].format_help())
    for name in set(said) - {*finetune.OTHERS, *finetune.ELSEWHERE}:
        text = re.sub(r"-\s", "-", said[name].rstrip("."))
        assert text.split(": ")[-1].replace("- ", "-") in told.replace("- ", "-"), name
    assert "examples per step (default 32)" in told and "(default head)" in told
    assert lines_of(Parser) == {}, "the control: no section Attributes"


# What is refused -> what the refusal says; M is a folder, D a file of it.
EARLY = {
    "finetune M --data D --method lorra": "'lora'",
    "finetune M --data D --task clasification": "'classification'",
    "finetune M --data D --measure acuracy": "'accuracy'",
    "finetune M --data D --task tagging --metric bleu": "entity_f1",
    "finetune M --data D --method lora --set lora.rnak=3": "'rank'",
    "finetune M --data D --method lora --set lora.rank=0": "lora.rank",
    "finetune M --data D --set bacth=3": "'batch'",
    "finetune M --data D --precision fp16": "'bfloat16'",
    "finetune M --data D --read on_bda=skip": "'on_bad'",
    "pretrain tniy": "'tiny'",
    "pretrain tiny --set training.bach=3": "'batch'",
    "pretrain tiny --set training.optimizer.kind=adamx": "'adamw'",
    "pretrain tiny --set objective.name=maskd": "'masked'",
    "pretrain tiny --set model.settings.hiden_size=3": "'hidden_size'",
    "pretrain tiny --device gpu": "cuda",
    "explore M --device gpu": "cuda",
    "adapt M --text D --set objective.name=maskd": "'masked'",
    "compare tiny --budget tokns=1": "tokens=5e6",
    "show tiny --set training.bach=3": "'batch'",
    "probe M --data D --task clasification": "'classification'",
    "predict M D --engine openvin": "'openvino'",
    "predict M D --also M --base M": "--base",
    "evaluate M --data D --how casual": "'causal'",
    "evaluate M --data D --part chosing": "'choosing'",
    "pretrain bert-mini --set objective.options.rate=2": "0 < rate <= 1",
    "pretrain bert-mini --set objective.rate=0.2": "--set objective.options.rate=0.2",
    "pretrain t5-mini --set objective.options.mean_span=0": "1 to 1000",
    "compare bert-mini --budget tokens=1e6 --set objective.options.rate=2": "0 < rate <= 1",
    "show albert-mini --set objective.options.masking.rate=2": "0 < rate <= 1",
    "tokenizer --text D --kind wordpeice": "'wordpiece'",
    "finetune M --data damaged.csv --out O": "separator=';'",
    "doctor damaged.csv": "separator=;",
    "predict R damaged.csv": "separator=",
    "predict R damaged-names.csv": "wanted: 'text'",
    "predict R rows.csv --column txet=text": "--column",
    "predict R nowhere.csv": "no such file",
    "finetune X --data rows.csv": "choose one of: M, R\n",  # files are no models
}


def test_settings_are_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    """All of them in one process, as none may load it."""
    (tmp_path / "M").mkdir()
    (tmp_path / "D").write_text("text,label\na,b\n")
    (tmp_path / "R").mkdir()
    record = {"kind": "classification", "labels": ["x", "y"], "settled": {}}
    (tmp_path / "R" / "task.json").write_text(json.dumps(record))
    finish(tmp_path / "R", [])
    (tmp_path / "rows.csv").write_text("text,label\n" + "a word,x\nof it,y\n" * 20)
    (tmp_path / "damaged.csv").write_text("text;label\na;b\n")
    (tmp_path / "damaged-names.csv").write_text("txet,label\na,b\n")
    code = (
        "import json, sys\n"
        "from maskwright.cli import main as cli\n"
        "for line in json.loads(sys.argv[1]):\n"
        "    print(line, file=sys.stderr)\n"
        "    code = cli.main(line.split())\n"
        "    print(code, 'torch' in sys.modules, file=sys.stderr)\n"
    )
    # The controls: settings and rows are right, so the model is opened.
    right = dict.fromkeys(("predict R rows.csv", "finetune M --data rows.csv"), "folder")
    command = [sys.executable, "-c", code, json.dumps([*EARLY, *right])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    for line, says in EARLY.items():
        code = "\n65 " if "damaged" in line else "\n64 "
        answer, code, loaded = done.stderr.partition(f"{line}\n")[2].partition(code)
        assert says in answer and code and loaded.startswith("False"), (line, answer)
    for line, says in right.items():
        answer, loaded, _ = done.stderr.partition(f"{line}\n")[2].partition(" True\n")
        assert says in answer and loaded, (line, answer)


def test_the_package_itself_is_the_command() -> None:
    command = [sys.executable, "-m", "maskwright", "list", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 64 and "not one of the choices" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pretrian", "tiny"], "did you mean 'pretrain'"),
        (["pretrain"], "recipe"),
        (["pretrain", "tiny", "--set", "training.batch=many"], "a whole number"),
        (["pretrain", "tiny", "--set", "training.batch"], "path=value"),
        (["pretrain", "tiny", "--text", "nowhere/text.txt"], "no such text"),
        (["resume", "nowhere"], "no such run"),
        (["show", "."], "neither a recipe nor a run(.|\n)*found:  a folder"),
        (["show", "../T5-Mini"], "'t5-mini'"),  # whatever the capitals and the folder
        (["generate", "--temperature", "hot", "x"], "a number"),
        (["predict", "m", "f", "--top"], "needs a value"),
        (["predict", "m", "f", "g"], "g"),
        (["predict", "m", "f", "--top", "1", "--top=2"], "given twice(.|\n)*1 and 2"),
        (["predict", "--also", "a", "m", "f"], "MODEL FILE before the options, or after --"),
        (["compare", "--budget", "tokens=1", "--text", "a", "r", "s"], "RECIPE before"),
        (["--threads", "2", "list"], "the verb comes first"),
        (["list", "--threads", "0"], "1 to"),
        (["show", "tiny", "--set", "training.batch=4", "--set", "training.batch=8"], "twice"),
        (["show", "tiny", "--set", "training.batch=0"], "training.batch\n(.|\n)*1 or more"),
        (["predict", "m", "f", "--long", "window"], "--long\n(.|\n)*mean 'windows'"),
        (["predict", "m", "f", "--long", "as-trained"], "no such model"),  # as as_trained
        (["show", "tiny", "--set", "initialisation.deviation=-1"], "initialisation.deviation"),
        (["show", "tiny", "--set", "training.schedule.cooldown=0.1"], "training.schedule"),
    ],
)
def test_a_mistake_gets_an_answer_without_a_traceback(
    arguments: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: object,
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert cli.main(arguments) == 64
    shown = capsys.readouterr().err
    assert shown.startswith("error E-") and "Traceback" not in shown
    assert re.search(says, shown), shown


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


ORDERS = [
    ("predict --top 2 M F", {"model": "M", "file": "F", "top": 2}),
    ("predict M F --top=2", {"model": "M", "file": "F", "top": 2}),
    ("predict M --read on_bad=skip F", {"read": ["on_bad=skip"], "file": "F"}),
    ("predict --read a=b M --read c=d F --column e=f", {"read": ["a=b", "c=d"], "column": ["e=f"]}),
    ("predict M --top 2 -- -F", {"file": "-F", "top": 2}),
    ("predict M --out -x F", {"out": "-x", "file": "F"}),
    ("predict M", {"file": "-"}),
    ("predict --also A B -- M F", {"also": ["A", "B"], "model": "M", "file": "F"}),
    ("predict M F --also A --also B", {"also": ["A", "B"]}),
    ("predict M --to 2 F", {"top": 2, "file": "F"}),
    ("adapt --text a b M", {"text": ["a", "b"], "model": "M"}),
    ("adapt --text a --minutes 1 M --text b", {"text": ["a", "b"], "model": "M"}),
    ("resume --set a=1 R --set b=2", {"run": "R", "settings": ["a=1", "b=2"]}),
    ("compare r --seeds 1 s --budget tokens=1 t", {"recipes": ["r", "s", "t"], "seeds": 1}),
    ("generate M --tokens 3 hello --seed 1", {"model": "M", "prompt": "hello", "tokens": 3}),
    ("generate M --temperature -1 -5", {"temperature": -1.0, "prompt": "-5"}),
    ("tokenizer --text a --lowercase --text b c", {"text": ["a", "b", "c"], "lowercase": True}),
    ("quickstart --minutes 2 --minutes 2", {"minutes": 2.0}),
    ("finetune M --lr 1e-4 --batch-size 8", {"rate": 1e-4, "batch": 8}),
    ("finetune M --learning_rate=1e-4 --max_length 9 --dry_run", {"rate": 1e-4, "length": 9}),
    ("finetune M --metric macro_f1 --seed 7 -o D", {"measure": "macro_f1", "seed": 7, "out": "D"}),
    ("finetune M --set lora.rank=2 --set a=b", {"settings": ["lora.rank=2", "a=b"]}),
    ("fill-mask M x --top-k 3", {"top": 3}),
    ("pretrain R --lr 2 --set a=1", {"settings": ["training.optimizer.learning_rate=2", "a=1"]}),
    ("adapt M --batch_size 4 -o D", {"settings": ["training.batch=4"], "out": "D"}),
]


@pytest.mark.parametrize(("line", "wanted"), ORDERS)
def test_options_stand_before_between_and_behind_the_other_arguments(
    line: str, wanted: dict[str, object]
) -> None:
    verb, *rest = line.split()
    read = vars(verbs()[verb].read(rest))
    found = {name: _plain(value) for name, value in read.items()}
    assert {name: found[name] for name in wanted} == wanted


def test_a_file_after_further_models_is_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two", "three"):
        Path(name).mkdir()
    Path("rows.csv").write_text("text\na\n")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert cli.main(["predict", "one", "--also", "two", "rows.csv"]) != 0
    assert "there are no rows to predict" not in capsys.readouterr().err
    assert cli.main(["predict", "one", "--also", "two", "three"]) == 64
    assert "error E-" in capsys.readouterr().err


FINETUNE = "learn.finetune.command.finetune_recipe"


@pytest.mark.parametrize(
    ("arguments", "works", "again"),
    [
        ("compare tiny --budget 1e4tokens --out x", "ask.evaluate.compare.compare", " --out x"),
        ("finetune . --data a.csv --curve 3,all --out x", FINETUNE, " --out x"),
        ("finetune . --data a.csv --out x", FINETUNE, None),  # says more
        ("curate a.txt --steps normalise --out x", "text.curate.curation.curate", " goes on"),
        ("curate --prove --out x", "ask.evaluate.prove_curation.prove", " goes on"),
    ],
)
def test_a_command_that_can_go_on_says_so_where_it_is_stopped(
    arguments: str,
    works: str,
    again: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("A text.")
    Path("a.csv").write_text("text,label\n" + "a word,x\nof it,y\n" * 20)
    monkeypatch.setattr(f"maskwright.{works}", interrupted)
    assert cli.main(arguments.split()) == 130
    said = capsys.readouterr().err
    assert ("the same command" in said) == (again is not None) and (again or "") in said


def test_threads_are_used_and_go_into_the_recipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    before = torch.get_num_threads()
    for name in threads.COUNTS:
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(threads, "chosen_by_user", False)
    seen, learning = [], "maskwright.learn.pretrain"
    note = lambda recipe, out, **_: seen.append(recipe)  # noqa: E731
    monkeypatch.setattr(f"{learning}.run.pretrain", note)
    monkeypatch.setattr(f"{learning}.continued_pretraining.close", lambda out, **_: None)
    monkeypatch.setattr("maskwright.api.of_pretraining", lambda _, run: TrainedModel(run, run))
    monkeypatch.setattr("maskwright.base.report.page.next_commands", lambda run: [])
    try:
        assert cli.main(["pretrain", "tiny", "--threads", "3", "--out", "x"]) == 0
        assert torch.get_num_threads() == 3 and threads.chosen_by_user
        assert seen[0].training.threads == 3
        assert {os.environ[name] for name in threads.COUNTS} == {"3"}
        cli.main(["list", "adapters", "--threads", "1000"])
        assert "1000 threads on" in capsys.readouterr().err
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Puts a function in the place of what `list` does. Signals have their usual handlers, also
    where the tests run in the background or under nohup and inherit that some are ignored."""
    usual: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler}
    usual |= dict.fromkeys((signal.SIGTERM, signal.SIGHUP), signal.SIG_DFL)
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}

    def put(work: Callable[[], Any]) -> None:
        monkeypatch.setattr("maskwright.cli.verbs.list._names", lambda room: work())

    yield put
    for number, handler in before.items():
        signal.signal(number, handler)


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def signalled(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(5)
    raise AssertionError("the signal did not stop it")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_said_in_a_line(
    number: signal.Signals, capsys: pytest.CaptureFixture[str], listing: Callable[..., None]
) -> None:
    swept = []

    def stopped() -> None:
        try:
            signalled(number)
        finally:
            swept.append(number)  # what was begun can still be cleaned up

    listing(stopped)
    before = signal.getsignal(number)
    assert cli.main(["list", "adapters"]) == 128 + number
    assert capsys.readouterr().err == f"stopped by {number.name}\n" and swept == [number]
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(
    ("number", "says"), [(signal.SIGTERM, "stopped by SIGTERM"), (signal.SIGINT, "interrupted")]
)
def test_a_signal_of_which_a_library_makes_its_own_error(
    number: signal.Signals,
    says: str,
    capsys: pytest.CaptureFixture[str],
    listing: Callable[..., None],
) -> None:
    def exporting() -> None:
        try:
            signalled(number)
        except BaseException as error:
            raise RuntimeError("it cannot be exported") from error

    listing(exporting)
    assert cli.main(["list", "adapters"]) == 128 + number
    assert capsys.readouterr().err == says + "\n"


def test_a_signal_that_nohup_ignores_stays_ignored(listing: Callable[..., None]) -> None:
    seen = []
    listing(lambda: seen.append(signal.getsignal(signal.SIGHUP)) or [])
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert cli.main(["list", "adapters"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert seen == [signal.SIG_IGN]


HARMFUL = "\x1b[31m\x1b]0;owned\x07\r\x9b1A\u202e\u2028\udcff\n"


def test_escape_sequences_are_harmless_in_every_part_of_an_error(
    capsys: pytest.CaptureFixture[str], listing: Callable[..., None]
) -> None:
    names = ("where", "found", "wanted", "do")
    parts = {name: f"{name}{HARMFUL}" for name in names}
    refused = DataError(f"what{HARMFUL}", **parts).under(HARMFUL)
    for error in (refused, ValueError(HARMFUL)):
        listing(raising(error))
        assert cli.main(["list", "--debug"]) in (65, 70)
        shown = capsys.readouterr().err
        assert "\\x1b[31m" in shown and "\\u202e" in shown
        assert not set(HARMFUL) - set("\n[31m]0;owned1A") & set(shown)
    # What is no danger stays as it is written: other scripts, emoji with joiners, hard blanks.
    kept = "日本語 नमस्ते می\u200cخواهم 👩\u200d🔬 a\u00a0b"
    assert DataError(kept, where=kept, wanted=kept, do=kept).render().count(kept) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        [f"a{HARMFUL}"],
        ["list", f"--a{HARMFUL}"],
        ["list", "families", f"b{HARMFUL}"],
        ["pretrain", f"{HARMFUL}.toml"],
        ["show", "tiny", "--set", f"training.batch={HARMFUL}"],
        ["tokenizer", "--kind", f"a{HARMFUL}", "--text", f"b{HARMFUL}"],
        ["predict", "m", "--top", f"{HARMFUL}"],
    ],
)
def test_escape_sequences_in_arguments_are_harmless(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 64
    shown = capsys.readouterr().err
    assert not set(HARMFUL) - set("\n[31m]0;owned1A") & set(shown)


class OutOfMemoryError(RuntimeError):
    """Called as torch's is."""


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore"), "the GPU"),
        (MemoryError(), "this machine"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "this machine"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried"), "this machine"),
        (RuntimeError("std::bad_alloc"), "this machine"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "this machine"),
        (ImportError("x.so: failed to map: Cannot allocate memory"), "this machine"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), "the GPU"),
    ],
)
def test_too_little_memory_is_no_fault_of_ours(
    error: Exception,
    where: str,
    capsys: pytest.CaptureFixture[str],
    listing: Callable[..., None],
) -> None:
    listing(raising(error))
    assert cli.main(["list"]) == 69
    shown = capsys.readouterr().err
    assert f"where:  {where}" in shown and "Traceback" not in shown and "more" not in shown[-9:]
    assert "free" in shown and "do:" in shown
    assert ("CUDA_VISIBLE_DEVICES=" in shown) is (where == "the GPU")


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (RuntimeError("gone wrong"), 70, "E-BUG"),
        (KeyError("out of memory"), 70, "E-BUG"),  # a name of the user's, and no shortage
        (OSError(errno.ENOSPC, "No space left on device"), 75, "standard output"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_whose_fault_it_is_is_told(
    error: BaseException,
    code: int,
    word: str,
    capsys: pytest.CaptureFixture[str],
    listing: Callable[..., None],
) -> None:
    listing(raising(error))
    assert cli.main(["list"]) == code
    assert word in capsys.readouterr().err


def test_an_empty_folder_of_a_refused_command_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def refused(*names: str) -> Callable[..., None]:
        def do(model: object, data: object, out: Path, **_: object) -> None:
            (out / "prepared" / "deep").mkdir(parents=True, exist_ok=True)
            for name in names:
                (out / name).touch()
            raise DataError("no")

        return do

    def left(*names: str) -> bool:
        monkeypatch.setattr("maskwright.api.evaluate_file", refused(*names))
        (tmp_path / "task.json").touch()
        (tmp_path / "data.csv").touch()
        command = ["evaluate", str(tmp_path), "--data", str(tmp_path / "data.csv")]
        assert cli.main([*command, "--out", str(out)]) == 65
        return out.exists()

    assert not left() and not left("run.lock", "prepared/x.lock")
    assert left("a.txt") and (out / "a.txt").exists()
    (out / "a.txt").unlink()
    assert left("run.lock")  # it was there before
