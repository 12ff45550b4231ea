"""The command line in this process, and the code it is given."""

from typer.testing import CliRunner, Result

from pipeline.cli import app

SEGMENT = 64
CODE = "def add(first, second):\n    return first + second  # ä\n\n\ndef nothing():\n    pass\n"


def permcode(*arguments: object, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def assert_bad_input(result: Result, message: str) -> None:
    assert (result.exit_code, result.stdout_bytes) == (2, b""), result.output
    assert result.stderr.startswith("permcode: error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
