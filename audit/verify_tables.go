package audit

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/record"
)

// unprotectedQuery returns the tables and what they lack: the triggers that protect them from
// changes in every session (ENABLE ALWAYS), their unique keys, and being a table at all. With it
// comes what is there instead.
const unprotectedQuery = `
	select t.name, 'trigger ' || t.what, coalesce(
	       (select case g.tgenabled when 'O' then 'on, unless session_replication_role is replica' when 'R' then 'on only if session_replication_role is replica' else 'turned off' end
	          from pg_trigger g join pg_class c on c.oid = g.tgrelid
	         where c.relnamespace = '$schema'::regnamespace and c.relname = t.name and g.tgname = t.what), 'none')
	  from (values ('history', 'protect_history'), ('history', 'protect_kept_history'), ('resource', 'protect_fence'), ('resource', 'protect_name'),
	               ('setting', 'protect_fence'), ('setting', 'protect_epoch'), ('checkpoint', 'protect_checkpoint'), ('checkpoint', 'protect_checkpoint_rows')) t (name, what)
	 where not exists (select from pg_trigger g join pg_class c on c.oid = g.tgrelid
	                    where c.relnamespace = '$schema'::regnamespace and c.relname = t.name and g.tgname = t.what and g.tgenabled = 'A')
	union all
	select t.name, 'unique key ' || t.what, 'none'
	  from (values ('history', 'history_pkey'), ('resource', 'resource_pkey'), ('resource', 'resource_name_key'), ('checkpoint', 'checkpoint_pkey'), ('operation', 'operation_pkey')) t (name, what)
	 where not exists (select from pg_index i join pg_class c on c.oid = i.indrelid join pg_class x on x.oid = i.indexrelid
	                    where c.relnamespace = '$schema'::regnamespace and c.relname = t.name and x.relname = t.what and i.indisunique and i.indisvalid)
	union all
	select c.relname, 'rows (it is no plain table)', 'no plain table'
	  from pg_class c
	 where c.relnamespace = '$schema'::regnamespace and c.relkind <> 'r' and c.relname in ('history', 'resource', 'checkpoint', 'setting', 'rejection', 'operation', 'hold')`

// verifyTables reports tables that anyone with rights on them could change unnoticed.
func (v *verification) verifyTables(ctx context.Context, s *snapshot, conn *pgx.Conn) error {
	return s.copyOut(ctx, conn, strings.ReplaceAll(unprotectedQuery, "$schema", s.d.schema), func(c *record.Columns) error {
		table, lacks, found := c.Text(), c.Text(), c.Text()
		if c.Err() == nil {
			v.findings.add(Finding{Kind: FindingUnprotectedTable, Text: unprotectedText(table, lacks, found), Expected: lacks, Found: found})
		}
		return c.Err()
	})
}

func unprotectedText(table, lacks, found string) string {
	if name, ok := strings.CutPrefix(lacks, "trigger "); ok && found != "none" {
		return "The trigger " + name + " of the table " + table + ", which keeps its rows from being changed, is " + found + "."
	}
	return "The table " + table + " has lost its " + lacks + ", which keeps its rows from being changed or doubled."
}
