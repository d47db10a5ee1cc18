package audit

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
)

// limits bound what one statement reads, so that each is short.
type limits struct {
	resources int   // that are looked up, or the spans in which entries may be
	entries   int64 // positions whose entries are read
	rows      int   // that are returned
	// worth is for how many positions an entry of the filter's times is looked up in the index on time.
	worth    int64
	together int // resources that Export and Verify read together, if they have few entries
}

var usualLimits = limits{resources: 10_000, entries: 50_000, rows: 1_000, worth: 10, together: 1_000}

type span struct {
	resource int32
	name     string
	from, to int64
}

func cut(spans []span, n int64) (first, rest []span) {
	for i, s := range spans {
		size := s.to - s.from + 1
		if size < n {
			n -= size
			continue
		}
		head := s
		head.to = s.from + n - 1
		first = append(spans[:i:i], head)
		if size == n {
			return first, spans[i+1:]
		}
		rest = slices.Clone(spans[i:])
		rest[0].from = head.to + 1
		return first, rest
	}
	return spans, nil
}

func following(spans []span, i int, position int64) []span {
	rest := slices.Clone(spans[i:])
	rest[0].from = position + 1
	return nonEmpty(rest)
}

func nonEmpty(spans []span) []span {
	return slices.DeleteFunc(spans, func(s span) bool { return s.from > s.to })
}

func positions(spans []span) (n int64) {
	for _, s := range spans {
		n += s.to - s.from + 1
	}
	return n
}

func arrays(spans []span) (ids []int32, froms, tos []int64) {
	for _, s := range spans {
		ids, froms, tos = append(ids, s.resource), append(froms, s.from), append(tos, s.to)
	}
	return ids, froms, tos
}

// spans finds where entries that match a filter can lie. They are in the order of the
// resources' names and of the positions, and cover each entry that matches.
type spans struct {
	*Database
	filter Filter
	after  Cursor // what comes up to it was found
	timely int64  // about how many entries of all resources are of the filter's times; 0 before it was asked
}

// next returns the next spans; none after the last.
func (s *spans) next(ctx context.Context) ([]span, error) {
	for {
		found, err := s.find(ctx)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		last := found[len(found)-1]
		s.after = Cursor{last.name, none} // what is written there from now on isn't read
		if len(found) == s.limits.resources && (s.filter.Holder != "" || s.filter.onlyClaims()) {
			s.after.Seq = last.to // the resource may have other spans
		}
		found = slices.DeleteFunc(found, func(s span) bool { return s.from == none })
		if s.filter.byTime() && len(found) > 0 {
			found, err = s.narrow(ctx, found)
		}
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
}

// none is where the span begins, and ends, of a resource that has no more.
const none = math.MaxInt64

// find returns the spans of some resources after s.after: the parts that are of the filter's grants, or their claims
// alone if nothing else matches.
func (s *spans) find(ctx context.Context) ([]span, error) {
	where := conditions{args: []any{s.after.Resource, s.after.Seq}}
	where.addResource(&s.filter, "name")
	resources := fmt.Sprintf(`
		select id, name, case when name = $1 then $2::bigint else 0 end as past from @resource
		 where name >= $1 and not (name = $1 and $2::bigint = %d) and %s
		 order by name limit %d`, none, where.where(), s.limits.resources)
	of := "select min(seq) as lo, max(seq) as hi from @history where resource = r.id and seq > past"
	if s.filter.Holder != "" || s.filter.onlyClaims() {
		end := `coalesce(
			(select n.seq - 1 from @history n where n.kind = 'c' and n.name = r.name and n.seq > c.seq order by n.seq limit 1),
			(select max(seq) from @history where resource = r.id))`
		if s.filter.onlyClaims() {
			end = "c.seq"
		}
		grants := conditions{args: where.args}
		grants.addGrant(&s.filter)
		where.args = grants.args
		// The first grant may have claimed before what is past.
		of = fmt.Sprintf(`
			select greatest(c.seq, past + 1) as lo, hi
			  from @history c cross join lateral (select %s as hi) e
			 where c.kind = 'c' and c.name = r.name and hi > past and %s
			   and c.seq >= coalesce((select p.seq from @history p
			                           where p.kind = 'c' and p.name = r.name and p.seq <= past + 1
			                           order by p.seq desc limit 1), past + 1)
			 order by c.seq limit %d`, end, grants.where(), s.limits.resources)
	}
	sql := fmt.Sprintf(`
		select id, name, coalesce(lo, %d), coalesce(hi, %[1]d) from (%s) r left join lateral (%s) s on true
		 order by name, lo limit %d`, none, resources, of, s.limits.resources)
	return collect(ctx, s.Database, sql, where.args, func(row pgx.CollectableRow) (found span, err error) {
		err = row.Scan(&found.resource, &found.name, &found.from, &found.to)
		return found, err
	})
}

// narrow returns the parts of spans that may have entries within the filter's times: for each
// resource, those from the first such entry to the last one, as the index on time tells. If the index would have
// to read more than there is in the spans, it returns them as they are.
func (s *spans) narrow(ctx context.Context, all []span) ([]span, error) {
	if s.timely == 0 {
		if err := s.estimate(ctx); err != nil {
			return nil, err
		}
	}
	if s.timely*s.limits.worth > positions(all) {
		return all, nil
	}
	ids, _, _ := arrays(all)
	where := conditions{}
	where.add("resource = any ($%d)", ids)
	where.addTimes(&s.filter, "at", "at")
	where.addTimeIndex(&s.filter)
	if len(all) == 1 {
		where.add("seq >= $%d", all[0].from)
		where.add("seq <= $%d", all[0].to)
	}
	bounds := map[int32]span{}
	_, err := collect(ctx, s.Database, "select resource, min(seq), max(seq) from @history where "+where.where()+" group by resource", where.args,
		func(row pgx.CollectableRow) (b span, err error) {
			err = row.Scan(&b.resource, &b.from, &b.to)
			bounds[b.resource] = b
			return b, err
		})
	var narrowed []span
	for _, one := range all {
		if b, ok := bounds[one.resource]; ok {
			one.from, one.to = max(one.from, b.from), min(one.to, b.to)
			narrowed = append(narrowed, one)
		}
	}
	return nonEmpty(narrowed), err
}

func (s *spans) estimate(ctx context.Context) error {
	where := conditions{}
	where.addTimeIndex(&s.filter)
	type plan struct {
		Plan struct {
			Rows int64 `json:"Plan Rows"`
		}
	}
	plans, err := collect(ctx, s.Database, "explain (format json) select from @history where "+where.where(), where.args, pgx.RowTo[[]plan])
	if err == nil {
		s.timely = max(plans[0][0].Plan.Rows, 1)
	}
	return err
}
