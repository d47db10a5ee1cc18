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

// wal is a logical replication slot: from its creation on, the write-ahead log can be read, whatever crashes.
type wal struct {
	dsn     string
	slot    string
	earlier []Commit // of servers that were replaced
}

// start waits for open transactions of the whole server that have written. While the slot exists the server keeps
// its log.
func (l *wal) start(ctx context.Context) error {
	l.slot = "fencekit_" + strings.ToLower(rand.Text())
	if err := l.exec(ctx, "select pg_create_logical_replication_slot($1, 'test_decoding')", l.slot); err != nil {
		return fmt.Errorf("observe: the write-ahead log can't be decoded: %w", err)
	}
	return nil
}

func (l *wal) drop(ctx context.Context) error {
	if err := l.exec(ctx, "select pg_drop_replication_slot($1)", l.slot); err != nil {
		return fmt.Errorf("replication slot %s can't be dropped, so the server keeps its log: %w", l.slot, err)
	}
	return nil
}

// exec uses a new connection: servers may have crashed since the last one.
func (l *wal) exec(ctx context.Context, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, l.dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql, args...)
	return errors.Join(err, conn.Close(ctx))
}

// Across calls replace, which replaces the server by another one that has all that was committed. Nothing may
// commit meanwhile: that would not be observed.
func (l *wal) Across(ctx context.Context, replace func(context.Context) error) (err error) {
	if l.earlier, err = l.commits(ctx); err != nil {
		return err
	}
	if err := replace(ctx); err != nil {
		return err
	}
	return l.start(ctx)
}

// commits returns all that was acknowledged before the call. It only peeks, so it can be repeated.
func (l *wal) commits(ctx context.Context) (commits []Commit, err error) {
	conn, err := pgx.Connect(ctx, l.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	mark := rand.Text()
	// When the mark's commit is on disk, so is everything before it.
	if _, err = conn.Exec(ctx, "set synchronous_commit = on"); err == nil {
		_, err = conn.Exec(ctx, "select pg_logical_emit_message(true, 'fencekit', $1)", mark)
	}
	if err == nil {
		commits, err = l.read(ctx, conn, mark)
	}
	return slices.Concat(l.earlier, commits), err
}

func (l *wal) read(ctx context.Context, conn *pgx.Conn, mark string) (commits []Commit, err error) {
	rows, _ := conn.Query(ctx, "select xid::text::bigint, data from pg_logical_slot_peek_changes($1, null, null)", l.slot)
	var xid uint64
	var line string
	ended, others := false, 0
	_, err = pgx.ForEachRow(rows, []any{&xid, &line}, func() error {
		switch word, _, _ := strings.Cut(line, " "); word {
		case "BEGIN", "COMMIT": // what is in between is one transaction's
			if n := len(commits); n > 0 && commits[n-1].XID == xid {
				commits[n-1].Others = others
			}
			others = 0
			return nil
		case "message:":
			ended = ended || strings.HasSuffix(line, "content:"+mark)
			return nil
		}
		changes, err := parse(line)
		if len(changes) == 0 {
			if !strings.HasPrefix(line, "table fence.") {
				others++
			}
			return err
		}
		if n := len(commits); n == 0 || commits[n-1].XID != xid {
			commits = append(commits, Commit{XID: xid})
		}
		last := &commits[len(commits)-1]
		last.Changes = append(last.Changes, changes...)
		return err
	})
	if err == nil && !ended {
		err = errors.New("the write-ahead log ends before the mark at its end")
	}
	return commits, err
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
