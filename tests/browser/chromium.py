"""Which browser the tests and the screenshots drive."""

from __future__ import annotations

import os
import shutil

CHROMIUM = os.environ.get("SCHEDO_CHROMIUM") or shutil.which("chromium")
# As root, in containers, Chromium has no sandbox; it opens only servers of its own.
OPTIONS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--font-render-hinting=none"]
