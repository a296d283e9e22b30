"""Sessions for checking the package on several Pythons: `nox`, `nox -s lint`."""

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "tests"]


@nox.session(python=["3.11", "3.12"])
def tests(session: nox.Session) -> None:
    """Run the tests."""
    _install(session, "test")
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types."""
    _install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


PROJECT = nox.project.load_toml("pyproject.toml")


def _install(session: nox.Session, group: str) -> None:
    needed = nox.project.dependency_groups(PROJECT, group)
    session.install("-c", "constraints.txt", "-e", ".[train,root,plot,search,tune,onnx,dask]", *needed)
