"""How results are written: figures in words, pages and cards from templates, tables.

A page loads nothing: its content security policy allows only its own style sheet, and the script of
the one page that has one, both by hash. Values in templates are escaped and their control
characters made visible (`one_line`); only finished pictures (`Markup`) are inserted as they are.
Markdown has no automatic escaping: its templates use `md` and `code`.

A table is `{"title", "head", "rows", "note"}`; `own_first` highlights its first row.
"""

from __future__ import annotations

import base64
import contextlib
import difflib
import functools
import hashlib
import itertools
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from maskwright.base.errors import DataError, Finding, UsageError, shorten, visible
from maskwright.base.storage import commit
from maskwright.base.storage.files import lock_beside, write_file
from maskwright.base.storage.lock import Lock
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import decimals, harmless

if TYPE_CHECKING:
    from jinja2 import Environment


# ------------------------------------------------------------------------------ terms
@functools.cache
def glossary() -> dict[str, tuple[re.Pattern[str], str]]:
    """Return each term of glossary.toml with a pattern of its spellings, and its definition."""
    entries = tomllib.loads(Path(__file__).with_name("glossary.toml").read_text(encoding="utf-8"))
    terms = {}
    for spellings, definition in entries.items():
        names = spellings.split(", ")
        pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)", re.IGNORECASE)
        terms[names[0]] = (pattern, definition)
    return terms


def terms_of(page: str) -> dict[str, str]:
    """Return the terms in the sentences, tables and charts of a page (HTML), with definitions;
    names of settings are no terms."""
    text = re.sub(r"<(pre|dl|code)\b.*?</\1>|<[^>]+>", " ", page, flags=re.S)
    return {term: says for term, (pattern, says) in glossary().items() if pattern.search(text)}


# ------------------------------------------------------------------------------ figures in words
# Distance in nats within which a loss counts as that of the unigram model.
PLATEAU = 0.15


def number(record: Mapping[str, Any], name: str) -> float:
    """Return `record[name]` as a float; NaN if it is missing, null or not a number."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value)


def token_parts(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of the loss that predict tokens, which have trivial models."""
    names = run.get("token_parts")
    return tuple(map(str, names)) if isinstance(names, list) else ()


def is_in_nats(run: Mapping[str, Any]) -> bool:
    """Whether the training loss of a run is in nats per token: that of word2vec is not."""
    return "token_parts" not in run or bool(token_parts(run))


