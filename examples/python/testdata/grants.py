"""Reads lines of header values, and prints the grant of resource r that each has, or what is wrong."""

import os
import sys

sys.path.insert(0, os.environ["FENCEKIT_PYTHON"])
import fencekit  # noqa: E402

for line in sys.stdin.buffer.read().decode().split("\n")[:-1]:
    values, resource = line.split("\t")[1:], line.split("\t")[0]
    try:
        grant = fencekit.grant_from(values, resource)
        print("ok", grant)
    except fencekit.InvalidGrant:
        print("invalid")
