"""The pages in a browser, as a person uses them. It needs Playwright and Chromium."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskwright
from finetune.test_command import table
from laws import test_templates as reports
from maskwright.ask.predict.language_model import load
from maskwright.model.opening.open import open_model
from maskwright.ship.explore.corruption import CorruptionRequest, QueryableModel, prepare_row
from maskwright.ship.explore.masks import READING
from maskwright.ship.explore.notebook import bundled
from maskwright.ship.explore.server import HEADERS, serving
from maskwright.ship.explore.site import Site, assets
from maskwright.ship.serve.served_model import open_all
from serve.servers import server
from small_tasks import finetuned

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.loopback,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
TOKEN = "swordfish-7"
TEXT = "The big cat sat on the red mat."
PAYLOADS = [
    "<script>window.ran = true</script>",
    "<img src=x onerror='window.ran = true'>",
    "<svg onload='window.ran = true'></svg>",
    '"><script>window.ran = true</script>',
    "'; window.ran = true; '",
    "${window.ran = true}",
    "{{constructor.constructor('window.ran = true')()}}",
    "javascript:window.ran = true",
    "</textarea><script>window.ran = true</script>",
    "</title></style><script>window.ran = true</script>",
    "<a href='javascript:window.ran = true'>x</a>",
    "<iframe srcdoc='<script>parent.window.ran = true</script>'></iframe>",
    "\u202e<script>window.ran = true</script>",
    "&lt;script&gt;window.ran = true&lt;/script&gt;",
    "<math><mtext></form><form><mglyph><style></math><img src onerror='window.ran = true'>",
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(model: Path, models: dict[str, Path]) -> Site:
    return Site.of([model, *models.values()], sample=TEXT, prompt="The big", live=True)


@pytest.fixture(scope="module")
def address(site: Site) -> Iterator[str]:
    with serving(site) as at:
        yield at


class Visit:
    """A page of the browser that notes what must not be: errors, and requests to elsewhere."""

    def __init__(
        self,
        chromium: Any,
        at: str,
        *,
        width: int = 1280,
        dark: bool = False,
        token: str | None = None,
    ) -> None:
        self.context = chromium.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if dark else "light",
            http_credentials=None if token is None else {"username": "", "password": token},
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.wrong: list[str] = []
        self.page.on("console", lambda m: m.type == "error" and self.wrong.append(m.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        home = ("data:", "blob:", at.partition("#")[0])
        self.page.on("request", lambda r: r.url.startswith(home) or self.wrong.append(r.url))
        self.at = at

    def open(self, **state: object) -> Any:
        query = "&".join(f"{name}={value}" for name, value in state.items())
        self.page.goto("about:blank")
        self.page.goto(f"{self.at}#{query}")
        self.page.wait_for_selector("main:not([aria-busy]) h2")
        return self.page

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *failure: object) -> None:
        self.context.close()


# A link that nothing of a page has written.
ODD = dict.fromkeys(("stack", "position", "temperature", "count"), "x")
ODD |= dict.fromkeys(("head", "merge", "k"), "-1") | dict.fromkeys(("chosen", "kind", "p"), "99")
ODD |= dict.fromkeys(("beside", "objective"), "__proto__")
ODD |= {"hide": "-1,abc,9999", "layer": "0.5", "token": "1e9", "seed": "NaN"}
# When each word of a task has its weight.
WEIGHED = (
    "() => document.querySelectorAll('.piece small').length === 4 &&"
    "![...document.querySelectorAll('.piece small')].some((e) => e.innerText === '…')"
)
PAGES = ("overview", "fill", "generate", "tokenizer", "attention", "task", "vectors")
# The pages of how a model learns, and what is there once they are drawn.
LEARNING = {"masks": "figure svg", "corruption": "main ul.tokens", "training": "figure svg"}


@pytest.mark.parametrize(("width", "dark"), [(400, False), (1280, True)])
def test_every_page_of_every_model(
    width: int, dark: bool, chromium: Any, address: str, site: Site
) -> None:
    with Visit(chromium, address, width=width, dark=dark) as visit:
        numbers = range(len(site.models))
        plain = [(number, name, {}) for number in numbers for name in PAGES]
        odd = [(number, name, ODD) for number in numbers[::3] for name in (*PAGES, "masks")]
        for number, name, more in plain if width == 400 else odd:
            page = visit.open(page=name, model=number, **more)
            page.wait_for_timeout(150)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{name} of {site.models[number].name} is too wide"
            alerts = page.locator("[role=alert]:visible").all_inner_texts()
            assert not alerts, f"{name} of {site.models[number].name}: {alerts}"
            assert "NaN" not in page.locator("main").inner_text()
        assert visit.wrong == []


def test_masks_are_filled_as_in_python(chromium: Any, address: str, model: Path) -> None:
    opened = load(model, precision="float32")
    with Visit(chromium, address) as visit:
        page = visit.open(page="fill", model=0, hide="")
        page.locator(".tokens button").nth(1).press("ArrowRight")
        assert page.evaluate("document.activeElement.ariaLabel").endswith("token 3")
        page.keyboard.press("Enter")
        page.wait_for_selector("figure svg")
        names = page.locator("figure svg title").all_text_contents()
        shown = [name.rpartition(": ")[2] for name in names[:3]]
        place = int(page.evaluate("new URLSearchParams(location.hash.slice(1)).get('hide')"))
        words = opened.model.tokenizer
        ids, _ = words.frame(words.encode(TEXT))
        text, rest = words.decode(ids[1:place]), words.decode(ids[place + 1 : -1])
        (hole,) = opened.fill_mask(f"{text} {words.vocabulary[words.mask or 0]} {rest}", top=3)
        wanted = [c.probability for c in hole.candidates]
        np.testing.assert_allclose([_number(each) for each in shown], wanted, atol=6e-4)
        # The link restores what was hidden.
        link = page.url
        page.goto("about:blank")
        page.goto(link)
        page.wait_for_selector("figure svg")
        assert page.locator("figure svg title").all_text_contents() == names
        assert visit.wrong == []


def test_a_model_that_is_refused_says_why(chromium: Any, model: Path, tmp_path: Path) -> None:
    """The first one is shown, which has no tokenizer; its server is asked once."""
    folder = shutil.copytree(model / "checkpoints/step-00000002", tmp_path / "mute")
    (folder / "tokenizer.json").unlink()
    with serving(Site.of([folder, model], live=True)) as at, Visit(chromium, at) as visit:
        asked: list[str] = []
        visit.page.on("request", lambda request: asked.append(request.url))
        page = visit.open()
        assert "has no tokenizer" in page.locator(".notice:visible, .verdict").inner_text()
        assert sum("data/models/0/" in url for url in asked) == 3
        page.locator("#models select").select_option("1")
        page.wait_for_selector("main .figures")


def test_checkpoints_come_and_go(chromium: Any, model: Path, tmp_path: Path) -> None:
    run = shutil.copytree(model, tmp_path / "run")
    first = run / "checkpoints/step-00000002"
    away = shutil.move(first, tmp_path / "first")
    with serving(Site.of([run], sample=TEXT, live=True)) as at, Visit(chromium, at) as visit:
        page = visit.open(page="training")
        shutil.move(away, first)
        page.evaluate("window.dispatchEvent(new Event('focus'))")
        page.wait_for_selector("nav a:has-text('Fill masks')")
        assert page.locator("main h2").inner_text() == "Training"  # whoever looks at it goes on
        page.route("**/data/**", lambda route: route.abort())
        page.get_by_role("link", name="Who sees whom").click()
        page.wait_for_selector("[role=alert]:has-text('is it still running?')")
    with serving(Site.of([run], sample=TEXT, live=True)) as at, Visit(chromium, at) as visit:
        page = visit.open(page="fill", hide="2")
        page.wait_for_selector("figure svg")
        assert page.get_by_role("slider").count() == 0
        assert page.locator("select:visible").count() == 0
        for step in (10, 20, 30):
            shutil.copytree(first, run / f"checkpoints/step-{step:08}")
        page.evaluate("window.dispatchEvent(new Event('focus'))")
        page.wait_for_selector("input[type=range][max='3']")
        assert page.get_by_role("slider").input_value() == "0"  # the model that was shown
        names = page.get_by_label("Model").first.locator("option").all_text_contents()
        assert names == [f"run, step {step}" for step in (2, 10, 20, 30)]
        beside = page.get_by_label("Compare with")
        assert beside.locator("option").all_text_contents() == ["no other model", *names[1:]]
        beside.select_option(label="run, step 20")
        page.wait_for_selector("section h3:has-text('run, step 20')")
        shutil.copytree(first, run / "checkpoints/step-00000035")
        beside.focus()
        page.evaluate("window.dispatchEvent(new Event('focus'))")
        page.wait_for_selector("input[type=range][max='4']")
        assert beside.input_value() == "2" and beside.locator("option").count() == 5
        assert beside.evaluate("(e) => e === document.activeElement")
        beside.select_option("")
        page.get_by_role("slider").press("ArrowRight")
        page.wait_for_selector("section h3:has-text('run, step 10')")
        page.get_by_role("slider").press("ArrowLeft")
        page.wait_for_selector("section h3:has-text('run, step 2')")
        shutil.rmtree(run / "checkpoints/step-00000010")
        shutil.copytree(first, run / "checkpoints/step-00000040")
        page.reload()
        page.wait_for_selector("input[type=range][max='4']")  # without the one that is gone
        assert visit.wrong == []
        page.get_by_label("Model").first.select_option(label="run, step 10 (not there any more)")
        page.wait_for_selector("p.notice:has-text('run, step 10 was deleted')")
        page.get_by_label("Model").first.select_option(label="run, step 40")
        page.wait_for_selector("section h3:has-text('run, step 40')")


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.proof)])
def test_hostile_texts_and_names_stay_text(
    times: int, chromium: Any, address: str, site: Site
) -> None:
    """Fifteen payloads through the fields of the pages; in the proof sixty."""
    wrapped = ("{}", "x {} y", "\n{}\n", "<b>{}</b>")[:times]
    texts = [wrap.format(payload) for payload in PAYLOADS for wrap in wrapped]
    with Visit(chromium, address) as visit:
        fields = {"fill": "Text", "generate": "Prompt"}
        more = {"tokenizer": "Text", "attention": "Text", "vectors": "Texts, one to a line"}
        for name, field in (fields | more).items():
            page = visit.open(page=name, model=0 if name == "fill" else len(site.models) - 1)
            some = texts if name in fields or times > 1 else ["\n".join(texts)]
            for text in some:
                page.get_by_label(field).first.fill(text)
                page.wait_for_timeout(320)
                assert page.evaluate("window.ran") is None
        assert visit.wrong == []
    named = [replace(site.models[0], name=payload) for payload in PAYLOADS]
    hostile = Site("".join(PAYLOADS), named, sample="<b>big</b>", live=True)
    with serving(hostile) as at, Visit(chromium, at) as visit:
        page = visit.open(page="fill", hide="1,2,3")
        page.wait_for_selector("figure svg")
        assert page.evaluate("window.ran") is None
        assert PAYLOADS[0] in page.locator("option").all_text_contents()
        # A control: were it read as markup, the policy would forbid it, and that is seen.
        page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=0>')")
        page.wait_for_timeout(200)
        assert visit.wrong


def test_a_page_in_a_notebook(chromium: Any, model: Path, models: dict[str, Path]) -> None:
    """The frame has no link and no origin of its own, and all the same masks are filled."""
    opened = maskwright.load(model)
    shown = maskwright.show([opened, models["gpt2"]], text=f"{TEXT} </script>\"'<b>")
    cell = "<!doctype html><title>a notebook</title>" + shown._repr_html_()
    with Visit(chromium, "about:srcdoc") as visit:
        page = visit.page
        page.set_content(cell)
        frame = page.frame_locator("iframe")
        assert frame.get_by_role("textbox", name="Text").input_value() == f"{TEXT} </script>\"'<b>"
        frame.locator(".tokens button").nth(2).press("Enter")
        frame.locator("figure svg title").first.wait_for(state="attached")
        before = frame.locator("figure svg title").all_text_contents()
        frame.locator(".tokens button").nth(4).press("Enter")
        frame.locator("figure >> nth=1").wait_for()
        assert frame.locator("figure svg title").all_text_contents() != before
        frame.get_by_role("link", name="Skip to the page").press("Enter")
        assert frame.locator("#page").evaluate("(e) => e === document.activeElement")
        frame.get_by_label("Model").first.select_option("1")
        frame.locator("p.notice:visible", has_text="fills no masks").wait_for()
        frame.get_by_role("link", name="Generation").click()
        frame.locator(".written").wait_for()
        frame.get_by_label("Temperature").fill("0")
        frame.locator("figure svg title", has_text="100 %").first.wait_for(state="attached")
        assert visit.wrong == []
        assert frame.locator("#reading").is_hidden()
        # A control: in a frame that may run nothing, nothing is computed.
        page.set_content(cell.replace("allow-scripts", ""))
        assert frame.locator("#page").inner_text() == "Loading …"


@pytest.mark.parametrize(("width", "dark"), [(400, True), (1280, False)])
def test_no_serious_findings_of_axe(
    width: int, dark: bool, chromium: Any, address: str, site: Site, tmp_path: Path
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    drawn = {
        "task": "main p.notice",
        **dict.fromkeys(({*PAGES} - {"task"}), "figure svg"),
        "overview": ".cards a",
        **LEARNING,
    }
    with Visit(chromium, address, width=width, dark=dark) as visit:
        for name, selector in drawn.items():
            number = 0 if name == "fill" or name in LEARNING else len(site.models) - 1
            page = visit.open(page=name, model=number, hide=2)
            page.wait_for_selector(selector)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
            findings = axe.Axe().run(page).response["violations"]
            serious = [each for each in findings if each["impact"] in ("serious", "critical")]
            assert not serious, [(e["id"], e["nodes"][0]["html"][:120]) for e in serious]
        assert visit.wrong == []
        for name in ("run", "finetuning", "comparison", "doctor", "attention", "curation"):
            page.goto("about:blank")  # without the policy of the explorers
            page.set_content(reports.PAGES[f"{name}.html"](tmp_path / name, "words"))
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
            findings = axe.Axe().run(page).response["violations"]
            serious = [each for each in findings if each["impact"] in ("serious", "critical")]
            assert not serious, [(name, e["id"], e["nodes"][0]["html"][:120]) for e in serious]


def test_a_task_is_answered_and_its_words_are_weighed(
    chromium: Any, model: Path, tmp_path: Path
) -> None:
    data, out = table(tmp_path / "data.csv", "classification", 80), tmp_path / "out"
    finetuned(model, data, out, epochs=1, batch=16, least_steps=0)
    (answer,) = load(out, precision="float32").predict(["the big cat ran"])
    results = json.loads((out / "results.json").read_bytes())
    with serving(Site.of([out], live=True)) as at, Visit(chromium, at) as visit:
        # The overview has the verdict, and a row of the user with its label.
        page = visit.open()
        page.wait_for_selector(".cards a")
        page.wait_for_selector(".answer")
        assert page.locator(".verdict").inner_text() == results["verdict"]["sentence"]
        assert page.locator(".written").inner_text() == results["example"]["texts"][0]
        assert results["example"]["answer"] in page.locator("main section").inner_text()
        page.locator(".cards a:has-text('Task')").click()
        page.get_by_label("Text").fill("the big cat ran")
        shown = f"{answer['label']} {100 * answer['score']:.1f} %"
        page.wait_for_selector(f".answer:has-text('{shown}')")
        page.wait_for_function(WEIGHED)
        page.locator("figure svg [role=button]").last.press("Enter")
        page.wait_for_selector("p:has-text('is scored again')")
        # Nothing to read is said, and no error.
        page.get_by_label("Text").fill("")
        page.wait_for_selector("p:has-text('Nothing is read yet')")
        # How its loss fell, epoch by epoch; and a page that is left at once goes on nowhere.
        for name in ("Training", "Task", "Training"):
            page.get_by_role("link", name=name, exact=True).click()
        page.wait_for_selector("figure svg")
        assert all("NaN" not in each.get_attribute("viewBox") for each in page.locator("svg").all())
        assert visit.wrong == []


@pytest.fixture(scope="module")
def cats_and_dogs(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that has learned that a cat says meow."""
    folder = tmp_path_factory.mktemp("cats")
    data = table(folder / "data.csv", "classification", 200)
    return finetuned(model, data, folder / "out", epochs=10, batch=16, rate=1e-2)


