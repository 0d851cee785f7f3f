"""The recipe where the user names none."""

from __future__ import annotations

# Order: repair first, so that rules see what will be kept; then what each document says of itself;
# then what needs the whole corpus. Perplexity comes behind the duplicates, which would teach its
# model what is usual. Settings differ from the published rules where these are for web pages:
# documents of 20 words stay (a short dialogue, an abstract), and length is judged in any language.
STEPS: dict[str, dict[str, object]] = {
    "html": {},
    "normalise": {},
    "boilerplate": {},
    "language": {"most_other": 0.25},
    "gibberish": {},
    "gopher-repetition": {},
    "gopher-quality": {"min_doc_words": 20, "languages": []},
    "personal": {},
    "exact-duplicates": {},
    "near-duplicates": {},
    "perplexity": {"spread": 3.5},
}
