"""Documents on the sphere: tf-idf vectors of length one, clustered by cosine with spherical k-means.

    python examples/documents_on_the_sphere.py

Twenty short texts on four subjects, written down here without their subjects. scikit-learn turns them into vectors; the
transformer starts from ten seeds, and the run with the best objective counts. Printed: for each cluster its strongest
words, the coordinates of its center that stand out, and the first words of its documents.
"""

from __future__ import annotations

import sys
import textwrap

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

import weftc

SUBJECTS, STARTS = 4, 20
TEXTS = """
The telescope saw a faint galaxy, light of a billion stars around a dark orbit
Astronomers measure the orbit of a planet by the light of its star
A comet passed the planet and the telescope followed its orbit all night
Dust between the stars dims the light of a galaxy in the telescope
The orbit of the new planet lies closer to its star than any astronomers knew
Knead the dough, let it rise and bake the bread in a hot oven
Butter, sugar and flour make a dough that needs an hour to rest
Bake the cake in the oven until the sugar turns brown
Bread with butter and salt is all this soup needs
Stir flour into the butter, then salt, then milk for the soup
The striker scored a late goal and the team won the match
A draw after ninety minutes, and neither team scored a goal
The coach praised the team after the match for its defence
A goal by the striker in the last minute turned the match
The striker quit the team when the coach was dismissed
The court heard the appeal and the judge reversed the sentence
A lawyer asked the judge to hear the witness before the court closed
The witness told the court what the lawyer had denied
An appeal must reach the court within a month of the sentence
The judge called the law clear and the appeal without merit
""".strip().splitlines()


def main() -> int:
    vectorizer = TfidfVectorizer(stop_words="english")
    x = vectorizer.fit_transform(TEXTS).toarray()  # (documents, words), every row of length one
    words = vectorizer.get_feature_names_out()
    model = weftc.load(weftc.compile("spherical_kmeans", {"d": len(words), "k": SUBJECTS}))
    many = np.stack([x] * STARTS)  # a batch of the same problem
    costs = model.objective(x=many, seed=range(STARTS), until_stable=True).numpy()
    best = int(np.argmin(costs))
    found = model.final(x=x, seed=best, until_stable=True)
    labels = found["labels"].indices.numpy()
    print(f"{len(TEXTS)} documents, {len(words)} words, {SUBJECTS} clusters; seed {best} of {len(costs)}")
    for j, center in enumerate(found["centers"].numpy()):
        strongest = words[np.argsort(-center)[:5]]
        print(f"cluster {j}: {', '.join(strongest)}")
        for document in np.flatnonzero(labels == j):
            print(f"    {document:2}  {textwrap.shorten(TEXTS[document], 60, placeholder=' ...')}")
    together = sum(len(set(labels[start : start + 5])) == 1 for start in range(0, len(TEXTS), 5))
    print(f"{together} of {SUBJECTS} subjects are together in one cluster; mean cosine {-costs[best] / len(TEXTS):.3f}")
    return 0 if together == SUBJECTS else 1


if __name__ == "__main__":
    sys.exit(main())
