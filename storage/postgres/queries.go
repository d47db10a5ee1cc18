package postgres

import (
	"fmt"
	"time"
)

// queries holds the statements of a Store, with its schema filled in.
type queries struct {
	claim, evict, resolve, record string
	head, seal                    string // formats, see beginSQL and sealSQL
	fence, entries, refusals      string
}

// beginRC begins a transaction at the level and mode that the protocol needs,
// whatever the defaults of database and role are.
const beginRC = "begin isolation level read committed read write"

func newQueries(c Config) queries {
	schema := schemaIdentifier(c.Schema)
	check := max(c.CheckInterval, 0)
	return queries{
		claim:   "select o_resource, o_seq, o_tx from " + schema + ".claim($1, $2, $3, $4, $5)",
		evict:   "select evicted, denied from " + schema + ".evict($1, $2, $3, $4)",
		resolve: "select " + schema + ".resolve($1, $2, $3, $4, $5, $6, $7, $8)",
		record:  "select " + schema + ".record_refusal($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		head: "select " + schema + ".head(%d, %d, %d, %d, " + fmt.Sprintf("%d, %d, %d, %d, %d)",
			ms(c.LockTimeout), ms(c.StatementTimeout), ms(c.IdleTimeout), ms(c.NetworkTimeout), ms(check)),
		seal: "call " + schema + ".seal(%d, %d, %d, '%x', %d, %d, %d, '%x')",
		fence: "select epoch, token, holder, seq, tx, claimed_at, extract(epoch from clock_timestamp() - claimed_at)::float8 from " +
			schema + ".resource where name = $1",
		entries: "select e.kind, e.epoch, e.token, e.holder, e.seq, e.tx, coalesce(e.ops, '[]')::text, e.at, e.hash from " +
			schema + ".event e join " + schema + ".resource r on r.id = e.resource where r.name = $1 and e.seq > $2 order by e.seq limit $3",
		refusals: "select reason, stage, epoch, token, holder, current_epoch, current_token, current_holder, current_since, count, first_at, last_at from " +
			schema + ".refusal where resource = $1 order by last_at desc, id desc limit $2",
	}
}

// ms rounds up, since the server takes 0 for no limit.
func ms(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