def test_words_that_speak_for_a_class_are_blue_with_a_plus(
    chromium: Any, cats_and_dogs: Path
) -> None:
    text = "the big cat ran"
    (answer,) = load(cats_and_dogs).predict([text])
    assert answer["label"] == "meow" and answer["score"] > 0.9, "or there is nothing to explain"
    with serving(Site.of([cats_and_dogs])) as at, Visit(chromium, at) as visit:
        page = visit.open(page="task")
        page.get_by_label("Text").fill(text)
        for label, tone, sign in (("meow", "one", "+"), ("woof", "two", "−")):
            page.locator(f"figure svg [role=button][aria-label^={label}]").press("Enter")
            page.wait_for_selector(f"p:has-text('“{label}” is scored again')")
            page.wait_for_function(WEIGHED)
            cat = page.locator(".piece", has_text="cat")
            assert cat.locator("small").inner_text().startswith(sign)
            assert tone in cat.get_attribute("class").split()
            # Negative control: the other words decide nothing like as much.
            weights = page.locator(".piece small").all_inner_texts()
            *_, second, largest = sorted(abs(float(each.replace("−", "-"))) for each in weights)
            assert second < 0.5 * largest
            blue, orange = page.locator(".key li").all_inner_texts()
            assert blue.startswith("blue, + : ") and orange.startswith("orange, − : ")
            assert f"for “{label}”" in blue and f"against “{label}”" in orange
        assert visit.wrong == []


