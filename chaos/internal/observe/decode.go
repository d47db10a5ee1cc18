package observe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Log is a logical replication slot: from its creation on, the database's write-ahead log
// can be read, whatever crashes.
type Log struct {
	dsn     string
	slot    string
	earlier []Commit // of servers that were replaced
}

// Decode creates a slot with the plugin test_decoding in a database, so that every later
// commit there can be read. It waits for open transactions of the whole server that have
// written. It fails if the server's wal_level isn't logical, if all its slots are in use
// (max_replication_slots), or if the role may not replicate. The caller must call Close:
// while the slot exists the server keeps its log.
func Decode(ctx context.Context, dsn string) (*Log, error) {
	l := &Log{dsn: dsn, slot: "fencekit_" + strings.ToLower(rand.Text())}
	err := l.connected(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "select pg_create_logical_replication_slot($1, 'test_decoding')", l.slot)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("observe: the write-ahead log can't be decoded: %w%s", err, slotAdvice(err))
	}
	return l, nil
}

// slotAdvice says what to do if no slot could be created.
func slotAdvice(err error) string {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return ""
	}
	switch answer.Code {
	case "55000": // object_not_in_prerequisite_state
		return "; the server needs wal_level = logical"
	case "53400": // configuration_limit_exceeded
		return "; drop unused slots (pg_replication_slots), or raise max_replication_slots"
	case "42501": // insufficient_privilege
		return "; the role needs the attribute REPLICATION"
	}
	return ""
}

// connected runs f with a new connection: servers may have crashed since the last one.
func (l *Log) connected(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, l.dsn)
	if err != nil {
		return err
	}
	return errors.Join(f(conn), conn.Close(ctx))
}

// Commits returns the transactions that have committed since the slot was created, in the
// order of the log, without those that changed no row. It first marks the end in the log, so
// it returns everything that was acknowledged before the call. It may be called again.
func (l *Log) Commits(ctx context.Context) (commits []Commit, err error) {
	err = l.connected(ctx, func(conn *pgx.Conn) error {
		end := rand.Text()
		// When the mark's commit is on disk, so is everything before it.
		_, err := conn.Exec(ctx, "set synchronous_commit = on")
		if err == nil {
			_, err = conn.Exec(ctx, "select pg_logical_emit_message(true, 'fencekit', $1)", end)
		}
		if err != nil {
			return err
		}
		commits, err = l.read(ctx, conn, end)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("observe: reading the write-ahead log: %w", err)
	}
	return slices.Concat(l.earlier, commits), nil
}

// across goes on with a slot on the server by which replace replaces the present one. The old slot
// is gone with the old server.
func (l *Log) across(ctx context.Context, replace func(context.Context) error) error {
	earlier, err := l.Commits(ctx)
	if err != nil {
		return err
	}
	if err := replace(ctx); err != nil {
		return err
	}
	next, err := Decode(ctx, l.dsn)
	if err == nil {
		l.slot, l.earlier = next.slot, earlier
	}
	return err
}

// read decodes the log up to the mark. It only peeks, so it can be repeated.
func (l *Log) read(ctx context.Context, conn *pgx.Conn, end string) ([]Commit, error) {
	rows, err := conn.Query(ctx, "select data from pg_logical_slot_peek_changes($1, null, null, 'include-xids', '1')", l.slot)
	if err != nil {
		return nil, err
	}
	d := &decoder{end: end}
	var line string
	if _, err := pgx.ForEachRow(rows, []any{&line}, func() error { return d.take(line) }); err != nil {
		return nil, err
	}
	if !d.ended {
		return nil, errors.New("the log ends before the mark at its end")
	}
	return d.commits, nil
}

// Close drops the slot.
func (l *Log) Close(ctx context.Context) error {
	err := l.connected(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "select pg_drop_replication_slot($1)", l.slot)
		return err
	})
	if err != nil {
		return fmt.Errorf("observe: replication slot %s can't be dropped, so the server keeps its log: %w", l.slot, err)
	}
	return nil
}

// decoder makes commits from the lines that test_decoding prints, in the order of the
// commits.
type decoder struct {
	end     string // content of the message that marks the end
	ended   bool
	commits []Commit
	open    *Commit
}

func (d *decoder) take(line string) error {
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "BEGIN":
		xid, err := strconv.ParseUint(rest, 10, 32)
		if err != nil || d.open != nil {
			return fmt.Errorf("an unexpected beginning of a transaction: %q", line)
		}
		d.open = &Commit{XID: xid}
	case "COMMIT":
		if d.open == nil || rest != strconv.FormatUint(d.open.XID, 10) {
			return fmt.Errorf("the end of another transaction: %q", line)
		}
		if len(d.open.Changes) > 0 {
			d.commits = append(d.commits, *d.open)
		}
		d.open = nil
	case "message:":
		d.ended = d.ended || strings.HasSuffix(line, "content:"+d.end)
	default:
		if d.open == nil {
			return fmt.Errorf("a change outside a transaction: %q", line)
		}
		changes, err := parseChanges(line)
		if err != nil {
			return err
		}
		d.open.Changes = append(d.open.Changes, changes...)
	}
	return nil
}
