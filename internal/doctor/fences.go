package doctor

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkFences compares fences with their history, in pages by the numbers of resources. It ends
// after Limits.Scan.
func checkFences(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	var entries int64
	// The estimate of the planner, or after the first writes one by size: an entry takes 100 bytes or more.
	if err := d.row(ctx, `select case when c.reltuples > 0 then c.reltuples::bigint else pg_relation_size(c.oid) / 100 end
		from pg_catalog.pg_class c where c.oid = '{schema}.history'::regclass`, nil, &entries); err != nil {
		return nil, err
	}
	scan := fenceScan{count: entries <= d.limits.CountEntries}
	err := scan.run(ctx, d)
	return scan.findings(d), err
}

// maxDeleted is how many resources without a fence are reported.
const maxDeleted = 100

// fencesPerPage is how many fences a statement compares.
const fencesPerPage = 10_000

// fenceScan is a comparison of all fences with their history.
type fenceScan struct {
	count bool // count the entries of each resource

	behind, missing, changed example
	deleted                  []string // names of resources that have a history and no fence
}

// example is a number of resources, and the names of a few.
type example struct {
	n     int64
	names []string
}

func (e *example) add(n int64, names []string) {
	e.n += n
	e.names = append(e.names, names...)
}

func (f *fenceScan) run(ctx context.Context, d *database) error {
	deadline := time.Now().Add(d.limits.Scan)
	var last int32 = math.MinInt32
	var done int64
	for {
		n, id, err := f.page(ctx, d, last)
		if err != nil {
			return fmt.Errorf("after %d fences: %w", done, err)
		}
		done += n
		if n < fencesPerPage {
			return f.behindTheLast(ctx, d)
		}
		if last = id; time.Now().After(deadline) {
			return fmt.Errorf("compared %d fences in %v, and there are more; fencectl audit verify compares all", done, d.limits.Scan)
		}
	}
}

// deletedQuery returns the name in the history of a number that no fence has; "" if its claims are pruned.
const deletedQuery = "coalesce((select name::text from {schema}.history c where c.resource = o.resource and c.kind = 'c' order by seq desc limit 1), '')"

// pageQuery compares with their history the fences after number $1, up to $2 of them, and counts the
// entries if $3. Most fences take two look-ups: of the last entry, and of the claim, which a fence repeats.
// Only numbers that no fence has are looked up in the history for deleted fences.
const pageQuery = `
	with page as materialized (
		select r.id, r.name::text as name, r.seq, r.claim_seq, coalesce(c.first, 1) as first, coalesce(h.last, 0) as last,
		       (r.hash, r.tx, r.claim_seq) is distinct from (h.hash, h.tx, h.claim) as moved, r.epoch, r.token, r.timeline, r.holder, r.claimed_at
		  from {schema}.resource r
		  left join lateral (select first from {schema}.checkpoint c where c.resource = r.id limit 1) c on true
		  left join lateral (select seq as last, hash, tx, claim from {schema}.history h where h.resource = r.id order by h.seq desc limit 1) h on true
		 where r.id > $1 order by r.id limit $2),
	gap as (select * from (select lag(id, 1, $1) over (order by id) as low, id as high from page) g where high > low + 1),
	orphan as (select h.resource from gap
	            cross join lateral (select resource from {schema}.history where resource > low and resource < high order by resource, seq limit 1) h)
	select count(*), coalesce(max(id), 0),
	       count(*) filter (where last > seq), (array_agg(name) filter (where last > seq))[1:3],
	       count(*) filter (where lost), (array_agg(name) filter (where lost))[1:3],
	       count(*) filter (where changed), (array_agg(name) filter (where changed))[1:3],
	       array(select ` + deletedQuery + ` from orphan o)
	  from page
	 cross join lateral (select seq > 0 and last <= seq and (
	                                last < seq
	                                or not exists (select from {schema}.history h where h.resource = page.id and h.seq = page.claim_seq)
	                                or first <> claim_seq and not exists (select from {schema}.history h where h.resource = page.id and h.seq = page.first)
	                                or $3 and seq - first + 1 <> (select count(*) from {schema}.history h where h.resource = page.id and h.seq between page.first and page.seq)) as lost,
	                            seq > 0 and last = seq and (moved or exists (
	                                select from {schema}.history h where h.resource = page.id and h.seq = page.claim_seq
	                                   and (h.epoch, h.token, h.timeline, h.holder, h.at) is distinct from (page.epoch, page.token, page.timeline, page.holder, page.claimed_at))) as changed
	                     offset 0) l`

// page compares the fences after number last, and returns how many those are and the last number. A
// fence and its history move together, so that one statement never sees them differ.
func (f *fenceScan) page(ctx context.Context, d *database, last int32) (n int64, id int32, err error) {
	var behind, missing, changed int64
	var behindNames, missingNames, changedNames, deleted []string
	err = d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local enable_seqscan = off"); err != nil { // also before the first ANALYZE
			return err
		}
		return tx.QueryRow(ctx, d.fill(pageQuery), last, fencesPerPage, f.count).Scan(&n, &id, &behind, &behindNames, &missing, &missingNames, &changed, &changedNames, &deleted)
	})
	f.behind.add(behind, behindNames)
	f.missing.add(missing, missingNames)
	f.changed.add(changed, changedNames)
	f.deleted = append(f.deleted, deleted...)
	return n, id, err
}

// behindTheLast looks for a history of a number above that of the last fence.
func (f *fenceScan) behindTheLast(ctx context.Context, d *database) error {
	deleted, err := d.names(ctx, "select "+deletedQuery+` from (
		select resource from {schema}.history where resource > (select coalesce(max(id), -2147483648) from {schema}.resource) order by resource, seq limit 1) o`)
	f.deleted = append(f.deleted, deleted...)
	return err
}

func (f *fenceScan) findings(d *database) (found []Finding) {
	for _, name := range f.deleted[:min(len(f.deleted), maxDeleted)] {
		if name != "" { // else it is pruned away, but for entries without their claim
			found = append(found, d.found(fenceDeleted, name+" has a history and no fence", "resource", ShellWord(name)))
		}
	}
	if f.behind.n > 0 {
		found = append(found, d.found(fenceBehindHistory, firstOf(f.behind.n, "fence", f.behind.names)))
	}
	if f.changed.n > 0 {
		found = append(found, d.found(fenceChanged, firstOf(f.changed.n, "fence", f.changed.names)))
	}
	if f.missing.n > 0 {
		found = append(found, d.found(historyMissing, "history of "+firstOf(f.missing.n, "resource", f.missing.names)))
	}
	return found
}
