"""Pages and cards come from templates, and no text of a user's becomes markup in any of them.

Every template is filled with a hostile text wherever a text enters. The same check must find fault
where a template does not escape, or does not show control characters.
"""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from jinja2 import Environment, nodes

from curate.cards import card_with
from laws.source import codes
from maskwright.ask.analysis import probe as pages
from maskwright.ask.analysis.layers import LayerProbe
from maskwright.ask.doctor.check import Check, FlaggedRow
from maskwright.ask.doctor.doctor import Diagnosis
from maskwright.ask.evaluate.compare_report import Comparison, Metric
from maskwright.ask.evaluate.compare_report import render as comparison_page
from maskwright.ask.predict.explanation import Explanation, WordWeight
from maskwright.base.errors import Finding
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.metrics.paired import Verdict
from maskwright.base.report import document, page
from maskwright.base.report.drawing.svg import over_image
from maskwright.learn.finetune import page as finetune_page
from maskwright.learn.finetune.label_curve import LabelCurve
from maskwright.learn.finetune.label_curve import render as curve_page
from maskwright.learn.tasks.base.task_type import Encoded, task_for
from maskwright.text.curate.card import render_data_card, render_page
from maskwright.text.tables.rows import TextExample
from report.runs import RUN, sample, train, whole_run, write_run
from report.test_verdicts import contender

LAYOUT = {"base.html", "parts.html", "table.md"}  # what the others are made of
SCRIPT = "curation.js"  # the one script of a page; it comes from no text
OWN_SCRIPT = f"<script>{(document.TEMPLATES / SCRIPT).read_text(encoding='utf-8')}</script>"
HOSTILE = "\"'></pre></style><script>alert(1)</script><img src=x onerror='a()'>&lt;{{ 7 * 7 }}|`x`"
HOSTILE += "[a](b)\x1b[2J\u202e\x85\n\ud800"
TABLE = {"title": HOSTILE, "head": ["", HOSTILE], "rows": [[HOSTILE, HOSTILE]], "note": HOSTILE}
HALF = Estimate(0.5, 0.4, 0.6)


def found_of(text: str) -> Finding:
    return Finding("a-finding", text, text, text, "warning")


