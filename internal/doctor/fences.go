package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkFences compares fences with their history, in pages by the numbers of resources. It ends
// after Limits.Scan.
func checkFences(ctx context.Context, s *scene) ([]Finding, error) {
	d := s.db
	deleted, err := d.deletedFences(ctx)
	if err != nil {
		return deleted, err
	}
	var entries int64
	// The estimate of the planner, or after the first writes one by size: an entry takes 100 bytes or more.
	if err := d.row(ctx, `select case when c.reltuples > 0 then c.reltuples::bigint else pg_relation_size(c.oid) / 100 end
		from pg_catalog.pg_class c where c.oid = '{schema}.history'::regclass`, nil, &entries); err != nil {
		return deleted, err
	}
	scan := fenceScan{count: entries <= d.limits.CountEntries}
	err = scan.run(ctx, d)
	return append(deleted, scan.findings(d)...), err
}

// deletedFences finds numbers of resources that have a history and no fence. Only numbers that no
// fence has are looked up in the history.
func (d *database) deletedFences(ctx context.Context) (found []Finding, err error) {
	names, err := d.names(ctx, `
		with fence as (select id, lag(id, 1, -2147483648) over (order by id) as before from {schema}.resource),
		gap as (select before as low, id as high from fence where id > before + 1
		        union all
		        select coalesce(max(id), -2147483648), 2147483647 from fence),
		orphan as (select h.resource from gap
		           cross join lateral (select resource from {schema}.history where resource > low and (resource < high or high = 2147483647) order by resource, seq limit 1) h)
		select coalesce((select name::text from {schema}.history c where c.resource = o.resource and c.kind = 'c' order by seq desc limit 1), '') from orphan o
		 limit 100`)
	for _, name := range names {
		if name == "" { // pruned away, but for entries without their claim
			continue
		}
		found = append(found, d.found(fenceDeleted, name+" has a history and no fence", "resource", shellWord(name)))
	}
	return found, err
}

// fencesPerPage is how many fences a statement compares.
const fencesPerPage = 10_000

// fenceScan is a comparison of all fences with their history.
type fenceScan struct {
	count bool // count the entries of each resource

	behind, missing example
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
	var last, done int64 = -1 << 31, 0
	for {
		n, id, err := f.page(ctx, d, last)
		if err != nil {
			return fmt.Errorf("after %d fences: %w", done, err)
		}
		done += n
		if n < fencesPerPage {
			return nil
		}
		if last = id; time.Now().After(deadline) {
			return fmt.Errorf("compared %d fences in %v, and there are more; fencectl audit verify compares all", done, d.limits.Scan)
		}
	}
}

// page compares the fences after number last, and returns how many those are and the last number. A
// fence and its history move together, so that one statement never sees them differ.
func (f *fenceScan) page(ctx context.Context, d *database, last int64) (n, id int64, err error) {
	var behind, missing int64
	var behindNames, missingNames []string
	err = d.row(ctx, `
		with page as materialized (
			select r.id, r.name::text as name, r.seq, r.claim_seq, coalesce(c.first, 1) as first
			  from {schema}.resource r left join {schema}.checkpoint c on c.resource = r.id
			 where r.id > $1 order by r.id limit $2),
		seen as materialized (
			select page.*,
			       (select h.seq from {schema}.history h where h.resource = page.id order by h.seq desc limit 1) as last,
			       exists (select from {schema}.history h where h.resource = page.id and h.seq = page.seq)
			         and exists (select from {schema}.history h where h.resource = page.id and h.seq = page.claim_seq)
			         and exists (select from {schema}.history h where h.resource = page.id and h.seq = page.first) as ends,
			       case when $3 then (select count(*) from {schema}.history h where h.resource = page.id and h.seq between page.first and page.seq) end as entries
			  from page)
		select count(*), coalesce(max(id), 0),
		       count(*) filter (where last > seq), (array_agg(name) filter (where last > seq))[1:3],
		       count(*) filter (where lost), (array_agg(name) filter (where lost))[1:3]
		  from seen cross join lateral (select seq > 0 and (not ends or entries <> seq - first + 1) and coalesce(last, 0) <= seq as lost) l`,
		[]any{last, fencesPerPage, f.count}, &n, &id, &behind, &behindNames, &missing, &missingNames)
	f.behind.add(behind, behindNames)
	f.missing.add(missing, missingNames)
	return n, id, err
}

func (f *fenceScan) findings(d *database) (found []Finding) {
	if f.behind.n > 0 {
		found = append(found, d.found(fenceBehind, few(f.behind.n, "fence", f.behind.names)))
	}
	if f.missing.n > 0 {
		found = append(found, d.found(historyMissing, "history of "+few(f.missing.n, "resource", f.missing.names)))
	}
	return found
}

// checkRejections looks for holders that found the database in an older state.
func checkRejections(ctx context.Context, s *scene) ([]Finding, error) {
	d := s.db
	var n int64
	var names []string
	var last *time.Time
	err := d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, d.fill(`
			select count(distinct resource), (array_agg(distinct resource::text))[1:3], max(last_at)
			  from {schema}.rejection where reason = 'went back' and epoch >= (select max(epoch) from {schema}.setting)`)).Scan(&n, &names, &last)
	})
	if err != nil || n == 0 {
		return nil, err
	}
	return []Finding{d.found(databaseWentBack, fmt.Sprintf("holders of %s had seen more, last at %s", few(n, "resource", names), last.UTC().Format(time.RFC3339)),
		"resource", shellWord(names[0]), "reason", "'database went back'")}, nil
}
