"""`python -m schedo`: the same as the command `schedo`."""

from __future__ import annotations

from schedo.cli.main import main

if __name__ == "__main__":
    main()
