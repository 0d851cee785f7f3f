"""The recipe where the user names none."""

from __future__ import annotations

# Order: repair first, so that rules see what will be kept, and personal details masked before
# anything is put on record; then what each document says of itself;
# then what needs the whole corpus. Perplexity comes behind the duplicates, which would teach its
# model what is usual. Settings differ from the published rules where these are for web pages alone:
# shorter documents stay (a dialogue, a news item), one stop word suffices, teasers that end in
# "..." stay, and length is judged in any language.
STEPS: dict[str, dict[str, object]] = {
    "html": {},
    "normalise": {},
    "personal": {},
    "boilerplate": {},
    "language": {"most_other": 0.25},
    "gibberish": {},
    "gopher-repetition": {},
    "gopher-quality": {
        "min_doc_words": 15,
        "min_stop_words": 1,
        "min_avg_word_length": 2.5,
        "max_ellipsis_lines_ratio": 1.0,
        "languages": [],
    },
    "exact-duplicates": {},
    "near-duplicates": {},
    "perplexity": {"spread": 3.0},
}
