"""Run as a script: ``ended_at.py TIME COMMAND [ARGUMENT...]`` executes the command, and the kernel
kills it with SIGALRM at that time (in ``CLOCK_BOOTTIME``).

The timer survives the exec and the death of the parent process. If either process is stopped
(SIGSTOP) and continued after that time, the command dies before it does anything.
"""

import os
import signal
import sys
import time


def main() -> None:
    until, *command = sys.argv[1:]
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    left_s = float(until) - time.clock_gettime(time.CLOCK_BOOTTIME)
    if left_s <= 0:
        signal.raise_signal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, left_s)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
