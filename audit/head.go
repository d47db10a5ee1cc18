package audit

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Head is the position and the hash of a resource's last entry at some time. Since each hash
// covers the hash before it, a head stands for all entries up to it.
type Head struct {
	Resource string
	Seq      int64
	Hash     [32]byte
}

// Heads returns the heads of all resources, in the order of their names, as one statement reads
// them from the fences. It reads no history. A hash that isn't 32 bytes long, which only tampering
// causes, is returned as zeros. If reading fails, the last pair has the error.
func (d *Database) Heads(ctx context.Context) iter.Seq2[Head, error] {
	return func(yield func(Head, error) bool) {
		rows, err := d.pool.Query(ctx, "select name, seq, hash from "+d.schema+".resource order by name")
		if err != nil {
			yield(Head{}, fmt.Errorf("audit: reading the fences: %w", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			head, err := scanHead(rows)
			if err != nil {
				break // which closed rows, with err
			}
			if !yield(head, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Head{}, fmt.Errorf("audit: reading the fences: %w", err))
		}
	}
}

func scanHead(row pgx.CollectableRow) (Head, error) {
	var h Head
	var hash []byte
	err := row.Scan(&h.Resource, &h.Seq, &hash)
	if len(hash) == len(h.Hash) {
		h.Hash = [32]byte(hash)
	}
	return h, err
}

// Contradicting compares known heads with the history. For each head at whose position the history
// has an entry with another hash, or a prune's checkpoint says another hash, it returns the head
// with that other hash, in no particular order. Such a history was rewritten, or the database went
// back to an older state and moved on from there. Heads of which the history says neither, as when
// later entries were pruned too, are not returned.
func (d *Database) Contradicting(ctx context.Context, known []Head) ([]Head, error) {
	return d.compareHeads(ctx, known, `select k.name, k.seq, e.hash
		from unnest($1::text[], $2::bigint[], $3::bytea[]) as k (name, seq, hash)
		join `+d.schema+`.resource r on r.name = k.name collate "C"
		join lateral (
			select h.hash from `+d.schema+`.history h where h.resource = r.id and h.seq = k.seq and h.hash <> k.hash
			union all
			select c.hash from `+d.schema+`.checkpoint c where c.resource = r.id and c.first - 1 = k.seq and c.hash <> k.hash
			limit 1) e on true`)
}

// Unprovable returns the known heads of resources that the history says nothing about, in no
// particular order: it has no entry at the position, and no prune's checkpoint directly behind it.
// A prune keeps what can be compared with a head that was the last one less than history_keep ago.
func (d *Database) Unprovable(ctx context.Context, known []Head) ([]Head, error) {
	return d.compareHeads(ctx, known, `select k.name, k.seq, k.hash
		from unnest($1::text[], $2::bigint[], $3::bytea[]) as k (name, seq, hash)
		join `+d.schema+`.resource r on r.name = k.name collate "C"
		where not exists (select from `+d.schema+`.history h where h.resource = r.id and h.seq = k.seq)
		  and not exists (select from `+d.schema+`.checkpoint c where c.resource = r.id and c.first - 1 = k.seq)`)
}

// compareHeads returns what sql selects of known heads, which are its arguments.
func (d *Database) compareHeads(ctx context.Context, known []Head, sql string) ([]Head, error) {
	var found []Head
	for some := range slices.Chunk(known, headsAtATime) {
		names, seqs, hashes := make([]string, len(some)), make([]int64, len(some)), make([][]byte, len(some))
		for i, h := range some {
			names[i], seqs[i], hashes[i] = h.Resource, h.Seq, h.Hash[:]
		}
		rows, err := d.pool.Query(ctx, sql, names, seqs, hashes)
		if err == nil {
			found, err = pgx.AppendRows(found, rows, scanHead)
		}
		if err != nil {
			return nil, fmt.Errorf("audit: comparing heads with the history: %w", err)
		}
	}
	return found, nil
}

// headsAtATime bounds the arguments of one statement to about a megabyte.
const headsAtATime = 10_000
