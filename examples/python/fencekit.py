"""Guarded writes to PostgreSQL under a grant that came with an HTTP request.

    grant = grant_from(request.headers.get_all(HEADER, []), "sku/42")
    with guarded(conn, grant, name="sell") as tx:
        (qty,) = tx.execute("select qty from stock where sku = '42'").fetchone()
        tx.execute("update stock set qty = %s where sku = '42'", (qty - 2,))

If the block and guarded() end without an exception, the transaction has committed, and no later
grant had claimed the resource by then. The contract of the SQL functions is docs/sql.md.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from urllib.parse import quote, unquote

import psycopg
from psycopg import errors, sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.json import Json

HEADER = "Fencekit-Grant"
CONTRACT = 1  # what fence.contract_version() has to return
REASONS = {"ZF001": "stale", "ZF002": "overtaken", "ZF004": "went back", "ZF005": "epoch behind",
           "ZF006": "collision", "ZF010": "token jump", "ZF011": "failed over"}


class InvalidGrant(ValueError):
    """The request brought no grant of the resource, or a malformed one: answer with 400."""


class Rejected(Exception):
    """The fence rejected the grant, and nothing took effect: answer with 409.

    If reason is "overtaken", a transaction of the same grant came first: run the block again.
    """

    def __init__(self, reason: str, message: str | None) -> None:
        super().__init__(message)
        self.reason = reason


class TxEnded(Exception):
    """SQL in the block has ended the transaction. What it committed stays, without a fence."""


class NotApplied(Exception):
    """The answer to COMMIT was lost. It took no effect, and never will: run the block again."""


class UnknownOutcome(Exception):
    """The answer to COMMIT was lost, and the database can't be asked; resolve() asks again."""

    def __init__(self, dsn: str, password: str, sealed: tuple[object, ...]) -> None:
        super().__init__("the answer to COMMIT was lost")  # the password is no part of what is printed
        self._dsn, self._password, self._sealed = dsn, password, sealed

    def __reduce__(self) -> tuple[object, ...]:  # for copy
        return type(self), (self._dsn, self._password, self._sealed)

    def resolve(self) -> bool:
        """Reports whether COMMIT took effect. If it has not arrived by now, it never will."""
        try:
            with psycopg.connect(self._dsn, password=self._password, autocommit=True) as conn:
                (answer,) = conn.execute("select fence.resolve_one(%s, %s, %s, %s, %s, %s, %s)", self._sealed).fetchone()
        except psycopg.Error as e:
            raise self from e
        if answer == "unknown":
            raise self
        return answer == "applied"


@dataclass(frozen=True)
class Grant:
    """A lock service has given the resource to the holder."""

    resource: str
    epoch: int
    token: int
    holder: str

    def __str__(self) -> str:
        holder, resource = (quote(name, safe="$&+=@") for name in (self.holder, self.resource))
        return f"fence1:{self.epoch}:{self.token}:{holder}:{resource}"

    @classmethod
    def parse(cls, text: str) -> Grant:
        """Parses the text form of a grant, of which there is exactly one."""
        try:
            _, epoch, token, holder, resource = text.split(":")
            grant = cls(unquote(resource, errors="strict"), int(epoch), int(token), unquote(holder, errors="strict"))
        except ValueError:
            raise InvalidGrant("want fence1:EPOCH:TOKEN:HOLDER:RESOURCE") from None
        bounded = 0 < grant.epoch < 2**31 and 0 < grant.token < 2**62 and all(
            0 < len(name.encode()) <= limit and not any(unicodedata.category(c) == "Cc" for c in name)
            for name, limit in ((grant.resource, 512), (grant.holder, 256)))
        if not bounded or str(grant) != text:
            raise InvalidGrant("a part of the grant is out of bounds, or not in canonical form")
        return grant


def grant_from(values: Iterable[str], resource: str) -> Grant:
    """Returns the grant of a resource from all values that the request has of HEADER."""
    grants = [Grant.parse(text.strip()) for value in values for text in value.split(",")]
    if len({grant.resource for grant in grants}) < len(grants):
        raise InvalidGrant("two grants are of one resource")
    for grant in grants:
        if grant.resource == resource:
            return grant
    raise InvalidGrant(f"no grant of {resource}")


