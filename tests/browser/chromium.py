"""Which browser the tests and the screenshots drive."""

from __future__ import annotations

import os
import shutil

# Debian packages Chromium without its own windows, too, which takes less of the processor.
CHROMIUM = (
    os.environ.get("SCHEDO_CHROMIUM")
    or shutil.which("chromium-headless-shell")
    or shutil.which("chromium")
)
# As root, in containers, Chromium has no sandbox; it opens only servers of its own.
OPTIONS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--font-render-hinting=none"]
