# SPDX-License-Identifier: BSD-2-Clause
"""`sparring-vm exec` and `sparring-vm control`."""
import json
import os
import socket

from .say import Failure

VARIABLE = "SPARRING_VM_SOCKET"
GONE = 255  # exit code when there is no guest, as of ssh


def call(request, fds=()):
    """The answer to one request."""
    path = os.environ.get(VARIABLE)
    if not path:
        raise Failure("no guests here: %s is not set, as inside --outside" % VARIABLE, 2)
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.connect(path)
        text = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(stream, [text], fds)
        if sent < len(text):  # else the answer may be there, and the other end closed
            stream.sendall(text[sent:])
        answer = stream.makefile("rb").readline()
    except OSError:
        answer = b""
    if not answer:
        raise Failure("the guests are gone", GONE)
    return json.loads(answer)


def run_in_guest(words):
    if len(words) < 2 or words[0].startswith("-"):
        raise Failure("exec wants a guest and a command (see --help)", 2)
    request = {"do": "exec", "guest": words[0], "words": words[1:], "folder": os.getcwd()}
    answer = call(request, [0, 1, 2])
    if "error" in answer:
        raise Failure("exec: " + answer["error"], GONE)
    return answer["code"]


def control(words):
    answer = call({"do": "control", "action": " ".join(words)})
    if "error" in answer:
        raise Failure("control: " + answer["error"])
    return answer["code"]
