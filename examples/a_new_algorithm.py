"""A new algorithm in five minutes: write it, read what the checker says, compile, prove, run.

    python examples/a_new_algorithm.py

The idea: k-means with clusters of about equal size. Every center has a price, added to the squared distance; a center
with more than its share of the points raises its price, one with fewer lowers it. No spec of this ships with Weft.
Printed: what the checker says of a slip, the verdict on the compiled weights, and how the sizes of the clusters even
out, layer by layer, on 300 points of which 200 belong to one cluster, and what that costs.
"""

from __future__ import annotations

import sys

import numpy as np

import weftc

SPEC = """
algorithm balanced_kmeans "k-means whose crowded clusters raise their price"

tokens  i in points
        j in centers : k

inputs  x[i] : R^d
        c[j] : R^d  init spread(x)
state   price[j] : R = 0
param   rate = 1 >= 0

layer
  y[i,j] = argmin[j](|x[i] - c[j]|^2 + price[j])
  then
  c[j]      = mean[i] x[i] where y[i,j] else c[j]
  price[j] += rate * ((sum[i] y[i,j]) / count(points) - 1/k)

outputs   centers = c, labels = y, price
objective sum[i] min[j] |x[i] - c[j]|^2

example "three of four points sit on the first center: its price rises by 3/4 - 1/2"
  x = [0], [0], [0], [4]    c = [0], [4]    layers 1
  price = 1/4, -1/4
"""


def main() -> int:
    try:
        weftc.check(SPEC.replace("where y[i,j]", "where y[j,i]"))
    except weftc.SpecError as error:
        print(f"with a slip in it:\n{error}\n")
    checkpoint = weftc.compile(SPEC, {"d": 2, "k": 3})
    verdict = weftc.verify(checkpoint, cases=5)
    print(f"without: {verdict.verdict}\n")

    rng = np.random.default_rng(0)
    clusters = (((0, 0), 200), ((3, 0), 60), ((0, 3), 40))
    x = np.concatenate([rng.normal(mean, 1, size=(many, 2)) for mean, many in clusters])
    model = weftc.load(checkpoint)
    print("layers  sizes        mean squared distance  prices")
    for layers in (0, 1, 10, 30, 100):
        found = model.final(x=x, c=x[[0, 200, 260]], layers=layers)
        labels, centers = found["labels"].indices.numpy(), found["centers"].numpy()
        sizes = np.bincount(labels, minlength=3)
        cost = ((x - centers[labels]) ** 2).sum(axis=1).mean()
        prices = "  ".join(f"{price:5.2f}" for price in found["price"])
        print(f"{layers:6}  {sizes[0]:3} {sizes[1]:3} {sizes[2]:3}  {cost:21.3f}  {prices}")
    return 0 if verdict.verdict == "proved" and np.ptp(sizes) <= 3 else 1


if __name__ == "__main__":
    sys.exit(main())
