"""`make screens`: reports as a browser shows them, as PNG in out/, to be looked at.

The first screen of the report of `make run`, 1200 × 800, and whole pages, 1000 wide: that report,
and whatever other pages are named. Needs the command `chromium` (`make browser`).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

OUT = Path("out")
FIRST, WHOLE = (1200, 800), (1000, 12_000)
FLAGS = ("--headless", "--hide-scrollbars", "--disable-gpu", "--no-first-run")


def shot(browser: str, page: Path, size: tuple[int, int]) -> Image.Image:
    """What a window of that size shows of a page."""
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "page.png"
        command = [
            # The page is our own file, and Chromium has no sandbox for root.
            browser, *FLAGS, "--no-sandbox", f"--user-data-dir={folder}/profile",
            f"--window-size={size[0]},{size[1]}", f"--screenshot={picture}", page.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        with Image.open(picture) as image:
            return image.convert("RGB")


def trimmed(image: Image.Image) -> Image.Image:
    """Without the empty room below a page."""
    inked = np.flatnonzero((np.asarray(image) != 255).any(axis=(1, 2)))
    return image.crop((0, 0, image.width, int(inked.max(initial=0)) + 20))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, default=[OUT / "digits" / "report.html"])
    wanted = parser.parse_args()
    browser = shutil.which("chromium")
    if browser is None:
        print("no command chromium: `make browser` installs it")
        return 1
    for page in wanted.pages:
        name = f"{page.parent.name}-{page.stem}"
        first = shot(browser, page.resolve(), FIRST)
        whole = trimmed(shot(browser, page.resolve(), WHOLE))
        for image, what in ((first, "first"), (whole, "whole")):
            path = OUT / f"{name}-{what}.png"
            image.save(path)
            print(f"{path}: {image.width} × {image.height}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
