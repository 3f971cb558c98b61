"""Error reporting of the command: one line on stderr and a documented exit code.

0: success. 1: internal error. 2: bad input or usage. 130: interrupted by Ctrl-C. 143: terminated.
``--debug`` adds the traceback.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click

from likelier.cli.options import in_options

BAD_INPUT = 2
INTERNAL_ERROR = 1
INTERRUPTED = 130
TERMINATED = 143


class Interrupted(Exception):  # noqa: N818 -- nothing went wrong
    """Ctrl-C, in place of KeyboardInterrupt, for which click prints a message of its own."""


class GivenOnce(click.Command):
    """A click command that rejects repeated options, of which only the last would take effect."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        order = self.make_parser(ctx).parse_args(list(args))[2]
        for option in order:
            if isinstance(option, click.Option) and order.count(option) > 1 and _one_wins(option):
                names = "/".join([*option.opts, *option.secondary_opts])
                raise click.UsageError(f"{names} is given twice; give it once.", ctx)
        return super().parse_args(ctx, args)


class OneLineErrors(click.Group):
    """A click group that reports every failure in one line, and keeps the order of commands."""

    command_class = GivenOnce

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of their definition."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command; show a traceback only with ``--debug``."""
        args = list(sys.argv[1:] if args is None else args)
        prog_name = prog_name or "likelier"
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        debug = "--debug" in args
        try:
            with _signals_unwind_the_stack(), _warnings_in_one_line():
                super().main(args, prog_name, complete_var, False, **extra)
        except BaseException as error:
            _end(error, debug)
        sys.exit(0)


@contextmanager
def starting() -> Iterator[None]:
    """Collect no garbage while modules are imported: there is none, and looking takes long."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _one_wins(option: click.Option) -> bool:
    """Whether only one of several values takes effect; a flag without an opposite has only one."""
    return not option.multiple and (not option.is_flag or bool(option.secondary_opts))


def _end(error: BaseException, debug: bool) -> NoReturn:
    """Report the error and exit with its code."""
    message, code = _explain(error)
    if debug and not isinstance(error, SystemExit):
        traceback.print_exception(error)
    if isinstance(error, BrokenPipeError):
        # The reader closed the pipe; Python would flush stdout once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    elif message:
        if code == INTERRUPTED and sys.stderr.isatty():
            click.echo(err=True)  # the terminal has written ^C on this line
        click.echo(f"likelier: {message}", err=True)
    sys.exit(code)


def _explain(error: BaseException) -> tuple[str, int]:
    if isinstance(error, SystemExit):
        return "", error.code if isinstance(error.code, int) else INTERNAL_ERROR
    if isinstance(error, click.exceptions.Exit):
        return "", error.exit_code
    if isinstance(error, Interrupted | click.Abort | KeyboardInterrupt):
        return "interrupted; no files were changed.", INTERRUPTED
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "likelier"
        return f"{_one_line(error.format_message())} (see: {command} --help)", BAD_INPUT
    if isinstance(error, click.ClickException):
        return _one_line(error.format_message()), error.exit_code
    if isinstance(error, BrokenPipeError):
        return "", 0
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {os.fspath(error.filename)!s}", BAD_INPUT
    if isinstance(error, ValueError | TypeError | OSError):
        return in_options(_one_line(str(error))), BAD_INPUT
    if isinstance(error, MemoryError):
        return "out of memory; close other programs or use a smaller model.", INTERNAL_ERROR
    name = type(error).__name__
    return (
        f"internal error ({name}: {_one_line(str(error))}); --debug shows the traceback.",
        INTERNAL_ERROR,
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


@contextmanager
def _signals_unwind_the_stack() -> Iterator[None]:
    """Let SIGINT and SIGTERM unwind the stack, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    if _inside_the_compiler(frame):
        # An exception raised inside an LLVM callback is lost or crashes the process, so the
        # signal is raised again until the compiler is done (seconds at most).
        again = threading.Timer(0.05, signal.raise_signal, [number])
        again.daemon = True
        again.start()
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        raise SystemExit(TERMINATED)


def _inside_the_compiler(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("llvmlite"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Show warnings as one line on stderr, each message once."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = _one_line(str(message))
        if text not in seen:
            seen.add(text)
            click.echo(f"likelier: warning: {text}", err=True)

    with warnings.catch_warnings():
        if not sys.warnoptions:  # python -W and PYTHONWARNINGS take precedence
            warnings.simplefilter("default")
            warnings.simplefilter("ignore", DeprecationWarning)
        warnings.showwarning = show
        yield
