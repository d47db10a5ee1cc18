package review

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/record"
)

// Unguarded are writes to a protected table that audit mode let through without a guard, all of
// the same kind, for one resource, by one role and application.
type Unguarded struct {
	Table       string    `json:"table"`
	Resource    string    `json:"resource,omitempty"` // "" if the rows have none, or it isn't known
	Kind        string    `json:"kind"`
	Role        string    `json:"role"`
	Application string    `json:"application"`
	Records     int64     `json:"records"` // one for each transaction and resource
	First       time.Time `json:"first_at"`
	Last        time.Time `json:"last_at"`
}

// readUnguarded reads the writes of the period that were made without a guard. One whose
// resource isn't known counts whatever the pattern.
func (r *Reader) readUnguarded(ctx context.Context, report *Report) error {
	sql := "select relation::text, coalesce(resource, ''), kind, role, application, count(*), min(at), max(at) from " + r.schema +
		".unguarded_write where at >= $1 and at < $2 and (resource is null or resource like $3) group by 1, 2, 3, 4, 5 order by min(at), 1, 2, 3, 4, 5"
	err := record.ReadNamedTx(ctx, r.pool, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, pgx.QueryExecModeExec, report.From, report.Until, glob.Like(report.Resources))
		if err != nil {
			return err
		}
		var u Unguarded
		_, err = pgx.ForEachRow(rows, []any{&u.Table, &u.Resource, &u.Kind, &u.Role, &u.Application, &u.Records, &u.First, &u.Last}, func() error {
			u.First, u.Last = u.First.UTC(), u.Last.UTC()
			report.Counts.Unguarded += u.Records
			report.Counts.UnguardedKinds++
			report.Unguarded = appendUpTo(report.Unguarded, u)
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("review: reading the unguarded writes: %w", err)
	}
	return nil
}

// unprotectedQuery lists the tables of the database that weren't protected from $1 on, or whose
// unguarded writes aren't recorded since there is no room. It leaves out Fencekit's own, those of
// extensions and partitions.
const unprotectedQuery = `
	select c.oid::regclass::text
	  from pg_class c
	  join pg_namespace n on n.oid = c.relnamespace
	 where c.relkind in ('r', 'p') and c.relpersistence <> 't' and not c.relispartition
	   and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
	   and not exists (select from pg_class own where own.relnamespace = n.oid and own.relname = 'pending_write')
	   and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
	   and not exists (select from %[1]s.protected_table t cross join lateral %[1]s.protected_members(to_regclass(t."table")) m
	                    where m.member = c.oid and t.problem is null and t.at <= $1
	                      and (t.mode = 'enforce' or pg_relation_size('%[1]s.unguarded_write') < 16777216))
	 order by 1`

// readUnprotected reads in which tables writes without a guard may have left no trace.
func (r *Reader) readUnprotected(ctx context.Context, report *Report) error {
	err := record.ReadNamedTx(ctx, r.pool, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, fmt.Sprintf(unprotectedQuery, r.schema), pgx.QueryExecModeExec, report.From)
		if err == nil {
			report.Unprotected, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("review: reading which tables are protected: %w", err)
	}
	return nil
}

// tables names the tables with unguarded writes.
func (report *Report) tables() string {
	var names []string
	known := map[string]bool{}
	for _, u := range report.Unguarded {
		if !known[u.Table] {
			known[u.Table] = true
			names = append(names, u.Table)
		}
	}
	return listing(names, func(name string) string { return name })
}

func (u Unguarded) line() string {
	text := u.Kind + " of " + u.Table + " by " + u.Role
	if u.Application != "" {
		text += " (" + u.Application + ")"
	}
	if u.Records > 1 {
		text += fmt.Sprintf("; %d times, until %s", u.Records, clock(u.Last))
	}
	return text
}
