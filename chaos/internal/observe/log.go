package observe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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

// decode creates a slot with the plugin test_decoding in a database, so that every later
// commit there can be read. It waits for open transactions of the whole server that have
// written. The caller must call close: while the slot exists the server keeps its log.
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

// readCommits returns the transactions that have committed since the slot was created, in the
// order of the log, without those that changed no row. It first marks the end in the log, so
// it returns everything that was acknowledged before the call. It may be called again.
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
func (l *walLog) read(ctx context.Context, conn *pgx.Conn, end string) ([]Commit, error) {
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

// A change as PostgreSQL's test_decoding prints it:
//
//	table public.t: UPDATE: old-key: id[integer]:1 new-tuple: id[integer]:2 name[text]:'it''s'
//
// Identifiers and types are quoted as in SQL where necessary; literals double their quotes,
// and backslashes are ordinary characters.
const identifier = `(?:"(?:[^"]|"")*"|[a-z0-9_]+)`

var (
	changeLine = regexp.MustCompile(`(?s)^table (` + identifier + `\.` + identifier + `(?:, ` + identifier + `\.` + identifier + `)*): (INSERT|UPDATE|DELETE|TRUNCATE):(.*)$`)
	tableName  = regexp.MustCompile(`(` + identifier + `)\.(` + identifier + `)`)
	// A column: its name, its type in brackets, as [character varying(3)[]], and its value.
	column = regexp.MustCompile(`(?s)^ (` + identifier + `)\[(?:[^\[\]"]|"(?:[^"]|"")*"|\[[^\]]*\])*\]:(B?'(?:[^']|'')*'|[^' ][^ ]*)`)
)

// parseChanges parses the line of a change: of one table, or of all tables of a TRUNCATE.
func parseChanges(text string) (changes []Change, err error) {
	parts := changeLine.FindStringSubmatch(text)
	if parts == nil {
		return nil, fmt.Errorf("no change of a table: %q", text)
	}
	change := Change{Action: strings.ToLower(parts[2])}
	if change.Action != "truncate" { // which has options
		if change.Row, err = parseRow(parts[3]); err != nil {
			return nil, fmt.Errorf("%w of %q", err, text)
		}
	}
	for _, table := range tableName.FindAllStringSubmatch(parts[1], -1) {
		change.Table = unquoted(table[1], `"`) + "." + unquoted(table[2], `"`)
		changes = append(changes, change)
	}
	return changes, nil
}

// parseRow parses the columns of a change, without NULLs and without large values that didn't
// change and are not printed; of an update those of the new row. nil if there are none.
func parseRow(text string) (map[string]string, error) {
	if text == " (no-tuple-data)" {
		return nil, nil
	}
	row := map[string]string{}
	for text = strings.TrimPrefix(text, " old-key:"); text != ""; {
		if rest, ok := strings.CutPrefix(text, " new-tuple:"); ok {
			clear(row)
			text = rest
			continue
		}
		parts := column.FindStringSubmatch(text)
		if parts == nil {
			return nil, fmt.Errorf("no column at %q", text)
		}
		text = text[len(parts[0]):]
		if value := parts[2]; value != "null" && value != "unchanged-toast-datum" {
			row[unquoted(parts[1], `"`)] = unquoted(strings.TrimPrefix(value, "B'"), "'")
		}
	}
	return row, nil
}

// unquoted is a name or a literal without its quotes.
func unquoted(text, quote string) string {
	text = strings.TrimSuffix(strings.TrimPrefix(text, quote), quote)
	return strings.ReplaceAll(text, quote+quote, quote)
}
