"""Text to text: templates, and numbers in steps."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from maskwright.base.errors import ConfigError, DataError
from maskwright.learn.tasks.base.text_generation import TEMPLATES, Template
from maskwright.learn.tasks.label_as_text import number_text, read_numbers


def test_the_examples_of_the_paper() -> None:
    """Raffel et al. 2020, figure 1."""
    said = Template(TEMPLATES["english-to-german"]).fill({"source": "That is good."})
    assert said == "translate English to German: That is good."
    said = Template(TEMPLATES["cola"]).fill({"text": "The course is jumping well."})
    assert said == "cola sentence: The course is jumping well."
    pair = {"first": "The rhino grazed on the grass.", "second": "A rhino is grazing in a field."}
    said = Template(TEMPLATES["stsb"]).fill(pair | {"other": "3"})
    assert said == "stsb sentence1: " + " sentence2: ".join(pair.values())
    assert number_text(3.8) == "3.8"
    assert Template(TEMPLATES["squad"]).fields == ("question", "context")


def test_numbers_by_hand() -> None:
    assert [number_text(v) for v in (2.57, 2.5, 2.49, 0.0, 5.0, 2.7)] == [
        "2.6",
        "2.4",
        "2.4",
        "0.0",
        "5.0",
        "2.8",
    ]
    assert number_text(-0.01) == "0.0" and number_text(7, 5) == "5" and number_text(8, 5) == "10"
    values = read_numbers(["2.6", " 3 ", "x", "2.6 or", "nan", "-1", "1e3", "٣"], 0, 5)
    assert values[:2].tolist() == [2.6, 3.0]
    assert np.isnan(values[2:]).all()
    assert read_numbers(["-1.5"]).tolist() == [-1.5]


@hypothesis.given(strategies.text(max_size=30), strategies.text(max_size=30))
def test_fields_are_text_and_nothing_more(first: str, second: str) -> None:
    template = Template("a: {x} b: {y} {{z}}")
    assert template.fill({"x": first, "y": second}) == f"a: {first} b: {second} {{z}}"


def test_braces_in_a_field_are_noticed_where_they_would_be_read() -> None:
    """The control: filling by `str.format` twice reads what stands in the field."""
    assert Template("a: {x}").fill({"x": "{y} {0}"}) == "a: {y} {0}"
    with pytest.raises((KeyError, IndexError)):
        "a: {x}".format(x="{y}").format(x=1)


@hypothesis.given(strategies.floats(0, 5))
@hypothesis.settings(max_examples=300)
def test_numbers_go_to_the_nearest_step(value: float) -> None:
    text = number_text(value)
    assert text in {f"{n / 5:.1f}" for n in range(26)}
    assert abs(float(text) - value) <= 0.1 + 1e-12
    assert read_numbers([text], 0, 5).tolist() == [float(text)]


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_template_fills_its_fields(name: str) -> None:
    template = Template(TEMPLATES[name])
    made = template.fill({field: f"<{field}>" for field in template.fields})
    assert all(f"<{field}>" in made for field in template.fields) and "{" not in made


@pytest.mark.parametrize(
    "bad", ["no hole", "a {", "a }", "{}", "{0}", "{x!r}", "{x:>3}", "{x.y}", "{x[0]}"]
)
def test_what_is_no_template_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError):
        Template(bad)


def test_a_field_that_is_missing_is_named() -> None:
    with pytest.raises(DataError) as refused:
        Template("{sentence}").fill({"sentense": "a"}, "train.jsonl:4")
    assert (refused.value.where, refused.value.wanted) == ("train.jsonl:4", '"sentence"')
