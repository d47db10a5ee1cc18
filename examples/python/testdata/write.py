"""Adds 1 to the counter under a grant, in a way that its argument names, and says what came of it.

Before it reads or writes, and before it asks again for an outcome, it prints a line and waits for one.
"""

import copy
import os
import sys

import psycopg
import psycopg.rows

sys.path.insert(0, os.environ["FENCEKIT_PYTHON"])
import fencekit  # noqa: E402


def wait(at: str) -> None:
    print(at, flush=True)
    sys.stdin.readline()


def increment(tx: psycopg.Connection) -> None:
    (value,) = tx.cursor(row_factory=psycopg.rows.tuple_row).execute("select value from counter").fetchone()
    tx.execute("set local idle_in_transaction_session_timeout = 0")  # the test decides how long it waits
    wait("inside")
    tx.execute("update counter set value = %s", (value + 1,))


def write(tx: psycopg.Connection, how: str) -> None:
    increment(tx)
    if how == "commit":
        tx.commit()
    elif how == "raw commit":
        tx.execute("commit")
    elif how == "raw commit and begin":
        tx.execute("commit; begin; savepoint _pg3_1")
    elif how == "raw commit and fails":
        tx.execute("commit")
        raise KeyError("the block's own")
    elif how == "raw commit, begins and fails":
        tx.execute("commit; begin")
        raise KeyError("the block's own")
    elif how == "fails":
        raise KeyError("the block's own")
    elif how == "fails in SQL":
        tx.execute("insert into missing values (1)")
    elif how == "catches an error":
        try:
            tx.execute("insert into missing values (1)")
        except psycopg.Error:
            pass
    elif how == "rolls back":
        raise psycopg.Rollback()


def main(how: str) -> str:
    grant = fencekit.grant_from([os.environ["FENCEKIT_GRANT"]], "counter")
    conn = psycopg.connect(os.environ["FENCEKIT_DSN"], autocommit=how != "no autocommit")
    assert conn.execute("select fence.contract_version()").fetchone() == (fencekit.CONTRACT,)
    if how == "rows are dicts":
        conn.row_factory = psycopg.rows.dict_row
    try:
        with fencekit.guarded(conn, grant, name="python") as tx:
            write(tx, how)
        return "committed"
    except fencekit.Rejected as e:
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        return f"Rejected: {e.reason}"
    except fencekit.UnknownOutcome as e:
        wait("unknown")
        wait(f"{e}, {e!r}, {e.args}")
        return f"UnknownOutcome: applied={copy.copy(e).resolve()} hashed={len({e})}"
    except psycopg.OperationalError:
        return "OperationalError"
    except Exception as e:
        return type(e).__name__


print(main(sys.argv[1]))