def test_masks_of_a_fine_tuned_model_are_those_it_reads_with(
    chromium: Any, cats_and_dogs: Path, model: Path
) -> None:
    with serving(Site.of([cats_and_dogs, model])) as at, Visit(chromium, at) as visit:
        each = [visit.open(page="overview", model=n).locator(".verdict").count() for n in (0, 1)]
        assert each == [0, 1], "only the second has a run"
        page = visit.open(page="masks", model=0)
        assert page.get_by_label("Objective").input_value() == READING
        assert page.get_by_label("Family, or model").input_value() == "out (here)"
        assert page.locator(".notice:visible").count() == 0
        # What it could not learn by is drawn with its mask, and a token that is seen is no target.
        page.get_by_label("Objective").select_option("causal")
        page.wait_for_selector(".notice:has-text('Refused')")
        assert "so that there is nothing to predict" in page.inner_text("p[aria-live]")
        assert page.locator("rect.leaking").count() > 5
        # A control: a mask that hides what is to be predicted leaks nothing, in what is refused
        # for its head alone, too.
        page.get_by_label("Objective").select_option("masked")
        page.wait_for_selector(".notice:has-text('Refused')")
        assert page.locator("rect.leaking").count() == 0
        page.get_by_label("Family, or model").select_option("gpt2")
        page.get_by_label("Objective").select_option("causal")
        page.wait_for_selector("p[aria-live]:has-text('which is not visible to it')")
        assert page.locator("rect.leaking").count() == 0
        # The model before it was fine-tuned opens with what it was trained by.
        page = visit.open(page="masks", model=1)
        assert page.get_by_label("Objective").input_value() == "masked"
        assert visit.wrong == []


