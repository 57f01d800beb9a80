"""The colours of a picture: k-means over its pixels, by a transformer; the palette is its centers.

    python examples/colours_of_an_image.py [--photo NAME] [--colours K]

A picture of a sunset is made here; `--photo china.jpg` or `flower.jpg` takes one that scikit-learn ships (it needs
Pillow). Pixels are points in R^3. Printed: for 2, 4, ... K colours how far a pixel is from its colour, root mean square
on the scale 0 to 255, and how many bits a pixel needs, then the last palette with the share of the picture each colour
covers. Written: out/colours.png, the picture above the one that has only K colours.
"""

from __future__ import annotations

import argparse
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

import weftc


def sunset(width: int = 160, height: int = 100) -> np.ndarray:
    """Sky, sun, two ridges and water with the sun's path on it; (height, width, 3) numbers from 0 to 255."""
    row, column = np.mgrid[0:height, 0:width].astype(float)
    down = (row / height)[..., None]
    sky = (1 - down) * [40, 50, 110] + down * [400, 170, 40]
    sun = np.hypot(row - 48, column - 100)[..., None]
    picture = sky + 90 * np.exp(-((sun / 30) ** 2))
    picture = np.where(sun < 9, [255, 240, 200], picture)
    for level, size, phase, colour in ((52, 9, 0.0, [90, 50, 90]), (60, 5, 2.0, [50, 30, 60])):
        ridge = level + size * np.sin(column / 23 + phase) + size / 3 * np.sin(column / 7)
        picture = np.where((row > ridge)[..., None], colour, picture)
    ripple = np.sin(row * 1.7 + 2 * np.sin(column / 11))[..., None]
    path = np.exp(-(((column - 100) / (4 + 0.4 * np.maximum(row - 65, 0))) ** 2))[..., None]
    water = np.array([30, 40, 80]) + 12 * ripple + path * (1 + ripple) * [100, 70, 30]
    picture = np.where((row > 65)[..., None], water, picture)
    grain = np.random.default_rng(0).normal(0, 3, picture.shape)
    return np.clip(np.rint(picture + grain), 0, 255)


def write_png(path: Path, picture: np.ndarray) -> None:
    """Truecolour, 8 bits, no filter: a header, one compressed block of rows, an end."""
    rows = np.clip(np.rint(picture), 0, 255).astype(np.uint8)
    height, width, _ = rows.shape
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(raw, 9),
        b"IEND": b"",
    }
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def main() -> int:
    options = argparse.ArgumentParser(description="k-means over the pixels of a picture")
    options.add_argument("--photo", choices=("china.jpg", "flower.jpg"))
    options.add_argument("--colours", type=int, choices=(2, 4, 8, 16, 32, 64), default=16)
    asked = options.parse_args()
    if asked.photo:
        from sklearn.datasets import load_sample_image

        picture = load_sample_image(asked.photo)[::2, ::2].astype(float)
    else:
        picture = sunset()
    pixels = picture.reshape(-1, 3)
    errors = []
    print("colours  error  bits per pixel")
    for colours in [k for k in (2, 4, 8, 16, 32, 64) if k <= asked.colours]:
        model = weftc.load(weftc.compile("lloyd", {"d": 3, "k": colours}))
        found = model.final(x=pixels, seed=0, until_stable=True)
        palette, labels = found["centers"].numpy(), found["labels"].indices.numpy()
        errors.append(float(np.sqrt(((pixels - palette[labels]) ** 2).sum(axis=1).mean())))
        print(f"{colours:7}  {errors[-1]:5.1f}  {int(np.log2(colours)):14}")
    shares = np.bincount(labels, minlength=len(palette)) / len(labels)
    for j in np.argsort(-shares):
        red, green, blue = np.rint(palette[j]).astype(int)
        print(f"#{red:02x}{green:02x}{blue:02x}  {shares[j]:4.0%}")
    target = Path("out/colours.png")
    write_png(target, np.concatenate([picture, palette[labels].reshape(picture.shape)]).repeat(2, 0).repeat(2, 1))
    print(f"wrote {target}")
    return 0 if errors == sorted(errors, reverse=True) else 1


if __name__ == "__main__":
    sys.exit(main())
