"""A text before and after every objective: what the page shows is what the objective prepares."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from maskwright.base import catalogue
from maskwright.base.errors import ConfigError, UsageError
from maskwright.model.objectives.base.spec import member_of
from maskwright.model.opening.open import open_model
from maskwright.ship.explore import corruption
from maskwright.ship.explore.corruption import CorruptionRequest, QueryableModel, prepare_row
from maskwright.ship.explore.server import LARGEST, corruption_answer, question_response, serving
from maskwright.ship.explore.site import Site

TEXT = "The big cat sat on a red mat. Tree and dog ran.\n\nA tall old cat saw the dog. It ran."


def given(**more: Any) -> dict[str, Any]:
    plain = {"model": 0, "text": TEXT, "objective": "masked", "options": {}, "seed": 0, "row": 0}
    return {**plain, **more}


def test_every_objective_is_shown_or_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corruption, "SEEDS", 2)
    site = Site.of([model], sample=TEXT)
    found = json.loads(site.read("data/corruption.json"))
    (group,) = found["tokenizers"]
    members = map(member_of, catalogue.names("objectives"))
    texts = [member.name for member in members if member.spec.rows != "images"]
    assert [each["name"] for each in group["objectives"]] == texts
    for each in group["objectives"]:
        assert each["account"]
        if "refused" in each:
            assert each["refused"]["what"]
            continue
        assert [len(preset["seeds"]) for preset in each["presets"]] == [2] * len(each["presets"])
    units = next(each for each in group["objectives"] if each["name"] == "masked")
    assert {"unit = word", "unit = span", "unit = ngram"} <= {p["name"] for p in units["presets"]}
    assert "unit" in {setting["path"] for setting in units["settings"]}
    live = json.loads(Site.of([model], sample=TEXT, live=True).read("data/corruption.json"))
    assert not any(
        p["seeds"] for e in live["tokenizers"][0]["objectives"] for p in e.get("presets", ())
    )


@pytest.mark.parametrize(
    ("name", "options"), [("masked", {"rate": 0.4}), ("masked", {"unit": "span"}), ("hybrid", {})]
)
def test_a_row_is_what_the_objective_prepares(
    name: str, options: dict[str, Any], model: Path
) -> None:
    """The tokens of the page, put back, are those of the objective on the real row."""
    opened = QueryableModel.of(open_model(model))

    def prepared(seed: int) -> dict[str, Any]:
        return prepare_row(opened, CorruptionRequest(TEXT, name, options, seed=seed))

    shown = prepared(3)
    row, case = shown["row"], shown["case"]
    back = [row[token] if token >= 0 else -1 - token for token in case["tokens"]]
    changed = {n for n, (a, b) in enumerate(zip(row, back, strict=True)) if a != b}
    assert changed and changed <= set(case["wanted"])
    assert not any(shown["special"][n] for n in case["wanted"])
    assert prepared(3) == shown and prepared(4)["case"] != case


def test_the_chosen_device_answers(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("cpu", "meta"):
        machine = SimpleNamespace(device=torch.device(device))
        monkeypatch.setattr(corruption, "choose", lambda _, machine=machine: machine)
        opened = QueryableModel.of(open_model(model))
        assert opened.compute(lambda network: network.device.type) == device


def test_a_decoder_says_what_was_taken_out(models: dict[str, Path]) -> None:
    t5 = open_model(models["t5"])
    request = CorruptionRequest(TEXT, "span-corruption", {"rate": 0.3})
    gaps = prepare_row(QueryableModel.of(t5), request)
    text = [id for id in gaps["row"] if id not in t5.tokenizer.special_ids]
    spelled = "".join(gaps["pieces"][str(id)] for id in text)
    assert spelled.count(" ") > 9 and spelled.lstrip() == t5.tokenizer.decode(text)
    kept, said = ([t for t in gaps["case"][name] if t >= 0] for name in ("tokens", "wanted"))
    assert sorted(kept + said) == list(range(len(gaps["row"]) - gaps["documents"].count(0)))
    assert kept == sorted(kept) and said == sorted(said)


@pytest.mark.parametrize(
    "wrong",
    [{"model": 7}, {"text": 3}, {"seed": True}, {"options": []}, {"row": 99}, {"row": -1}],
    ids=str,
)
def test_questions_are_checked(wrong: dict[str, Any], model: Path) -> None:
    site = Site.of([model], live=True)
    assert corruption_answer(site, given())["case"]["wanted"]
    with pytest.raises((ConfigError, UsageError)):
        corruption_answer(site, given(**wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"objective": name} for name in ("nothing", "supervised")),
        *({"options": options} for options in ({"rate": 7}, {"rat": 0.1})),
        {"text": " \n\n "},
        *(b"[]", b"{", b"\xff", b'{"a":1,"a":2}'),
    ],
    ids=str,
)
def test_what_cannot_be_prepared_is_refused(wrong: dict[str, Any] | bytes, model: Path) -> None:
    site = Site.of([model], live=True)
    body = wrong if isinstance(wrong, bytes) else json.dumps(given(**wrong)).encode()
    status, _, answer = question_response(site, "/ask/corruption", body)
    assert status == 200 and json.loads(answer)["refused"]["what"]


@pytest.mark.loopback
def test_only_its_own_page_may_ask(model: Path) -> None:
    with serving(Site.of([model], live=True)) as address:
        host = address.removeprefix("http://").rstrip("/")

        def post(body: bytes, **headers: str) -> int:
            connection = http.client.HTTPConnection(host, timeout=60)
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("POST", "/ask/corruption", body, named)
            status = connection.getresponse().status
            connection.close()
            return status

        body, own = json.dumps(given()).encode(), f"http://{host}"
        for status, headers in (
            (200, {"Origin": own, "Sec_Fetch_Site": "same-origin"}),
            (200, {"Origin": own}),
            (403, {}),
            (403, {"Origin": "http://elsewhere.example"}),
            (403, {"Origin": "null"}),
            (403, {"Origin": own, "Sec_Fetch_Site": "cross-site"}),
            (421, {"Origin": own, "Host": "elsewhere.example"}),
        ):
            assert post(body, **headers) == status, headers
        assert post(b" " * (LARGEST + 1), Origin=own) == 413