@contextmanager
def guarded(conn: psycopg.Connection, grant: Grant, name: str = "") -> Iterator[psycopg.Connection]:
    """Runs the block in a transaction that commits only if the grant still has its resource.

    conn is in autocommit mode and in no transaction. In the block it is in one, whose commit()
    and rollback() psycopg refuses. The history records the name.
    """
    if not conn.autocommit or conn.info.transaction_status != TransactionStatus.IDLE:
        raise psycopg.ProgrammingError("guarded() needs a connection in autocommit mode and in no transaction")
    dsn, password, stage = conn.info.dsn, conn.info.password, "claim"
    try:
        position = _claim(conn, grant)
        stage = "begin"
        conn.execute("begin isolation level read committed read write")
        xid, own_tx = _row(conn, "select xid, own_tx from fence.begin_one(%s, %s, %s)", position[:3])
        stage = "run"
        try:
            with conn.transaction():  # a savepoint, for what psycopg refuses inside of one
                yield conn
                stage = "seal"
        except Exception as e:
            # A block that has caught an error of its SQL gets here too, with its transaction aborted, not ended.
            caught = stage == "seal" and isinstance(e, errors.InFailedSqlTransaction)
            if conn.info.transaction_status in (TransactionStatus.IDLE, TransactionStatus.INERROR) and not caught:
                raise TxEnded("SQL in the block has ended the transaction") from e  # so the savepoint is gone
            raise
        if stage == "seal" and not _seal(conn, (*position, xid, own_tx, Json([{"name": name}]) if name else None)):
            if not UnknownOutcome(dsn, password, (*position, own_tx)).resolve():
                raise NotApplied("COMMIT took no effect, and never will")
    except psycopg.Error as e:
        state, detail = e.diag.sqlstate, e.diag.message_detail
        if stage == "seal" and state == "ZF003":
            raise TxEnded("SQL in the block has ended the transaction") from e
        if stage == "run" or state not in REASONS:
            raise
        conn.rollback()
        conn.execute("select fence.record_one(%s, %s, %s, %s, %s, %s, %s)", (*astuple(grant), stage, state, detail))
        raise Rejected(REASONS[state], e.diag.message_primary) from e
    finally:
        if conn.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            conn.rollback()


def _row(conn: psycopg.Connection, query: str, args: tuple[object, ...]) -> tuple[int, ...]:
    """Returns the one row of a query, whatever the connection's row_factory makes of rows."""
    return conn.cursor(row_factory=tuple_row).execute(query, args).fetchone()


def _claim(conn: psycopg.Connection, grant: Grant) -> tuple[object, ...]:
    """Claims the resource, and ends what still runs under earlier grants."""
    evict = "select fence.evict_one(%s, %s, %s, thorough => %s)"
    tries = 3
    while True:
        try:
            fence, seq, tx = _row(conn, "select fence, seq, tx from fence.claim_one(%s, %s, %s, %s)", astuple(grant))
            conn.execute(evict, (grant.resource, grant.epoch, grant.token, False))
            return fence, grant.epoch, grant.token, grant.holder, seq, tx
        except errors.LockNotAvailable:  # held by a predecessor that has stopped, perhaps
            tries -= 1
            if tries == 0:
                raise
            conn.execute(evict, (grant.resource, grant.epoch, grant.token, True))


def _seal(conn: psycopg.Connection, args: tuple[object, ...]) -> bool:
    """Seals and commits. Returns False if the answer was lost, or is not clear."""
    severities: list[str | None] = []

    def note(notice: errors.Diagnostic) -> None:
        severities.append(notice.severity_nonlocalized)  # which psycopg can read only now

    conn.add_notice_handler(note)
    try:  # in one message: the server runs nothing of it before all of it has arrived
        answer = conn.execute(sql.SQL("select fence.seal_one({}); commit").format(sql.SQL(", ").join(map(sql.Literal, args))))
        while answer.nextset():
            pass
    except psycopg.Error as e:
        if not conn.closed and e.diag.source_function:  # it is the server that has answered, and no pooler
            raise
        return False
    finally:
        conn.remove_notice_handler(note)
    return answer.statusmessage == "COMMIT" and "WARNING" not in severities