def of_run(folder: Path, text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # JSON of files has no half of a character
    run = RUN | {"recipe": text, "note": text, "objective": text, "machine": text}
    run |= {"corpus": {text: [text, {text: text}]}, "steps": 99}
    run["references"] = {**RUN["references"], f"{text}_loss": 5.0}
    metrics = [*whole_run(), sample(40, text, text + " and on"), train(41, 3.0, parts={text: 3.0})]
    for record in metrics:
        if record["kind"] == "evaluation":
            record |= {"told_apart": 0.7, "decides": text}
    path = write_run(folder / "run", run=run, metrics=metrics, recipe=text)
    tables = json.dumps({"tables": [TABLE]}).replace("\\ud800", "?")
    (path / "results.json").write_text(tables)
    saved = {"model_type": text, "architectures": [text]}
    (path / "checkpoints" / "step-00000040" / "config.json").write_text(json.dumps(saved))
    return page.render(page.read_run(path))


def of_finetuning(folder: Path, text: str) -> str:
    kind = task_for("classification", (text, "other"))
    rows = [TextExample(text, n % 2, text) for n in range(4)]
    return finetune_page.render(
        name=text,
        task_type=kind,
        eval_part=text,
        table=TABLE,
        figures={text: [0.5, 0.6]},
        losses={text: [1.0, 0.5]},
        num_rows=len(rows),
        report=kind.report(Encoded(rows, None), np.ones((4, 2)), np.array([0, 0, 1, 1])),  # type: ignore[arg-type]
        facts={text: {text: [text, [text]]}},
        kind=text,
    )


def of_curve(folder: Path, text: str) -> str:
    curve = LabelCurve(text, [10, 20])
    for way, gain in ((text, 0.1), ("from scratch", 0.0)):
        for seed in range(2):
            for count in (10, 20):
                curve.put(way, count, seed, 0.5 + gain + seed / 50)
    return curve_page(curve, {"task": text, "model": text, "asked": text})


def of_diagnosis(folder: Path, text: str) -> str:
    check = Check(text, text, {}, [found_of(text)], [FlaggedRow(text, text, text, text, 0.9)])
    notes = [found_of(text), Finding("a-note", text)]
    return Diagnosis(3, [text], [check], notes, [TABLE], text).page(text)


def of_comparison(folder: Path, text: str) -> str:
    both = [contender(text, [1.0, 1.1]), contender(text + "2", [2.0, 2.1])]
    measures = [Metric("loss", text)]
    return comparison_page(Comparison(text, both, measures, [[text, text, text]], [found_of(text)]))


def shown(folder: Path, show: Callable[..., Path], text: str, found: object) -> str:
    subject = SimpleNamespace(path=Path(text.replace("\ud800", "")))
    return show(subject, folder, found, io.StringIO().write).read_text()


def of_layers(folder: Path, text: str) -> str:
    figures = [[Estimate(value, 0.1, 0.9)] * 2 for value in (0.5, 0.4, 0.3)]
    more = ([0.4, 0.6], HALF, {text: 0.2}, Verdict("good", text), [found_of(text)], text)
    found = LayerProbe(text, text, [text] * 2, 9, 9, *figures, *more)
    return shown(folder, pages.show_layers, text, found)


def of_attention(folder: Path, text: str) -> str:
    words = dict.fromkeys(("name", "kind", "summary", "verdict", "command"), text)
    return document.render("attention.html", tables=[TABLE], tiles=[(text, text)], **words)


def of_image_attention(folder: Path, text: str) -> str:
    first, later = over_image(text, [], np.zeros((2, 2, 3), np.uint8)), over_image(text, [[1.0]])
    words = dict.fromkeys(("name", "kind", "summary", "left_out"), text)
    return document.render(
        "image_attention.html", image=first, rollout=later, heads=[later], **words
    )


def of_model(folder: Path, text: str) -> str:
    return document.render("model.html", rows=[(text, text)])


def of_explanation(folder: Path, text: str) -> str:
    words = (WordWeight(text[1:], 1, len(text), 0.5), WordWeight(text[:1], len(text), 99, -0.5))
    return Explanation(text, text, 0.5, words)._repr_html_()


def of_finetuned_card(folder: Path, text: str) -> str:
    return document.render(
        "finetuned.md",
        front={"library_name": text, "metrics": [text], "model-index": [{text: text}]},
        name=text,
        task="classification",
        base=text,
        labels=[text, "other"],
        more_labels=1,
        verdict=text,
        table=TABLE,
        rows={text: 3},
        data={text: "ab" * 32},
        findings=[found_of(text)],
        settings={text: text},
        loads=[repr(text)],
    )


def of_pretrained_card(folder: Path, text: str) -> str:
    words = dict.fromkeys(("name", "objective", "note"), text)
    ask = f"api.fill_mask('.', {text!r})"
    front = {"tags": [text]}
    return document.render(
        "pretrained.md", front=front, warning="", loads=[repr(text)], ask=ask, **words
    )


def of_curation(folder: Path, text: str) -> str:
    return render_page(card_with(text))


def of_data_card(folder: Path, text: str) -> str:
    return render_data_card(card_with(text))


PAGES: dict[str, Callable[[Path, str], str]] = {
    "run.html": of_run,
    "finetuning.html": of_finetuning,
    "comparison.html": lambda *given: of_comparison(*given) + of_curve(*given),
    "doctor.html": of_diagnosis,
    "probe.html": of_layers,
    "attention.html": of_attention,
    "image_attention.html": of_image_attention,
    "model.html": of_model,
    "explanation.html": of_explanation,
    "pretrained.md": of_pretrained_card,
    "finetuned.md": of_finetuned_card,
    "data_card.md": of_data_card,
    "curation.html": of_curation,
}


class Tags(HTMLParser):
    """Tags, attributes, and tags that are not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img") or any(name.startswith("on") for name, _ in attributes):
            self.found.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.found.append(f"/{tag}")


def faults(name: str, made: str) -> list[str]:
    """What is wrong with a page or a card into which `HOSTILE` came."""
    found = [] if "alert(1)" in made else ["the text is not there"]
    if not all(c.isprintable() or c in "\n\t" for c in made):
        found.append("control characters")
    if name.endswith(".md"):
        _, _, text = made.split("---\n", 2)
        text = re.sub(r"^```(?:python|bash)\n.*?^```$", "", text, flags=re.M | re.S)
        text = re.sub(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)", "code", text)
        text = re.sub(r"\\[!-/:-@\[-`{-~]", "", text)
        tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.M)
        for table in tables:
            if len({row.count("|") for row in table.splitlines()}) > 1:
                found.append("cells")
        return found + re.findall(r"[<\[`]", text)
    tags = Tags(made.replace(OWN_SCRIPT, "", 1))
    found += [*tags.found, *(f"open {tag}" for tag in tags.open)]
    return found + (["a template within a text"] if "&amp;lt;{{ 7 * 7 }}" not in made else [])


def test_every_template_is_filled_here() -> None:
    there = {path.name for path in document.TEMPLATES.iterdir()}
    assert there == {*PAGES, *LAYOUT, "page.css", SCRIPT}


@pytest.mark.parametrize("name", PAGES)
def test_hostile_texts_stay_texts(name: str, tmp_path: Path) -> None:
    assert faults(name, PAGES[name](tmp_path, HOSTILE)) == []


def unescaped(environment: Environment) -> None:
    environment.autoescape = False
    environment.filters |= {"lines": str, "md": str, "code": "`{}`".format}


def unseen(environment: Environment) -> None:
    environment.finalize = None
    environment.filters |= {"lines": lambda text: text, "md": str, "code": "`{}`".format}


@pytest.mark.parametrize("spoilt", [unescaped, unseen])
@pytest.mark.parametrize("name", PAGES)
def test_a_template_that_does_not_escape_is_found(
    name: str,
    spoilt: Callable[[Environment], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = document._environment.__wrapped__(document.TEMPLATES)
    spoilt(made)
    monkeypatch.setattr(document, "_environment", lambda folder: made)
    assert faults(name, PAGES[name](tmp_path, HOSTILE))


def unnamed(made: str) -> list[str]:
    """What of a page has no name for who cannot see it, or no words on what it is."""
    wanted = ['<html lang="en">', "<title>", 'name="viewport"', "<h1>", "</footer>"]
    found = [each for each in wanted if each not in made]
    found += ["caption"] * (made.count("<table>") - made.count("<caption"))
    found += re.findall(r"<th(?! scope=)[^>e]*>", made)
    return found + re.findall(r"<svg(?![^>]*aria-label=)[^>]*>", made)


# What stands in the page of a notebook, and what it lacks as it is no page.
IN_NOTEBOOKS = {"model.html": {"<title>", "caption"}, "explanation.html": {"<title>", "<h1>"}}


@pytest.mark.parametrize("name", [name for name in PAGES if name[-5:] == ".html"])
def test_pages_name_their_parts(name: str, tmp_path: Path) -> None:
    found = unnamed(PAGES[name](tmp_path, HOSTILE))
    if name in IN_NOTEBOOKS:  # the control
        assert IN_NOTEBOOKS[name] <= set(found)
    else:
        assert found == []


# ------------------------------------------------------------------------------ the sources
# Who may write markup in Python, and who may say that a text is markup.
DRAWING = "base/report/drawing/"
FINISHED = {"base/report/document.py", "base/report/drawing/svg.py"}
NAMES = (
    "a abbr article aside b body br button caption code dd details div dl dt em figcaption figure "
    "footer form g h1 h2 h3 h4 head header hr html i img input label li line link main mark meta "
    "nav ol p path polygon pre q rect script section small span strong style summary svg table "
    "tbody td text th thead title tr u ul"
)
TAG = re.compile(rf"</?(?:{NAMES.replace(' ', '|')})(?: [a-z-]+=[^>]*)?/?>")


def by_hand(code: str) -> Iterator[str]:
    """What Python code does that a template or the room of drawings should do."""
    tree = ast.parse(code)
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Markup" | "escape" as name), args=[_, *_]):
                yield name
            case ast.Attribute(value=ast.Name(id="html"), attr="escape"):
                yield "html.escape"
            case ast.Constant(value=str(text)) if id(node) not in documented:
                yield from TAG.findall(text)


def test_no_markup_is_written_by_hand() -> None:
    found = {}
    for name, code in codes().items():
        if not TAG.search(code) and "Markup(" not in code and "escape(" not in code:
            continue
        here = set(by_hand(code))
        if name not in FINISHED:
            assert not here & {"Markup", "escape", "html.escape"}, name
        if here and not name.startswith(DRAWING) and name not in FINISHED:
            found[name] = here
    assert found == {}


@pytest.mark.parametrize(
    "code",
    ["x = f'<p>{y}</p>'", "Markup(x)", "html.escape(x)", "escape(x)", "x = '<td class=a>'"],
)
def test_markup_by_hand_would_be_noticed(code: str) -> None:
    assert list(by_hand(code))


def switches(source: str) -> list[str]:
    """Where a template turns escaping off, or leaves the quotes around a value away."""
    tree = Environment().parse(source)
    found = [f.name for f in tree.find_all(nodes.Filter) if f.name in ("safe", "forceescape")]
    found += ["autoescape" for _ in tree.find_all(nodes.ScopedEvalContextModifier)]
    return found + re.findall(r"=\{\{", source)


@pytest.mark.parametrize("name", sorted({*PAGES, *LAYOUT}))
def test_no_template_turns_escaping_off(name: str) -> None:
    assert switches((document.TEMPLATES / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    ["{{ x | safe }}", "{% autoescape false %}{{ x }}{% endautoescape %}", "<a title={{ x }}>"],
)
def test_a_switch_would_be_noticed(source: str) -> None:
    assert switches(source)
