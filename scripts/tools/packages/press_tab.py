"""Type the beginning of a command line into a real shell on a terminal, and press TAB.

python3 press_tab.py bash|zsh|fish TEXT

Prints the resulting line, how long it took, and the CPU time of the whole shell, as JSON.
"""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import select
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 60.0
PROMPT = "ready>"
START = {
    "bash": ["bash", "--noprofile", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
SET_UP = {
    "bash": ". /usr/share/bash-completion/bash_completion",
    "zsh": "unsetopt zle_bracketed_paste prompt_sp; autoload -U compinit; compinit -D",
}
SHOW = {
    # A key that prints the current line, since the terminal's output is full of cursor movements.
    "bash": "show() { printf '<%s>' \"$READLINE_LINE\"; }; bind -x '\"\\C-t\": show'",
    "zsh": "show() { printf '<%s>' \"$BUFFER\"; }; zle -N show; bindkey '^T' show",
}


def pressed(shell: str, typed: str) -> tuple[str, float]:
    """Return the line after TAB, and the seconds until it was there."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(PS1=PROMPT, TERM="dumb", HISTFILE="")
        os.execvp(shell, START[shell])
    try:
        _write(terminal, f"{SET_UP[shell]}; {SHOW[shell]}; PS1='rea''dy>'; echo set''-up\n")
        _read_until(terminal, rb"set-up\r?\n")
        _write(terminal, typed)
        began = time.monotonic()
        _write(terminal, "\t\x14")
        line = _read_until(terminal, rb"<(tiresias[^>]*)>")
        return line.decode(), time.monotonic() - began
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def _write(terminal: int, text: str) -> None:
    os.write(terminal, text.encode())


def _read_until(terminal: int, pattern: bytes) -> bytes:
    seen = b""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := re.search(pattern, seen)):
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(f"the shell shows {seen!r}")
        seen += os.read(terminal, 65536)
    return found[1] if found.re.groups else found[0]


def asked_fish(typed: str) -> tuple[str, float]:
    """Ask fish for its completions, which it can list without a terminal."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        offered = subprocess.run(
            ["fish", "-c", 'complete -C "$argv[1]"', typed],
            env={**os.environ, "HOME": home},
            capture_output=True,
            text=True,
            check=True,
        )
    words = [line.split("\t")[0] for line in offered.stdout.splitlines()]
    before = typed.rpartition(" ")[0]
    return f"{before} {' or '.join(words)} ", time.monotonic() - began


def main() -> None:
    """Print the result for the shell and text on the command line."""
    shell, typed = sys.argv[1:]
    line, took_s = asked_fish(typed) if shell == "fish" else pressed(shell, typed)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"line": line, "took_s": took_s, "cpu_s": used.ru_utime + used.ru_stime}))


if __name__ == "__main__":
    main()