def test_a_server_with_a_token_shows_its_models(
    chromium: Any, model: Path, models: dict[str, Path]
) -> None:
    """`/` leads a browser to the pages, which fill masks, write, and ask about a text of one's own,
    all under the policy; who lacks the token sees nothing of them."""
    folders, may_load = {"filler": model, "writer": models["gpt2"]}, threading.Event()

    def load() -> None:
        may_load.wait(20)
        served.host.load(open_all(folders, {}, "float32"))

    with server({}, token=TOKEN, load=load) as served:
        at = "http://{}:{}/".format(*served.address)
        with Visit(chromium, at, token=TOKEN) as visit:
            answers: list[Any] = []
            visit.page.on("response", lambda answer: answers.append(answer))
            page = visit.open()
            assert page.locator("main h2").inner_text() == "No model yet"
            may_load.set()
            served.running.wait()
            page.evaluate("window.dispatchEvent(new Event('focus'))")
            page.wait_for_selector("main .figures")
            page = visit.open(page="fill", model=0)
            assert page.url.startswith(f"{at}explore/#page=fill")
            page.get_by_role("textbox", name="Text").fill(TEXT)
            page.locator(".tokens button", has_text="cat").press("Enter")
            page.wait_for_selector("figure svg title", state="attached")
            page.get_by_role("link", name="Corruption").click()
            page.get_by_role("textbox", name="Text").fill(TEXT)
            wanted = prepare_row(
                QueryableModel.of(open_model(model)), CorruptionRequest(TEXT, "masked")
            )
            places = len(wanted["case"]["tokens"]) - wanted["documents"].count(0)
            after = page.get_by_label("After", exact=True).locator("li")
            page.wait_for_function(
                "(n) => document.querySelectorAll('[aria-label=After] li').length === n", arg=places
            )
            assert after.count() == places
            page.get_by_label("Model").select_option("1")
            page.get_by_role("link", name="Generation").click()
            page.get_by_role("button", name="20 tokens").click()
            page.wait_for_function(
                "() => document.querySelector('.written [role=button]') !== null"
            )
            given = [each for each in answers if each.status == 200]
            policies = {each.headers.get("content-security-policy") for each in given}
            assert policies == {HEADERS["Content-Security-Policy"]}
            assert any("/ask/corruption" in each.url for each in answers)
            assert visit.wrong == []
        for wrong in ("", "Basic OmFub3RoZXI=", "Basic !", "Basic", "Bearer", f"Digest {TOKEN}"):
            answer = served.get("/explore/", Accept="text/html", Authorization=wrong)
            assert answer.status == 401 and TOKEN.encode() not in answer.body
            assert answer.headers["www-authenticate"].startswith("Basic realm=")
        assert served.get("/explore/").headers["www-authenticate"] == "Bearer"


