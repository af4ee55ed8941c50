"""
Be a server that starts at once: hand our standard streams to a process that has imported all of it.

The SDK takes a second to import, and the tests start a hundred servers. So one process imports it
once and forks; this one sends its streams there, and ends as the fork does. It runs without site.
"""

import array
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as nursery:
    nursery.connect(sys.argv[1])
    streams = array.array("i", [0, 1, 2])
    nursery.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    for stream in (0, 1, 2):
        os.close(stream)
    code = nursery.recv(4)
os._exit(int.from_bytes(code, "little") if code else 70)
