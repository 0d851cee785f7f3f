"""What the page of a comparison says, from figures made up for it."""

from __future__ import annotations

import pytest

from maskwright.ask.evaluate.compare_report import (
    Comparison,
    Metric,
    RecipeReport,
    Run,
    for_terminal,
    judge_recipes,
    render,
    result,
    verdicts,
)

LOSS = Metric("loss", "loss")
RIGHT = Metric("pairs", "pairs", higher_is_better=True)


def contender(name: str, values: list[float], measure: str = "loss") -> RecipeReport:
    runs = [
        Run(
            seed,
            1000,
            1e9,
            2.0,
            64 << 20,
            {measure: value},
            [
                {"tokens": t, "operations": t * 1e6, "seconds": t / 500, "loss": value + 1 / t}
                for t in (10, 500, 1000)
            ],
        )
        for seed, value in enumerate(values)
    ]
    return RecipeReport(name, "a <note>", 1234, "same", runs)


@pytest.mark.parametrize(
    ("measure", "ours", "theirs", "says"),
    [
        (LOSS, [1.0, 1.01, 0.99], [2.0, 2.01, 1.99], "b is better than a"),
        (LOSS, [2.0, 2.01, 1.99], [1.0, 1.01, 0.99], "b is worse than a"),
        (RIGHT, [0.7, 0.71, 0.69], [0.6, 0.61, 0.59], "b is better than a"),
        (LOSS, [1.0, 2.0, 3.0], [1.1, 2.2, 2.9], "no difference between b and a"),
        (LOSS, [1.0], [2.0], "--seeds 3"),
        (RIGHT, [1.0, 1.0], [0.5, 0.5], "no verdict"),
    ],
)
def test_the_verdict_in_words(
    measure: Metric, ours: list[float], theirs: list[float], says: str
) -> None:
    pair = [contender("a", theirs, measure.name), contender("b", ours, measure.name)]
    (said,) = verdicts(Comparison("5 tokens", pair, [measure]))
    assert says in said


def test_several_verdicts_share_the_level_and_some_figures_give_none() -> None:
    many = [contender(n, [1.0, 1.1]) for n in "abcdef"]
    said = verdicts(Comparison("5 tokens", many, [LOSS]))
    assert len(said) == 5 and all("99 % interval" in each for each in said)
    silent = Metric("loss", "own loss", compares=False)
    assert verdicts(Comparison("5 tokens", many, [silent])) == []
    table = result(Comparison("5 tokens", many, [silent, RIGHT]))
    assert table["rows"][0] == ["a", "1.0500 ± 0.0707 (0.4147 to 1.6853)", "–", "2"]


def test_the_first_sentence_says_which_recipe_is_better() -> None:
    better = [contender("a", [2.0, 2.01, 1.99]), contender("b", [1.0, 1.01, 0.99])]
    for pair, state in ((better, "good"), (better[::-1], "no better")):
        comparison = Comparison("5 tokens", pair, [LOSS])
        judged = judge_recipes(comparison)
        assert judged.state == state and judged.rival == pair[0].name
        assert for_terminal(comparison).startswith(judged.sentence)
        assert judged.sentence.removesuffix(".") in render(comparison)
    equal = [contender(name, [1.0, 2.0, 3.0]) for name in "abc"]
    assert judge_recipes(Comparison("5 tokens", equal, [LOSS])).state == "no better"
    assert judge_recipes(Comparison("5 tokens", equal[:1], [LOSS])).state == "no better"
