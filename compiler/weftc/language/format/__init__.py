"""Text of a spec -> the same spec as it is usually written; comments, words and the author's line breaks are kept."""
