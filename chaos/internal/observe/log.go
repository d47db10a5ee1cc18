package observe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// walLog is a logical replication slot: from its creation on, the database's write-ahead log
// can be read, whatever crashes.
type walLog struct {
	dsn     string
	slot    string
	earlier []Commit // of servers that were replaced
}

// decode creates a slot with the plugin test_decoding. It waits for open transactions of the whole server
// that have written. The caller must call close: while the slot exists the server keeps its log.
func decode(ctx context.Context, dsn string) (*walLog, error) {
	l := &walLog{dsn: dsn, slot: "fencekit_" + strings.ToLower(rand.Text())}
	err := l.connected(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "select pg_create_logical_replication_slot($1, 'test_decoding')", l.slot)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("observe: the write-ahead log can't be decoded: %w", err)
	}
	return l, nil
}

// connected runs f with a new connection: servers may have crashed since the last one.
func (l *walLog) connected(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, l.dsn)
	if err != nil {
		return err
	}
	return errors.Join(f(conn), conn.Close(ctx))
}

// readCommits returns the transactions that have committed since the slot was created, in the order of the
// log, without those that changed no guarded table. It first marks the end in the log, so it returns
// everything that was acknowledged before the call.
func (l *walLog) readCommits(ctx context.Context) (commits []Commit, err error) {
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
func (l *walLog) across(ctx context.Context, replace func(context.Context) error) error {
	earlier, err := l.readCommits(ctx)
	if err != nil {
		return err
	}
	if err := replace(ctx); err != nil {
		return err
	}
	next, err := decode(ctx, l.dsn)
	if err == nil {
		l.slot, l.earlier = next.slot, earlier
	}
	return err
}

// read decodes the log up to the mark. It only peeks, so it can be repeated.
func (l *walLog) read(ctx context.Context, conn *pgx.Conn, end string) (commits []Commit, err error) {
	rows, err := conn.Query(ctx, "select xid::text::bigint, data from pg_logical_slot_peek_changes($1, null, null)", l.slot)
	if err != nil {
		return nil, err
	}
	var xid uint64
	var line string
	ended := false
	_, err = pgx.ForEachRow(rows, []any{&xid, &line}, func() error {
		switch word, _, _ := strings.Cut(line, " "); word {
		case "BEGIN", "COMMIT":
			return nil
		case "message:":
			ended = ended || strings.HasSuffix(line, "content:"+end)
			return nil
		}
		changes, err := parse(line)
		if n := len(commits); len(changes) > 0 && (n == 0 || commits[n-1].XID != xid) {
			commits = append(commits, Commit{XID: xid})
		}
		if n := len(commits); len(changes) > 0 {
			commits[n-1].Changes = append(commits[n-1].Changes, changes...)
		}
		return err
	})
	if err == nil && !ended {
		err = errors.New("the log ends before the mark at its end")
	}
	return commits, err
}

// close drops the slot.
func (l *walLog) close(ctx context.Context) error {
	err := l.connected(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "select pg_drop_replication_slot($1)", l.slot)
		return err
	})
	if err != nil {
		return fmt.Errorf("observe: replication slot %s can't be dropped, so the server keeps its log: %w", l.slot, err)
	}
	return nil
}

// parse parses a change as PostgreSQL's test_decoding prints it, of one table, or of all tables
// of a TRUNCATE:
//
//	table chaos.orders: INSERT: id[bigint]:1 op[text]:'it''s'
//
// Literals double their quotes, and backslashes are ordinary characters. Other tables than the
// guarded ones are left out.
func parse(line string) (changes []Change, err error) {
	rest, ok := strings.CutPrefix(line, "table ")
	tables, rest, cut := strings.Cut(rest, ": ")
	action, columns, colon := strings.Cut(rest, ":")
	if !ok || !cut || !colon {
		return nil, fmt.Errorf("no change of a table: %q", line)
	}
	for table := range strings.SplitSeq(tables, ", ") {
		if table != TableHistory && table != TableStock && table != TableOrders {
			continue
		}
		change := Change{Table: table, Action: action}
		if action != "TRUNCATE" { // which has options
			if change.Row, err = parseRow(columns); err != nil {
				return nil, fmt.Errorf("%w of %q", err, line)
			}
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// column is a column of a change: its name, its type in brackets, and its value.
var column = regexp.MustCompile(`(?s)^ ([a-z_]+)\[[^\]]*\]:('(?:[^']|'')*'|[^' ][^ ]*)`)

func parseRow(text string) (map[string]string, error) {
	row := map[string]string{}
	for text != "" {
		parts := column.FindStringSubmatch(text)
		if parts == nil {
			return nil, fmt.Errorf("no column at %q", text)
		}
		text = text[len(parts[0]):]
		value, literal := strings.CutPrefix(parts[2], "'")
		if literal {
			value = strings.ReplaceAll(strings.TrimSuffix(value, "'"), "''", "'")
		}
		if literal || value != "null" {
			row[parts[1]] = value
		}
	}
	return row, nil
}
