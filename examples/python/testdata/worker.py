"""An HTTP service that adds 1 to the counter under the grant of each request.

It prints where it listens, and what came of each request. With the argument "unsealed" it commits
without the seal.
"""

import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import psycopg

sys.path.insert(0, os.environ["FENCEKIT_PYTHON"])
import fencekit  # noqa: E402

if sys.argv[1:] == ["unsealed"]:
    fencekit._seal = lambda conn, args: conn.execute("commit").statusmessage == "COMMIT"


class Counter(BaseHTTPRequestHandler):
    conn = psycopg.connect(os.environ["FENCEKIT_DSN"], autocommit=True)

    def increment(self) -> tuple[int, str]:
        if self.conn.closed:
            Counter.conn = psycopg.connect(os.environ["FENCEKIT_DSN"], autocommit=True)
        try:
            grant = fencekit.grant_from(self.headers.get_all(fencekit.HEADER, []), "counter")
            with fencekit.guarded(self.conn, grant, name="python") as tx:
                (value,) = tx.execute("select value from counter").fetchone()
                time.sleep(0.2)  # decides
                tx.execute("update counter set value = %s", (value + 1,))
            return 200, "committed"
        except fencekit.InvalidGrant as e:
            return 400, f"invalid: {e}"
        except fencekit.Rejected as e:
            return 409, f"rejected: {e.reason}"
        except fencekit.NotApplied:
            return 503, "not applied"
        except fencekit.UnknownOutcome:
            return 500, "unknown"
        except psycopg.OperationalError as e:
            return 503, f"failed: {str(e).splitlines()[0]}"

    def do_POST(self) -> None:
        status, outcome = self.increment()
        print(outcome, flush=True)
        try:
            self.send_response(status)
            self.end_headers()
        except OSError:
            pass  # the client has not waited

    def do_GET(self) -> None:  # answered when all earlier requests have been
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


server = HTTPServer(("127.0.0.1", 0), Counter)
print(server.server_port, flush=True)
server.serve_forever()
