"""Stand-in for a Python: has the server of tests/warm.py run what it is asked to run.

    python -IS warm_client.py SOCKET PYTHON [ARGS]

It imports next to nothing. What a fork cannot be, such as `python -I`, runs in PYTHON.
"""

import json
import os
import signal
import socket
import sys

ORDER_BYTES_MAX = 1 << 17
FDS_MAX = 64
PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def ask(address, order, fds):
    """Hands in an order with its open files; gives the link to the process, and its id."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(address)
    socket.send_fds(link, [json.dumps(order).encode()], fds)
    return link, int(link.recv(16))


def flags_of(args):
    """The options at the begin of a Python's arguments that a fork has, or can do without."""
    flags = []
    for arg in args:
        if not arg.startswith(("-u", "-B", "-X")):
            break
        flags.append(arg)
    return flags


def can_fork(args):
    """Whether the server knows how to run these arguments of a Python."""
    kind = args[len(flags_of(args)) :][:1]
    return bool(kind) and (kind[0] in ("-m", "-c") or not kind[0].startswith("-"))


def main(address, python, *args):
    if not can_fork(args):
        os.execv(python, [python, *args])
    open_fds = [int(name) for name in os.listdir("/dev/fd")]
    fds = [fd for fd in open_fds if fd <= 2 or _is_inherited(fd)]
    order = {
        "args": args, "cwd": os.getcwd(), "env": dict(os.environ), "fds": fds, "new_session": False,
    }  # fmt: skip
    link, _ = ask(address, order, fds)
    for number in PASSED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: link.send(str(int(number)).encode()))
    for fd in fds:
        os.close(fd)
    code = int(link.recv(16) or -signal.SIGKILL)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_inherited(fd):
    try:
        return os.get_inheritable(fd)
    except OSError:  # that of the folder which was listed
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