def test_the_server_gives_out_its_files_and_no_others(address: str) -> None:
    place = address.removeprefix("http://").rstrip("/")

    def asked(path: str, host: str | None = place) -> tuple[int, bytes, Any]:
        connection = http.client.HTTPConnection(place, timeout=10)
        connection.putrequest("GET", path, skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        with contextlib.closing(connection):
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers

    status, body, headers = asked("/")
    assert status == 200 and body == assets()["index.html"]
    assert headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
    for path in ("../site.py", "%2e%2e/site.py", "/etc/passwd"):
        assert asked(f"/{path}")[0] == 404, path
    for path in ("99/model.json", "0/other.json", "x/model.json"):
        assert asked(f"/data/models/{path}")[0] == 404, path
    for host in ("evil.example", None, f"evil.example@{place}", f"{place}."):
        assert asked("/", host)[0] == 421
    assert json.loads(asked("/data/site.json")[1])["models"][0]["folder"] == "data/models/0"


def test_modules_of_another_form_are_refused() -> None:
    with pytest.raises(ValueError, match="another form"):
        bundled({"a.js": b'import x from "./b.js";\n'}, "a.js")
    assert "module_b_js" in bundled(
        {"a.js": b'import { y } from "./b.js";\ny();\n', "b.js": b"export const y = 1;\n"}, "a.js"
    )


def _number(shown: str) -> float:
    return float(shown.removesuffix(" %")) / 100
