package audit

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Head is where the history of a resource ended at some time: the position of its last entry,
// and the hash of that entry. Since each hash covers the one before, a head stands for all
// entries up to it.
type Head struct {
	Resource string
	Seq      int64
	Hash     [32]byte
}

// Heads returns the heads of all resources, in the order of their names, as the fences have
// them at one time: it is one statement, so no page of it can be older than another. It reads
// no history. A hash that isn't 32 bytes long, as only tampering leaves it, is read as zeros.
// After an error there is nothing more.
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

// Contradicting returns, of heads that were read earlier, those at whose position the history
// now has an entry with another hash: each with that hash, in no order. The history was
// rewritten, or is that of a database which went back and on from there. It says nothing about
// entries that are missing, as after pruning.
func (d *Database) Contradicting(ctx context.Context, known []Head) ([]Head, error) {
	var found []Head
	for some := range slices.Chunk(known, headsAtATime) {
		names, seqs, hashes := make([]string, len(some)), make([]int64, len(some)), make([][]byte, len(some))
		for i, h := range some {
			names[i], seqs[i], hashes[i] = h.Resource, h.Seq, h.Hash[:]
		}
		rows, err := d.pool.Query(ctx, `select k.name, k.seq, e.hash
			from unnest($1::text[], $2::bigint[], $3::bytea[]) as k (name, seq, hash)
			join `+d.schema+`.resource r on r.name = k.name collate "C"
			join `+d.schema+`.history e on e.resource = r.id and e.seq = k.seq
			where e.hash <> k.hash`, names, seqs, hashes)
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
