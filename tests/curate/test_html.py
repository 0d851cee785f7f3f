"""Markup becomes plain text, and what only looks like it stays to the byte."""

from __future__ import annotations

import pytest

from curate.in_process import batch_of, run
from maskwright.text.curate.steps.html import Settings

PLAIN = [
    "a < b and b > c, so a<b>c is odd; x <- 3",
    "It says <unk> and [MASK], <s> and </s>, <pad> or <|endoftext|>.",
    "Write to Ann <ann@example.org> or <a@b.example>, see <https://a.example/p?x=1&copy=2>.",
    "std::vector<int> v; List<String> l; Map<K, V> m; f<p>(x); if (a <b> c) {}",
    "The mean <p> and <x> of the state; <p> again.",
    "Use `<b>bold</b>` and `&nbsp;`, or\n```\n<p>one</p>\n<br>\n```\nas you like.",
    "AT&T, R&D; Tom & Jerry; &lt; is how HTML writes <, and &amp;lt; how it writes that.",
    "I <3 you. 1 <2. <- <= => ->",
    "<",
    "A text with one <b> in it",
    "Give <file-name> and </file-name>, <x-y>one</x-y>.",
    "To make a word bold write <b>word</b>; a list begins with <ul>, a line ends with <br>.",
    "The <i> and </i> tags set words in italics.",
    "<h2> begins a heading and <hr> draws a rule.",
    "<em>: stress\n<p>: paragraph\n<ol>: list",
    "Wrap it in <div> ... </div>, as in <div>text</div>.",
    "if (i<b && c>d) x = a<i and j>k; s<p or q>r; m<a, b>c",
]
MARKUP = [
    ("<p>One.</p><p>Two.</p>", "One.\nTwo."),
    ("<p>One.</p>\n\n<p>Two.</p>", "One.\n\nTwo."),
    ("Some <b>bold</b> and un<i>believ</i>able words", "Some bold and unbelievable words"),
    ("One<br>two<BR/>three<br />four", "One\ntwo\nthree\nfour"),
    ("<p>One\n<p>Two", "One\nTwo"),
    ("<div id='a>b' title=\"x\">text</div>", "text"),
    ("<a href=don't>link</a> &copy; here", "link © here"),
    ("<script>if (a < b) { x('<p>') }</script>\nText\n<style>p {}</style>\nmore", "Text\nmore"),
    ("<p>a<SCRIPT type='x'>1</Script >b</p>", "ab"),
    ("One\n<!-- ad\n<b>slot</b> -->\ntwo<br>", "One\ntwo"),
    ("<!DOCTYPE html><html><head><title>T</title></head><body>B</body></html>", "T\nB"),
    ("<ul><li>one</li><li>two</li></ul>", "one\ntwo"),
    ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a\tb\nc"),
    ("<p>1 &lt; 2 &amp; <unk> stays</p>", "1 < 2 & <unk> stays"),
    ("<p>five&nbsp;pounds &#39;and&#x27; more</p>", "five pounds 'and' more"),
    ("It&#39;s &quot;so&quot;,&nbsp;&eacute;&hellip;", 'It\'s "so", é…'),
    ("<p>kept</p> <script> without an end", "kept\nwithout an end"),
    ("<p>kept <!-- without an end <br> here", "kept\nwithout an end\nhere"),
    ("<p>x <![CDATA[a <b> c]]> y</p>", "x a <b> c y"),
    ("<p>see `<b>` there</p>", "see `<b>` there"),
    ("<p>If a<b holds, c>d</p><p>as vector<i> v</p>", "If a<b holds, c>d\nas vector<i> v"),
    ("<p>We use <ul> for lists</p><p><b>so</b></p>", "We use <ul> for lists\nso"),
    ("<nav><a href='/'>Home</a><a href='/a'>About</a></nav>", "Home About"),
    ("<input disabled><option selected>one</option>", "one"),
    ("About tags.\n<div class=x>one <b>two</b></div>", "About tags.\none two"),
    ("<p>A <x-mark class='y'>b</x-mark> in <file-name></p>", "A b in <file-name>"),
]


def plain(text: str, **settings: int) -> str:
    outcome = run(Settings(**settings), [batch_of(["other", text])])[0]
    (_, result) = outcome.texts or ["other", text]
    # What changed is said, and only then.
    assert {change.index for change in outcome.changes} == ({1} if result != text else set())
    return result


@pytest.mark.parametrize("text", PLAIN)
def test_what_only_looks_like_markup_stays(text: str) -> None:
    assert plain(text) == text
    # The control: in a text of real tags, they are read as such.
    assert plain(f"<p>{text}</p>") != f"<p>{text}</p>"


@pytest.mark.parametrize(("text", "wanted"), MARKUP)
def test_markup_becomes_plain_text(text: str, wanted: str) -> None:
    assert plain(text) == wanted


def test_few_tags_and_references_can_stay() -> None:
    text = "<b>bold</b> words"
    assert plain(text, min_tags=3) == text
    assert plain(text, min_tags=2) == "bold words"
    assert plain("<p>a&nbsp;b</p>", references=False) == "a&nbsp;b"


def test_what_went_is_counted() -> None:
    (outcome,) = run(Settings(), [batch_of(["<p>a&nbsp;b</p><script>x</script><!-- c -->"])])
    counts = {change.rule: change.value for change in outcome.changes}
    assert counts == {"tags": 2, "elements": 2, "references": 1}
