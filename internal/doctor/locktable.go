package doctor

import (
	"context"
	"fmt"
)

// lockTable is how full the server's shared table of locks is.
type lockTable struct {
	used, capacity, perTransaction int64
	pid, of                        int64  // the session with the most entries, and how many
	application                    string // its application_name
}

// checkLockTable counts what is in the table: not locks on the fast path, nor predicate locks. Its
// statement reads no table and no view, since there may be no room left for a lock on one.
func checkLockTable(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	var t lockTable
	err := d.row(ctx, `
		with entry as (
			select distinct locktype, database, relation, page, tuple, virtualxid, transactionid, classid, objid, objsubid, pid
			  from pg_catalog.pg_lock_status() where not fastpath and mode <> 'SIReadLock'),
		most as (select pid, count(*) n from entry where pid is not null group by pid order by n desc, pid limit 1)
		select (select count(*) from (select distinct locktype, database, relation, page, tuple, virtualxid, transactionid, classid, objid, objsubid from entry) e),
		       current_setting('max_locks_per_transaction')::bigint
		         * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint
		            + current_setting('autovacuum_max_workers')::bigint + 1 + current_setting('max_worker_processes')::bigint
		            + current_setting('max_wal_senders')::bigint),
		       current_setting('max_locks_per_transaction')::bigint,
		       coalesce((select pid from most), 0), coalesce((select n from most), 0),
		       coalesce((select a.application_name from most, lateral pg_catalog.pg_stat_get_activity(most.pid) a), '')`,
		nil, &t.used, &t.capacity, &t.perTransaction, &t.pid, &t.of, &t.application)
	if err != nil {
		return nil, err
	}
	return d.judgeLocks(t), nil
}

// judgeLocks reports a table that is at least half full. Its capacity is a lower bound: the server
// lets it grow a little into memory that is left over.
func (d *database) judgeLocks(t lockTable) []Finding {
	k := lockTableFilling
	switch {
	case t.used >= t.capacity:
		k = lockTableFull
	case 2*t.used <= t.capacity:
		return nil
	}
	return []Finding{d.found(k, fmt.Sprintf("%d locks, room for %d (max_locks_per_transaction = %d)", t.used, t.capacity, t.perTransaction),
		"holder", fmt.Sprintf("process %d (%q) with %d", t.pid, t.application, t.of), "pid", fmt.Sprint(t.pid), "locks", fmt.Sprint(4*t.perTransaction))}
}
