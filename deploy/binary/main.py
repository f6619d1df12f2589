"""What the binary runs: the command `schedo`, or a module of schedo in the place of an interpreter.

The binary holds Python as a library, so it is not an interpreter. Its child processes are this
program with `-m MODULE` (schedo/child_process.py, `module_command`).
"""

import os
import runpy
import sys


def restore_environment() -> None:
    """Give the commands that this runs the environment in which it was started.

    PyInstaller's loader adds the binary's libraries to the search path, and variables for itself.
    """
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    os.environ.pop("LD_LIBRARY_PATH", None)
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before
    for name in [name for name in os.environ if name.startswith("_PYI_")]:
        del os.environ[name]


def main() -> None:
    """Run the module that the arguments name, as `python -m` does, or the command line."""
    restore_environment()
    # An application's own packages: the binary ignores every other variable of Python.
    sys.path += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if any("multiprocessing" in each for each in sys.argv[1:]):
        import multiprocessing

        multiprocessing.freeze_support()  # if this is a child of an application's own pool, be that
    if sys.argv[1:2] == ["-m"] and len(sys.argv) > 2:
        del sys.argv[:2]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        from schedo.cli.main import main as run

        run()


if __name__ == "__main__":
    main()