def trivial_models(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `references` of a run for its training loss; {} if it has other units."""
    references = run.get("references")
    return references if isinstance(references, Mapping) and is_in_nats(run) else {}


def predicts_pixels(run: Mapping[str, Any]) -> bool:
    """Whether the loss of a run is the mean absolute error of pixels; it has no perplexity."""
    return run.get("predicts") == "pixels"


def counts_of(run: Mapping[str, Any]) -> str:
    """Return what `tokens` in the records of a run counts, in the plural."""
    return "positions" if predicts_pixels(run) else "tokens"


def simple_losses(references: Mapping[str, Any]) -> dict[str, float]:
    """Return the loss of each of the `references` by its name."""
    names = [key.removesuffix("_loss") for key in references if key.endswith("_loss")]
    return {name.replace("_", " "): number(references, f"{name}_loss") for name in names}


def token_loss(record: Mapping[str, Any], run: Mapping[str, Any]) -> float:
    """Return the part of the loss that predicts tokens, in nats per target; the whole loss if the
    run names no such part."""
    parts = record.get("parts")
    names = [name for name in token_parts(run) if isinstance(parts, Mapping) and name in parts]
    return number(parts or {}, names[0]) if names else number(record, "loss")


def standing(loss: float, references: Mapping[str, Any], share: float = 0.0) -> str:
    """Compare `loss` (nats per token, or that of pixels) with the trivial models, in words; ""
    without these.

    `share` is the share of the run that is over (0 to 1): early in a run, the loss of the unigram
    baseline is normal.
    """
    if not math.isfinite(loss):
        return "not a number"
    if (simple := simple_losses(references)) and not {"uniform", "unigram"} & {*simple}:
        best = min(simple, key=lambda name: simple[name])
        side = "below" if loss < simple[best] else "above"
        return f"{side} {best} by {abs(loss / simple[best] - 1):.0%}"
    uniform, unigram = number(references, "uniform_loss"), number(references, "unigram_loss")
    if unigram > uniform:  # the evaluated text has other words than the training text
        unigram = math.nan
    if math.isfinite(unigram) and loss < unigram - PLATEAU:
        return f"{unigram - loss:.1f} nats below the unigram baseline"
    if math.isfinite(unigram) and loss <= unigram + PLATEAU:
        if share > 0.5:
            return "still at the unigram baseline: too few steps, or too low a learning rate"
        return "at the unigram baseline, which is normal early in training"
    if math.isfinite(uniform) and loss > uniform - PLATEAU:
        if loss < uniform + 1.0:
            return "at the uniform baseline, as before training"
        return f"{loss - uniform:.1f} nats above the uniform baseline"
    if math.isfinite(unigram):
        return f"{loss - unigram:.1f} nats above the unigram baseline"
    return ""


def count(value: float) -> str:
    """Format a count with at most four digits: 850, 12.4 k, 3.1 M."""
    if not math.isfinite(value):
        return "–"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            digits = ".3g" if value < 999.5 * size else ".0f"
            return f"{value / size:{digits}} {letter}"
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def size(value: float) -> str:
    """Format bytes as kB, MB or GB."""
    return f"{count(value)}B" if abs(value) >= 999.5 else f"{value:.0f} bytes"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: 48 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if not math.isfinite(seconds):
        return "–"
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total >= 86400:
        return f"{total // 86400} d {total % 86400 // 3600} h"
    large, small, step = ("min", "s", 60) if total < 3600 else ("h", "min", 3600)
    rest = total % step // (step // 60)
    return f"{total // step} {large}" + (f" {rest} {small}" if rest else "")


def percent(share: float) -> str:
    """Format a share in percent, with three digits: 31.2 %, 0.0488 %."""
    if not math.isfinite(share):
        return "–"
    return f"{share * 100:.1f} %" if abs(share) >= 0.01 or share == 0 else f"{share * 100:.2g} %"


def figure(value: float, digits: int = 3) -> str:
    """Format a number with `digits` decimals; a dash if it is not finite."""
    if not math.isfinite(value):
        return "–"
    return decimals(value, digits) if abs(value) < 1e4 else count(value)


def figures(text: object) -> str:
    """Format the numbers within a text as `figure` does, and percentages with a space: by this
    function all pages show figures alike."""
    text = re.sub(r"(?<![\w.])-?\d+\.\d{4,}(?!\w|\.\d)", lambda m: figure(float(m[0])), str(text))
    return re.sub(r"(?<=\d)%", " %", text)


# ------------------------------------------------------------------------------ pages and cards
HALF_PAGE = 68  # letters beside another table
_FILLED = re.compile(r"(.+?) (\d+)%(?:  |$)")


def headline(verdict: str) -> tuple[str, str]:
    """Divide a verdict into the headline of a page and the rest."""
    text = figures(verdict)
    end = re.search(r"[;.] ", text)
    first, rest = (text[: end.start()], text[end.end() :]) if end else (text.removesuffix("."), "")
    return first[:1].upper() + first[1:], rest[:1].upper() + rest[1:]


def tiles_of(made: Table, most: int = 4) -> list[tuple[str, str]]:
    """Return the main figures of a table as tiles: those of its first row, or its only column."""
    head, rows = made.get("head", []), made.get("rows", [])
    if len(head) == 2:
        pairs = [(str(row[1]), str(row[0])) for row in rows]
    else:
        pairs = [
            (str(cell), f"{head[1 + n]}, {row[0]}")
            for row in rows[:1]
            for n, cell in enumerate(row[1:])
        ]
    values = [(value.partition(" (")[0], label) for value, label in pairs]
    return [pair for pair in values if re.match(r"[-+]?\d", pair[0])][:most]


def is_wider(table: Table) -> bool:
    """Return whether a table needs more than half of a page: letters of columns, and gaps."""
    columns = zip(table["head"], *table["rows"], strict=True)
    return sum(3 + max(len(figures(cell)) for cell in column) for column in columns) > HALF_PAGE


def filled(samples: Sequence[tuple[str, str]]) -> Table:
    """Return a table of what a model filled into a mask at some steps; {} for other samples."""
    rows = []
    for step, text in samples:
        candidates = _FILLED.findall(text)
        if "  ".join(f"{token} {share}%" for token, share in candidates) != text or not candidates:
            return {}
        rows.append([f"step {step}", *(f"{token} · {share} %" for token, share in candidates)])
    width = max(map(len, rows), default=0)
    head = ["", *(f"{number}. guess" for number in range(1, width))]
    return {"head": head, "rows": [row + [""] * (width - len(row)) for row in rows]}


LONGEST_COMPARED = 3000  # characters; longer texts are not compared with their prompts
LEAST_ALIKE = 0.3  # similarity (0 to 1) below which a text does not repeat its prompt
_PIECES = re.compile(r"\w+|\s+|[^\w\s]")


def fact(value: object) -> str:
    """Format a single value for people."""
    if value is None or value in ({}, []):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else count(float(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def with_sentences(value: Any) -> Any:
    """Replace each finding in JSON form within nested plain values by its sentence."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("what"), str):
            with contextlib.suppress(TypeError, ValueError):
                return str(Finding.from_json(value))
        return {name: with_sentences(nested) for name, nested in value.items()}
    return [with_sentences(nested) for nested in value] if isinstance(value, list) else value


def is_digest(value: object) -> bool:
    """Return whether a value is a hash in hex, of which a few digits are shown."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{40,128}", value) is not None


def marked(written: str, prompt: str) -> list[tuple[str, bool]]:
    """Split `written` into pieces, each with whether the model added or changed it.

    A continuation repeats the prompt first; a filled mask repeats all but the masks. In a text that
    does not repeat its prompt nothing is marked.
    """
    if prompt and written.startswith(prompt):
        return _split(written, [(len(prompt), len(written))])
    if len(prompt) + len(written) > LONGEST_COMPARED:
        return [(written, False)]
    before, after = _PIECES.findall(prompt), _PIECES.findall(written)
    matcher = difflib.SequenceMatcher(
        None, [p.lower() for p in before], [p.lower() for p in after], autojunk=False
    )
    if matcher.ratio() < LEAST_ALIKE:
        return [(written, False)]
    ends = [0, *itertools.accumulate(map(len, after))]
    changed = (opcode for opcode in matcher.get_opcodes() if opcode[0] in ("insert", "replace"))
    return _split(written, [(ends[start], ends[stop]) for _, _, _, start, stop in changed])


def _split(text: str, spans: list[tuple[int, int]]) -> list[tuple[str, bool]]:
    """Split `text` at the ends of `spans`, without the white space at their beginning."""
    pieces, done = [], 0
    for start, stop in spans:
        start += len(text[start:stop]) - len(text[start:stop].lstrip())
        pieces += [(text[done:start], False), (text[start:stop], True)]
        done = stop
    return [(piece, new) for piece, new in [*pieces, (text[done:], False)] if piece]


TEMPLATES = Path(__file__).with_name("templates")
_MARKDOWN = re.compile(r"[\\`<\[|]")


def render(template: str, **values: Any) -> str:
    """Render an .html or .md file of `templates/`; a missing value is an error."""
    return _environment(TEMPLATES).get_template(template).render(**values)


@functools.cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=lambda name: not (name or "").endswith(".md"),
        undefined=StrictUndefined,
        finalize=one_line,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.filters |= {"lines": lines, "md": md, "code": code, "fact": fact, "marked": marked}
    environment.filters["json"] = lambda value: Markup(json.dumps(value))
    environment.filters |= {"terms": terms_of, "figures": figures, "filled": filled}
    environment.filters["shown"] = one_line
    environment.globals["headline"] = headline
    environment.tests |= {"digest": is_digest, "wider": is_wider}
    for name, file in (("style", "page.css"), ("script", "curation.js")):
        content = (folder / file).read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        environment.globals |= {name: Markup(content), f"{name}_hash": digest}
    return environment


# ------------------------------------------------------------------------------ escaping
def one_line(value: object) -> object:
    """Return a value of a template as one line with visible control characters."""
    return value if isinstance(value, Markup) else visible(str(value))


def lines(text: str) -> Markup:
    """Escape a text of several lines; control characters but tab and newline are visible."""
    return Markup(escape(visible(text, "\n\t")))


def md(value: object) -> str:
    """Escape a text for a line or cell of Markdown."""
    return _MARKDOWN.sub(r"\\\g<0>", visible(str(value)))


def code(value: object) -> str:
    """Format a text as inline code of Markdown, with enough backticks."""
    text = visible(str(value))
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    room = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{room}{text}{room}{fence}"


# ------------------------------------------------------------------------------ files
NAME, PAGE = "results.json", "report.html"
EXPLORER_PORT = 8765  # of `maskwright explore`, to which pages link; another if it is in use


def require_new(*targets: Path, do: str = "choose another --out") -> None:
    """Refuse to overwrite files, as `commit.require_new`.

    Raises:
        UsageError: naming the first that exists.
    """
    commit.require_new(*targets, error=UsageError, message="the file is there already", do=do)


def reserve(folder: Path | str | None, name: str = NAME) -> None:
    """Refuse a folder (None: there is none) that has a result already, or cannot be written. None
    is created: what is refused later leaves no empty folder."""
    if folder is not None:
        path = Path(folder)
        require_new(path / name, path / PAGE)
        missing = [parent for parent in (path, *path.parents) if not parent.exists()]
        commit.probe_writable(path)
        for created in missing:
            with contextlib.suppress(OSError):  # another process may use it by now
                created.rmdir()


def publish(
    folder: Path | str, name: str, content: Any, page: str, say: Callable[[str], None]
) -> None:
    """Write a new result: `content` as the JSON file `name`, and its page."""
    write_new(Path(folder), {name: json.dumps(content, indent=2) + "\n", PAGE: page})
    say(f"report: {Path(folder) / PAGE}")


def write_new(folder: Path, texts: Mapping[str, str]) -> None:
    """Write new files into `folder`, all or none; of concurrent processes only one succeeds.

    Raises:
        UsageError: a file exists.
        OutputError, StorageError, StoppedError: a file cannot be written.
    """
    *_, last_name = texts
    with commit.writing(folder / last_name):
        require_new(*(folder / name for name in texts))
        texts_as_bytes = {name: text.encode("utf-8", "replace") for name, text in texts.items()}
        commit.commit_files(folder, texts_as_bytes)


def write(target: Path, text: str) -> Path:
    """Write `text` to the file `target` atomically; returns `target`.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    return write_file(target, text.encode("utf-8", "replace"))


# -------------------------------------------------------------------------- code that opens a model
OUR_MODEL_TYPE, MISREAD = "maskwright", "misread-by-transformers"
NOT_READ = Finding(
    "not-read-by-transformers",
    "no class of the transformers library is such a model, so that library cannot load it, and "
    "Maskwright does",
)


def misread(config: Mapping[str, Any]) -> Finding | None:
    """Return what transformers gets wrong about a model with this config.json, None if nothing."""
    if OUR_MODEL_TYPE in (config.get("model_type"), config.get("library")):
        return NOT_READ
    own_settings, name = config.get(OUR_MODEL_TYPE), architecture(config)
    recorded = own_settings.get("conventions") if isinstance(own_settings, dict) else None
    conventions = recorded if isinstance(recorded, dict) else {}
    if conventions.get("prediction_offset"):
        consequence, verb = "answers wrongly", "fill-mask"
        evidence = (
            "the scores for a token stand one place before it, where that class does not look"
        )
    elif conventions.get("bidirectional_prefix"):
        consequence, verb = "writes other texts", "generate"
        evidence = (
            "it was trained to read a prompt in both directions, which that class does not do"
        )
    elif conventions.get("decoder_trained") is False:
        consequence, verb = "writes nonsense", "fill-mask"
        evidence = "only the encoder was trained"
    else:
        return None
    what = f"{name} of the transformers library loads it without an error and {consequence}"
    return Finding(MISREAD, what, evidence, f"ask it with maskwright {verb}", "warning")


def opening_code(config: Mapping[str, Any], folder: str) -> str:
    """Return Python code that loads the model in `folder` with a library that reads it right."""
    if misread(config):
        return f"from maskwright import api\n\nloaded = api.load_pretrained({folder!r})"
    name = architecture(config)
    reader = "ImageProcessor" if "image_size" in config else "Tokenizer"
    variable = reader.removeprefix("Image").lower()
    return (
        f"from transformers import Auto{reader}, {name}\n\n"
        f"{variable} = Auto{reader}.from_pretrained({folder!r})\n"
        f"model = {name}.from_pretrained({folder!r})"
    )


def architecture(config: Mapping[str, Any]) -> str:
    """Return the class that config.json names."""
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else "no class"


# ------------------------------------------------------------------------------ tables of results
LOCK_PATIENCE = 30.0  # seconds for another process to add its tables
LARGEST_RESULTS = 64 << 20
Table = dict[str, Any]


def for_terminal(table: Table) -> str:
    """Format a table as text; each cell is one line."""
    rows = [[harmless(str(cell)) for cell in row] for row in (table["head"], *table["rows"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table["head"]))]
    lines = ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([table["title"], *(f"  {line.rstrip()}" for line in lines), table["note"]])


def read(folder: Path) -> list[Table]:
    """Read the tables of the run in `folder`.

    Raises:
        DataError: `results.json` cannot be read.
    """
    return _checked(_content(folder).get("tables"), folder / NAME)


def add(folder: Path, tables: Sequence[Table]) -> None:
    """Add tables to the run in `folder`; tables with the same title are replaced.

    Raises:
        DataError: `results.json` is there and cannot be read.
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    with Lock(lock_beside(folder / NAME), passing=True, patience=LOCK_PATIENCE):
        named = {t.get("title"): t for t in [*read(folder), *tables]}
        content = {**_content(folder), "tables": list(named.values())}
        write(folder / NAME, json.dumps(content, indent=2) + "\n")


def _content(folder: Path) -> dict[str, Any]:
    path = folder / NAME
    if not path.is_file():
        return {}
    return parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST_RESULTS)


def _checked(tables: Any, where: Path) -> list[Table]:
    """Return `tables` if it is a list of tables."""
    if tables is None:
        return []
    for number, table in enumerate(tables if isinstance(tables, list) else [tables]):
        if not (isinstance(tables, list) and isinstance(table, dict) and _is_table(table)):
            raise DataError(
                "not a table of results",
                where=f"{where}: tables.{number}",
                found=shorten(repr(table)),
                wanted='{"title", "head", "rows", "note"}',
                do="remove the file; the same evaluations write it again",
            )
    return list(tables)


def _is_table(plain: dict[str, Any]) -> bool:
    head, rows = plain.get("head", []), plain.get("rows", [])
    return (
        all(isinstance(plain.get(name, ""), str) for name in ("title", "note"))
        and isinstance(head, list)
        and isinstance(rows, list)
        and all(isinstance(cell, str) for cell in head)
        and all(isinstance(row, list) and len(row) == len(head) for row in rows)
        and all(isinstance(cell, str | int | float) for row in rows for cell in row)
    )
