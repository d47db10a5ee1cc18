package audit

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/record"
)

// Head is the position and the hash of a resource's last entry at some time. It stands for all entries up to
// it.
type Head struct {
	Resource string
	Seq      int64
	Hash     [32]byte
}

// Heads returns the heads of all resources but those of queues, which are retired, in the order of their names, from
// one snapshot of the fences. A
// hash that isn't 32 bytes long, which only tampering causes, is returned as zeros. If reading fails, the last
// pair has the error.
func (d *Database) Heads(ctx context.Context) iter.Seq2[Head, error] {
	return func(yield func(Head, error) bool) {
		stopped := false
		err := record.ReadTx(ctx, d.pool, "", func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, d.tables.Replace("select r.name, r.seq, r.hash from @resource r where not "+ofQueue+" order by r.name"))
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() && !stopped {
				head, err := scanHead(rows)
				if err != nil {
					return err
				}
				stopped = !yield(head, nil)
			}
			return rows.Err()
		})
		if err != nil && !stopped {
			yield(Head{}, fmt.Errorf("audit: reading the fences: %w", err))
		}
	}
}

// ofQueue reports whether the fence r is of a resource that is retired once it isn't used any more.
const ofQueue = "exists (select from @queue q where starts_with(r.name, q.name || '/'))"

func scanHead(row pgx.CollectableRow, more ...any) (Head, error) {
	var h Head
	var hash []byte
	err := row.Scan(append([]any{&h.Resource, &h.Seq, &hash}, more...)...)
	if len(hash) == len(h.Hash) {
		h.Hash = [32]byte(hash)
	}
	return h, err
}

// CompareHeads compares known heads with the history, and returns those that it doesn't prove, in no particular
// order. Heads of resources without a fence are returned by neither.
//
// For a head in rewritten the history has an entry at the position with another hash, which is returned, or a
// prune's checkpoint directly after it says another: it was rewritten, or went back and moved on from there.
//
// For a head in unproven it has neither. A prune keeps what can be compared with a head that was the last one
// less than history_keep ago. Those of a queue's resources are there too, since these may have been retired.
func (d *Database) CompareHeads(ctx context.Context, known []Head) (rewritten, unproven []Head, err error) {
	for some := range slices.Chunk(known, headsAtATime) {
		names, seqs, hashes := make([]string, len(some)), make([]int64, len(some)), make([][]byte, len(some))
		for i, h := range some {
			names[i], seqs[i], hashes[i] = h.Resource, h.Seq, h.Hash[:]
		}
		// One statement, and so one snapshot: a prune may be running.
		const query = `select k.name, k.seq, coalesce(e.hash, k.hash), e.hash is null
			from unnest($1::text[], $2::bigint[], $3::bytea[]) as k (name, seq, hash)
			join @resource r on r.name = k.name collate "C"
			left join lateral (
				select x.hash from (
					select h.hash from @history h where h.resource = r.id and h.seq = k.seq
					union all
					select c.hash from @checkpoint c where c.resource = r.id and c.first - 1 = k.seq) x
				order by x.hash = k.hash limit 1) e on not ` + ofQueue + `
			where e.hash is distinct from k.hash`
		err := record.ReadTx(ctx, d.pool, "", func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, d.tables.Replace(query), names, seqs, hashes)
			if err != nil {
				return err
			}
			for rows.Next() {
				missing := false
				head, err := scanHead(rows, &missing)
				if err != nil {
					break // which closed rows, with err
				}
				if missing {
					unproven = append(unproven, head)
				} else {
					rewritten = append(rewritten, head)
				}
			}
			return rows.Err()
		})
		if err != nil {
			return nil, nil, fmt.Errorf("audit: comparing heads with the history: %w", err)
		}
	}
	return rewritten, unproven, nil
}

// headsAtATime bounds the arguments of one statement to about a megabyte.
const headsAtATime = 10_000
